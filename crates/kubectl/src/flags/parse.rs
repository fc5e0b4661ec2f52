//! The parser: flags and arguments in any order, combined short flags, `--flag=value`, and `--`.

use std::num::{IntErrorKind, ParseIntError};
use std::ops::RangeInclusive;

use super::{Invocation, find, of};
use crate::Failure;
use crate::command::{Command, Flag, FlagKind};

/// The result of parsing a command line.
#[derive(Debug)]
pub enum Parsed {
    Run(Invocation),
    /// The help of the last command in the path.
    Help(Vec<&'static Command>),
    /// The first argument is not a command. It may be a plugin.
    Unknown {
        name: String,
        /// The index of the name in the command line.
        at: usize,
        /// The other arguments.
        args: Vec<String>,
    },
}

/// Parses the arguments after the program name.
pub fn parse(root: &'static Command, args: &[String]) -> Result<Parsed, Failure> {
    let mut rest = args.to_vec();
    let mut path = vec![root];
    while let Some(at) = first_argument(path[path.len() - 1], &rest) {
        match path[path.len() - 1].find(&rest[at]) {
            Some(command) => {
                rest.remove(at);
                path.push(command);
            }
            None if path.len() == 1 => {
                let name = rest.remove(at);
                return Ok(Parsed::Unknown { name, at, args: rest });
            }
            None => break,
        }
    }
    let command = path[path.len() - 1];
    let names: Vec<&'static str> = path.iter().map(|command| command.name).collect();
    let mut parser = Parser { command, args: Vec::new(), dash: None, values: Vec::new(), help: false };
    parser
        .run(&rest)
        .map_err(|message| Failure::new(format!("{message}\nSee '{} --help' for usage.", names.join(" "))))?;
    if parser.help {
        return Ok(Parsed::Help(path));
    }
    let Parser { args, dash, values, .. } = parser;
    Ok(Parsed::Run(Invocation { command, path: names, args, dash, values }))
}

/// Returns the index of the first argument that is neither a flag nor the value of one.
fn first_argument(command: &'static Command, args: &[String]) -> Option<usize> {
    let mut at = 0;
    while at < args.len() {
        let arg = args[at].as_str();
        let takes_next = if arg == "--" {
            return None;
        } else if let Some(long) = arg.strip_prefix("--") {
            !long.contains('=') && !is_help(long) && find(command, long).is_none_or(|flag| flag.without_value.is_none())
        } else if arg.len() > 1 && arg.starts_with('-') {
            let mut letters = arg[1..].chars();
            let first = letters.next().unwrap_or_default();
            let alone = letters.next().is_none();
            alone && first != 'h' && short(command, first).is_none_or(|flag| flag.without_value.is_none())
        } else {
            if arg.is_empty() {
                at += 1;
                continue;
            }
            return Some(at);
        };
        at += if takes_next { 2 } else { 1 };
    }
    None
}

struct Parser {
    command: &'static Command,
    args: Vec<String>,
    dash: Option<usize>,
    values: Vec<(&'static Flag, Vec<String>)>,
    help: bool,
}

impl Parser {
    fn run(&mut self, args: &[String]) -> Result<(), String> {
        let mut at = 0;
        while at < args.len() {
            let arg = args[at].as_str();
            at += 1;
            if arg == "--" {
                self.dash = Some(self.args.len());
                self.args.extend_from_slice(&args[at..]);
                break;
            } else if let Some(long) = arg.strip_prefix("--") {
                self.long(long, arg, args, &mut at)?;
            } else if arg.len() > 1 && arg.starts_with('-') {
                self.short(&arg[1..], args, &mut at)?;
            } else {
                self.args.push(arg.to_owned());
            }
            if self.help {
                break;
            }
        }
        Ok(())
    }

    fn long(&mut self, long: &str, whole: &str, args: &[String], at: &mut usize) -> Result<(), String> {
        if long.is_empty() || long.starts_with(['-', '=']) {
            return Err(format!("bad flag syntax: {whole}"));
        }
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (long, None),
        };
        // The parser of kubectl treats an underscore as a dash.
        let name = name.replace('_', "-");
        let Some(flag) = find(self.command, &name) else {
            if is_help(&name) {
                self.help = true;
                return Ok(());
            }
            return Err(format!("unknown flag: --{name}"));
        };
        let value = match (value, flag.without_value) {
            (Some(value), _) | (None, Some(value)) => value,
            (None, None) => {
                let next = args.get(*at).ok_or_else(|| format!("flag needs an argument: --{name}"))?;
                *at += 1;
                next
            }
        };
        self.set(flag, value)
    }

    fn short(&mut self, letters: &str, args: &[String], at: &mut usize) -> Result<(), String> {
        let mut rest = letters;
        while let Some(letter) = rest.chars().next() {
            let after = &rest[letter.len_utf8()..];
            let Some(flag) = short(self.command, letter) else {
                if letter == 'h' {
                    self.help = true;
                    return Ok(());
                }
                return Err(format!("unknown shorthand flag: {letter:?} in -{rest}"));
            };
            if let Some(value) = after.strip_prefix('=') {
                return self.set(flag, value);
            }
            if let Some(value) = flag.without_value {
                self.set(flag, value)?;
                rest = after;
                continue;
            }
            if !after.is_empty() {
                return self.set(flag, after);
            }
            let next = args.get(*at).ok_or_else(|| format!("flag needs an argument: {letter:?} in -{rest}"))?;
            *at += 1;
            return self.set(flag, next);
        }
        Ok(())
    }

    fn set(&mut self, flag: &'static Flag, value: &str) -> Result<(), String> {
        set(&mut self.values, flag, value)
    }
}

/// Sets a flag, or adds to the values of a repeatable one.
pub(super) fn set(all: &mut Vec<(&'static Flag, Vec<String>)>, flag: &'static Flag, value: &str) -> Result<(), String> {
    let mut values = read(flag, value).map_err(|problem| {
        let name = match flag.short {
            Some(short) => format!("-{short}, --{}", flag.name),
            None => format!("--{}", flag.name),
        };
        format!("invalid argument {} for {name:?} flag: {problem}", apimachinery::go::quote(value))
    })?;
    match all.iter_mut().find(|(have, _)| have.name == flag.name) {
        Some((_, have)) if matches!(flag.kind, FlagKind::List | FlagKind::Array) => have.append(&mut values),
        Some((_, have)) => *have = values,
        None => all.push((flag, values)),
    }
    Ok(())
}

/// Checks a value and splits a list.
fn read(flag: &Flag, value: &str) -> Result<Vec<String>, String> {
    let value_of = || vec![value.to_owned()];
    match flag.kind {
        FlagKind::Bool => boolean(value)
            .map(|_| value_of())
            .ok_or_else(|| format!("strconv.ParseBool: parsing {}: invalid syntax", apimachinery::go::quote(value))),
        FlagKind::Int => check_integer(value, i64::MIN..=i64::MAX).map(|()| value_of()),
        FlagKind::Int32 => check_integer(value, i32::MIN.into()..=i32::MAX.into()).map(|()| value_of()),
        FlagKind::Duration => duration(value).map(|_| value_of()),
        FlagKind::Text | FlagKind::Array => Ok(value_of()),
        FlagKind::List if value.is_empty() => Ok(Vec::new()),
        FlagKind::List => split_csv(value),
    }
}

/// Splits a line of comma-separated values, which may be quoted.
fn split_csv(line: &str) -> Result<Vec<String>, String> {
    let mut out = Vec::new();
    let mut rest = line;
    loop {
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut field = String::new();
            let mut chars = quoted.char_indices().peekable();
            let end = loop {
                match chars.next() {
                    Some((at, '"')) => match chars.peek() {
                        Some((_, '"')) => {
                            chars.next();
                            field.push('"');
                        }
                        _ => break at + 1,
                    },
                    Some((_, c)) => field.push(c),
                    None => {
                        return Err(
                            "parse error on line 1, column 1: extraneous or missing \" in quoted-field".to_owned()
                        );
                    }
                }
            };
            out.push(field);
            match quoted[end..].strip_prefix(',') {
                Some(more) => rest = more,
                None if quoted[end..].is_empty() => return Ok(out),
                None => {
                    return Err("parse error on line 1, column 1: extraneous or missing \" in quoted-field".to_owned());
                }
            }
            continue;
        }
        let (field, more) = rest.split_once(',').map_or((rest, None), |(field, more)| (field, Some(more)));
        if let Some(at) = field.find('"') {
            return Err(format!("parse error on line 1, column {}: bare \" in non-quoted-field", at + 1));
        }
        out.push(field.to_owned());
        match more {
            Some(more) => rest = more,
            None => return Ok(out),
        }
    }
}

fn short(command: &'static Command, letter: char) -> Option<&'static Flag> {
    of(command).find(|flag| flag.short == Some(letter))
}

fn is_help(name: &str) -> bool {
    name == "help"
}

/// Parses the forms of Go's `ParseBool`.
pub fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

fn check_integer(text: &str, range: RangeInclusive<i64>) -> Result<(), String> {
    let problem = match parse_integer(text) {
        Ok(value) if range.contains(&value) => return Ok(()),
        Ok(_) => "value out of range",
        Err(error) if matches!(error.kind(), IntErrorKind::PosOverflow | IntErrorKind::NegOverflow) => {
            "value out of range"
        }
        Err(_) => "invalid syntax",
    };
    Err(format!("strconv.ParseInt: parsing {}: {problem}", apimachinery::go::quote(text)))
}

/// Parses a decimal, hexadecimal, octal or binary integer.
pub(super) fn integer(text: &str) -> Option<i64> {
    parse_integer(text).ok()
}

fn parse_integer(text: &str) -> Result<i64, ParseIntError> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    // A second sign is wrong. The prefix makes the parser reject it too.
    let digits = if digits.starts_with(['+', '-']) { "" } else { digits };
    i64::from_str_radix(&format!("{sign}{digits}"), radix)
}

/// Parses a duration like Go's `ParseDuration` into nanoseconds.
pub fn duration(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {}", apimachinery::go::quote(text));
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total = 0f64;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        let number: f64 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let unit = rest.bytes().take_while(|byte| !byte.is_ascii_digit() && *byte != b'.').count();
        let nanos = match &rest[..unit] {
            "" => return Err(format!("time: missing unit in duration {}", apimachinery::go::quote(text))),
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            other => {
                let unit = apimachinery::go::quote(other);
                return Err(format!("time: unknown unit {unit} in duration {}", apimachinery::go::quote(text)));
            }
        };
        total += number * nanos;
        rest = &rest[unit..];
    }
    if total > i64::MAX as f64 {
        return Err(invalid());
    }
    Ok(if negative { -(total as i64) } else { total as i64 })
}

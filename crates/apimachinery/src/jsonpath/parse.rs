//! JSONPath parser.

use super::{Operator, ParseError, Slice, Step};
use crate::{Str, Value};

/// Maximum length of a path in bytes: longer than any path in use; bounds the parsing work.
const TEXT_BYTES_MAX: usize = 4096;
/// Maximum nesting depth of filters and unions.
const DEPTH_MAX: usize = 8;

pub(super) fn parse(text: &str) -> Result<Vec<Step>, ParseError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(ParseError::TooLong);
    }
    steps(text, 0)
}

fn steps(mut rest: &str, depth: usize) -> Result<Vec<Step>, ParseError> {
    if depth > DEPTH_MAX {
        return Err(ParseError::TooLong);
    }
    let mut steps = Vec::new();
    while let Some(c) = rest.chars().next() {
        if let Some(filter) = rest.strip_prefix("[?(") {
            let (step, after) = filter_step(filter, depth)?;
            steps.push(step);
            rest = after;
        } else if let Some(after) = rest.strip_prefix("..") {
            if steps.last() == Some(&Step::Recursive) {
                return Err(ParseError::Recursive);
            }
            steps.push(Step::Recursive);
            rest = after;
            if rest.starts_with(is_word) {
                let (step, after) = field(rest);
                steps.push(step);
                rest = after;
            }
        } else {
            rest = step(c, rest, depth, &mut steps)?;
        }
    }
    Ok(steps)
}

fn step<'a>(first: char, text: &'a str, depth: usize, steps: &mut Vec<Step>) -> Result<&'a str, ParseError> {
    let rest = &text[first.len_utf8()..];
    match first {
        ' ' | '@' | '$' => Ok(rest),
        '.' => {
            let (step, after) = field(rest);
            steps.push(step);
            Ok(after)
        }
        '[' => {
            let (inside, after) = rest.split_once(']').ok_or(ParseError::Unterminated("array"))?;
            brackets(inside, depth, steps)?;
            Ok(after)
        }
        '"' | '\'' => {
            let (literal, after) = quoted(first, rest)?;
            steps.push(Step::Literal(Value::String(literal)));
            Ok(after)
        }
        '+' | '-' | '0'..='9' => {
            let end = rest.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(rest.len());
            let (number, after) = text.split_at(first.len_utf8() + end);
            let value = number.parse().map(Value::Int);
            let value = value.or_else(|_| number.parse().map(Value::Float));
            steps.push(Step::Literal(value.map_err(|_| ParseError::Number(number.to_owned()))?));
            Ok(after)
        }
        _ if is_word(first) => {
            let (word, after) = text.split_at(text.find(is_terminator).unwrap_or(text.len()));
            let value = word.parse().map_err(|_| ParseError::Identifier(word.to_owned()))?;
            steps.push(Step::Literal(Value::Bool(value)));
            Ok(after)
        }
        _ => Err(ParseError::Character(first)),
    }
}

/// Parses a field name up to a character that cannot belong to one, unless that is escaped with a backslash.
fn field(text: &str) -> (Step, &str) {
    let mut name = Str::default();
    let mut escaped = false;
    let mut end = text.len();
    for (at, c) in text.char_indices() {
        match c {
            '\\' if !escaped => {
                escaped = true;
                continue;
            }
            _ if !escaped && is_terminator(c) => {
                end = at;
                break;
            }
            '\\' => {}
            _ => name.push(c),
        }
        escaped = false;
    }
    let step = if &text[..end] == "*" { Step::Wildcard } else { Step::Field(name) };
    (step, &text[end..])
}

fn brackets(inside: &str, depth: usize, steps: &mut Vec<Step>) -> Result<(), ParseError> {
    if inside.contains(',') {
        if depth >= DEPTH_MAX {
            return Err(ParseError::TooLong);
        }
        let mut paths = Vec::new();
        for one in inside.split(',') {
            let mut path = Vec::new();
            brackets(one.trim_matches(' '), depth + 1, &mut path)?;
            paths.push(path);
        }
        steps.push(Step::Union(paths));
        return Ok(());
    }
    let key = inside.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    match key.filter(|key| !key.contains('\'')) {
        Some(key) => steps.extend(self::steps(&format!(".{key}"), depth + 1)?),
        None => steps.push(Step::Slice(slice(inside)?)),
    }
    Ok(())
}

fn slice(text: &str) -> Result<Slice, ParseError> {
    let invalid = || ParseError::Index(text.to_owned());
    let text = if text == "*" { ":" } else { text };
    let parts: Vec<_> = text.split(':').collect();
    let number = |part: &str| match part {
        "" => Ok(None),
        _ if part.starts_with('+') => Err(invalid()),
        _ => part.parse::<i64>().map(Some).map_err(|_| invalid()),
    };
    match parts.as_slice() {
        [index] => {
            let start = number(index)?.unwrap_or(0);
            Ok(Slice { start, end: Some(start.saturating_add(1)), single: true, step: 1 })
        }
        [start, end] => Ok(Slice { start: number(start)?.unwrap_or(0), end: number(end)?, single: false, step: 1 }),
        [start, end, step] => Ok(Slice {
            start: number(start)?.unwrap_or(0),
            end: number(end)?,
            single: false,
            step: number(step)?.unwrap_or(1),
        }),
        _ => Err(invalid()),
    }
}

/// Parses the text after `[?(`: a comparison or a path, then `)]`. A parenthesis inside quotes does not end it.
fn filter_step(text: &str, depth: usize) -> Result<(Step, &str), ParseError> {
    let mut quote = None;
    let mut before = ' ';
    let mut end = None;
    for (at, c) in text.char_indices() {
        match (c, quote) {
            ('"' | '\'', None) => quote = Some(c),
            (_, Some(open)) if c == open && before != '\\' => quote = None,
            (')', None) => {
                end = Some(at);
                break;
            }
            _ => {}
        }
        before = c;
    }
    let (inside, after) = text.split_at(end.ok_or(ParseError::Unterminated("filter"))?);
    let after = after.strip_prefix(")]").ok_or(ParseError::Unterminated("filter"))?;
    let is_operator = |c: char| "!<>=".contains(c);
    let compared = inside.find(is_operator).filter(|at| *at > 0).map(|at| inside.split_at(at));
    let Some((left, right)) = compared else { return Ok((Step::Exists(steps(inside, depth + 1)?), after)) };
    let (operator, right) = right.split_at(right.find(|c| !is_operator(c)).unwrap_or(right.len()));
    let operator = match operator {
        "<" => Operator::Less,
        "<=" => Operator::LessOrEqual,
        "==" => Operator::Equal,
        "!=" => Operator::NotEqual,
        ">=" => Operator::GreaterOrEqual,
        ">" => Operator::Greater,
        _ => return Err(ParseError::Operator(operator.to_owned())),
    };
    Ok((Step::Filter { left: steps(left, depth + 1)?, operator, right: steps(right, depth + 1)? }, after))
}

/// Parses the text after an opening quote up to the closing one.
fn quoted(quote: char, text: &str) -> Result<(Str, &str), ParseError> {
    let mut out = Str::default();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            _ if c == quote => return Ok((out, &text[at + 1..])),
            '\\' => match chars.next() {
                Some((_, 'n')) => out.push('\n'),
                Some((_, 't')) => out.push('\t'),
                Some((_, c)) => out.push(c),
                None => break,
            },
            _ => out.push(c),
        }
    }
    Err(ParseError::Unterminated("quoted string"))
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn is_terminator(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

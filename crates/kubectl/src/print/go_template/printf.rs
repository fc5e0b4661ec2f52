//! Go's `fmt`: `print`, `println` and `printf`.

use apimachinery::{Value, go};

use super::value::{Datum, Kind};

/// Formats the result of an action.
pub(super) fn action(value: &Datum<'_>) -> String {
    if value.is_absent() { "<no value>".to_owned() } else { sprint(value) }
}

/// Formats a value like `%v`.
pub(super) fn sprint(value: &Datum<'_>) -> String {
    Spec::new('v').format(value)
}

/// Formats a value like `%s`.
pub(super) fn verb_s(value: &Datum<'_>) -> String {
    Spec::new('s').format(value)
}

/// Formats values; there is a space between two that are not texts.
pub(super) fn print(values: &[Datum<'_>]) -> String {
    let is_text = |value: &Datum<'_>| matches!(value.kind, Kind::Text(_));
    let mut out = String::new();
    for (at, value) in values.iter().enumerate() {
        if at > 0 && !is_text(value) && !is_text(&values[at - 1]) {
            out.push(' ');
        }
        out.push_str(&sprint(value));
    }
    out
}

pub(super) fn println(values: &[Datum<'_>]) -> String {
    format!("{}\n", values.iter().map(sprint).collect::<Vec<_>>().join(" "))
}

/// Formats the arguments of `html`, `js` and `urlquery`.
pub(super) fn escaped_text(values: &[Datum<'_>]) -> String {
    let formatted: Vec<_> =
        values.iter().map(|value| if value.is_nil() { Datum::text("<no value>") } else { value.clone() }).collect();
    print(&formatted)
}

/// Formats values with a format string.
// DEVIATION: explicit argument indexes, `%[1]d`, are not supported.
pub(super) fn printf(format: &str, values: &[Datum<'_>]) -> String {
    let mut out = String::with_capacity(format.len());
    let mut values = values.iter();
    let mut rest = format.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut spec = Spec::new('v');
        while let Some(flag) = rest.next_if(|c| matches!(c, '+' | '-' | '#' | ' ' | '0')) {
            match flag {
                '+' => spec.plus = true,
                '-' => spec.minus = true,
                '#' => spec.sharp = true,
                ' ' => spec.space = true,
                _ => spec.zero = true,
            }
        }
        let mut size = |rest: &mut std::iter::Peekable<std::str::Chars<'_>>, bad: &str, out: &mut String| {
            if rest.next_if_eq(&'*').is_some() {
                let size = values.next().and_then(Datum::as_int);
                if size.is_none() {
                    out.push_str(bad);
                }
                return size;
            }
            let mut number = None;
            while let Some(digit) = rest.peek().and_then(|c| c.to_digit(10)) {
                rest.next();
                number = Some((number.unwrap_or(0) * 10 + i64::from(digit)).min(SIZE_MAX));
            }
            number
        };
        if let Some(width) = size(&mut rest, "%!(BADWIDTH)", &mut out) {
            spec.minus |= width < 0;
            spec.width = Some(width.unsigned_abs().min(SIZE_MAX.unsigned_abs()) as usize);
        }
        if rest.next_if_eq(&'.').is_some() {
            let precision = size(&mut rest, "%!(BADPREC)", &mut out).unwrap_or(0);
            spec.precision = usize::try_from(precision.min(SIZE_MAX)).ok();
        }
        let Some(verb) = rest.next() else {
            out.push_str("%!(NOVERB)");
            break;
        };
        spec.verb = verb;
        match values.as_slice() {
            _ if verb == '%' => out.push('%'),
            [] => out.push_str(&format!("%!{verb}(MISSING)")),
            [value, ..] => {
                out.push_str(&spec.format(value));
                values.next();
            }
        }
    }
    push_extra(values.as_slice(), &mut out);
    out
}

/// The largest width and precision.
const SIZE_MAX: i64 = 1_000_000;

/// Reports arguments without a verb.
fn push_extra(values: &[Datum<'_>], out: &mut String) {
    if values.is_empty() {
        return;
    }
    let formatted = values.iter().map(|value| match value.kind {
        Kind::Absent | Kind::Nil => "<nil>".to_owned(),
        _ => format!("{}={}", value.type_name(), sprint(value)),
    });
    out.push_str(&format!("%!(EXTRA {})", formatted.collect::<Vec<_>>().join(", ")));
}

/// A verb with its flags.
#[derive(Clone, Copy, Debug)]
struct Spec {
    verb: char,
    plus: bool,
    minus: bool,
    sharp: bool,
    space: bool,
    zero: bool,
    width: Option<usize>,
    precision: Option<usize>,
}

impl Spec {
    const fn new(verb: char) -> Self {
        let (plus, minus, sharp, space, zero) = (false, false, false, false, false);
        Self { verb, plus, minus, sharp, space, zero, width: None, precision: None }
    }

    fn format(self, value: &Datum<'_>) -> String {
        if self.verb == 'T' {
            return self.pad(value.type_name());
        }
        match &value.kind {
            Kind::Absent | Kind::Nil if self.verb == 'v' => self.pad("<nil>"),
            Kind::Absent | Kind::Nil => format!("%!{}(<nil>)", self.verb),
            Kind::Bool(bool) if matches!(self.verb, 'v' | 't') => self.pad(&bool.to_string()),
            Kind::Int(int) | Kind::Int64(int) => self.integer(*int).unwrap_or_else(|| self.bad(value)),
            Kind::Byte(byte) => self.integer((*byte).into()).unwrap_or_else(|| self.bad(value)),
            Kind::Float(float) => self.float(*float).unwrap_or_else(|| self.bad(value)),
            Kind::Text(text) => self.text(text).unwrap_or_else(|| self.bad(value)),
            Kind::List(items) => self.list(items),
            Kind::Map(object) => {
                let entries = object
                    .iter()
                    .map(|(key, value)| format!("{}:{}", self.format(&Datum::text(key)), self.entry(value)));
                let entries: Vec<_> = entries.collect();
                match self.sharp && self.verb == 'v' {
                    true => format!("map[string]interface {{}}{{{}}}", entries.join(", ")),
                    false => format!("map[{}]", entries.join(" ")),
                }
            }
            Kind::Bool(_) => self.bad(value),
        }
    }

    fn list(self, items: &[Value]) -> String {
        let items: Vec<_> = items.iter().map(|item| self.entry(item)).collect();
        match self.sharp && self.verb == 'v' {
            true => format!("[]interface {{}}{{{}}}", items.join(", ")),
            false => format!("[{}]", items.join(" ")),
        }
    }

    /// Formats an entry of a map or list; `null` fits any verb there.
    fn entry(self, value: &Value) -> String {
        match value {
            Value::Null if self.sharp && self.verb == 'v' => "interface {}(nil)".to_owned(),
            Value::Null => "<nil>".to_owned(),
            _ => self.format(&Datum::of(value)),
        }
    }

    /// Reports a verb that does not fit the value's type.
    fn bad(self, value: &Datum<'_>) -> String {
        format!("%!{}({}={})", self.verb, value.type_name(), sprint(value))
    }

    fn pad(self, text: &str) -> String {
        let missing = self.width.unwrap_or(0).saturating_sub(text.chars().count());
        let spaces = " ".repeat(missing);
        match () {
            () if self.minus => format!("{text}{spaces}"),
            () if self.zero && !self.minus => format!("{}{text}", "0".repeat(missing)),
            () => format!("{spaces}{text}"),
        }
    }

    /// Pads a number; zeros come after the sign.
    fn pad_number(self, negative: bool, digits: &str) -> String {
        let sign = match () {
            () if negative => "-",
            () if self.plus => "+",
            () if self.space => " ",
            () => "",
        };
        if self.zero && !self.minus && self.precision.is_none_or(|_| !matches!(self.verb, 'd' | 'x' | 'X' | 'o' | 'b'))
        {
            let width = self.width.unwrap_or(0).saturating_sub(sign.len());
            return format!("{sign}{digits:0>width$}");
        }
        Self { zero: false, ..self }.pad(&format!("{sign}{digits}"))
    }

    fn integer(self, int: i64) -> Option<String> {
        let size = int.unsigned_abs();
        let digits = match self.verb {
            'v' | 'd' => size.to_string(),
            'b' => format!("{size:b}"),
            'o' if self.sharp => format!("0{size:o}"),
            'o' => format!("{size:o}"),
            'O' => format!("0o{size:o}"),
            'x' if self.sharp => format!("0x{size:x}"),
            'x' => format!("{size:x}"),
            'X' if self.sharp => format!("0X{size:X}"),
            'X' => format!("{size:X}"),
            'c' | 'q' | 'U' => return Some(self.pad(&self.character(int))),
            _ => return None,
        };
        let digits = self.precision.map_or(digits.clone(), |precision| format!("{digits:0>precision$}"));
        Some(self.pad_number(int < 0, &digits))
    }

    fn character(self, int: i64) -> String {
        let char = u32::try_from(int).ok().and_then(char::from_u32).unwrap_or('\u{fffd}');
        match self.verb {
            'c' => char.to_string(),
            'q' if char == '\'' => r"'\''".to_owned(),
            'q' if char == '"' => "'\"'".to_owned(),
            'q' => {
                let quoted = go::quote(&char.to_string());
                format!("'{}'", &quoted[1..quoted.len() - 1])
            }
            _ => format!("U+{int:04X}"),
        }
    }

    fn float(self, float: f64) -> Option<String> {
        let size = float.abs();
        let digits = match self.verb {
            'v' => go::float(size),
            'g' | 'G' => match self.precision {
                None => go::float(size),
                Some(precision) => significant(size, precision.max(1)),
            },
            'f' | 'F' => format!("{size:.*}", self.precision.unwrap_or(6)),
            'e' | 'E' => exponent(&format!("{size:.*e}", self.precision.unwrap_or(6))),
            _ => return None,
        };
        let digits = if self.verb.is_ascii_uppercase() { digits.to_uppercase() } else { digits };
        Some(self.pad_number(float.is_sign_negative(), &digits))
    }

    fn text(self, text: &str) -> Option<String> {
        let cut: String = text.chars().take(self.precision.unwrap_or(usize::MAX)).collect();
        let hex = |upper: bool| {
            let bytes = text.bytes().take(self.precision.unwrap_or(usize::MAX));
            let bytes: Vec<_> =
                bytes.map(|byte| if upper { format!("{byte:02X}") } else { format!("{byte:02x}") }).collect();
            let prefix = match (self.sharp, upper) {
                (false, _) => "",
                (true, false) => "0x",
                (true, true) => "0X",
            };
            if self.space && !bytes.is_empty() {
                format!("{prefix}{}", bytes.join(&format!(" {prefix}")))
            } else {
                format!("{prefix}{}", bytes.concat())
            }
        };
        Some(match self.verb {
            'v' if self.sharp => self.pad(&go::quote(text)),
            'v' | 's' => self.pad(&cut),
            'q' if self.sharp
                && !text.contains(['`', '\r'])
                && cut.chars().all(|c| c == '\t' || go::is_printable(c)) =>
            {
                self.pad(&format!("`{cut}`"))
            }
            'q' => self.pad(&go::quote(&cut)),
            'x' => self.pad(&hex(false)),
            'X' => self.pad(&hex(true)),
            _ => return None,
        })
    }
}

/// Formats like `%.Ng`: significant digits without trailing zeros.
fn significant(float: f64, precision: usize) -> String {
    let scientific = format!("{float:.*e}", precision - 1);
    let (digits, power) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    let precision = i32::try_from(precision).unwrap_or(i32::MAX);
    if power < -4 || power >= precision {
        return exponent(&format!("{}e{power}", trim(digits)));
    }
    trim(&format!("{float:.*}", usize::try_from(precision - 1 - power).unwrap_or(0)))
}

/// Gives an exponent a sign and at least two digits.
fn exponent(scientific: &str) -> String {
    let (digits, power) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let (sign, power) = power.strip_prefix('-').map_or(('+', power), |power| ('-', power));
    format!("{digits}e{sign}{power:0>2}")
}

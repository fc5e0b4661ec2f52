//! JSON parser and writer with the rules of Kubernetes' decoder: integers stay integers, duplicate keys are reported,
//! floats are printed as in Go.

mod go_order;
mod parse;
mod raw;
mod write;

use std::borrow::Cow;
use std::fmt;
use std::io;

use serde::{Serialize, Serializer};

pub use go_order::{Encoder, Kinds, indent};
use parse::{Parser, Visitor};
pub use raw::{RawEntries, RawEntry};

use crate::field_validation::{duplicate, unknown};
use crate::{Object, Path, Value, go};

/// Bytes are not valid JSON; the messages are those of Go's decoder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("unexpected end of JSON input")]
    End,
    #[error("invalid character {} {position}", quoted(*.char))]
    Character {
        char: char,
        /// The position in the grammar, as worded in Go's messages.
        position: String,
        /// The position in bytes.
        offset: usize,
    },
    /// A number exceeds the range of a float.
    #[error("cannot unmarshal number {0} into Go value of type float64")]
    Range(String),
    /// Lists and objects are nested more than 127 levels deep.
    #[error("exceeded max depth")]
    Depth,
}

/// Parses exactly one value. The last value of a duplicate key counts; invalid UTF-8 becomes U+FFFD.
///
/// Nesting is limited to 127 levels, so that no walk over a tree can exhaust the stack.
// DEVIATION: upstream's decoder accepts 10,000 levels; no built-in type nests beyond 40.
pub fn parse(json: &[u8]) -> Result<Value, Error> {
    parse_strict(json).map(|(value, _)| value)
}

/// Parses exactly one value, and returns the path of each duplicate key.
pub fn parse_strict(json: &[u8]) -> Result<(Value, Vec<String>), Error> {
    let text = text(json);
    let mut parser = Parser::new(&text);
    let value = parser.next()?.ok_or(Error::End)?;
    Ok((value, parser.end()?))
}

/// Returns the messages of a strict decoder for a text that was parsed before, in text order: fields in `unknown`,
/// whose values are skipped, and duplicate keys. Each is reported once, at most a hundred in all.
pub fn findings(json: &[u8], unknown: &[String]) -> Vec<String> {
    let text = text(json);
    let mut findings = Findings { unknown, messages: Vec::new() };
    // Invalid JSON was rejected before this call.
    drop(Parser::new(&text).visit(&Path::ROOT, &mut findings));
    findings.messages
}

/// Parses any number of consecutive values.
pub fn parse_all(json: &[u8]) -> Result<Vec<Value>, Error> {
    let text = text(json);
    let mut parser = Parser::new(&text);
    let mut values = Vec::new();
    while let Some(value) = parser.next()? {
        values.push(value);
    }
    Ok(values)
}

/// Returns the bytes as text. Checking for valid UTF-8 first is much faster than the lossy conversion.
fn text(json: &[u8]) -> Cow<'_, str> {
    str::from_utf8(json).map_or_else(|_| String::from_utf8_lossy(json), Cow::Borrowed)
}

/// Serializes a value on one line.
pub fn to_vec(value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    write::value(value, &mut out);
    out
}

/// Serializes a value on one line.
pub fn to_string(value: &Value) -> String {
    String::from_utf8(to_vec(value)).expect("JSON of a tree of strings is UTF-8")
}

/// Serializes a value with one entry per line, indented by four spaces as in kubectl.
pub fn to_string_pretty(value: &Value) -> String {
    let mut out = Vec::with_capacity(256);
    let layout = Pretty(serde_json::ser::PrettyFormatter::with_indent(b"    "));
    let mut pretty = serde_json::Serializer::with_formatter(&mut out, layout);
    value.serialize(&mut pretty).expect("writing to memory cannot fail");
    String::from_utf8(out).expect("JSON of a tree of strings is UTF-8")
}

/// Formats a float like Go's JSON encoder: the shortest digits that round-trip, an exponent only for very small and
/// very large numbers, no trailing `.0`.
pub fn format_float(float: f64) -> impl fmt::Display {
    struct Shortest(f64);
    impl fmt::Display for Shortest {
        fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            let size = self.0.abs();
            if size == 0.0 || (1e-6..1e21).contains(&size) {
                write!(out, "{}", self.0)
            } else if size < 1.0 {
                write!(out, "{:e}", self.0)
            } else {
                let digits = format!("{:e}", self.0);
                out.write_str(&digits.replace('e', "e+"))
            }
        }
    }
    Shortest(float)
}

/// Returns the value of a float after Go has printed and parsed it; a whole number becomes an integer. Returns [`None`]
/// for numbers that JSON cannot represent.
pub fn number(float: f64) -> Option<Value> {
    /// 2^63: whole numbers from here on do not fit a 64-bit integer.
    const END: f64 = 9_223_372_036_854_775_808.0;
    let negative_zero = float == 0.0 && float.is_sign_negative();
    let whole = float.fract() == 0.0 && (-END..END).contains(&float) && !negative_zero;
    float.is_finite().then_some(if whole { Value::Int(float as i64) } else { Value::Float(float) })
}

struct Pretty(serde_json::ser::PrettyFormatter<'static>);

macro_rules! delegate {
    ($($name:ident($($arg:ident: $ty:ty),*)),* $(,)?) => {
        $(fn $name<W: ?Sized + io::Write>(&mut self, writer: &mut W $(, $arg: $ty)*) -> io::Result<()> {
            self.0.$name(writer $(, $arg)*)
        })*
    };
}

impl serde_json::ser::Formatter for Pretty {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        write!(writer, "{}", format_float(value))
    }

    delegate! {
        begin_array(), end_array(), begin_array_value(first: bool), end_array_value(),
        begin_object(), end_object(), begin_object_key(first: bool), begin_object_value(), end_object_value(),
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => out.serialize_unit(),
            Self::Bool(b) => out.serialize_bool(*b),
            Self::Int(i) => out.serialize_i64(*i),
            Self::Float(f) => out.serialize_f64(*f),
            Self::String(s) => out.serialize_str(s),
            Self::Array(items) => out.collect_seq(items),
            Self::Object(object) => object.serialize(out),
        }
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_map(self.iter())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&to_string(self))
    }
}

struct Findings<'u> {
    unknown: &'u [String],
    messages: Vec<String>,
}

impl Findings<'_> {
    /// The limit of upstream's decoder.
    const MAX: usize = 100;

    fn add(&mut self, finding: String) {
        if self.messages.len() < Self::MAX && !self.messages.contains(&finding) {
            self.messages.push(finding);
        }
    }
}

impl Visitor for Findings<'_> {
    fn enters(&mut self, path: &Path<'_>, again: bool) -> bool {
        let path_text = path.to_string();
        let known = !self.unknown.contains(&path_text);
        match (known, again) {
            (false, _) => self.add(unknown(path_text)),
            (true, true) => self.add(duplicate(path_text)),
            (true, false) => {}
        }
        known
    }
}

/// Quotes a character like Go's decoder.
fn quoted(char: char) -> String {
    match char {
        '\'' => r"'\''".to_owned(),
        '"' => "'\"'".to_owned(),
        other => {
            let literal = go::quote(other.encode_utf8(&mut [0; 4]));
            format!("'{}'", &literal[1..literal.len() - 1])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    #[test]
    fn json_round_trips() {
        let text = r#"{"a":[1,-2,1.5,true,null,"x\n\"é"],"b":{}}"#;
        assert_eq!(to_string(&parse(text.as_bytes()).unwrap()), text);
    }

    #[test]
    fn numbers_are_integers_if_they_fit_and_floats_otherwise() {
        let check = |json: &str, value: Value| assert_eq!(parse(json.as_bytes()).unwrap(), value, "{json}");
        check("9223372036854775807", Value::Int(i64::MAX));
        check("9223372036854775808", Value::Float(9_223_372_036_854_775_808.0));
        check("-9223372036854775808", Value::Int(i64::MIN));
        check("1.0", Value::Float(1.0));
        check("1e3", Value::Float(1000.0));
        // The result is the nearest float, as in Go, not an adjacent one.
        check(&"9".repeat(95), Value::Float(1e95));
    }

    #[test]
    fn floats_are_formatted_like_go() {
        let check = |float: f64, text: &str| assert_eq!(format_float(float).to_string(), text);
        check(1.0, "1");
        check(0.1, "0.1");
        check(-0.0, "-0");
        check(1e20, "100000000000000000000");
        check(1e21, "1e+21");
        check(1.5e300, "1.5e+300");
        check(0.000_001, "0.000001");
        check(1.5e-7, "1.5e-7");
    }

    #[test]
    fn duplicate_keys_are_reported_with_their_path() {
        let (value, repeated) = parse_strict(br#"{"a":[{"b":1,"b":2}],"c":1,"c":3}"#).unwrap();
        assert_eq!(value, value!({"a": [{"b": 2}], "c": 3}));
        assert_eq!(repeated, ["a[0].b", "c"]);
    }

    #[test]
    fn findings_are_in_text_order() {
        let check = |json: &str, unknown: &[&str], expect: &[&str]| {
            let unknown: Vec<String> = unknown.iter().map(|path| (*path).to_owned()).collect();
            assert_eq!(findings(json.as_bytes(), &unknown), expect, "{json}");
        };
        let mixed = r#"{"spec":{"zz":1,"replicas":1,"replicas":2,"aa":[{"b":1,"b":2}]},"meta":1}"#;
        check(
            mixed,
            &["meta", "spec.aa", "spec.zz"],
            &[
                r#"unknown field "spec.zz""#,
                r#"duplicate field "spec.replicas""#,
                r#"unknown field "spec.aa""#,
                r#"unknown field "meta""#,
            ],
        );
        check(
            r#"{"x":1,"x":2,"l":[{"a":1,"a":2,"a":3}]}"#,
            &["x"],
            &[r#"unknown field "x""#, r#"duplicate field "l[0].a""#],
        );
        let many: String = (0..200).map(|n| format!(r#","k{n}":1,"k{n}":1"#)).collect();
        assert_eq!(findings(format!(r#"{{"a":1{many}}}"#).as_bytes(), &[]).len(), 100);
    }

    #[test]
    fn consecutive_values_are_parsed() {
        assert_eq!(parse_all(b" {} [1]\n2 ").unwrap(), [value!({}), value!([1]), value!(2)]);
        assert_eq!(parse_all(b" \n").unwrap(), []);
        assert!(parse_all(b"{} x").is_err());
    }

    #[test]
    fn escapes_are_decoded_and_lone_surrogates_replaced() {
        let check = |json: &str, text: &str| assert_eq!(parse(json.as_bytes()).unwrap(), text.into(), "{json}");
        check(r#""a\"\\\/\b\f\n\r\tz""#, "a\"\\/\u{8}\u{c}\n\r\tz");
        check(r#""\u00e9\ud83d\ude00""#, "é😀");
        check(r#""0123456é\\0123456789\u00e90123456""#, "0123456é\\0123456789é0123456");
        check(r#""\ud800x\udc00\ud800\u0041""#, "\u{fffd}x\u{fffd}\u{fffd}A");
        assert_eq!(parse(b"\"a\xffb\"").unwrap(), "a\u{fffd}b".into());
    }

    #[test]
    fn invalid_json_fails_with_gos_messages() {
        let check = |json: &str, expect: &str| {
            assert_eq!(parse(json.as_bytes()).unwrap_err().to_string(), expect, "{json}");
        };
        check("", "unexpected end of JSON input");
        check("{", "unexpected end of JSON input");
        check("[1", "unexpected end of JSON input");
        check("\"a", "unexpected end of JSON input");
        check("nope", "invalid character 'o' in literal null (expecting 'u')");
        check("[1,]", "invalid character ']' looking for beginning of value");
        check("{\"a\"}", "invalid character '}' after object key");
        check("{\"a\":1 2}", "invalid character '2' after object key:value pair");
        check("{\"a\":1,}", "invalid character '}' looking for beginning of object key string");
        check("[1 2]", "invalid character '2' after array element");
        check("1 2", "invalid character '2' after top-level value");
        check("01", "invalid character '1' after top-level value");
        check("-x", "invalid character 'x' in numeric literal");
        check("1.x", "invalid character 'x' after decimal point in numeric literal");
        check("1e+x", "invalid character 'x' in exponent of numeric literal");
        check("\"\n\"", "invalid character '\\n' in string literal");
        check("\"\\x\"", "invalid character 'x' in string escape code");
        check("\"\\u00g0\"", "invalid character 'g' in \\u hexadecimal character escape");
        check("'a'", "invalid character '\\'' looking for beginning of value");
        check("1e999", "cannot unmarshal number 1e999 into Go value of type float64");
        check(&"[".repeat(100_000), "exceeded max depth");
        check(&"{\"a\":".repeat(100_000), "exceeded max depth");
    }

    #[test]
    fn nesting_is_limited_to_127_levels() {
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(parse(deep(127).as_bytes()).is_ok());
        assert_eq!(parse(deep(128).as_bytes()), Err(Error::Depth));
    }

    #[test]
    fn parsed_trees_have_no_spare_capacity() {
        let Value::Array(items) = parse(b"[1,2,3,4,5]").unwrap() else { panic!("a list") };
        assert_eq!(items.capacity(), 5);
    }
}

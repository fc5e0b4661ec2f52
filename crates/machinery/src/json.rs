//! JSON to tree and back, by the rules of Kubernetes' decoder: integers stay integers, repeated keys are noticed,
//! floats are printed as Go prints them.

use std::fmt;
use std::io;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Serialize, Serializer};

use crate::{Object, Path, Str, Value};

/// Why bytes are not JSON.
#[derive(Debug, thiserror::Error)]
#[error("invalid JSON")]
pub struct Error(#[from] serde_json::Error);

/// Reads exactly one value. Of a key that occurs twice the last value counts.
///
/// Nesting is limited to 128 levels, so that no walk over a tree can exhaust the stack.
// DEVIATION: upstream's decoder goes 10,000 levels deep; no built-in type nests beyond 40.
pub fn parse(json: &[u8]) -> Result<Value, Error> {
    parse_strict(json).map(|(value, _)| value)
}

/// Reads exactly one value, and tells the path of each key that occurs more than once in its object.
pub fn parse_strict(json: &[u8]) -> Result<(Value, Vec<String>), Error> {
    let mut repeated = Vec::new();
    let mut decoder = serde_json::Deserializer::from_slice(json);
    let value = Node { path: &Path::ROOT, repeated: &mut repeated }.deserialize(&mut decoder)?;
    decoder.end()?;
    Ok((value, repeated))
}

/// Reads any number of values that stand one after another.
pub fn parse_all(json: &[u8]) -> Result<Vec<Value>, Error> {
    let mut values = Vec::new();
    let mut decoder = serde_json::Deserializer::from_slice(json);
    while decoder.end().is_err() {
        values.push(Node { path: &Path::ROOT, repeated: &mut Vec::new() }.deserialize(&mut decoder)?);
    }
    Ok(values)
}

/// Writes a value on one line.
pub fn to_vec(value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    write_with(value, &mut serde_json::Serializer::with_formatter(&mut out, Compact));
    out
}

/// Writes a value on one line.
pub fn to_string(value: &Value) -> String {
    String::from_utf8(to_vec(value)).expect("JSON of a tree of strings is UTF-8")
}

/// Writes a value with each entry on a line of its own, indented by four spaces as kubectl does.
pub fn to_string_pretty(value: &Value) -> String {
    let mut out = Vec::with_capacity(256);
    let layout = Pretty(serde_json::ser::PrettyFormatter::with_indent(b"    "));
    write_with(value, &mut serde_json::Serializer::with_formatter(&mut out, layout));
    String::from_utf8(out).expect("JSON of a tree of strings is UTF-8")
}

/// A float as Go's JSON encoder prints it: shortest digits that read back the same, an exponent only for the very
/// small and the very large, no trailing `.0`.
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

/// The value that a float is after Go has printed it and read it back, which makes an integer of a whole number.
/// None for what JSON cannot write.
pub fn number(float: f64) -> Option<Value> {
    /// 2^63, from which on a whole number does not fit an integer.
    const END: f64 = 9_223_372_036_854_775_808.0;
    let negative_zero = float == 0.0 && float.is_sign_negative();
    let whole = float.fract() == 0.0 && (-END..END).contains(&float) && !negative_zero;
    float.is_finite().then_some(if whole { Value::Int(float as i64) } else { Value::Float(float) })
}

fn write_with<W: io::Write, F: serde_json::ser::Formatter>(value: &Value, out: &mut serde_json::Serializer<W, F>) {
    value.serialize(out).expect("writing a tree into memory cannot fail");
}

struct Compact;

impl serde_json::ser::Formatter for Compact {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        write!(writer, "{}", format_float(value))
    }
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
        Compact.write_f64(writer, value)
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

/// Decodes one node; the path lives on the stack and is printed only when a key repeats.
struct Node<'a> {
    path: &'a Path<'a>,
    repeated: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, decoder: D) -> Result<Value, D::Error> {
        decoder.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, it: bool) -> Result<Value, E> {
        Ok(Value::Bool(it))
    }

    fn visit_i64<E>(self, it: i64) -> Result<Value, E> {
        Ok(Value::Int(it))
    }

    fn visit_u64<E>(self, it: u64) -> Result<Value, E> {
        Ok(i64::try_from(it).map_or(Value::Float(it as f64), Value::Int))
    }

    fn visit_f64<E>(self, it: f64) -> Result<Value, E> {
        Ok(Value::Float(it))
    }

    fn visit_str<E>(self, it: &str) -> Result<Value, E> {
        Ok(Value::String(it.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) =
            items.next_element_seed(Node { path: &self.path.index(array.len()), repeated: self.repeated })?
        {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries: Vec<(Str, Value)> = Vec::with_capacity(4);
        while let Some(key) = map.next_key_seed(Key)? {
            let value = map.next_value_seed(Node { path: &self.path.field(&key), repeated: self.repeated })?;
            entries.push((key, value));
        }
        let repeated = |key: &str| self.repeated.push(self.path.field(key).to_string());
        Ok(Value::Object(Object::from_entries(entries, repeated)))
    }
}

struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Str;

    fn deserialize<D: Deserializer<'de>>(self, decoder: D) -> Result<Str, D::Error> {
        decoder.deserialize_str(self)
    }
}

impl Visitor<'_> for Key {
    type Value = Str;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a string")
    }

    fn visit_str<E>(self, it: &str) -> Result<Str, E> {
        Ok(it.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    #[test]
    fn what_is_read_is_written_again() {
        let text = r#"{"a":[1,-2,1.5,true,null,"x\n\"é"],"b":{}}"#;
        assert_eq!(to_string(&parse(text.as_bytes()).unwrap()), text);
    }

    #[test]
    fn numbers_are_integers_where_they_fit_and_floats_where_not() {
        let check = |json: &str, value: Value| assert_eq!(parse(json.as_bytes()).unwrap(), value, "{json}");
        check("9223372036854775807", Value::Int(i64::MAX));
        check("9223372036854775808", Value::Float(9_223_372_036_854_775_808.0));
        check("-9223372036854775808", Value::Int(i64::MIN));
        check("1.0", Value::Float(1.0));
        check("1e3", Value::Float(1000.0));
        // Read to the nearest float, as Go does, not to one beside it.
        check(&"9".repeat(95), Value::Float(1e95));
    }

    #[test]
    fn floats_are_printed_as_go_prints_them() {
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
    fn a_repeated_key_is_told_with_its_path() {
        let (value, repeated) = parse_strict(br#"{"a":[{"b":1,"b":2}],"c":1,"c":3}"#).unwrap();
        assert_eq!(value, value!({"a": [{"b": 2}], "c": 3}));
        assert_eq!(repeated, ["a[0].b", "c"]);
    }

    #[test]
    fn values_may_stand_one_after_another() {
        assert_eq!(parse_all(b" {} [1]\n2 ").unwrap(), [value!({}), value!([1]), value!(2)]);
        assert_eq!(parse_all(b" \n").unwrap(), []);
        assert!(parse_all(b"{} x").is_err());
    }

    #[test]
    fn what_is_not_json_is_an_error_and_never_a_panic() {
        let deep = "[".repeat(100_000);
        for bad in ["", "{", "[1,]", "{\"a\"}", "nul", "1 2", "\"\\ud800\"", "1e999", deep.as_str()] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(parse(b"\"\xff\"").is_err());
    }
}

//! Go's `fmt` output of trees, which upstream's patch messages contain.

use std::fmt;

use crate::Value;

/// The verb `%v`: `map[a:1 b:[x y] c:<nil>]`.
pub(super) struct Plain<'a>(pub &'a Value);

/// The verb `%s`: strings unchanged, `%!s(int64=1)` for other values.
pub(super) struct AsString<'a>(pub &'a Value);

/// Returns the name of `reflect.TypeOf` for a decoded value.
pub(super) const fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::Float(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

impl fmt::Display for Plain<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => out.write_str("<nil>"),
            Value::Bool(it) => write!(out, "{it}"),
            Value::Int(it) => write!(out, "{it}"),
            Value::Float(it) => out.write_str(&shortest(*it)),
            Value::String(it) => out.write_str(it),
            Value::Array(_) | Value::Object(_) => container(self.0, out, |item, out| write!(out, "{}", Plain(item))),
        }
    }
}

impl fmt::Display for AsString<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::String(it) => out.write_str(it),
            Value::Null => out.write_str("%!s(<nil>)"),
            Value::Array(_) | Value::Object(_) => container(self.0, out, |item, out| write!(out, "{}", AsString(item))),
            scalar => write!(out, "%!s({}={})", type_name(scalar), Plain(scalar)),
        }
    }
}

fn container(
    value: &Value,
    out: &mut fmt::Formatter<'_>,
    item: impl Fn(&Value, &mut fmt::Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    let mut between = "";
    match value {
        Value::Object(object) => {
            out.write_str("map[")?;
            for (key, value) in object.iter() {
                write!(out, "{between}{key}:")?;
                item(value, out)?;
                between = " ";
            }
        }
        _ => {
            out.write_str("[")?;
            for value in value.as_array().unwrap_or_default() {
                out.write_str(between)?;
                item(value, out)?;
                between = " ";
            }
        }
    }
    out.write_str("]")
}

/// Formats a float like `%v`: shortest digits; below 1e-4 and from 1e21 on an exponent of at least two digits.
fn shortest(float: f64) -> String {
    let size = float.abs();
    if size == 0.0 || (1e-4..1e21).contains(&size) {
        return float.to_string();
    }
    let digits = format!("{float:e}");
    let (mantissa, exponent) = digits.split_once('e').expect("the format has an exponent");
    match exponent.strip_prefix('-') {
        Some(exponent) => format!("{mantissa}e-{exponent:0>2}"),
        None => format!("{mantissa}e+{exponent:0>2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn values_are_formatted_like_go() {
        let check = |json: &str, plain: &str, string: &str| {
            let value = json::parse(json.as_bytes()).unwrap();
            assert_eq!((Plain(&value).to_string(), AsString(&value).to_string()), (plain.into(), string.into()));
        };
        check("null", "<nil>", "%!s(<nil>)");
        check("1", "1", "%!s(int64=1)");
        check("true", "true", "%!s(bool=true)");
        check("1.5", "1.5", "%!s(float64=1.5)");
        check("1e21", "1e+21", "%!s(float64=1e+21)");
        check("0.00001", "1e-05", "%!s(float64=1e-05)");
        check(r#""a b""#, "a b", "a b");
        check(
            r#"{"b":["x",1],"a":{"c":null}}"#,
            "map[a:map[c:<nil>] b:[x 1]]",
            "map[a:map[c:%!s(<nil>)] b:[x %!s(int64=1)]]",
        );
    }
}

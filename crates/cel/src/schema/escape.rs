//! Escaping of property names as CEL identifiers: `x-prop` is `x__dash__prop`, `namespace` is `__namespace__`.

use crate::lexer::is_word;

const ESCAPES: [(&str, &str); 4] = [("__underscores__", "__"), ("__dot__", "."), ("__dash__", "-"), ("__slash__", "/")];

/// Returns the identifier of a property; [`None`] if it has characters that cannot be escaped.
pub fn escape(property: &str) -> Option<String> {
    if property.is_empty() || property.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if is_word(property) {
        return Some(format!("__{property}__"));
    }
    let mut out = String::with_capacity(property.len());
    let mut rest = property;
    while let Some(c) = rest.chars().next() {
        if let Some((escaped, plain)) = ESCAPES.iter().find(|(_, plain)| rest.starts_with(plain)) {
            out.push_str(escaped);
            rest = &rest[plain.len()..];
        } else if c.is_ascii_alphanumeric() || c == '_' {
            out.push(c);
            rest = &rest[1..];
        } else {
            return None;
        }
    }
    Some(out)
}

/// Returns the property of an identifier; [`None`] if the identifier is not the escaped form of any property.
pub fn unescape(name: &str) -> Option<String> {
    if !name.contains("__") {
        // Common case: a name without special characters is not escaped.
        return (!is_word(name)).then(|| name.to_owned());
    }
    let word = name.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"));
    if let Some(word) = word.filter(|word| is_word(word)) {
        return Some(word.to_owned());
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while !rest.is_empty() {
        if let Some((escaped, plain)) = ESCAPES.iter().find(|(escaped, _)| rest.starts_with(escaped)) {
            out.push_str(plain);
            rest = &rest[escaped.len()..];
        } else {
            let width = rest.chars().next().map_or(1, char::len_utf8);
            out.push_str(&rest[..width]);
            rest = &rest[width..];
        }
    }
    (escape(&out).as_deref() == Some(name)).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_unescaped() {
        let check = |property: &str, identifier: &str| {
            assert_eq!(escape(property).as_deref(), Some(identifier), "escape {property}");
            assert_eq!(unescape(identifier).as_deref(), Some(property), "unescape {identifier}");
        };
        check("replicas", "replicas");
        check("x-prop", "x__dash__prop");
        check("redact__d", "redact__underscores__d");
        check("string", "string");
        check("namespace", "__namespace__");
        check("int", "int");
        check("a.b/c-d", "a__dot__b__slash__c__dash__d");
        check("___", "__underscores___");
        check("_a_", "_a_");
        check("sprint", "sprint");
        check("in", "__in__");
    }

    #[test]
    fn properties_without_identifier_are_inaccessible() {
        for property in ["", "1a", "a b", "ä", "a$"] {
            assert_eq!(escape(property), None, "{property}");
        }
        for identifier in ["a__b", "namespace", "__if", "x__dot"] {
            assert_eq!(unescape(identifier), None, "{identifier}");
        }
    }
}

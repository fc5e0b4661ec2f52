//! Percent-encoded keys in header names.

/// Decodes the percent escapes of a key. A malformed key is returned unchanged instead of being lost.
pub(crate) fn unescape(key: &str) -> String {
    let mut out = Vec::with_capacity(key.len());
    let mut bytes = key.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        match (digit(), digit()) {
            (Some(high), Some(low)) => out.push((high * 16 + low) as u8),
            _ => return key.to_owned(),
        }
    }
    String::from_utf8(out).unwrap_or_else(|broken| String::from_utf8_lossy(broken.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_unless_one_is_malformed() {
        let check = |key: &str, expect: &str| assert_eq!(unescape(key), expect, "{key}");
        check("example.com%2fscopes", "example.com/scopes");
        check("a%C3%A9b", "aéb");
        check("100%", "100%");
        check("a%2fb%zz", "a%2fb%zz");
        check("+", "+");
    }
}

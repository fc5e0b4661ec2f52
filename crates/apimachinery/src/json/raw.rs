//! Byte offsets of the entries of a serialized JSON object, for code that inserts bytes into it.

use super::go_order::string_end;

/// Iterator over the entries of an object in compact JSON, as the encoders write it. The iteration ends at the first
/// text that is not compact JSON.
#[derive(Clone, Debug)]
pub struct RawEntries<'a> {
    json: &'a [u8],
    /// The offset of the object; after the first entry, the offset of the last entry's value.
    at: usize,
    is_open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawEntry<'a> {
    /// The key without quotes, still escaped.
    pub key: &'a [u8],
    /// The offset of the key's opening quote.
    pub start: usize,
    /// The offset of the value.
    pub value: usize,
}

impl<'a> RawEntries<'a> {
    /// Iterates over the object at offset `at`.
    pub const fn new(json: &'a [u8], at: usize) -> Self {
        Self { json, at, is_open: false }
    }
}

impl RawEntry<'_> {
    /// Returns the end offset of the value in the text that contains this entry.
    pub fn end(&self, json: &[u8]) -> Option<usize> {
        value_end(json, self.value)
    }
}

impl<'a> Iterator for RawEntries<'a> {
    type Item = RawEntry<'a>;

    fn next(&mut self) -> Option<RawEntry<'a>> {
        let (before, expected) = if self.is_open { (value_end(self.json, self.at)?, b',') } else { (self.at, b'{') };
        let start = before + 1;
        if self.json.get(before) != Some(&expected) || self.json.get(start) != Some(&b'"') {
            return None;
        }
        let end = start + 1 + string_end(&self.json[start + 1..]);
        if self.json.get(end) != Some(&b':') {
            return None;
        }
        (self.at, self.is_open) = (end + 1, true);
        Some(RawEntry { key: &self.json[start + 1..end - 1], start, value: self.at })
    }
}

/// Returns the end offset of the value at `at`.
fn value_end(json: &[u8], at: usize) -> Option<usize> {
    let (mut end, mut depth) = (at, 0_usize);
    loop {
        match json.get(end)? {
            b'"' => end += 1 + string_end(&json[end + 1..]),
            b'{' | b'[' => (depth, end) = (depth + 1, end + 1),
            b'}' | b']' => (depth, end) = (depth.checked_sub(1)?, end + 1),
            b',' | b':' => end += 1,
            _ => end = json[end..].iter().position(|byte| matches!(byte, b',' | b'}' | b']')).map(|more| end + more)?,
        }
        if depth == 0 {
            return Some(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_with_the_offsets_of_their_values() {
        let json = br#"{"a":"x\",}","b":{"c":[{"d":1},[]],"e":"]"},"f":-1.5,"g":null,"h":[]}"#;
        let found: Vec<_> = RawEntries::new(json, 0)
            .map(|entry| {
                let value = &json[entry.value..entry.end(json).unwrap()];
                (std::str::from_utf8(entry.key).unwrap(), std::str::from_utf8(value).unwrap())
            })
            .collect();
        let expect =
            [("a", r#""x\",}""#), ("b", r#"{"c":[{"d":1},[]],"e":"]"}"#), ("f", "-1.5"), ("g", "null"), ("h", "[]")];
        assert_eq!(found, expect);
        let inner = RawEntries::new(json, 17).map(|entry| entry.key).collect::<Vec<_>>();
        assert_eq!(inner, [b"c", b"e"]);
    }

    #[test]
    fn text_that_is_not_compact_json_ends_the_iteration() {
        for json in ["", "{", "{}", "[1]", r#"{ "a":1}"#, r#"{"a" :1}"#, r#"{"a"#, r#"{1:2}"#] {
            assert_eq!(RawEntries::new(json.as_bytes(), 0).next(), None, "{json}");
        }
        for json in [r#"{"a":"#, r#"{"a":1"#, r#"{"a":[1}"#, r#"{"a":{"#, r#"{"a":"b"#] {
            assert_eq!(RawEntries::new(json.as_bytes(), 0).count(), 1, "{json}");
        }
    }
}

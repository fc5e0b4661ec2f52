//! Type and field descriptions, decompressed while a document is generated.

use std::collections::HashMap;
use std::io::Read;

use flate2::read::DeflateDecoder;

/// One line per type with its description, then one per field, indented by a tab.
static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptions.z"));

/// The descriptions of all built-in types.
pub(crate) struct Descriptions {
    text: String,
    /// Byte offset of each type's line.
    types: HashMap<String, usize>,
}

impl Descriptions {
    /// Decompresses the text.
    pub(crate) fn open() -> Self {
        let length = env!("DESCRIPTIONS_LENGTH").parse().expect("the build script writes a number");
        let mut text = String::with_capacity(length);
        DeflateDecoder::new(PACKED).read_to_string(&mut text).expect("the build script packs text");
        let mut types = HashMap::with_capacity(800);
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            if !line.starts_with('\t') {
                let name = line.split(' ').next().unwrap_or_default();
                types.insert(name.to_owned(), at);
            }
            at += line.len();
        }
        Self { text, types }
    }

    /// Returns the description of a type, empty if there is none.
    pub(crate) fn of_type(&self, name: &str) -> String {
        let line = self.types.get(name).and_then(|at| self.text[*at..].lines().next());
        line.and_then(|line| line.split_once(' ')).map(|(_, escaped)| unescape(escaped)).unwrap_or_default()
    }

    /// Returns the description of a field, empty if there is none.
    pub(crate) fn of_field(&self, name: &str, field: &str) -> String {
        let Some(at) = self.types.get(name) else { return String::new() };
        let fields = self.text[*at..].lines().skip(1).map_while(|line| line.strip_prefix('\t'));
        let escaped = fields.filter_map(|line| line.split_once(' ')).find(|(have, _)| *have == field);
        escaped.map(|(_, escaped)| unescape(escaped)).unwrap_or_default()
    }
}

fn unescape(escaped: &str) -> String {
    let mut out = String::with_capacity(escaped.len());
    let mut chars = escaped.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => out.push(if chars.next() == Some('n') { '\n' } else { '\\' }),
            _ => out.push(char),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_fields_are_described() {
        let descriptions = Descriptions::open();
        assert!(descriptions.of_type("io.k8s.api.core.v1.Pod").starts_with("Pod is a collection of containers"));
        assert!(descriptions.of_field("io.k8s.api.core.v1.PodSpec", "containers").contains("belonging to the pod"));
        assert_eq!(descriptions.of_field("io.k8s.api.core.v1.PodSpec", "nothing"), "");
        assert_eq!(descriptions.of_type("io.k8s.api.core.v1.Nothing"), "");
    }

    #[test]
    fn escapes_in_descriptions_are_decoded() {
        assert_eq!(unescape(r"a\nb\\n"), "a\nb\\n");
    }
}

//! Component configuration files: strict decoding of kinds that no API serves.

use apimachinery::field_validation::{self, FieldValidation, StrictError};
use apimachinery::{GroupVersionKind, Value, conform, gvk, yaml};

use crate::catalogue::Catalogue;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the configuration is not UTF-8")]
    Bytes(#[from] std::str::Utf8Error),
    #[error("couldn't get version/kind; json parse error")]
    Yaml(#[from] yaml::Error),
    #[error("Object '{0}' is missing")]
    Missing(&'static str),
    #[error("couldn't get version/kind")]
    Version(#[from] gvk::InvalidGroupVersion),
    #[error("no kind {kind:?} is registered for version {version:?}")]
    Kind {
        kind: String,
        /// The `apiVersion` of the file.
        version: String,
    },
    #[error("{0}")]
    SchemaMismatch(#[from] conform::Error),
    /// The file has unknown fields.
    #[error("{0}")]
    Strict(#[from] StrictError),
    /// The file has duplicate keys.
    #[error("strict decoding error: {}", .0.join(", "))]
    DuplicateKeys(Vec<String>),
}

/// Decodes one object of a kind of `catalogue` from YAML or JSON. Unknown and duplicate fields are rejected, so that
/// typos are reported.
pub fn read(catalogue: &Catalogue, bytes: &[u8]) -> Result<(GroupVersionKind, Value), Error> {
    match read_leniently(catalogue, bytes)? {
        (kind, object, None) => Ok((kind, object)),
        (_, _, Some(slip)) => Err(slip),
    }
}

/// Like [`read`], but drops unknown fields and uses the last of duplicate fields. The strict error is returned with the
/// object.
pub fn read_leniently(catalogue: &Catalogue, bytes: &[u8]) -> Result<(GroupVersionKind, Value, Option<Error>), Error> {
    let (mut object, repeated) = yaml::parse_strict(std::str::from_utf8(bytes)?)?;
    let text = |field: &'static str| {
        object.str_at(&[field]).filter(|text| !text.is_empty()).map(str::to_owned).ok_or(Error::Missing(field))
    };
    let (kind, version) = (text("kind")?, text("apiVersion")?);
    let full = GroupVersionKind::parse(&version, &kind)?;
    let schema = catalogue.schema(&full).ok_or(Error::Kind { kind, version })?;
    let unknown = conform::conform(&mut object, schema)?;
    let slip = if repeated.is_empty() {
        FieldValidation::Strict.check(unknown.iter().map(field_validation::unknown).collect()).err().map(Error::Strict)
    } else {
        Some(Error::DuplicateKeys(repeated))
    };
    Ok((full, object, slip))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;

    const FACTS: &str = "\
package test example.org/test
struct Thing
\tkind - string omitempty
\tapiVersion - string omitempty
\tsize - int32
\tparts - []Part
struct Part
\tname - string
kinds test.example/v1
\tThing test.Thing
";

    #[test]
    fn configuration_is_decoded_strictly() {
        let catalogue = catalogue::read(FACTS);
        let check = |text: &str, expect: &str| {
            let got = match read(&catalogue, text.as_bytes()) {
                Ok((_, value)) => value.to_string(),
                Err(error) => error.to_string(),
            };
            assert_eq!(got, expect, "{text}");
        };
        let head = "kind: Thing\napiVersion: test.example/v1\n";
        check(
            &format!("{head}size: 3\nparts: [{{name: a}}]\n"),
            r#"{"apiVersion":"test.example/v1","kind":"Thing","parts":[{"name":"a"}],"size":3}"#,
        );
        check("size: 3\n", "Object 'kind' is missing");
        check("kind: Thing\n", "Object 'apiVersion' is missing");
        check(
            "kind: Other\napiVersion: test.example/v1\n",
            r#"no kind "Other" is registered for version "test.example/v1""#,
        );
        check(&format!("{head}sise: 3\n"), r#"strict decoding error: unknown field "sise""#);
        check(&format!("{head}parts: [{{nome: a}}]\n"), r#"strict decoding error: unknown field "parts[0].nome""#);
        check(&format!("{head}size: 3\nsize: 4\n"), r#"strict decoding error: line 4: key "size" already set in map"#);
        check(&format!("{head}size: [\n"), "couldn't get version/kind; json parse error");
        assert!(
            read(&catalogue, format!("{head}size: x\n").as_bytes()).unwrap_err().to_string().contains("Thing.size")
        );
    }
}

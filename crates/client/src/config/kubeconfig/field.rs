//! A kubeconfig field with its path in the file, for error messages.

use std::path::{Path, PathBuf};

use apimachinery::Value;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::Uri;

use super::{KubeconfigError, Pem, parse_uri};

/// A mapping in a file.
pub(super) struct Field<'a> {
    value: &'a Value,
    file: &'a Path,
    path: String,
}

impl<'a> Field<'a> {
    pub(super) fn root(value: &'a Value, file: &'a Path) -> Self {
        Self::at(value, file, String::new())
    }

    pub(super) const fn at(value: &'a Value, file: &'a Path, path: String) -> Self {
        Self { value, file, path }
    }

    pub(super) const fn file(&self) -> &'a Path {
        self.file
    }

    /// Fails if the value is neither a mapping nor null.
    pub(super) fn object(&self) -> Result<(), KubeconfigError> {
        match self.value {
            Value::Null | Value::Object(_) => Ok(()),
            other => Err(self.error(self.path.clone(), format!("must be a mapping, is a {}", other.kind()))),
        }
    }

    /// Returns a field; `None` if it is absent or `null`.
    pub(super) fn child(&self, name: &str) -> Option<&'a Value> {
        self.value.get(name).filter(|value| !value.is_null())
    }

    /// Returns a nested mapping; empty if it is absent.
    pub(super) fn below(&self, name: &str) -> Field<'a> {
        Field { value: self.child(name).unwrap_or(&Value::Null), file: self.file, path: self.path_of(name) }
    }

    pub(super) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    pub(super) fn keys(&self) -> Result<Vec<&'a str>, KubeconfigError> {
        self.object()?;
        Ok(self.value.as_object().map(|object| object.keys().collect()).unwrap_or_default())
    }

    /// Returns a string; as in Go, an empty one counts as absent.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, KubeconfigError> {
        self.object()?;
        match self.child(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.to_string()).filter(|text| !text.is_empty())),
            Some(other) => Err(self.wrong(name, format!("must be a string, is a {}", other.kind()))),
        }
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool, KubeconfigError> {
        match self.child(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(self.wrong(name, format!("must be true or false, is a {}", other.kind()))),
        }
    }

    pub(super) fn list(&self, name: &str) -> Result<Vec<Field<'a>>, KubeconfigError> {
        let items = self.items(name)?.iter().enumerate();
        Ok(items.map(|(at, value)| Field::at(value, self.file, format!("{}[{at}]", self.path_of(name)))).collect())
    }

    pub(super) fn texts(&self, name: &str) -> Result<Vec<String>, KubeconfigError> {
        let text = |(at, value): (usize, &Value)| match value.as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(self.wrong(&format!("{name}[{at}]"), format!("must be a string, is a {}", value.kind()))),
        };
        self.items(name)?.iter().enumerate().map(text).collect()
    }

    /// Returns PEM from the field `<name>-data`, which takes precedence, or from the file in `name`.
    pub(super) fn pem(&self, name: &str) -> Result<Option<Pem>, KubeconfigError> {
        let data_name = format!("{name}-data");
        if let Some(data) = self.text(&data_name)? {
            let bytes = BASE64.decode(data.as_bytes());
            let bytes = bytes.map_err(|error| self.wrong(&data_name, format!("is not base64: {error}")))?;
            return Ok(Some(Pem::Inline(bytes.into())));
        }
        Ok(self.text(name)?.map(|path| Pem::File(self.resolve(&path))))
    }

    pub(super) fn uri(&self, name: &str, text: &str, schemes: &[&str]) -> Result<Uri, KubeconfigError> {
        parse_uri(text, schemes).map_err(|problem| self.wrong(name, problem))
    }

    /// Resolves a path relative to the directory of the file. The result is absolute if the current directory is known.
    pub(super) fn resolve(&self, path: &str) -> PathBuf {
        let path = self.file.parent().unwrap_or(Path::new("")).join(path);
        std::path::absolute(&path).unwrap_or(path)
    }

    pub(super) fn missing(&self, name: &str) -> KubeconfigError {
        self.wrong(name, "is missing".to_owned())
    }

    pub(super) fn wrong(&self, name: &str, problem: String) -> KubeconfigError {
        self.error(self.path_of(name), problem)
    }

    fn items(&self, name: &str) -> Result<&'a [Value], KubeconfigError> {
        match self.child(name) {
            None => Ok(&[]),
            Some(Value::Array(items)) => Ok(items),
            Some(other) => Err(self.wrong(name, format!("must be a list, is a {}", other.kind()))),
        }
    }

    fn error(&self, field: String, problem: String) -> KubeconfigError {
        KubeconfigError::Field { file: self.file.to_owned(), field, problem }
    }
}

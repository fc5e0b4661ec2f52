//! Configuration files: YAML of a known kind with strict decoding, so that mistyped fields are rejected.

use apimachinery::time::Duration;
use apimachinery::{Object, Str, Value, yaml};

/// The API group of the server's configuration files.
const GROUP: &str = "apiserver.config.k8s.io";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the file is not YAML")]
    Syntax(#[source] yaml::Error),
    /// The file has another kind or version.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    Kind {
        /// The kind in the file.
        kind: String,
        api_version: String,
    },
    /// Fields are unknown, duplicate or of the wrong type.
    #[error("strict decoding error: {}", .0.join(", "))]
    Strict(Vec<String>),
}

/// A file of one kind during decoding.
pub(crate) struct File {
    root: Value,
    /// The strict decoding errors so far.
    pub problems: Vec<String>,
}

/// An object in a file.
pub(crate) struct Fields<'a> {
    object: Option<&'a Object>,
    path: String,
}

impl File {
    /// Parses a file of `kind` in one of the versions.
    pub(crate) fn parse(text: &str, kind: &str, versions: &[&str]) -> Result<Self, Error> {
        let (root, repeated) = yaml::parse_strict(text).map_err(Error::Syntax)?;
        let root_text = |key: &str| root.text_at(&[key]).to_owned();
        let right_version = versions.iter().any(|version| root_text("apiVersion") == format!("{GROUP}/{version}"));
        if root_text("kind") != kind || !right_version {
            return Err(Error::Kind { kind: root_text("kind"), api_version: root_text("apiVersion") });
        }
        let problems = repeated.into_iter().map(|path| format!("key {path:?} already set in map")).collect();
        Ok(Self { root, problems })
    }

    /// Returns the root object and the list of problems.
    pub(crate) fn open(&mut self, known: &[&str]) -> (Fields<'_>, &mut Vec<String>) {
        let known: Vec<&str> = known.iter().chain(&["apiVersion", "kind"]).copied().collect();
        (Fields::new(&self.root, String::new(), &known, &mut self.problems), &mut self.problems)
    }
}

impl<'a> Fields<'a> {
    fn new(value: &'a Value, path: String, known: &[&str], problems: &mut Vec<String>) -> Self {
        let object = value.as_object();
        if object.is_none() && !value.is_null() {
            problems.push(format!("{path:?} must be an object"));
        }
        let fields = Self { object, path };
        for key in object.into_iter().flat_map(Object::keys).filter(|key| !known.contains(key)) {
            problems.push(format!("unknown field {:?}", fields.path_of(key)));
        }
        fields
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    /// Returns a string; empty if it is absent.
    pub(crate) fn text(&self, key: &str, problems: &mut Vec<String>) -> Str {
        self.optional_text(key, problems).unwrap_or_default()
    }

    /// Returns a string; `None` if it is absent.
    pub(crate) fn optional_text(&self, key: &str, problems: &mut Vec<String>) -> Option<Str> {
        let value = self.value(key)?;
        let text = value.as_str().map(Str::from);
        self.expect(key, "a string", text.is_some(), problems);
        text
    }

    /// Returns a boolean; `None` if it is absent.
    pub(crate) fn optional_bool(&self, key: &str, problems: &mut Vec<String>) -> Option<bool> {
        let value = self.value(key)?;
        self.expect(key, "a boolean", value.as_bool().is_some(), problems);
        value.as_bool()
    }

    /// Returns a duration; zero if it is absent.
    pub(crate) fn duration(&self, key: &str, problems: &mut Vec<String>) -> Duration {
        let Some(text) = self.optional_text(key, problems) else { return Duration::default() };
        text.parse().unwrap_or_else(|wrong| {
            problems.push(format!("{:?}: {wrong}", self.path_of(key)));
            Duration::default()
        })
    }

    pub(crate) fn texts(&self, key: &str, problems: &mut Vec<String>) -> Vec<Str> {
        let items = self.items(key, problems);
        self.expect(key, "a list of strings", items.iter().all(|item| item.as_str().is_some()), problems);
        items.iter().filter_map(Value::as_str).map(Str::from).collect()
    }

    /// Returns a nested object; an absent one has no fields.
    pub(crate) fn object(&self, key: &str, known: &[&str], problems: &mut Vec<String>) -> Fields<'a> {
        Fields::new(self.value(key).unwrap_or(&Value::Null), self.path_of(key), known, problems)
    }

    pub(crate) fn objects(&self, key: &str, known: &[&str], problems: &mut Vec<String>) -> Vec<Fields<'a>> {
        let path = self.path_of(key);
        let items = self.items(key, problems).iter().enumerate();
        items.map(|(at, item)| Fields::new(item, format!("{path}[{at}]"), known, problems)).collect()
    }

    fn items(&self, key: &str, problems: &mut Vec<String>) -> &'a [Value] {
        let Some(value) = self.value(key) else { return &[] };
        self.expect(key, "a list", value.as_array().is_some(), problems);
        value.as_array().unwrap_or_default()
    }

    fn value(&self, key: &str) -> Option<&'a Value> {
        self.object?.get(key).filter(|value| !value.is_null())
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn expect(&self, key: &str, what: &str, holds: bool, problems: &mut Vec<String>) {
        if !holds {
            problems.push(format!("{:?} must be {what}", self.path_of(key)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let header = format!("apiVersion: {GROUP}/v1\nkind: K\n{text}");
        let mut file = File::parse(&header, "K", &["v1"]).unwrap();
        let (fields, problems) = file.open(&["text", "list", "inner"]);
        fields.text("text", problems);
        for item in fields.objects("list", &["wait", "flag", "names"], problems) {
            item.duration("wait", problems);
            item.optional_bool("flag", problems);
            item.texts("names", problems);
        }
        fields.object("inner", &[], problems);
        file.problems
    }

    #[test]
    fn mistyped_fields_are_reported_with_their_path() {
        assert_eq!(problems("text: a\nlist: [{wait: 5m, flag: true, names: [a]}]\ninner: {}"), [""; 0]);
        assert_eq!(problems("texts: a"), ["unknown field \"texts\""]);
        assert_eq!(problems("text: 1"), ["\"text\" must be a string"]);
        assert_eq!(problems("list: [{wait: soon}]"), ["\"list[0].wait\": time: invalid duration \"soon\""]);
        assert_eq!(
            problems("list: [{}, {flag: x, more: 1}]"),
            ["unknown field \"list[1].more\"", "\"list[1].flag\" must be a boolean"]
        );
        assert_eq!(problems("list: [{names: [1]}]"), ["\"list[0].names\" must be a list of strings"]);
        assert_eq!(problems("list: 1"), ["\"list\" must be a list"]);
        assert_eq!(problems("inner: []"), ["\"inner\" must be an object"]);
        assert_eq!(problems("text: a\ntext: b").len(), 1);
    }

    #[test]
    fn kind_and_version_of_a_file_are_checked() {
        let check = |text: &str, expect: &str| {
            let message = File::parse(text, "K", &["v1"]).err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(message, expect);
        };
        check("apiVersion: apiserver.config.k8s.io/v1\nkind: K", "");
        check("kind: K", "no kind \"K\" is registered for version \"\"");
        check(
            "apiVersion: apiserver.config.k8s.io/v2\nkind: K",
            "no kind \"K\" is registered for version \"apiserver.config.k8s.io/v2\"",
        );
        check("a: [", "the file is not YAML");
    }
}

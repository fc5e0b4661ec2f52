//! The format of kuberc: YAML documents, of which the first `Preference` of a known version is used.

use apimachinery::{Value, yaml};

use super::{Alias, Defaults, FlagValue, Preference};

const GROUP: &str = "kubectl.config.k8s.io";

/// A preference with the errors of strict decoding.
#[derive(Debug, Default)]
pub(super) struct DecodedPreference {
    pub preference: Preference,
    /// `credentialPluginPolicy`.
    pub policy: String,
    /// The commands of `credentialPluginAllowlist`; `None` if the field is absent.
    pub allowlist: Option<Vec<String>>,
    /// Unknown fields and duplicate keys.
    pub problems: Vec<String>,
}

/// The file has documents, but none is a preference of a known version.
#[derive(Debug)]
pub(super) struct NoPreference;

/// The names of fields that differ between versions.
struct Fields {
    defaults: &'static str,
    options: &'static str,
    has_policy: bool,
}

/// Decodes the first preference of a file; `None` if the file is empty. `skipped` receives the number of each other
/// document, and the reason for which it was skipped.
pub(super) fn decode_file(
    text: &str,
    mut skipped: impl FnMut(usize, &str),
) -> Result<Option<DecodedPreference>, NoPreference> {
    let mut entry = 0;
    for document in split(text).filter(|document| !document.trim().is_empty()) {
        entry += 1;
        let decoded = yaml::parse_strict(document)
            .map_err(|error| error.to_string())
            .and_then(|(value, repeated)| decode(&value, repeated));
        match decoded {
            Ok(decoded) => return Ok(Some(decoded)),
            Err(problem) => skipped(entry, &problem),
        }
    }
    if entry == 0 { Ok(None) } else { Err(NoPreference) }
}

/// Splits a text at lines that start with `---`. A document that is not YAML does not affect the others.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            if line.starts_with("---") {
                rest = Some(&text[start + line.len()..]);
                return Some(&text[..start]);
            }
            start += line.len();
        }
        rest = None;
        Some(text)
    })
}

fn decode(value: &Value, repeated: Vec<String>) -> Result<DecodedPreference, String> {
    let text = |field: &str| value.str_at(&[field]).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let fields = match version.strip_prefix(GROUP) {
        Some("/v1beta1") => Fields { defaults: "defaults", options: "options", has_policy: true },
        Some("/v1alpha1") => Fields { defaults: "overrides", options: "flags", has_policy: false },
        _ => return Err(format!("no kind {kind:?} is registered for version {version:?}")),
    };
    if kind != "Preference" {
        return Err(format!("no kind {kind:?} is registered for version {version:?}"));
    }
    let mut reader = Reader { problems: repeated };
    let mut known = vec!["apiVersion", "kind", "aliases", fields.defaults];
    if fields.has_policy {
        known.extend(["credentialPluginPolicy", "credentialPluginAllowlist"]);
    }
    reader.check(value, "", &known)?;
    let defaults = reader.list(value, "", fields.defaults, |reader, item, path| {
        reader.check(item, path, &["command", fields.options])?;
        Ok(Defaults { command: string(item, "command")?, options: reader.options(item, path, fields.options)? })
    })?;
    let aliases = reader.list(value, "", "aliases", |reader, item, path| {
        reader.check(item, path, &["name", "command", "prependArgs", "appendArgs", fields.options])?;
        Ok(Alias {
            name: string(item, "name")?,
            command: string(item, "command")?,
            prepend_args: strings(item, "prependArgs")?,
            append_args: strings(item, "appendArgs")?,
            options: reader.options(item, path, fields.options)?,
        })
    })?;
    let listed = fields.has_policy && value.get("credentialPluginAllowlist").is_some_and(|list| !list.is_null());
    let allowlist = if listed { Some(reader.list(value, "", "credentialPluginAllowlist", allowed)?) } else { None };
    let policy = if fields.has_policy { string(value, "credentialPluginPolicy")? } else { String::new() };
    let preference = Preference { defaults, aliases, ..Preference::default() };
    Ok(DecodedPreference { preference, policy, allowlist, problems: reader.problems })
}

/// Reads an entry of the allowlist.
fn allowed(reader: &mut Reader, item: &Value, path: &str) -> Result<String, String> {
    reader.check(item, path, &["name", "command"])?;
    match (string(item, "name")?, string(item, "command")?) {
        (name, command) if !name.is_empty() && !command.is_empty() && name != command => Err(
            "both `Name` and `Command` were supplied with different values. `Name` is deprecated, use `Command` instead"
                .to_owned(),
        ),
        (name, command) => Ok(if command.is_empty() { name } else { command }),
    }
}

/// Collects the fields that no version has.
struct Reader {
    problems: Vec<String>,
}

impl Reader {
    fn check(&mut self, value: &Value, path: &str, known: &[&str]) -> Result<(), String> {
        let object = match value {
            Value::Object(object) => object,
            Value::Null => return Ok(()),
            other => return Err(format!("{path}: must be a mapping, is a {}", other.kind())),
        };
        for name in object.keys().filter(|name| !known.contains(name)) {
            let field = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            self.problems.push(format!("unknown field {field:?}"));
        }
        Ok(())
    }

    fn list<T>(
        &mut self,
        value: &Value,
        path: &str,
        field: &str,
        mut item: impl FnMut(&mut Self, &Value, &str) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let items = match value.get(field) {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Array(items)) => items,
            Some(other) => return Err(format!("{field}: must be a list, is a {}", other.kind())),
        };
        let separator = if path.is_empty() { "" } else { "." };
        let read = |(at, value): (usize, &Value)| item(self, value, &format!("{path}{separator}{field}[{at}]"));
        items.iter().enumerate().map(read).collect()
    }

    fn options(&mut self, value: &Value, path: &str, field: &str) -> Result<Vec<FlagValue>, String> {
        self.list(value, path, field, |reader, item, path| {
            reader.check(item, path, &["name", "default"])?;
            Ok(FlagValue { name: string(item, "name")?, value: string(item, "default")? })
        })
    }
}

fn string(value: &Value, field: &str) -> Result<String, String> {
    match value.get(field) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.to_string()),
        Some(other) => Err(format!("{field}: must be a string, is a {}", other.kind())),
    }
}

fn strings(value: &Value, field: &str) -> Result<Vec<String>, String> {
    let text =
        |item: &Value| item.as_str().map(str::to_owned).ok_or_else(|| format!("{field}: must be a list of strings"));
    match value.get(field) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => items.iter().map(text).collect(),
        Some(other) => Err(format!("{field}: must be a list, is a {}", other.kind())),
    }
}

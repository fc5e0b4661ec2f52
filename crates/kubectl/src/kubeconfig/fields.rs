//! The fields of kubeconfig entries: what `config set` and `config unset` accept, and what is always written.

use apimachinery::{Object, Value, go};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Kubeconfig, Section};
use crate::Failure;

/// A new value of a property.
#[derive(Clone, Copy, Debug)]
pub enum Property<'a> {
    Unset,
    /// The text of binary fields is in base64.
    Set(&'a str),
    /// The text of binary fields is their content.
    SetRaw(&'a str),
}

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Text,
    Bool,
    /// Written in base64.
    Bytes,
    /// Cannot be set.
    Other,
}

const CLUSTER: &[(&str, Type)] = &[
    ("server", Type::Text),
    ("tls-server-name", Type::Text),
    ("insecure-skip-tls-verify", Type::Bool),
    ("certificate-authority", Type::Text),
    ("certificate-authority-data", Type::Bytes),
    ("proxy-url", Type::Text),
    ("disable-compression", Type::Bool),
    ("extensions", Type::Other),
];
const CONTEXT: &[(&str, Type)] =
    &[("cluster", Type::Text), ("user", Type::Text), ("namespace", Type::Text), ("extensions", Type::Other)];
const USER: &[(&str, Type)] = &[
    ("client-certificate", Type::Text),
    ("client-certificate-data", Type::Bytes),
    ("client-key", Type::Text),
    ("client-key-data", Type::Bytes),
    ("token", Type::Text),
    ("tokenFile", Type::Text),
    ("act-as", Type::Text),
    ("act-as-uid", Type::Text),
    ("act-as-groups", Type::Other),
    ("act-as-user-extra", Type::Other),
    ("username", Type::Text),
    ("password", Type::Text),
    ("auth-provider", Type::Other),
    ("exec", Type::Other),
    ("extensions", Type::Other),
];

impl Section {
    const fn fields(self) -> &'static [(&'static str, Type)] {
        match self {
            Self::Clusters => CLUSTER,
            Self::Contexts => CONTEXT,
            Self::Users => USER,
        }
    }
}

/// Sets or removes the property at a path such as `clusters.a.server`. The name of an entry may contain dots.
pub fn set_property(config: &mut Kubeconfig, path: &str, value: Property<'_>) -> Result<(), Failure> {
    let parts: Vec<&str> = path.split('.').collect();
    let section = Section::ALL.into_iter().find(|section| section.list() == parts[0]);
    match (section, parts.as_slice()) {
        (Some(section), [_]) => match value {
            Property::Unset => {
                config.entries_mut(section).clear();
                Ok(())
            }
            _ => Err(cannot_set_map(config, section)),
        },
        (Some(section), [_, rest @ ..]) => set_in_section(config, section, path, rest, value),
        (None, ["current-context"]) => {
            config.current_context = match value {
                Property::Unset => String::new(),
                Property::Set(text) | Property::SetRaw(text) => text.to_owned(),
            };
            Ok(())
        }
        (None, ["preferences"]) if matches!(value, Property::Unset) => {
            config.preferences = Value::Null;
            Ok(())
        }
        (None, ["preferences", "colors"]) => {
            let colors = match value {
                Property::Unset => false,
                Property::Set(text) | Property::SetRaw(text) => boolean(text)?,
            };
            let mut preferences = config.preferences.as_object().cloned().unwrap_or_default();
            match colors {
                true => drop(preferences.insert("colors", true)),
                false => drop(preferences.remove("colors")),
            }
            config.preferences = Value::Object(preferences);
            Ok(())
        }
        (None, ["kind" | "apiVersion"]) => Ok(()),
        (None, ["preferences" | "current-context" | "kind" | "apiVersion" | "extensions", ..]) => Err(unparsed(path)),
        _ => Err(Failure::new(format!("unable to parse {path} after [] at api.Config"))),
    }
}

fn set_in_section(
    config: &mut Kubeconfig,
    section: Section,
    path: &str,
    rest: &[&str],
    value: Property<'_>,
) -> Result<(), Failure> {
    let fields = section.fields();
    let known = |part: &str| fields.iter().find(|(name, _)| *name == part);
    // The name of the entry goes up to the first known field.
    let end = rest.iter().skip(1).position(|part| known(part).is_some()).map_or(rest.len(), |at| at + 1);
    let name = rest[..end].join(".");
    let Some((key, ty)) = rest.get(end).and_then(|part| known(part)) else {
        if !matches!(value, Property::Unset) {
            return Err(cannot_set_map(config, section));
        }
        config.entries_mut(section).remove(&name);
        return Ok(());
    };
    if rest.len() > end + 1 {
        return Err(unparsed(path));
    }
    let entries = config.entries_mut(section);
    if matches!(value, Property::Unset) && !entries.contains_key(&name) {
        return Err(Failure::new(format!("current map key `{name}` is invalid")));
    }
    let entry = entries.entry(name).or_default();
    // The names of these fields in files differ from those in paths.
    let key = key.strip_prefix("act-").unwrap_or(key);
    match (value, ty) {
        (Property::Unset, _) => drop(entry.fields.remove(key)),
        (_, Type::Other) => return Err(Failure::new(format!("the property {} cannot be set", go::quote(path)))),
        (Property::Set(text) | Property::SetRaw(text), Type::Text) => entry.set(key, text),
        (Property::Set(text) | Property::SetRaw(text), Type::Bool) => entry.set(key, boolean(text)?),
        (Property::SetRaw(text), Type::Bytes) => entry.set(key, STANDARD.encode(text)),
        (Property::Set(text), Type::Bytes) => {
            // Go's decoder skips line breaks.
            let text = text.replace(['\r', '\n'], "");
            if let Err(error) = STANDARD.decode(&text) {
                return Err(Failure::new(format!("error decoding input value: {}", base64_error(&error, &text))));
            }
            entry.set(key, text);
        }
    }
    Ok(())
}

fn cannot_set_map(config: &Kubeconfig, section: Section) -> Failure {
    // DEVIATION: kubectl also prints the addresses of the entries.
    let names: Vec<&str> = config.entries(section).keys().map(String::as_str).collect();
    Failure::new(format!("can't set a map to a value: map[{}]", names.join(" ")))
}

fn unparsed(path: &str) -> Failure {
    Failure::new(format!("unable to parse one or more field values of {path}"))
}

fn boolean(text: &str) -> Result<bool, Failure> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" | "" => Ok(false),
        _ => Err(Failure::new(format!("strconv.ParseBool: parsing {}: invalid syntax", go::quote(text)))),
    }
}

/// Formats a failure to decode base64 like Go.
fn base64_error(error: &base64::DecodeError, text: &str) -> String {
    let at = match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => *at,
        base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => text.len() / 4 * 4,
    };
    format!("illegal base64 data at input byte {at}")
}

/// Adds the fields that kubectl writes even if they are empty.
pub(super) fn complete(section: Section, fields: &Object) -> Object {
    let mut out = fields.clone();
    let required: &[&str] = match section {
        Section::Clusters => &["server"],
        Section::Contexts => &["cluster", "user"],
        Section::Users => &[],
    };
    for key in required {
        out.get_or_insert_with(key, || Value::from(""));
    }
    if let Some(exec) = out.get_mut("exec").and_then(Value::as_object_mut) {
        exec.get_or_insert_with("command", || Value::from(""));
        exec.get_or_insert_with("args", || Value::Null);
        exec.get_or_insert_with("env", || Value::Null);
        exec.get_or_insert_with("provideClusterInfo", || Value::Bool(false));
    }
    if let Some(provider) = out.get_mut("auth-provider").and_then(Value::as_object_mut) {
        provider.get_or_insert_with("config", || Value::Null);
    }
    out
}

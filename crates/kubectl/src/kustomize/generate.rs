//! Generators of ConfigMaps and Secrets from literals and files.

use apimachinery::{Object, Value, value};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Error;
use super::loader::Loader;
use super::resource::{Behavior, Resource};

/// The kind to generate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    ConfigMap,
    Secret,
}

/// An entry of `configMapGenerator` or `secretGenerator`.
#[derive(Clone, Debug, Default)]
pub(super) struct Arguments {
    pub name: String,
    pub namespace: String,
    pub behavior: String,
    pub literals: Vec<String>,
    pub files: Vec<String>,
    pub envs: Vec<String>,
    pub secret_type: String,
    pub options: Options,
}

/// Options of a generator.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    pub labels: Object,
    pub annotations: Object,
    pub disable_hash: bool,
    pub immutable: bool,
}

impl Options {
    /// Combines the options of a generator with those for all generators.
    pub(super) fn merged(local: Option<Self>, global: Option<&Self>) -> Self {
        let mut options = local.unwrap_or_default();
        let Some(global) = global else { return options };
        for (own, all) in [(&mut options.labels, &global.labels), (&mut options.annotations, &global.annotations)] {
            for (key, value) in all.iter() {
                own.get_or_insert_with(key, || value.clone());
            }
        }
        options.disable_hash |= global.disable_hash;
        options.immutable |= global.immutable;
        options
    }
}

/// Generates an object; its name has no hash yet.
pub(super) fn generate(kind: Kind, arguments: &Arguments, loader: &Loader) -> Result<Resource, Error> {
    if arguments.name.is_empty() {
        return Err(Error::new("a configmap must have a name"));
    }
    let mut metadata = Object::new();
    metadata.insert("name", arguments.name.as_str());
    if !arguments.namespace.is_empty() {
        metadata.insert("namespace", arguments.namespace.as_str());
    }
    let options = &arguments.options;
    for (field, map) in [("labels", &options.labels), ("annotations", &options.annotations)] {
        if !map.is_empty() {
            metadata.insert(field, map.clone());
        }
    }
    let mut object = Object::new();
    object.insert("apiVersion", "v1");
    let pairs = pairs(arguments, loader).map_err(|error| error.context("loading KV pairs"))?;
    let data = unique(pairs, &arguments.name)?;
    match kind {
        Kind::ConfigMap => {
            object.insert("kind", "ConfigMap");
            insert_data(&mut object, data);
        }
        Kind::Secret => {
            object.insert("kind", "Secret");
            object.insert("type", if arguments.secret_type.is_empty() { "Opaque" } else { &arguments.secret_type });
            object.insert("data", data.into_iter().map(|(key, bytes)| (key, encode(&bytes))).collect::<Object>());
        }
    }
    object.insert("metadata", metadata);
    if options.immutable {
        object.insert("immutable", true);
    }
    let mut resource = Resource::new(object.into());
    resource.needs_hash = !options.disable_hash;
    resource.behavior = match arguments.behavior.as_str() {
        "replace" => Behavior::Replace,
        "merge" => Behavior::Merge,
        "create" => Behavior::Create,
        _ => Behavior::Unspecified,
    };
    Ok(resource)
}

fn insert_data(object: &mut Object, data: Vec<(String, Vec<u8>)>) {
    for (key, bytes) in data {
        let (field, text) = match String::from_utf8(bytes) {
            Ok(text) => ("data", text),
            Err(binary) => ("binaryData", encode(binary.as_bytes())),
        };
        if let Value::Object(map) = object.get_or_insert_with(field, || value!({})) {
            map.insert(key, text);
        }
    }
}

/// Encodes bytes as base64 in lines of 70 characters.
fn encode(bytes: &[u8]) -> String {
    const LINE: usize = 70;
    let text = STANDARD.encode(bytes);
    if text.len() < LINE {
        return text;
    }
    let lines = text.as_bytes().chunks(LINE).map(|line| String::from_utf8_lossy(line).into_owned() + "\n");
    lines.collect()
}

/// Reads the sources: files with variables, literals, files with one value each.
fn pairs(arguments: &Arguments, loader: &Loader) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let mut all = Vec::new();
    let listed = |sources: &[String]| format!("[{}]", sources.join(" "));
    for path in &arguments.envs {
        let read = loader.load(path).and_then(|content| environment(&content));
        all.extend(read.map_err(|error| error.context(format!("env source files: {}", listed(&arguments.envs))))?);
    }
    for source in &arguments.literals {
        let pair = literal(source)
            .map_err(|error| error.context(format!("literal sources {}", listed(&arguments.literals))))?;
        all.push(pair);
    }
    for source in &arguments.files {
        let read = file_source(source).and_then(|(key, path)| Ok((key, loader.load(&path)?)));
        all.push(read.map_err(|error| error.context(format!("file sources: {}", listed(&arguments.files))))?);
    }
    Ok(all)
}

fn unique(pairs: Vec<(String, Vec<u8>)>, name: &str) -> Result<Vec<(String, Vec<u8>)>, Error> {
    for (at, (key, _)) in pairs.iter().enumerate() {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if key.is_empty() || !key.bytes().all(legal) {
            return Err(Error::new(format!(
                "{key:?} is not a valid key name: a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
            )));
        }
        if pairs[..at].iter().any(|(other, _)| other == key) {
            return Err(Error::new(format!("configmap {name} illegally repeats the key `{key}`")));
        }
    }
    Ok(pairs)
}

fn literal(source: &str) -> Result<(String, Vec<u8>), Error> {
    match source.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), unquote(value).into())),
        _ => Err(Error::new(format!("invalid literal source {source}, expected key=value"))),
    }
}

fn unquote(text: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote)) {
            return inner;
        }
    }
    text
}

/// Splits `[KEY=]PATH`; the default key is the file name.
fn file_source(source: &str) -> Result<(String, String), Error> {
    match source.split('=').collect::<Vec<_>>().as_slice() {
        [path] => Ok((path.trim_end_matches('/').rsplit('/').next().unwrap_or(path).to_owned(), (*path).to_owned())),
        ["", path] => Err(Error::new(format!("missing key name for file path {path:?} in source {source:?}"))),
        [key, ""] => Err(Error::new(format!("missing file path for key name {key:?} in source {source:?}"))),
        [key, path] => Ok(((*key).to_owned(), (*path).to_owned())),
        _ => Err(Error::new(format!("source {source:?} key name or file path contains '='"))),
    }
}

/// Reads lines of `KEY=VALUE`; empty lines and comments are skipped.
fn environment(content: &[u8]) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let text = String::from_utf8_lossy(content);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let mut pairs = Vec::new();
    for line in text.lines().map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if key.is_empty() || key.starts_with(|first: char| first.is_ascii_digit()) || !key.bytes().all(legal) {
            return Err(Error::new(format!(
                "{key:?} is not a valid key name: a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not start with a digit (e.g. 'my.env-name',  or 'MY_ENV.NAME',  or 'MyEnvName1', regex used for validation is '[-._a-zA-Z][-._a-zA-Z0-9]*')"
            )));
        }
        pairs.push((key.to_owned(), value.into()));
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_may_be_quoted_and_contain_equal_signs() {
        let check = |source: &str, expect: Option<(&str, &str)>| {
            let expect = expect.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()));
            assert_eq!(literal(source).ok(), expect, "{source}");
        };
        check("a=b", Some(("a", "b")));
        check("a=", Some(("a", "")));
        check("a='b=c'", Some(("a", "b=c")));
        check("a=\"b'", Some(("a", "\"b'")));
        check("a", None);
        check("=a", None);
    }

    #[test]
    fn environment_files_have_comments_and_empty_values() {
        let pairs = environment(b"\xef\xbb\xbfA=1\n# c\n\n  B=x y \nC\n").unwrap();
        let texts: Vec<(&str, &str)> =
            pairs.iter().map(|(key, value)| (key.as_str(), str::from_utf8(value).unwrap())).collect();
        assert_eq!(texts, [("A", "1"), ("B", "x y "), ("C", "")]);
    }

    #[test]
    fn long_secrets_are_folded() {
        assert_eq!(encode(&[0; 3]), "AAAA");
        assert_eq!(encode(&[0; 60]), format!("{}\n{}\n", "A".repeat(70), "A".repeat(10)));
    }
}

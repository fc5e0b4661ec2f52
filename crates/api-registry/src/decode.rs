//! Request body decoding, with field validation and upstream's error messages.

use api::catalogue;
use api::kind::{Kind, Persistence, Shape, Version};
use apimachinery::conform::conform;
use apimachinery::field_validation::{self, FieldValidation};
use apimachinery::status::{GroupName, Reason, Status};
use apimachinery::{GroupVersionKind, Value, custom_decode, defaulting, go, json, protobuf, yaml};

/// The encoding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    Json,
    Yaml,
    Protobuf,
}

/// The supported media types, in the order in which errors list them.
pub const MEDIA_TYPES: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// A decoded object in its version: unknown fields are dropped, defaults applied.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodedObject {
    pub object: Value,
    /// Warnings about unknown and duplicate fields.
    pub warnings: Vec<String>,
}

/// A parsed body before it is matched to a kind.
struct ParsedBody<'b> {
    tree: Value,
    twice: DuplicateKeys<'b>,
}

/// Duplicate keys found by the parser.
enum DuplicateKeys<'b> {
    /// No duplicates to report: the body is protobuf, or the tree was not parsed from a body.
    None,
    /// The paths of duplicate keys in a JSON text.
    Json { text: &'b [u8], paths: Vec<String> },
    /// The parser's messages for duplicate keys in a YAML text.
    Yaml(Vec<String>),
}

/// The order of unknown fields relative to duplicate keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// In text order, as found by a strict parser.
    ByPosition,
    /// Unknown fields after duplicate keys, as found in the parsed object.
    Last,
}

impl Media {
    /// Parses a `Content-Type`; an empty one means JSON.
    pub fn of(content_type: &str) -> Option<Self> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "" | "application/json" => Some(Self::Json),
            "application/yaml" => Some(Self::Yaml),
            "application/vnd.kubernetes.protobuf" => Some(Self::Protobuf),
            _ => None,
        }
    }
}

/// Decodes a body to an object of `kind` in `version`.
///
/// A missing apiVersion or kind is taken from the URL.
pub fn object(
    bytes: &[u8],
    media: Media,
    kind: &Kind,
    version: &Version,
    mode: FieldValidation,
) -> Result<DecodedObject, Status> {
    let expected = kind.gvk(&version.name);
    let parsed = parse(bytes, media).map_err(|problem| unrecognized(&expected, &problem, bytes))?;
    let actual = identify(&parsed.tree, &expected, bytes)?;
    if actual != expected {
        return Err(other_kind(&actual, &expected));
    }
    let mut received = fit(parsed, version, mode).map_err(|problem| unfit(&actual, &expected, &problem))?;
    complete(&mut received.object, kind, version);
    Ok(received)
}

/// Decodes an object of a built-in kind that is not stored: options, `Scale`, `Binding`, `Eviction`.
pub fn plain(
    bytes: &[u8],
    media: Media,
    expected: &GroupVersionKind,
    mode: FieldValidation,
) -> Result<DecodedObject, Status> {
    let schema =
        catalogue::schema(expected).ok_or_else(|| Status::internal_error(format!("no type for {expected}")))?;
    let parsed = parse(bytes, media).map_err(|problem| unrecognized(expected, &problem, bytes))?;
    let actual = identify(&parsed.tree, expected, bytes)?;
    if actual.kind != expected.kind {
        return Err(other_kind(&actual, expected));
    }
    let ParsedBody { mut tree, twice } = parsed;
    let unknown = conform(&mut tree, schema).map_err(|error| unfit(&actual, expected, &error.to_string()))?;
    let findings = twice.findings(&unknown, Order::ByPosition, mode);
    let warnings = mode.check(findings).map_err(|error| unfit(&actual, expected, &error.to_string()))?;
    defaulting::default_built_in(&mut tree, schema);
    name(&mut tree, expected);
    Ok(DecodedObject { object: tree, warnings })
}

/// Normalizes an object of a kind that is not stored, after admission, to the form that [`plain`] returns.
pub fn plain_again(mut tree: Value, expected: &GroupVersionKind) -> Result<DecodedObject, Status> {
    let schema =
        catalogue::schema(expected).ok_or_else(|| Status::internal_error(format!("no type for {expected}")))?;
    conform(&mut tree, schema).map_err(|error| unfit(expected, expected, &error.to_string()))?;
    defaulting::default_built_in(&mut tree, schema);
    name(&mut tree, expected);
    Ok(DecodedObject { object: tree, warnings: Vec::new() })
}

/// Normalizes the result of a patch, an apply or admission to the form that [`object`] returns.
pub fn again(tree: Value, kind: &Kind, version: &Version, mode: FieldValidation) -> Result<DecodedObject, Status> {
    let gvk = kind.gvk(&version.name);
    let mut received = fit(ParsedBody { tree, twice: DuplicateKeys::None }, version, mode).map_err(|problem| {
        // Upstream decodes the patched object again and reports errors as invalid input of the client (422).
        Status::failure(Reason::Invalid, problem)
    })?;
    name(&mut received.object, &gvk);
    complete(&mut received.object, kind, version);
    Ok(received)
}

/// Drops fields that the version does not have, and normalizes the rest. Fails with the error for the client.
fn fit(parsed: ParsedBody<'_>, version: &Version, mode: FieldValidation) -> Result<DecodedObject, String> {
    let ParsedBody { tree: mut object, twice } = parsed;
    let (unknown, order) = match &version.shape {
        Shape::BuiltIn(schema) => {
            (conform(&mut object, *schema).map_err(|error| error.to_string())?, Order::ByPosition)
        }
        Shape::Custom(..) => {
            (custom_decode::decode(&mut object, version.schema()).map_err(|error| error.to_string())?, Order::Last)
        }
    };
    let warnings = mode.check(twice.findings(&unknown, order, mode)).map_err(|error| error.to_string())?;
    Ok(DecodedObject { object, warnings })
}

impl DuplicateKeys<'_> {
    /// Returns the field validation messages for duplicate keys and unknown fields.
    fn findings(&self, unknown: &[String], order: Order, mode: FieldValidation) -> Vec<String> {
        let unknown_fields = unknown.iter().map(field_validation::unknown);
        match self {
            Self::None => unknown_fields.collect(),
            Self::Json { text, paths } if order == Order::ByPosition && paths.len() + unknown.len() > 1 => {
                json::findings(text, unknown)
            }
            Self::Json { paths, .. } => paths.iter().map(field_validation::duplicate).chain(unknown_fields).collect(),
            Self::Yaml(lines) => yaml_findings(lines, mode).into_iter().chain(unknown_fields).collect(),
        }
    }
}

/// Returns the messages for duplicate keys in YAML: one combined error in strict mode, otherwise one warning each.
fn yaml_findings(lines: &[String], mode: FieldValidation) -> Vec<String> {
    if lines.is_empty() || mode != FieldValidation::Strict {
        return lines.to_vec();
    }
    vec![format!("yaml: unmarshal errors:\n  {}", lines.join("\n  "))]
}

/// An apply configuration, which is YAML or JSON.
pub struct Config {
    pub tree: Value,
    /// The parser's messages for duplicate keys.
    twice: Vec<String>,
}

impl Config {
    /// Parses a body.
    pub fn read(bytes: &[u8]) -> Result<Self, Status> {
        let text = std::str::from_utf8(bytes).map_err(|error| Status::bad_request(error.to_string()))?;
        let parsed = yaml::parse_strict(text);
        let (tree, twice) = parsed.map_err(|error| Status::bad_request(format!("error decoding YAML: {error}")))?;
        Ok(Self { tree, twice })
    }

    /// Returns warnings about duplicate keys, or rejects them. Called after the apply, whose errors take precedence.
    pub fn check_duplicates(&self, mode: FieldValidation) -> Result<Vec<String>, Status> {
        mode.check(yaml_findings(&self.twice, mode)).map_err(|error| {
            let problem = error.findings().join(", ");
            Status::bad_request(format!("error strict decoding YAML: error converting YAML to JSON: {problem}"))
        })
    }
}

/// Sets apiVersion, kind and defaults.
fn complete(object: &mut Value, kind: &Kind, version: &Version) {
    name(object, &kind.gvk(&version.name));
    match version.shape {
        Shape::BuiltIn(schema) => defaulting::default_built_in(object, schema),
        Shape::Custom(..) => defaulting::default(object, version.schema()),
    }
    kind.rules.default(object, &version.name);
}

fn name(object: &mut Value, gvk: &GroupVersionKind) {
    if let Value::Object(fields) = object {
        fields.insert("apiVersion", gvk.api_version());
        fields.insert("kind", gvk.kind.clone());
    }
}

fn parse(bytes: &[u8], media: Media) -> Result<ParsedBody<'_>, String> {
    match media {
        Media::Json => {
            let (tree, paths) = json::parse_strict(bytes).map_err(|error| format!("json parse error: {error}"))?;
            Ok(ParsedBody { tree, twice: DuplicateKeys::Json { text: bytes, paths } })
        }
        Media::Yaml => {
            let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
            let (tree, lines) = yaml::parse_strict(text).map_err(|error| format!("yaml: {error}"))?;
            Ok(ParsedBody { tree, twice: DuplicateKeys::Yaml(lines) })
        }
        Media::Protobuf => {
            let tree = protobuf::decode_object(bytes, &|gvk| catalogue::schema(gvk));
            Ok(ParsedBody { tree: tree.map_err(|error| error.to_string())?, twice: DuplicateKeys::None })
        }
    }
}

/// Returns the GroupVersionKind of a tree, completed from the expected one.
fn identify(tree: &Value, expected: &GroupVersionKind, bytes: &[u8]) -> Result<GroupVersionKind, Status> {
    let text = |key: &str| match tree.get(key) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text.as_str()),
        Some(other) => Err(format!(
            "json parse error: json: cannot unmarshal {} into Go struct field .{key} of type string",
            go_kind(other)
        )),
    };
    if !matches!(tree, Value::Object(_) | Value::Null) {
        let problem = format!(
            "json parse error: json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            go_kind(tree)
        );
        return Err(unrecognized(expected, &problem, bytes));
    }
    let (api_version, kind) = match (text("apiVersion"), text("kind")) {
        (Ok(api_version), Ok(kind)) => (api_version, kind),
        (Err(problem), _) | (_, Err(problem)) => return Err(unrecognized(expected, &problem, bytes)),
    };
    let mut actual = GroupVersionKind::parse(api_version, kind)
        .map_err(|error| unrecognized(expected, &error.to_string(), bytes))?;
    if api_version.is_empty() {
        actual.group = expected.group.clone();
        actual.version = expected.version.clone();
    }
    if kind.is_empty() {
        actual.kind = expected.kind.clone();
    }
    Ok(actual)
}

fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Int(_) | Value::Float(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn unfit(actual: &GroupVersionKind, expected: &GroupVersionKind, problem: &str) -> Status {
    let (kind, version) = (&actual.kind, go::quote(&actual.version));
    Status::bad_request(format!("{kind} in version {version} cannot be handled as a {}: {problem}", expected.kind))
}

/// Returns the error for a body of another kind than the URL's. As in upstream, an unknown kind is reported with the
/// source position of the type registry (scheme).
fn other_kind(actual: &GroupVersionKind, expected: &GroupVersionKind) -> Status {
    if catalogue::schema(actual).is_some() {
        if actual.kind == expected.kind {
            return Status::bad_request(format!(
                "the API version in the data ({}) does not match the expected API version ({})",
                actual.api_version(),
                expected.api_version()
            ));
        }
        let problem = format!(
            "converting ({}.{}) to ({}.{}): unknown conversion",
            actual.version,
            actual.kind,
            internal(&expected.group),
            expected.kind
        );
        return unfit(actual, expected, &problem);
    }
    let scheme = match expected.group.as_str() {
        "apiregistration.k8s.io" => "k8s.io/kube-aggregator/pkg/apiserver/scheme/scheme.go:28",
        "apiextensions.k8s.io" => "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:55",
        _ => "pkg/api/legacyscheme/scheme.go:30",
    };
    let problem = format!(
        "no kind {} is registered for version {} in scheme {}",
        go::quote(&actual.kind),
        go::quote(&actual.api_version()),
        go::quote(scheme)
    );
    unfit(actual, expected, &problem)
}

/// Returns the Go package of upstream's internal types of a group.
fn internal(group: &str) -> &str {
    if group.is_empty() { "core" } else { group.split('.').next().unwrap_or(group) }
}

fn unrecognized(expected: &GroupVersionKind, problem: &str, bytes: &[u8]) -> Status {
    let problem = format!("couldn't get version/kind; {problem}");
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {problem} ({})",
        expected.kind,
        summary(bytes)
    ))
}

/// Returns the start of a body for an error message: as text if it looks like JSON, otherwise in hexadecimal.
fn summary(bytes: &[u8]) -> String {
    const BYTES_MAX: usize = 30;
    let (excerpt, more) = if bytes.len() > BYTES_MAX { (&bytes[..BYTES_MAX], " ...") } else { (bytes, "") };
    match bytes.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(excerpt)),
        Some(_) => excerpt.iter().map(|byte| format!("{byte:02x}")).chain([more.to_owned()]).collect(),
    }
}

/// Returns the 415 for an unsupported `Content-Type`.
pub fn unsupported_media() -> Status {
    Status::unsupported_media_type(&MEDIA_TYPES)
}

/// Returns the kind for validation errors: `Deployment.apps`. The group is that of the storage version, which is
/// validated.
pub fn kind_name(kind: &Kind) -> GroupName<'_> {
    let group = match &kind.persistence {
        Persistence::Stored { version, .. } => &version.group,
        Persistence::Virtual(_) => &kind.group,
    };
    GroupName::new(group, &kind.kind)
}

/// Returns the resource for error messages: `deployments.apps`.
pub fn resource_name(kind: &Kind) -> GroupName<'_> {
    GroupName::new(&kind.group, &kind.plural)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_validation_messages_are_in_text_order_and_yaml_ones_by_line() {
        let kind = api::core::config_map::kind();
        let version = &kind.versions[0];
        let check = |media: Media, text: &str, mode: FieldValidation, expect: Result<&[&str], &str>| {
            let read = object(text.as_bytes(), media, &kind, version, mode);
            let found = read.map(|received| received.warnings).map_err(|status| status.message);
            let expected_error = |findings: &str| {
                format!(
                    "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: {findings}"
                )
            };
            let expect =
                expect.map(|warnings| warnings.iter().map(|one| (*one).to_owned()).collect()).map_err(expected_error);
            assert_eq!(found, expect, "{text}");
        };
        let text = r#"{"metadata":{"name":"a"},"spec":1,"immutable":false,"immutable":true,"also":1}"#;
        let warnings = [r#"unknown field "spec""#, r#"duplicate field "immutable""#, r#"unknown field "also""#];
        check(Media::Json, text, FieldValidation::Warn, Ok(&warnings));
        check(Media::Json, text, FieldValidation::Strict, Err(&warnings.join(", ")));
        check(Media::Json, text, FieldValidation::Ignore, Ok(&[]));
        let text = "immutable: false\nspec: 1\nimmutable: true\ndata:\n  a: b\n  a: c\n";
        let warnings = [r#"line 3: key "immutable" already set in map"#, r#"line 6: key "a" already set in map"#];
        check(Media::Yaml, text, FieldValidation::Warn, Ok(&[warnings[0], warnings[1], r#"unknown field "spec""#]));
        let all = format!("yaml: unmarshal errors:\n  {}\n  {}, unknown field \"spec\"", warnings[0], warnings[1]);
        check(Media::Yaml, text, FieldValidation::Strict, Err(&all));
    }

    #[test]
    fn duplicate_key_in_an_apply_configuration_is_rejected_or_warned_about() {
        let config = Config::read(b"\nspec:\n  foo: a\n  foo: b\n").unwrap();
        assert_eq!(config.tree.str_at(&["spec", "foo"]), Some("b"));
        let warning = r#"line 4: key "foo" already set in map"#;
        assert_eq!(config.check_duplicates(FieldValidation::Warn).unwrap(), [warning]);
        assert_eq!(config.check_duplicates(FieldValidation::Ignore).unwrap(), [""; 0]);
        let error = config.check_duplicates(FieldValidation::Strict).unwrap_err();
        let start = "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  ";
        assert_eq!((error.code, error.message), (400, format!("{start}{warning}")));
        assert!(Config::read(b"a: 1").unwrap().check_duplicates(FieldValidation::Strict).is_ok());
    }
}

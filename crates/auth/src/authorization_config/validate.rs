//! Parsing and validation of the authorization configuration.

use apimachinery::field::{self, BadValue, Errors};
use apimachinery::time::Duration;
use apimachinery::{Path, Str, go, names};
use cel::ExpressionContext;

use super::{AuthorizerConfig, Config, Connection, Kind, Webhook};
use crate::access_review::webhook::{FailurePolicy, Version};
use crate::config_file::Fields;
use crate::expression::{Expression, ResultType};

const KINDS: [&str; 6] = ["ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook"];
const WEBHOOK_FIELDS: [&str; 10] = [
    "authorizedTTL",
    "cacheAuthorizedRequests",
    "unauthorizedTTL",
    "cacheUnauthorizedRequests",
    "timeout",
    "subjectAccessReviewVersion",
    "matchConditionSubjectAccessReviewVersion",
    "failurePolicy",
    "connectionInfo",
    "matchConditions",
];
/// Maximum match conditions of a webhook.
const CONDITIONS_MAX: usize = 64;
const TIMEOUT_MAX: Duration = Duration::from_seconds(30);

/// An authorizer as written in the file.
pub(super) struct Raw {
    kind: Str,
    name: Str,
    webhook: Option<RawWebhook>,
}

struct RawWebhook {
    authorized_ttl: Duration,
    cache_authorized: bool,
    unauthorized_ttl: Duration,
    cache_unauthorized: bool,
    timeout: Duration,
    version: Str,
    condition_version: Str,
    failure_policy: Str,
    connection_type: Str,
    kubeconfig: Option<Str>,
    conditions: Vec<Str>,
}

impl Raw {
    pub(super) fn read(fields: &Fields<'_>, problems: &mut Vec<String>) -> Self {
        let webhook = fields.object("webhook", &WEBHOOK_FIELDS, problems);
        Self {
            kind: fields.text("type", problems),
            name: fields.text("name", problems),
            webhook: fields.has("webhook").then(|| RawWebhook::read(&webhook, problems)),
        }
    }
}

impl RawWebhook {
    fn read(fields: &Fields<'_>, problems: &mut Vec<String>) -> Self {
        let or = |given: Duration, default| {
            if given == Duration::default() { Duration::from_seconds(default) } else { given }
        };
        let connection = fields.object("connectionInfo", &["type", "kubeConfigFile"], problems);
        let conditions = fields.objects("matchConditions", &["expression"], problems);
        Self {
            authorized_ttl: or(fields.duration("authorizedTTL", problems), 5 * 60),
            cache_authorized: fields.optional_bool("cacheAuthorizedRequests", problems).unwrap_or(true),
            unauthorized_ttl: or(fields.duration("unauthorizedTTL", problems), 30),
            cache_unauthorized: fields.optional_bool("cacheUnauthorizedRequests", problems).unwrap_or(true),
            timeout: fields.duration("timeout", problems),
            version: fields.text("subjectAccessReviewVersion", problems),
            condition_version: fields.text("matchConditionSubjectAccessReviewVersion", problems),
            failure_policy: fields.text("failurePolicy", problems),
            connection_type: connection.text("type", problems),
            kubeconfig: connection.optional_text("kubeConfigFile", problems),
            conditions: conditions.iter().map(|condition| condition.text("expression", problems)).collect(),
        }
    }
}

/// Returns the configuration, or all validation errors.
pub(super) fn validate(raw: Vec<Raw>) -> Result<Config, Errors> {
    let list = Path::of("authorizers");
    let mut errors = Errors::new();
    let mut config = Config::default();
    let (mut kinds, mut names_seen): (Vec<Str>, Vec<Str>) = (Vec::new(), Vec::new());
    if raw.is_empty() {
        errors.push(field::Error::required(&list, "at least one authorization mode must be defined"));
    }
    for (at, raw) in raw.into_iter().enumerate() {
        let path = list.index(at);
        let type_at = path.field("type");
        if raw.kind.is_empty() {
            errors.push(field::Error::required(&type_at, ""));
        } else if !KINDS.contains(&raw.kind.as_str()) {
            errors.push(field::Error::not_supported(&type_at, raw.kind, &KINDS));
        } else if kinds.contains(&raw.kind) && raw.kind != "Webhook" {
            errors.push(field::Error::duplicate(&type_at, raw.kind));
        } else {
            kinds.push(raw.kind.clone());
            validate_name(&raw.name, &names_seen, &path, &mut errors);
            names_seen.push(raw.name.clone());
            if let Some(kind) = validate_kind(&raw.kind, raw.webhook, &path, &mut errors) {
                config.authorizers.push(AuthorizerConfig { name: raw.name, kind });
            }
        }
    }
    if errors.is_empty() { Ok(config) } else { Err(errors) }
}

fn validate_name(name: &Str, seen: &[Str], path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("name");
    let wrong = names::dns1123_subdomain(name);
    if name.is_empty() {
        errors.push(field::Error::required(&at, ""));
    } else if seen.contains(name) {
        errors.push(field::Error::duplicate(&at, name.clone()));
    } else if !wrong.is_empty() {
        let detail = format!("authorizer name is invalid: {}", wrong.join(", "));
        errors.push(field::Error::invalid(&at, name.clone(), detail));
    }
}

fn validate_kind(kind: &str, webhook: Option<RawWebhook>, path: &Path<'_>, errors: &mut Errors) -> Option<Kind> {
    match (kind, webhook) {
        ("Webhook", None) => errors.push(field::Error::required(&path.field("webhook"), "required when type=Webhook")),
        ("Webhook", Some(webhook)) => return Some(Kind::Webhook(Box::new(validate_webhook(&webhook, path, errors)))),
        (_, Some(_)) => {
            let detail = "may only be specified when type=Webhook";
            errors.push(field::Error::invalid(&path.field("webhook"), "non-null", detail));
        }
        ("AlwaysAllow", None) => return Some(Kind::AlwaysAllow),
        ("AlwaysDeny", None) => return Some(Kind::AlwaysDeny),
        ("ABAC", None) => return Some(Kind::Abac),
        ("Node", None) => return Some(Kind::Node),
        _ => return Some(Kind::Rbac),
    }
    None
}

/// Returns the webhook without its invalid parts, which are added to `errors`.
fn validate_webhook(raw: &RawWebhook, path: &Path<'_>, errors: &mut Errors) -> Webhook {
    let zero = Duration::default();
    if raw.timeout == zero {
        errors.push(field::Error::required(&path.field("timeout"), ""));
    } else if raw.timeout > TIMEOUT_MAX || raw.timeout < zero {
        let detail = "must be > 0s and <= 30s";
        errors.push(field::Error::invalid(&path.field("timeout"), raw.timeout.to_string(), detail));
    }
    for (name, ttl) in [("authorizedTTL", raw.authorized_ttl), ("unauthorizedTTL", raw.unauthorized_ttl)] {
        if ttl < zero {
            errors.push(field::Error::invalid(&path.field(name), ttl.to_string(), "must be > 0s"));
        }
    }
    let version = choice(&raw.version, "subjectAccessReviewVersion", &["v1", "v1beta1"], path, errors);
    let version_at = path.field("matchConditionSubjectAccessReviewVersion");
    match raw.condition_version.as_str() {
        "v1" => {}
        "" if raw.conditions.is_empty() => {}
        "" => errors.push(field::Error::required(&version_at, "required if match conditions are specified")),
        other => errors.push(field::Error::not_supported(&version_at, other, &["v1"])),
    }
    let failure_policy = choice(&raw.failure_policy, "failurePolicy", &["NoOpinion", "Deny"], path, errors);
    Webhook {
        authorized_ttl: raw.cache_authorized.then_some(raw.authorized_ttl),
        unauthorized_ttl: raw.cache_unauthorized.then_some(raw.unauthorized_ttl),
        timeout: raw.timeout,
        version: if version == Some(1) { Version::V1beta1 } else { Version::V1 },
        failure_policy: if failure_policy == Some(1) { FailurePolicy::Deny } else { FailurePolicy::NoOpinion },
        connection: validate_connection(raw, path, errors),
        conditions: compile_conditions(&raw.conditions, path, errors),
    }
}

/// Returns the index of `word` in `supported`, or adds an error.
fn choice(word: &str, field: &str, supported: &[&str], path: &Path<'_>, errors: &mut Errors) -> Option<usize> {
    let found = supported.iter().position(|known| *known == word);
    if word.is_empty() {
        errors.push(field::Error::required(&path.field(field), ""));
    } else if found.is_none() {
        errors.push(field::Error::not_supported(&path.field(field), word, supported));
    }
    found
}

fn validate_connection(raw: &RawWebhook, path: &Path<'_>, errors: &mut Errors) -> Connection {
    let info = path.field("connectionInfo");
    let (type_at, file_at) = (info.field("type"), info.field("kubeConfigFile"));
    match (raw.connection_type.as_str(), &raw.kubeconfig) {
        ("", _) => errors.push(field::Error::required(&type_at, "")),
        ("InClusterConfig", None) => {}
        ("InClusterConfig", Some(file)) => {
            errors.push(field::Error::invalid(&file_at, file.clone(), "can only be set when type=KubeConfigFile"));
        }
        ("KubeConfigFile", Some(file)) if file.starts_with('/') => return Connection::KubeConfigFile(file.clone()),
        ("KubeConfigFile", Some(file)) if !file.is_empty() => {
            errors.push(field::Error::invalid(&file_at, file.clone(), "must be an absolute path"));
        }
        ("KubeConfigFile", _) => errors.push(field::Error::required(&file_at, "")),
        (other, file) => {
            let file = file.as_ref().map_or("null".to_owned(), |file| go::quote(file));
            let bad_value = BadValue::Text(format!("{{\"Type\":{},\"KubeConfigFile\":{file}}}", go::quote(other)));
            errors.push(field::Error::not_supported(&type_at, bad_value, &["InClusterConfig", "KubeConfigFile"]));
        }
    }
    Connection::InCluster
}

fn compile_conditions(conditions: &[Str], path: &Path<'_>, errors: &mut Errors) -> Vec<Expression> {
    let list = path.field("matchConditions");
    if conditions.len() > CONDITIONS_MAX {
        errors.push(field::Error::too_many(&list, conditions.len(), CONDITIONS_MAX));
        return Vec::new();
    }
    let mut compiled = Vec::new();
    for (at, condition) in conditions.iter().enumerate() {
        let item = list.index(at);
        let at_expression = item.field("expression");
        if condition.trim().is_empty() {
            errors.push(field::Error::required(&at_expression, ""));
        } else if conditions[..at].contains(condition) {
            errors.push(field::Error::duplicate(&at_expression, condition.clone()));
        } else {
            match Expression::compile(ExpressionContext::Authorization, condition, ResultType::Bool, &at_expression) {
                Ok(expression) => compiled.push(expression),
                Err(error) => errors.push(error),
            }
        }
    }
    compiled
}

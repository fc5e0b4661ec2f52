//! APIService: registers the server of an API group version.

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::{Meta, Scope, name_is_path_segment};
use apimachinery::{At, Errors, GroupVersion, Value, go, names, value};

use crate::field_rules::{column, default_to, keep, keep_for_status, looks, reset_with_metadata};
use crate::kind::{
    Context, Kind, Persistence, Rules, Subresource, UpdateChecks, age_column, name_column, names as strings,
};

const GROUP_PRIORITY_MAX: i64 = 20_000;
const VERSION_PRIORITY_MAX: i64 = 1000;

pub fn kind() -> Kind {
    Kind {
        categories: strings(&["api-extensions"]),
        scope: Scope::Cluster,
        persistence: Persistence::Stored {
            prefix: "apiregistration.k8s.io/apiservices".into(),
            version: GroupVersion { group: "apiregistration.k8s.io".into(), version: "v1".into() },
            expires: false,
        },
        subresources: vec![Subresource::status()],
        name_rule: name_is_path_segment,
        unconditional_update: false,
        rules: Arc::new(ApiService),
        update_checks: UpdateChecks { whole: 1, change: 1 },
        qualified_finalizers: false,
        ..Kind::stored("apiregistration.k8s.io", "v1", "APIService", "apiservices")
    }
    .with_columns(&[
        name_column(),
        column("Service", "string", "Component that serves the object.", |object, _| service(object).into()),
        column("Available", "string", "Whether the API service is available.", |object, _| available(object).into()),
        age_column(),
    ])
}

#[derive(Debug)]
struct ApiService;

impl Rules for ApiService {
    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        reset_with_metadata(subresource)
    }

    fn default(&self, object: &mut Value, _version: &str) {
        let service = object.get_mut("spec").and_then(|spec| spec.get_mut("service"));
        if let Some(service) = service.filter(|service| !service.is_null()) {
            default_to(service, "port", 443);
        }
    }

    fn prepare_create(&self, object: &mut Value, context: &Context<'_>) {
        let local = object.at(&["spec", "service"]).is_none_or(Value::is_null);
        if let Some(object) = object.as_object_mut() {
            object.remove("status");
            if local {
                let now = context.now.to_seconds().to_string();
                object.insert(
                    "status",
                    value!({"conditions": [{
                        "type": "Available", "status": "True", "reason": "Local",
                        "message": "Local APIServices are always available", "lastTransitionTime": now
                    }]}),
                );
            }
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        match context.subresource {
            "status" => keep_for_status(object, old),
            _ => keep(object, old, "status"),
        }
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let spec = root.get("spec");
        validate_name(object, &spec, errors);
        let (group, version) = (spec.get("group"), spec.get("version"));
        if group.is_empty() && version.str() != "v1" {
            errors.push(group.required("only v1 may have an empty group and it better be legacy kube"));
        }
        if !group.is_empty() {
            looks(&group, names::dns1123_subdomain, errors);
        }
        looks(&version, names::dns1035_label, errors);
        for (field, max) in [("groupPriorityMinimum", GROUP_PRIORITY_MAX), ("versionPriority", VERSION_PRIORITY_MAX)] {
            let priority = spec.get(field);
            if !(1..=max).contains(&priority.int()) {
                let detail = format!("must be positive and less than {max}");
                errors.push(Error::invalid(priority.path(), priority.int(), detail));
            }
        }
        validate_service(&spec, errors);
    }

    fn validate_update(&self, object: &Value, _old: &Value, context: &Context<'_>, errors: &mut Errors) {
        if context.subresource == "status" {
            let root = At::root(object);
            let status = root.get("status");
            let conditions = status.get("conditions");
            for condition in conditions.items() {
                let known = ["False", "True", "Unknown"];
                if !known.contains(&condition.get("status").str()) {
                    errors.push(condition.get("status").not_supported(&known));
                }
            }
            return;
        }
        self.validate(object, context, errors);
    }
}

/// The name must be `version.group`. Its errors precede all others.
fn validate_name(object: &Value, spec: &At<'_>, errors: &mut Errors) {
    let name = Meta::of(object).name();
    let expected_name = format!("{}.{}", spec.get("version").str(), spec.get("group").str());
    if !name.is_empty() && names::path_segment(name).is_empty() && name != expected_name {
        let root = At::root(object);
        let metadata = root.get("metadata");
        let detail = format!("must be `spec.version+\".\"+spec.group`: {}", go::quote(&expected_name));
        errors.insert(0, metadata.get("name").invalid(detail));
    }
}

fn validate_service(spec: &At<'_>, errors: &mut Errors) {
    let (service, bundle, insecure) = (spec.get("service"), spec.get("caBundle"), spec.get("insecureSkipTLSVerify"));
    if service.is_absent() {
        if !bundle.is_empty() {
            let bad_value = format!("{} bytes", crate::core::config_map::decoded_length(bundle.str()));
            errors.push(Error::invalid(bundle.path(), bad_value, "local APIServices may not have a caBundle"));
        }
        if insecure.bool() {
            errors.push(insecure.invalid("local APIServices may not have insecureSkipTLSVerify"));
        }
        return;
    }
    for field in ["namespace", "name"] {
        if service.get(field).is_empty() {
            errors.push(service.get(field).required(""));
        }
    }
    let port = service.get("port");
    let wrong = names::port_number(port.int());
    if !wrong.is_empty() {
        let detail = format!("port is not valid: {}", wrong.join(", "));
        errors.push(Error::invalid(port.path(), port.int(), detail));
    }
    if insecure.bool() && !bundle.is_empty() {
        errors.push(insecure.invalid("may not be true if caBundle is present"));
    }
}

fn service(object: &Value) -> String {
    match object.at(&["spec", "service"]).filter(|service| !service.is_null()) {
        Some(service) => {
            let text = |field: &str| service.text_at(&[field]);
            format!("{}/{}", text("namespace"), text("name"))
        }
        None => "Local".to_owned(),
    }
}

fn available(object: &Value) -> String {
    let conditions = object.list_at(&["status", "conditions"]);
    let Some(found) = conditions.iter().find(|condition| condition.str_at(&["type"]) == Some("Available")) else {
        return "Unknown".to_owned();
    };
    let text = |field: &str| found.text_at(&[field]);
    match (text("status"), text("reason")) {
        ("True", _) => "True".to_owned(),
        (status, "") => status.to_owned(),
        (status, reason) => format!("{status} ({reason})"),
    }
}

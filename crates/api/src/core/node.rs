//! Node: a machine that runs pods.

use std::collections::BTreeSet;
use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::{Meta, Scope};
use apimachinery::names::{self as rules_of_names, parse_cidr};
use apimachinery::table::Column;
use apimachinery::time::Time;
use apimachinery::{At, Errors, GroupVersion, Path, Str, Value};

use crate::core::object_meta;
use crate::field_rules::{column, drop_field, keep, looks, quantity, wide_column};
use crate::formats::{cidr_warnings, legacy_cidr};
use crate::kind::{
    Connect, Context, Kind, Persistence, Rules, Selectable, Subresource, UpdateChecks, Verb, age_column, name_column,
    names,
};
use crate::workload;

pub fn kind() -> Kind {
    Kind {
        short_names: names(&["no"]),
        scope: Scope::Cluster,
        persistence: Persistence::Stored {
            prefix: "minions".into(),
            version: GroupVersion { group: "".into(), version: "v1".into() },
            expires: false,
        },
        subresources: vec![
            Subresource::connect(
                "proxy",
                "NodeProxyOptions",
                &[Verb::Create, Verb::Delete, Verb::Get, Verb::Patch, Verb::Update],
                Connect::Proxy,
            ),
            Subresource::status(),
        ],
        selectable: vec![Selectable::new("spec.unschedulable", unschedulable)],
        update_checks: UpdateChecks { whole: 1, change: 1 },
        rules: Arc::new(Node),
        ..Kind::stored("", "v1", "Node", "nodes")
    }
    .with_columns(&columns())
}

#[derive(Debug)]
struct Node;

impl Rules for Node {
    fn default(&self, object: &mut Value, _version: &str) {
        if let Some(spec) = object.get_mut("spec") {
            agree_on_ranges(spec);
        }
        if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut)
            && status.get("allocatable").is_none()
            && let Some(capacity) = status.get("capacity").cloned()
        {
            status.insert("allocatable", capacity);
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        // Dynamic kubelet configuration was removed upstream.
        for (section, field) in [("spec", "configSource"), ("status", "config")] {
            if let Some(section) = object.get_mut(section) {
                drop_field(section, field);
            }
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        let (preserved_section, written, removed_field) = match context.subresource {
            "" => ("status", "spec", "configSource"),
            _ => ("spec", "status", "config"),
        };
        keep(object, old, preserved_section);
        if old.at(&[written, removed_field]).is_none()
            && let Some(written) = object.get_mut(written)
        {
            drop_field(written, removed_field);
        }
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let spec = root.get("spec");
        validate_taints(&spec.get("taints"), errors);
        validate_resources(&root.get("status"), errors);
        validate_features(&root.get("status"), errors);
        validate_ranges(&spec.get("podCIDRs"), errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        object_meta::created(object, errors);
        if context.subresource.is_empty() {
            self.validate(object, context, errors);
        }
        validate_change(&At::root(object), &At::root(old), errors);
    }

    fn warnings(&self, object: &Value, _old: Option<&Value>, context: &Context<'_>) -> Vec<String> {
        if !context.subresource.is_empty() {
            return Vec::new();
        }
        let root = At::root(object);
        let spec = root.get("spec");
        let mut warnings = Vec::new();
        if !spec.get("externalID").is_empty() {
            warnings.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
        }
        let ranges = spec.get("podCIDRs");
        warnings.extend(ranges.items().flat_map(|range| cidr_warnings(range.path(), range.str())));
        warnings
    }
}

/// Synchronizes `podCIDR` and `podCIDRs`; the singular field wins, as older clients set only that one.
fn agree_on_ranges(spec: &mut Value) {
    let Some(fields) = spec.as_object_mut() else { return };
    let one = fields.get("podCIDR").and_then(Value::as_str).unwrap_or_default().to_owned();
    let first = fields.get("podCIDRs").and_then(|all| all.as_array()?.first()).cloned();
    match first {
        None if one.is_empty() => {}
        Some(first) if one.is_empty() => drop(fields.insert("podCIDR", first)),
        Some(first) if first.as_str() == Some(one.as_str()) => {}
        _ => drop(fields.insert("podCIDRs", vec![Value::from(one)])),
    }
}

fn validate_change(root: &At<'_>, before: &At<'_>, errors: &mut Errors) {
    let (status, spec, old) = (root.get("status"), root.get("spec"), before.get("spec"));
    validate_resources(&status, errors);
    validate_features(&status, errors);
    let mut seen = Vec::new();
    for address in status.get("addresses").items() {
        if seen.contains(address.value()) {
            let bad_value = workload::bad_value(&address, ("", "v1", "Node"), &["status", "addresses", "[]"]);
            errors.push(Error::duplicate(address.path(), bad_value));
        }
        seen.push(address.value().clone());
    }
    let (ranges, known) = (spec.get("podCIDRs"), old.get("podCIDRs"));
    let fixed = "node updates may not change podCIDR except from \"\" to valid";
    if !known.is_empty() {
        let changed = if ranges.len() == known.len() {
            ranges.list().iter().zip(known.list()).filter(|(new, old)| new != old).count()
        } else {
            1
        };
        (0..changed).for_each(|_| errors.push(ranges.forbidden(fixed)));
    }
    let (provider, had) = (spec.get("providerID"), old.get("providerID"));
    if !had.is_empty() && had.str() != provider.str() {
        errors.push(provider.forbidden("node updates may not change providerID except from \"\" to valid"));
    }
    validate_taints(&spec.get("taints"), errors);
    if spec.get("externalID").str() != old.get("externalID").str() {
        errors.push(spec.get("externalID").forbidden("may not be updated"));
    }
}

/// Validates taints with upstream's error path, which is below `metadata`.
fn validate_taints(taints: &At<'_>, errors: &mut Errors) {
    let metadata = Path::of("metadata");
    let list = metadata.field("taints");
    let taints = At::new(taints.value(), list);
    let mut seen = BTreeSet::new();
    for taint in taints.items() {
        let (key, value, effect) = (taint.get("key"), taint.get("value"), taint.get("effect"));
        looks(&key, rules_of_names::qualified_name, errors);
        let wrong = rules_of_names::label_value(value.str());
        if !wrong.is_empty() {
            errors.push(value.invalid(wrong.join(";")));
        }
        match effect.str() {
            "NoSchedule" | "PreferNoSchedule" | "NoExecute" => {}
            "" => errors.push(effect.required("")),
            _ => errors.push(effect.not_supported(&["NoSchedule", "PreferNoSchedule", "NoExecute"])),
        }
        if !seen.insert((effect.str().to_owned(), key.str().to_owned())) {
            let bad_value = workload::bad_value(&taint, ("", "v1", "Node"), &["spec", "taints", "[]"]);
            let mut error = Error::duplicate(taint.path(), bad_value);
            "taints must be unique by key and effect pair".clone_into(&mut error.detail);
            errors.push(error);
        }
    }
}

fn validate_resources(status: &At<'_>, errors: &mut Errors) {
    for list in ["capacity", "allocatable"] {
        let resources = status.get(list);
        for (name, _) in resources.entries() {
            let amount = resources.get(name);
            let size = quantity(amount.value());
            if size.is_negative() {
                let detail = "must be greater than or equal to 0";
                errors.push(Error::invalid(amount.path(), size.to_string(), detail));
            }
            if is_integer(name) && size.milli_value() % 1000 != 0 {
                errors.push(Error::invalid(amount.path(), size.to_string(), "must be an integer"));
            }
        }
    }
}

/// Whether a resource has integer quantities: pods and extended resources.
fn is_integer(resource: &str) -> bool {
    let extended = |domain: &str| domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io");
    resource == "pods" || resource.split_once('/').is_some_and(|(domain, _)| extended(domain))
}

fn validate_features(status: &At<'_>, errors: &mut Errors) {
    const LENGTH_MAX: usize = 253;
    let features = status.get("declaredFeatures");
    let is_name = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_uppercase())
            && name.split('/').all(|segment| !segment.is_empty() && segment.bytes().all(|c| c.is_ascii_alphanumeric()))
    };
    let mut last: Option<&str> = None;
    let names: Vec<_> = features.list().iter().map(|name| name.as_str().unwrap_or_default()).collect();
    for (feature, name) in features.items().zip(&names) {
        match last {
            Some(before) if before == *name => errors.push(feature.duplicate()),
            Some(before) if before > *name => errors.push(feature.invalid("list must be sorted alphabetically")),
            _ => {}
        }
        let quoted = apimachinery::go::quote(name);
        if name.len() > LENGTH_MAX {
            let detail = format!("invalid feature name {quoted}: must be no more than {LENGTH_MAX} characters");
            errors.push(feature.invalid(detail));
        } else if !is_name(name) {
            errors.push(feature.invalid(format!(
                "invalid feature name {quoted}: must start with an UpperCamelCase segment, with subsequent segments \
                 separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
            )));
        }
        last = Some(name);
    }
}

fn validate_ranges(ranges: &At<'_>, errors: &mut Errors) {
    ranges.items().for_each(|range| legacy_cidr(range.str(), range.path(), &[], errors));
    if ranges.len() < 2 {
        return;
    }
    let families: Vec<_> = ranges.items().filter_map(|range| Some(parse_cidr(range.str())?.0.is_ipv4())).collect();
    let dual = families.contains(&true) && families.contains(&false);
    if !dual || ranges.len() > 2 {
        errors.push(ranges.invalid("may specify no more than one CIDR for each IP family"));
    }
}

fn unschedulable(object: &Value) -> Str {
    object.at(&["spec", "unschedulable"]).and_then(Value::as_bool).unwrap_or_default().to_string().into()
}

fn columns() -> Vec<Column> {
    fn info(object: &Value, field: &str) -> Value {
        let found = object.str_at(&["status", "nodeInfo", field]).filter(|text| !text.is_empty());
        found.unwrap_or("<unknown>").into()
    }
    fn address(object: &Value, ty: &str) -> Value {
        let addresses = object.list_at(&["status", "addresses"]);
        let found = addresses.iter().find(|address| address.str_at(&["type"]) == Some(ty));
        found.and_then(|address| address.str_at(&["address"])).unwrap_or("<none>").into()
    }
    vec![
        name_column(),
        column("Status", "string", "Conditions of the node.", state),
        column("Roles", "string", "Roles of the node.", roles),
        age_column(),
        column("Version", "string", "Version of the kubelet.", |object, _| {
            object.text_at(&["status", "nodeInfo", "kubeletVersion"]).into()
        }),
        wide_column("Internal-IP", "string", "Internal IP address.", |object, _| address(object, "InternalIP")),
        wide_column("External-IP", "string", "External IP address.", |object, _| address(object, "ExternalIP")),
        wide_column("OS-Image", "string", "Operating system image.", |object, _| info(object, "osImage")),
        wide_column("Kernel-Version", "string", "Kernel version.", |object, _| info(object, "kernelVersion")),
        wide_column("Container-Runtime", "string", "Container runtime and its version.", |object, _| {
            info(object, "containerRuntimeVersion")
        }),
    ]
}

fn state(object: &Value, _now: Time) -> Value {
    let conditions = object.list_at(&["status", "conditions"]);
    let ready = conditions.iter().rfind(|condition| condition.str_at(&["type"]) == Some("Ready"));
    let ready = match ready.map(|condition| condition.str_at(&["status"])) {
        None => "Unknown",
        Some(Some("True")) => "Ready",
        Some(_) => "NotReady",
    };
    if unschedulable(object) == "true" { format!("{ready},SchedulingDisabled").into() } else { ready.into() }
}

fn roles(object: &Value, _now: Time) -> Value {
    let mut roles = BTreeSet::new();
    for (key, value) in Meta::of(object).labels().into_iter().flat_map(apimachinery::Object::iter) {
        if let Some(role) = key.strip_prefix("node-role.kubernetes.io/").filter(|role| !role.is_empty()) {
            roles.insert(role.to_owned());
        } else if key == "kubernetes.io/role"
            && let Some(role) = value.as_str().filter(|role| !role.is_empty())
        {
            roles.insert(role.to_owned());
        }
    }
    if roles.is_empty() { "<none>".into() } else { roles.into_iter().collect::<Vec<_>>().join(",").into() }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn pod_cidr_overrides_pod_cidrs() {
        let check = |mut spec: Value, expect: Value| {
            agree_on_ranges(&mut spec);
            assert_eq!(spec, expect);
        };
        let both = value!({"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]});
        check(value!({"podCIDR": "10.0.0.0/24"}), both.clone());
        check(value!({"podCIDRs": ["10.0.0.0/24"]}), both.clone());
        check(value!({"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.1.0.0/24", "fd00::/64"]}), both);
        check(value!({}), value!({}));
    }

    #[test]
    fn taints_are_unique_by_key_and_effect() {
        let taints = value!([
            {"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}, {"key": "a", "effect": "NoSchedule"}
        ]);
        let mut errors = Errors::new();
        validate_taints(&At::root(&taints), &mut errors);
        let expect = r#"metadata.taints[2]: Duplicate value: {"Key":"a","Value":"","Effect":"NoSchedule","TimeAdded":null}: taints must be unique by key and effect pair"#;
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [expect]);
    }

    #[test]
    fn table_row_contains_status_and_roles() {
        let now = Time::from_unix(0, 0);
        let node = value!({
            "metadata": {"labels": {"node-role.kubernetes.io/b": "", "kubernetes.io/role": "a"}},
            "spec": {"unschedulable": true}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}
        });
        assert_eq!(state(&node, now), value!("Ready,SchedulingDisabled"));
        assert_eq!(roles(&node, now), value!("a,b"));
        assert_eq!(state(&value!({}), now), value!("Unknown"));
    }
}

//! The pod subresource `status`, written by kubelets and schedulers.

use std::collections::{BTreeMap, BTreeSet};

use apimachinery::field::Error;
use apimachinery::meta::MetaMut;
use apimachinery::{At, Errors, Value, names};

use super::super::object_meta;
use super::super::pod_spec::{address, address_warning, invalid_int, invalid_text};
use super::update::annotations;
use crate::field_rules::keep;

/// Condition types that are valid without a domain.
const SYSTEM_CONDITIONS: [&str; 3] = ["PodScheduled", "Ready", "Initialized"];

const STATUSES: [&str; 3] = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];

/// Maximum user and group ID.
const ID_MAX: i64 = i32::MAX as i64;
/// Maximum length of a device health message: 1 KiB.
const HEALTH_MESSAGE_MAX: usize = 1 << 10;

/// Restores everything except the status. Also restores status fields that old kubelets do not send.
pub(super) fn prepare(object: &mut Value, old: &Value) {
    keep(object, old, "spec");
    if let Some(mut metadata) = MetaMut::of(object) {
        match old.at(&["metadata", "ownerReferences"]) {
            Some(owners) => metadata.set("ownerReferences", owners.clone()),
            None => {
                metadata.remove("ownerReferences");
            }
        }
    }
    let before = old.get("status").unwrap_or(&Value::Null);
    let Some(object) = object.as_object_mut() else { return };
    let Some(status) = object.get_or_insert_with("status", Value::object).as_object_mut() else { return };
    if status.get("qosClass").and_then(Value::as_str).unwrap_or_default().is_empty()
        && let Some(class) = before.get("qosClass")
    {
        status.insert("qosClass", class.clone());
    }
    let generation = |of: Option<&Value>| of.and_then(Value::as_int).unwrap_or_default();
    let observed = generation(before.get("observedGeneration"));
    if generation(status.get("observedGeneration")) == 0 && observed != 0 {
        status.insert("observedGeneration", observed);
    }
    let mut generations: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for condition in before.list_at(&["conditions"]).iter().rev() {
        let kind = condition.text_at(&["type"]);
        generations.entry(kind).or_default().push(generation(condition.get("observedGeneration")));
    }
    for condition in status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        let kind = condition.text_at(&["type"]);
        let before = generations.get_mut(kind).and_then(Vec::pop).unwrap_or_default();
        if generation(condition.get("observedGeneration")) == 0 && before != 0 {
            condition.as_object_mut().map(|condition| condition.insert("observedGeneration", before));
        }
    }
}

/// Validates a status that replaces that of `old`.
pub(super) fn validate(object: &Value, old: &Value, errors: &mut Errors) {
    object_meta::updated(object, old, errors);
    annotations(object, old, errors);
    let (root, before) = (At::root(object), At::root(old));
    let (spec, status) = (root.get("spec"), root.get("status"));
    let old_status = before.get("status");
    conditions(&status.get("conditions"), errors);
    nominated(&status.get("nominatedNodeName"), old, errors);
    let observed = status.get("observedGeneration");
    if observed.int() < 0 {
        errors.push(invalid_int(&observed, "must be a non-negative integer"));
    }
    let class = status.get("qosClass");
    if class.str() != old_status.get("qosClass").str() {
        errors.push(invalid_text(&class, "field is immutable"));
    }
    for field in STATUSES {
        transitions(&status.get(field), &old_status.get(field), old, field, errors);
    }
    claims(&status, &spec, errors);
    addresses(&status.get("podIPs"), &old_status.get("podIPs"), errors);
    let hosts = status.get("hostIPs");
    let first = &hosts.value()[0]["ip"];
    if !hosts.is_empty() && first.as_str().unwrap_or_default() != status.get("hostIP").str() {
        let path = hosts.path().index(0);
        errors.push(Error::invalid(&path.field("ip"), first.clone(), "must be equal to `hostIP`"));
    }
    addresses(&hosts, &old_status.get("hostIPs"), errors);
    for field in STATUSES {
        for container in status.get(field).items() {
            user(&container, spec.value().str_at(&["os", "name"]).unwrap_or("linux"), errors);
        }
    }
    for field in STATUSES {
        for container in status.get(field).items() {
            allocated(&container, spec.value(), field, errors);
        }
    }
}

/// Returns warnings about the reported addresses.
pub(super) fn warnings(object: &Value) -> Vec<String> {
    let root = At::root(object);
    let status = root.get("status");
    let mut out = Vec::new();
    for field in ["podIPs", "hostIPs"] {
        for item in status.get(field).items() {
            let ip = item.get("ip");
            out.extend(address_warning(ip.str(), ip.path()));
        }
    }
    out
}

fn conditions(conditions: &At<'_>, errors: &mut Errors) {
    for condition in conditions.items() {
        let (kind, observed) = (condition.get("type").str().to_owned(), condition.get("observedGeneration"));
        if observed.int() < 0 {
            errors.push(observed.invalid("must be a non-negative integer"));
        }
        if !SYSTEM_CONDITIONS.contains(&kind.as_str()) {
            let path = condition.path().field("Type");
            let wrong = names::qualified_name(&kind).into_iter();
            errors.extend(wrong.map(|detail| Error::invalid(&path, kind.as_str(), detail)));
        }
    }
}

fn nominated(node: &At<'_>, old: &Value, errors: &mut Errors) {
    let before = old.text_at(&["status", "nominatedNodeName"]);
    if node.is_empty() || node.str() == before {
        return;
    }
    errors.extend(names::dns1123_subdomain(node.str()).into_iter().map(|detail| node.invalid(detail)));
    if old.str_at(&["spec", "nodeName"]).is_some_and(|bound| !bound.is_empty()) {
        errors.push(node.forbidden("may not be set on pods that are already bound to a node"));
    }
}

/// Rejects a terminated container becoming running, unless its restart policy allows a restart.
fn transitions(now: &At<'_>, before: &At<'_>, pod: &Value, field: &str, errors: &mut Errors) {
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let containers = match field {
        "containerStatuses" => "containers",
        "initContainerStatuses" => "initContainers",
        _ => "",
    };
    if !containers.is_empty() && all_may_restart(spec) {
        return;
    }
    let path = now.path();
    for (index, old) in before.list().iter().enumerate() {
        let Some(terminated) = old.at(&["state", "terminated"]).filter(|it| !it.is_null()) else { continue };
        let name = old.text_at(&["name"]);
        let is_back = |new: &&Value| {
            let terminated = new.at(&["state", "terminated"]).is_some_and(|it| !it.is_null());
            new.text_at(&["name"]) == name && !terminated
        };
        if !now.list().iter().any(|new| is_back(&new)) {
            continue;
        }
        let list = spec.get(containers).and_then(Value::as_array).unwrap_or_default();
        let container = list.iter().find(|container| container.str_at(&["name"]) == Some(name));
        let code = terminated.get("exitCode").and_then(Value::as_int).unwrap_or_default();
        if !container.is_some_and(|container| may_restart(container, spec, code)) {
            let path = path.index(index);
            let detail = "may not be transitioned to non-terminated state";
            errors.push(Error::forbidden(&path.field("state"), detail));
        }
    }
}

fn rules_of(container: &Value) -> &[Value] {
    container.list_at(&["restartPolicyRules"])
}

/// Whether a container has a rule that restarts all containers.
fn all_may_restart(spec: &Value) -> bool {
    ["initContainers", "containers"].iter().any(|field| {
        let containers = spec.get(field).and_then(Value::as_array).unwrap_or_default();
        containers.iter().flat_map(rules_of).any(|rule| rule.str_at(&["action"]) == Some("RestartAllContainers"))
    })
}

fn may_restart(container: &Value, spec: &Value, code: i64) -> bool {
    let own = container.str_at(&["restartPolicy"]);
    if own.is_some() {
        for rule in rules_of(container) {
            let codes = rule.list_at(&["exitCodes", "values"]);
            let listed = codes.contains(&Value::Int(code));
            let matches = match rule.str_at(&["exitCodes", "operator"]) {
                Some("In") => listed,
                Some("NotIn") => !listed,
                _ => false,
            };
            if matches {
                return rule.str_at(&["action"]) == Some("Restart");
            }
        }
    }
    match own.or_else(|| spec.str_at(&["restartPolicy"])) {
        Some("Always") => true,
        Some("OnFailure") => code != 0,
        _ => false,
    }
}

fn claims(status: &At<'_>, spec: &At<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    let known = spec.get("resourceClaims");
    for claim in status.get("resourceClaimStatuses").items() {
        let (name, of) = (claim.get("name"), claim.get("resourceClaimName"));
        if !known.list().iter().any(|it| it.text_at(&["name"]) == name.str()) {
            errors.push(invalid_text(&name, "must match the name of an entry in `spec.resourceClaims`"));
        }
        if !seen.insert(name.str().to_owned()) {
            errors.push(name.duplicate());
        }
        if of.is_present() {
            errors.extend(names::dns1123_subdomain(of.str()).into_iter().map(|detail| of.invalid(detail)));
        }
    }
    let extended = status.get("extendedResourceClaimStatus");
    if extended.is_absent() {
        return;
    }
    let mappings = extended.get("requestMappings");
    if mappings.is_empty() {
        errors.push(mappings.required("at least one request mapping is required"));
    }
    let name = extended.get("resourceClaimName");
    if name.is_empty() {
        errors.push(name.required(""));
    } else {
        errors.extend(names::dns1123_subdomain(name.str()).into_iter().map(|detail| name.invalid(detail)));
    }
}

/// Validates changed addresses: at most one per IP family.
fn addresses(list: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    let text = |item: &Value| item.text_at(&["ip"]).to_owned();
    for item in list.items() {
        if !old.list().iter().any(|it| text(it) == text(item.value())) {
            let ip = item.value().get("ip").unwrap_or(&Value::Null);
            address(&At::new(ip, *item.path()), errors);
        }
    }
    if list.len() <= 1 {
        return;
    }
    let parsed: Vec<_> = list.list().iter().map(|item| names::parse_ip(&text(item))).collect();
    let is_dual = parsed.iter().flatten().any(std::net::IpAddr::is_ipv4)
        && parsed.iter().flatten().any(std::net::IpAddr::is_ipv6)
        && parsed.iter().all(Option::is_some);
    if let Some(at) = parsed.iter().position(Option::is_none) {
        let detail =
            format!("failed to check for dual stack with error:invalid IP address: {}", text(&list.list()[at]));
        errors.push(Error::internal(list.path(), detail));
    }
    if !is_dual || list.len() > 2 {
        let bad_value: Vec<_> =
            list.list().iter().map(|item| format!("{{\"IP\":{}}}", apimachinery::go::quote(&text(item)))).collect();
        let bad_value = apimachinery::field::BadValue::Text(format!("[{}]", bad_value.join(",")));
        errors.push(Error::invalid(list.path(), bad_value, "may specify no more than one IP for each IP family"));
    }
}

fn user(container: &At<'_>, os: &str, errors: &mut Errors) {
    let user = container.get("user");
    let linux = user.get("linux");
    if linux.is_absent() {
        return;
    }
    match os {
        "windows" => errors.push(linux.forbidden("cannot be set for a windows pod")),
        "linux" => {
            for field in ["uid", "gid"] {
                let id = linux.get(field);
                errors.extend(names::in_range(id.int(), 0, ID_MAX).into_iter().map(|detail| invalid_int(&id, detail)));
            }
            for group in linux.get("supplementalGroups").items() {
                errors.extend(names::in_range(group.int(), 0, ID_MAX).into_iter().map(|detail| group.invalid(detail)));
            }
        }
        _ => {}
    }
}

fn allocated(status: &At<'_>, spec: &Value, field: &str, errors: &mut Errors) {
    let resources = status.get("allocatedResourcesStatus");
    if field == "ephemeralContainerStatuses" {
        if !resources.is_empty() {
            errors.push(resources.forbidden("must not be specified in container status"));
        }
        return;
    }
    let list = if field == "containerStatuses" { "containers" } else { "initContainers" };
    let containers = spec.get(list).and_then(Value::as_array).unwrap_or_default();
    let container = containers.iter().find(|it| it.get("name") == status.value().get("name"));
    for resource in resources.items() {
        let name = resource.get("name");
        if let Some(container) = container
            && let Some(detail) = unknown(name.str(), container)
        {
            errors.push(invalid_text(&name, detail));
        }
        let mut seen = BTreeSet::new();
        for device in resource.get("resources").items() {
            let (health, id, message) = (device.get("health"), device.get("resourceID"), device.get("message"));
            let known = ["Healthy", "Unhealthy", "Unknown"];
            if !known.contains(&health.str()) {
                errors.push(Error::not_supported(health.path(), health.str(), &known));
            }
            if message.is_present() && message.is_empty() {
                errors.push(message.required("must be non-empty if specified"));
            } else if message.len() > HEALTH_MESSAGE_MAX {
                errors.push(Error::too_long(message.path(), HEALTH_MESSAGE_MAX));
            }
            if !seen.insert(id.str().to_owned()) {
                errors.push(Error::duplicate(id.path(), id.str()));
            }
        }
    }
}

/// Returns an error message if the container does not request the resource.
fn unknown(name: &str, container: &Value) -> Option<&'static str> {
    let resources = &container["resources"];
    if !name.starts_with("claim:") {
        let is_requested = resources.at(&["requests", name]).is_some();
        return (!is_requested).then_some("must match one of the container's resource requests");
    }
    let claims = resources.list_at(&["claims"]);
    let named = |claim: &Value| match claim.str_at(&["request"]).filter(|request| !request.is_empty()) {
        Some(request) => format!("claim:{}/{request}", claim.text_at(&["name"])),
        None => format!("claim:{}", claim.text_at(&["name"])),
    };
    let is_requested = claims.iter().any(|claim| named(claim) == name);
    (!is_requested).then_some(
        "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty",
    )
}

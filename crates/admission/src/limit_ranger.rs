//! LimitRanger: applies the defaults of a namespace's LimitRanges and rejects objects outside their bounds.

use std::collections::BTreeSet;

use api::amounts::{self, Amounts};
use api::resources::{LIMIT_RANGES, PERSISTENT_VOLUME_CLAIMS, PODS};
use api::view::{AmountsFrom, Pod};
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::quantity::Quantity;
use apimachinery::status::Status;
use apimachinery::{Object, Value};

use super::pods::{containers, spec, spec_mut};
use super::{Attributes, Notes, Operation, Plugin, View};

const ANNOTATION: &str = "kubernetes.io/limit-ranger";
const LISTS: [&str; 2] = ["containers", "initContainers"];

pub(crate) struct LimitRanger;

impl Plugin for LimitRanger {
    fn admit(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        view: &dyn View,
        _: &mut Notes,
    ) -> Result<(), Status> {
        if attributes.is(PODS) && applies_to(attributes) {
            for range in view.objects(LIMIT_RANGES, attributes.namespace) {
                fill_in(object, &range);
            }
        }
        Ok(())
    }

    fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: &Value,
        view: &dyn View,
        _: &mut Notes,
    ) -> Result<(), Status> {
        if !applies_to(attributes) {
            return Ok(());
        }
        for range in view.objects(LIMIT_RANGES, attributes.namespace) {
            let mut wrong = Vec::new();
            for limit in spec(&range).list_at(&["limits"]) {
                check_limit(attributes, object, limit, &mut wrong);
            }
            match wrong.as_slice() {
                [] => {}
                [one] => return Err(attributes.forbidden(object, one)),
                many => return Err(attributes.forbidden(object, format!("[{}]", many.join(", ")))),
            }
        }
        Ok(())
    }
}

/// Whether LimitRanges apply: to pods on create and resize, to PersistentVolumeClaims on every write.
fn applies_to(attributes: &Attributes<'_>) -> bool {
    let going = attributes.old.is_some_and(|old| Meta::of(old).is_deleting());
    let resizes =
        attributes.is(PODS) && attributes.operation == Operation::Update && attributes.subresource == "resize";
    !going && (resizes || attributes.creates(PODS) || attributes.writes(PERSISTENT_VOLUME_CLAIMS))
}

fn fill_in(pod: &mut Value, range: &Value) {
    let (mut requests, mut limits) = (Object::new(), Object::new());
    for limit in spec(range).list_at(&["limits"]).iter().filter(|limit| limit.text_at(&["type"]) == "Container") {
        for (defaults, field) in [(&mut requests, "defaultRequest"), (&mut limits, "default")] {
            for (name, amount) in limit.get(field).and_then(Value::as_object).into_iter().flat_map(Object::iter) {
                defaults.insert(name, amount.clone());
            }
        }
    }
    let mut done = Vec::new();
    let Some(fields) = spec_mut(pod) else { return };
    for (list, called) in LISTS.iter().zip(["container", "init container"]) {
        let listed = fields.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for container in listed.filter_map(Value::as_object_mut) {
            let name = container.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            for (field, defaults, what) in [("requests", &requests, "request"), ("limits", &limits, "limit")] {
                let set = fill(container, field, defaults);
                if !set.is_empty() {
                    let set: Vec<_> = set.into_iter().collect();
                    done.push(format!("{} {what} for {called} {name}", set.join(", ")));
                }
            }
        }
    }
    if let (false, Some(mut meta)) = (done.is_empty(), MetaMut::of(pod)) {
        meta.set_annotation(ANNOTATION, &format!("LimitRanger plugin set: {}", done.join("; ")));
    }
}

/// Sets missing resources of a container. Returns the names of the resources that were set.
fn fill<'a>(container: &mut Object, field: &str, defaults: &'a Object) -> BTreeSet<&'a str> {
    let mut set = BTreeSet::new();
    if defaults.is_empty() {
        return set;
    }
    let Value::Object(resources) = container.get_or_insert_with("resources", Value::object) else { return set };
    let Value::Object(amounts) = resources.get_or_insert_with(field, Value::object) else { return set };
    for (name, amount) in defaults.iter() {
        if !amounts.contains_key(name) {
            amounts.insert(name, amount.clone());
            set.insert(name);
        }
    }
    set
}

fn check_limit(attributes: &Attributes<'_>, object: &Value, limit: &Value, wrong: &mut Vec<String>) {
    let ty = limit.text_at(&["type"]);
    if attributes.is(PERSISTENT_VOLUME_CLAIMS) {
        if ty == "PersistentVolumeClaim" {
            let requests = amounts::read(object.at(&["spec", "resources", "requests"]));
            let used = ResourceRequirements { requests, limits: Amounts::new() };
            used.against(limit, ty, "min", wrong, minimum);
            used.against(limit, ty, "max", wrong, maximum_request);
        }
        return;
    }
    let usages: Vec<ResourceRequirements> = match ty {
        "Container" => containers(spec(object), &LISTS).map(ResourceRequirements::of_container).collect(),
        "Pod" => vec![ResourceRequirements {
            requests: Pod(object).requests(AmountsFrom::Spec),
            limits: Pod(object).limits(AmountsFrom::Spec),
        }],
        _ => return,
    };
    for used in usages {
        used.against(limit, ty, "min", wrong, minimum);
        used.against(limit, ty, "max", wrong, maximum);
        used.against(limit, ty, "maxLimitRequestRatio", wrong, ratio);
    }
}

struct ResourceRequirements {
    requests: Amounts,
    limits: Amounts,
}

/// One bound on a resource: resource name, LimitRange type, bound, request and limit.
struct Bound<'a> {
    resource: &'a str,
    ty: &'a str,
    bound: Quantity,
    request: Option<Quantity>,
    limit: Option<Quantity>,
}

impl ResourceRequirements {
    fn of_container(container: &Value) -> Self {
        let of = |field: &str| amounts::read(container.at(&["resources", field]));
        Self { requests: of("requests"), limits: of("limits") }
    }

    fn against(
        &self,
        limit: &Value,
        ty: &str,
        field: &str,
        wrong: &mut Vec<String>,
        rule: fn(&Bound<'_>) -> Option<String>,
    ) {
        for (resource, bound) in amounts::read(limit.get(field)) {
            let (request, limit) = (self.requests.get(&resource).copied(), self.limits.get(&resource).copied());
            wrong.extend(rule(&Bound { resource: &resource, ty, bound, request, limit }));
        }
    }
}

fn minimum(of: &Bound<'_>) -> Option<String> {
    let Bound { resource, ty, bound, .. } = of;
    let start = format!("minimum {resource} usage per {ty} is {bound}");
    match (of.request, of.limit) {
        (None, _) => Some(format!("{start}.  No request is specified")),
        (Some(request), _) if request < *bound => Some(format!("{start}, but request is {request}")),
        (_, Some(limit)) if limit < *bound => Some(format!("{start}, but limit is {limit}")),
        _ => None,
    }
}

fn maximum(of: &Bound<'_>) -> Option<String> {
    let Bound { resource, ty, bound, .. } = of;
    let start = format!("maximum {resource} usage per {ty} is {bound}");
    match (of.request, of.limit) {
        (_, None) => Some(format!("{start}.  No limit is specified")),
        (_, Some(limit)) if limit > *bound => Some(format!("{start}, but limit is {limit}")),
        (Some(request), _) if request > *bound => Some(format!("{start}, but request is {request}")),
        _ => None,
    }
}

fn maximum_request(of: &Bound<'_>) -> Option<String> {
    let Bound { resource, ty, bound, .. } = of;
    let start = format!("maximum {resource} usage per {ty} is {bound}");
    match of.request {
        None => Some(format!("{start}.  No request is specified")),
        Some(request) if request > *bound => Some(format!("{start}, but request is {request}")),
        Some(_) => None,
    }
}

fn ratio(of: &Bound<'_>) -> Option<String> {
    let Bound { resource, ty, bound, .. } = of;
    let start = format!("{resource} max limit to request ratio per {ty} is {bound}");
    let given = |amount: Option<Quantity>| amount.filter(|amount| !amount.is_zero());
    let Some(request) = given(of.request) else {
        return Some(format!("{start}, but no request is specified or request is 0"));
    };
    let Some(limit) = given(of.limit) else {
        return Some(format!("{start}, but no limit is specified or limit is 0"));
    };
    let ratio = limit.as_f64() / request.as_f64();
    (ratio > bound.as_f64()).then(|| format!("{start}, but provided ratio is {ratio:.6}"))
}

#[cfg(test)]
mod tests {
    use apimachinery::json;

    use super::*;

    fn check(limit: &str, pod: &str, expect: &[&str]) {
        let (limit, pod) = (json::parse(limit.as_bytes()).unwrap(), json::parse(pod.as_bytes()).unwrap());
        let mut wrong = Vec::new();
        let kind = api::core::pod::kind();
        let user = auth::User::default();
        let attributes = crate::testing::attributes(&kind, &user, Operation::Create);
        check_limit(&attributes, &pod, &limit, &mut wrong);
        assert_eq!(wrong, expect);
    }

    #[test]
    fn bound_violations_have_upstreams_messages() {
        let pod = |resources: &str| format!(r#"{{"spec":{{"containers":[{{"name":"c","resources":{resources}}}]}}}}"#);
        let max = r#"{"type":"Container","max":{"cpu":"1"}}"#;
        let min = r#"{"type":"Container","min":{"memory":"1Mi"}}"#;
        let ratio = r#"{"type":"Pod","maxLimitRequestRatio":{"cpu":"2"}}"#;
        check(max, &pod("{}"), &["maximum cpu usage per Container is 1.  No limit is specified"]);
        check(max, &pod(r#"{"limits":{"cpu":"2"}}"#), &["maximum cpu usage per Container is 1, but limit is 2"]);
        check(max, &pod(r#"{"limits":{"cpu":"1"}}"#), &[]);
        check(min, &pod("{}"), &["minimum memory usage per Container is 1Mi.  No request is specified"]);
        check(
            ratio,
            &pod(r#"{"limits":{"cpu":"3"},"requests":{"cpu":"1"}}"#),
            &["cpu max limit to request ratio per Pod is 2, but provided ratio is 3.000000"],
        );
    }

    #[test]
    fn defaults_are_set_and_recorded_in_an_annotation() {
        let range = r#"{"spec":{"limits":[{"type":"Container","default":{"cpu":"2"},"defaultRequest":{"cpu":"1","memory":"1Gi"}}]}}"#;
        let mut pod =
            json::parse(br#"{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"3"}}}]}}"#).unwrap();
        fill_in(&mut pod, &json::parse(range.as_bytes()).unwrap());
        let expect = "LimitRanger plugin set: memory request for container c; cpu limit for container c";
        assert_eq!(Meta::of(&pod).annotation(ANNOTATION), Some(expect));
        assert_eq!(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"].as_str(), Some("3"));
    }
}

//! Resource requests, limits and claims of containers and pods.

mod aggregate;

use std::collections::BTreeSet;

use apimachinery::field::Error;
use apimachinery::quantity::Quantity;
use apimachinery::{At, Errors, Path, Value, names};

use crate::amounts::is_pod_level;
use crate::core::resource_names::{self, may_overcommit};
use crate::field_rules::{looks, quantity};

pub(crate) use aggregate::default_pod_level;

const HUGE_PAGES: &str = "hugepages-";

/// The level of the resources: fewer resource names are allowed at pod level than at container level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourceLevel {
    Container,
    Pod,
}

/// Validates requests, limits and claims; `claims` are the names of the pod's resource claims.
pub(crate) fn validate(resources: &At<'_>, asking: ResourceLevel, claims: &BTreeSet<&str>, errors: &mut Errors) {
    let (limits, requests) = (resources.get("limits"), resources.get("requests"));
    amounts(&limits, limits.path(), asking, errors, |_, _, _| {});
    amounts(&requests, requests.path(), asking, errors, |name, request, errors| {
        let limit = limits.entry(name);
        let (amount, cap) = (quantity(request), quantity(limit.value()));
        let blame = |detail: String| Error::invalid(requests.path(), format_quantity(request), detail);
        if limit.is_absent() {
            if !may_overcommit(name) {
                errors.push(limits.required("Limit must be set for non overcommitable resources"));
            }
        } else if amount != cap && !may_overcommit(name) {
            errors.push(blame(format!("must be equal to {name} limit of {}", format_quantity(limit.value()))));
        } else if amount > cap {
            errors.push(blame(format!(
                "must be less than or equal to {name} limit of {}",
                format_quantity(limit.value())
            )));
        }
    });
    let names = || limits.entries().chain(requests.entries()).map(|(name, _)| name);
    if names().any(is_huge_pages) && !names().any(|name| matches!(name, "cpu" | "memory")) {
        errors.push(resources.forbidden("HugePages require cpu or memory"));
    }
    claim_names(&resources.get("claims"), claims, errors);
}

/// Validates the overhead of a pod, with the error paths of limits.
pub(crate) fn overhead(overhead: &At<'_>, errors: &mut Errors) {
    amounts(overhead, &overhead.path().field("limits"), ResourceLevel::Container, errors, |_, _, _| {});
    let names = || overhead.entries().map(|(name, _)| name);
    if names().any(is_huge_pages) && !names().any(|name| matches!(name, "cpu" | "memory")) {
        errors.push(overhead.forbidden("HugePages require cpu or memory"));
    }
}

/// Validates pod-level resources.
pub(crate) fn pod_level(spec: &At<'_>, claims: &BTreeSet<&str>, errors: &mut Errors) {
    let resources = spec.get("resources");
    if resources.is_absent() {
        return;
    }
    if spec.value().str_at(&["os", "name"]) == Some("windows") {
        errors.push(resources.forbidden("may not be set for a windows pod"));
        return;
    }
    if resources.get("claims").is_present() {
        errors.push(resources.get("claims").forbidden("claims may not be set for Resources at pod-level"));
    }
    validate(&resources, ResourceLevel::Pod, claims, errors);
    aggregate::consistent(spec, &resources, errors);
}

/// Whether the name is a huge page resource.
pub(crate) fn is_huge_pages(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
}

/// Validates names and quantities, and calls `also` for each entry.
fn amounts(
    list: &At<'_>,
    path: &Path<'_>,
    asking: ResourceLevel,
    errors: &mut Errors,
    also: impl Fn(&str, &Value, &mut Errors),
) {
    for (name, value) in list.entries() {
        let path = path.key(name);
        let at = At::new(value.value(), path);
        match asking {
            ResourceLevel::Container => resource_names::validate_container(name, &at, errors),
            ResourceLevel::Pod => pod_name(name, &at, errors),
        }
        let amount = quantity(value.value());
        let show = || format_quantity(value.value());
        if amount.is_negative() {
            errors.push(Error::invalid(&path, show(), "must be greater than or equal to 0"));
        }
        if resource_names::is_integer(name) && amount.milli_value() % 1000 != 0 {
            errors.push(Error::invalid(&path, show(), "must be an integer"));
        }
        also(name, value.value(), errors);
        if is_huge_pages(name) && !is_divisible(name, amount) {
            let detail = format!("{} is not positive integer multiple of {name}", show());
            errors.push(Error::invalid(&path, show(), detail));
        }
    }
}

fn format_quantity(value: &Value) -> String {
    value.as_str().map_or_else(|| quantity(value).to_string(), str::to_owned)
}

fn pod_name(name: &str, at: &At<'_>, errors: &mut Errors) {
    let before = errors.len();
    resource_names::validate(name, at, errors);
    if errors.len() == before && !is_pod_level(name) {
        errors.push(Error::not_supported(at.path(), name, &["cpu", HUGE_PAGES, "memory"]));
    }
}

/// Whether a quantity is a multiple of the page size in the name.
fn is_divisible(name: &str, amount: Quantity) -> bool {
    let page = name.strip_prefix(HUGE_PAGES).and_then(|size| size.parse::<Quantity>().ok());
    let Some(page) = page else { return false };
    let whole = !page.is_zero() && !page.is_negative() && page.milli_value() % 1000 == 0;
    whole && amount.value() % page.value() == 0
}

/// Requires each claim to be a claim of the pod, and rejects duplicates.
fn claim_names(list: &At<'_>, claims: &BTreeSet<&str>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for item in list.items() {
        let (name, request) = (item.get("name").str().to_owned(), item.get("request"));
        if name.is_empty() {
            errors.push(item.required(""));
            continue;
        }
        if seen.contains(&name) {
            errors.push(Error::duplicate(item.path(), name.as_str()));
        } else {
            let mut key = name.clone();
            if !request.is_empty() {
                looks(&request, names::dns1123_label, errors);
                key = format!("{name}/{}", request.str());
            }
            if seen.contains(&key) {
                errors.push(Error::duplicate(item.path(), key.as_str()));
            } else if request.is_empty() {
                let requests = format!("{name}/");
                let overlaps = seen.range(requests.clone()..).take_while(|key: &&String| key.starts_with(&requests));
                errors.extend(overlaps.map(|_| Error::duplicate(item.path(), name.as_str())));
            }
            seen.insert(key);
        }
        if !claims.contains(name.as_str()) {
            let mut error = Error::not_found(item.path(), name.as_str());
            let known: Vec<_> = claims.iter().copied().collect();
            error.detail = match known.join(", ").as_str() {
                "" => "must be one of the names in pod.spec.resourceClaims which is empty".to_owned(),
                known => format!("must be one of the names in pod.spec.resourceClaims: {known}"),
            };
            errors.push(error);
        }
    }
}

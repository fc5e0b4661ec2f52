//! Resource names in quotas, limits and requests.

use apimachinery::field::Error;
use apimachinery::{At, Errors, names};

const HUGE_PAGES: &str = "hugepages-";

const COMPUTE: &[&str] = &["cpu", "memory", "ephemeral-storage"];

const COUNTED: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

const REQUESTED: &[&str] = &[
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "requests.storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];

/// Whether a quota accepts the name without a domain.
pub fn is_quota_standard(name: &str) -> bool {
    [COMPUTE, COUNTED, REQUESTED].iter().any(|known| known.contains(&name)) || is_quota_huge_page(name)
}

/// Whether the name is valid without a domain.
pub fn is_standard(name: &str) -> bool {
    name == "storage" || is_quota_standard(name)
}

/// Whether a container may request the name without a domain.
pub fn is_container_standard(name: &str) -> bool {
    COMPUTE.contains(&name) || name.starts_with(HUGE_PAGES)
}

/// Whether Kubernetes defines the resource.
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether the name is an extended resource, such as `example.com/gpu`.
pub fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && names::qualified_name(&format!("requests.{name}")).is_empty()
}

/// Whether quantities of the resource must be integers.
pub fn is_integer(name: &str) -> bool {
    COUNTED.contains(&name) || is_extended(name)
}

/// Whether limits may exceed requests (overcommit).
pub fn may_overcommit(name: &str) -> bool {
    is_native(name) && !name.starts_with(HUGE_PAGES)
}

/// Validates a resource name, which is the map key at `at`.
pub fn validate(name: &str, at: &At<'_>, errors: &mut Errors) {
    let wrong = names::qualified_name(name);
    let malformed = !wrong.is_empty();
    errors.extend(wrong.into_iter().map(|wrong| Error::invalid(at.path(), name, wrong)));
    if !malformed && !name.contains('/') && !is_standard(name) {
        errors.push(Error::invalid(at.path(), name, "must be a standard resource type or fully qualified"));
    }
}

/// Validates the name of a resource in a container.
pub fn validate_container(name: &str, at: &At<'_>, errors: &mut Errors) {
    validate(name, at, errors);
    if !name.contains('/') {
        if !is_container_standard(name) {
            errors.push(Error::invalid(at.path(), name, "must be a standard resource for containers"));
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.push(Error::invalid(at.path(), name, "doesn't follow extended resource name standard"));
    }
}

/// Validates the name of a resource in a quota.
pub fn validate_quota(name: &str, at: &At<'_>, errors: &mut Errors) {
    validate(name, at, errors);
    if !name.contains('/') && !is_quota_standard(name) {
        errors.push(Error::invalid(at.path(), name, "must be a standard resource for quota"));
    }
}

fn is_quota_huge_page(name: &str) -> bool {
    name.starts_with(HUGE_PAGES) || name.starts_with("requests.hugepages-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_with_other_domains_are_extended() {
        let check = |name: &str, extended: bool, integer: bool| {
            assert_eq!((is_extended(name), is_integer(name)), (extended, integer), "{name}");
        };
        check("example.com/gpu", true, true);
        check("kubernetes.io/thing", false, false);
        check("cpu", false, false);
        check("pods", false, true);
        check("requests.example.com/gpu", false, false);
    }
}

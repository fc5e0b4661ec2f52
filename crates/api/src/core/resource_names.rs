//! The names of resources that quotas and limits know.

use machinery::field::Error;
use machinery::{At, Errors, names};

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

/// Whether a quota may name it without a domain.
pub fn is_quota_standard(name: &str) -> bool {
    [COMPUTE, COUNTED, REQUESTED].iter().any(|known| known.contains(&name)) || is_quota_huge_page(name)
}

/// Whether anything may name it without a domain.
pub fn is_standard(name: &str) -> bool {
    name == "storage" || is_quota_standard(name)
}

/// Whether a container may ask for it without a domain.
pub fn is_container_standard(name: &str) -> bool {
    COMPUTE.contains(&name) || name.starts_with(HUGE_PAGES)
}

/// Whether Kubernetes itself defines it.
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether it is somebody's own resource, such as `example.com/gpu`.
pub fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && names::qualified_name(&format!("requests.{name}")).is_empty()
}

/// Whether only whole numbers of it exist.
pub fn is_integer(name: &str) -> bool {
    COUNTED.contains(&name) || is_extended(name)
}

/// Whether pods may be promised more of it than there is.
pub fn may_overcommit(name: &str) -> bool {
    is_native(name) && !name.starts_with(HUGE_PAGES)
}

/// What is wrong with the name of any resource, which is the key that `at` stands at.
pub fn validate(name: &str, at: &At<'_>, errors: &mut Errors) {
    let wrong = names::qualified_name(name);
    let malformed = !wrong.is_empty();
    errors.extend(wrong.into_iter().map(|wrong| Error::invalid(at.path(), name, wrong)));
    if !malformed && !name.contains('/') && !is_standard(name) {
        errors.push(Error::invalid(at.path(), name, "must be a standard resource type or fully qualified"));
    }
}

/// What is wrong with the name of a resource that a container asks for.
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

/// What is wrong with the name of a resource that a quota limits.
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
    fn what_has_a_domain_of_its_own_is_extended() {
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

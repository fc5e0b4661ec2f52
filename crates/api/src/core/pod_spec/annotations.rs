//! Pod annotations with a defined meaning.

use apimachinery::field::Error;
use apimachinery::{At, Errors, Path, Value, go, json};

use super::{paths, scheduling, visit};
use crate::view::CONFIG_MIRROR as MIRROR;

/// Deprecated prefix for the AppArmor profile of the container whose name follows.
pub(crate) const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
/// Deprecated annotation for a pod's seccomp profile.
pub(crate) const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
/// Deprecated prefix for the seccomp profile of the container whose name follows.
pub(crate) const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";

const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const LOCALHOST: &str = "localhost/";

/// Validates the annotations of a pod or template; `at` is their error path.
pub(crate) fn validate(annotations: &Value, spec: &At<'_>, at: &Path<'_>, errors: &mut Errors) {
    let annotations = At::new(annotations, *at);
    let text = |key: &str| annotations.value().str_at(&[key]).map(str::to_owned);
    if let Some(value) = text(MIRROR)
        && spec.get("nodeName").is_empty()
    {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        errors.push(Error::invalid(&at.key(MIRROR), value, detail));
    }
    if let Some(encoded) = text(TOLERATIONS).filter(|encoded| !encoded.is_empty()) {
        match json::parse(encoded.as_bytes()) {
            Ok(decoded) => scheduling::tolerations(&At::new(&decoded, at.field(TOLERATIONS)), errors),
            Err(detail) => errors.push(Error::invalid(at, TOLERATIONS, detail.to_string())),
        }
    }
    if let Some(cost) = text(DELETION_COST).filter(|cost| !is_cost(cost)) {
        errors.push(Error::invalid(&at.key(DELETION_COST), cost, "must be a 32bit integer"));
    }
    if let Some(profile) = text(SECCOMP_POD) {
        seccomp(&profile, &at.field(SECCOMP_POD), errors);
    }
    for (key, value) in annotations.entries() {
        if key.starts_with(SECCOMP_CONTAINER) {
            seccomp(value.str(), &at.field(key), errors);
        }
    }
    for (key, value) in annotations.entries() {
        let Some(container) = key.strip_prefix(APP_ARMOR) else { continue };
        let mut found = false;
        visit(spec, |it| found |= it.get("name").str() == container);
        if !found {
            errors.push(Error::invalid(value.path(), container, "container not found"));
        }
        let known = ["", "runtime/default", "unconfined"].contains(&value.str()) || value.str().starts_with(LOCALHOST);
        if !known {
            errors.push(value.invalid(format!("invalid AppArmor profile name: {}", go::quote(value.str()))));
        }
    }
}

/// Requires deprecated annotations to match the corresponding fields.
pub(crate) fn agree(annotations: &Value, spec: &At<'_>, errors: &mut Errors) {
    let annotation = |key: &str| annotations.str_at(&[key]);
    let context = spec.get("securityContext");
    if let Some(value) = annotation(SECCOMP_POD) {
        agrees(value, &context.get("seccompProfile"), "seccomp", errors);
    }
    visit(spec, |container| {
        let context = container.get("securityContext");
        let key = format!("{SECCOMP_CONTAINER}{}", container.get("name").str());
        if let Some(value) = annotation(&key) {
            agrees(value, &context.get("seccompProfile"), "seccomp", errors);
        }
    });
    if spec.value().str_at(&["os", "name"]) == Some("windows") {
        return;
    }
    visit(spec, |container| {
        let own = container.get("securityContext");
        let key = format!("{APP_ARMOR}{}", container.get("name").str());
        let profile = own.get("appArmorProfile");
        // A container without a profile inherits the pod's, but the error has the container's path.
        let inherited = spec.value().at(&["securityContext", "appArmorProfile"]).unwrap_or(&Value::Null);
        let value = if profile.is_present() { profile.value() } else { inherited };
        if let Some(annotation) = annotation(&key) {
            agrees(annotation, &At::new(value, *profile.path()), "apparmor", errors);
        }
    });
}

/// Returns the `appArmorProfile` for an AppArmor annotation value.
pub(crate) fn app_armor_field(annotation: &str) -> Option<Value> {
    use apimachinery::value;
    match annotation {
        "unconfined" => Some(value!({"type": "Unconfined"})),
        "runtime/default" => Some(value!({"type": "RuntimeDefault"})),
        _ => {
            let profile = annotation.strip_prefix(LOCALHOST).filter(|profile| !profile.is_empty())?;
            Some(value!({"type": "Localhost", "localhostProfile": profile}))
        }
    }
}

fn agrees(annotation: &str, profile: &At<'_>, what: &str, errors: &mut Errors) {
    let right = match profile.get("type").str() {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => annotation == "runtime/default" || what == "seccomp" && annotation == "docker/default",
        "Localhost" => match annotation.strip_prefix(LOCALHOST) {
            Some(name) => {
                let local = profile.get("localhostProfile");
                if local.is_absent() || local.str() != name {
                    let detail = format!("{what} profile in annotation and field must match");
                    errors.push(local.forbidden(detail));
                }
                true
            }
            None => false,
        },
        _ => true,
    };
    if !right {
        errors.push(profile.get("type").forbidden(format!("{what} type in annotation and field must match")));
    }
}

fn seccomp(profile: &str, at: &Path<'_>, errors: &mut Errors) {
    if ["runtime/default", "docker/default", "unconfined"].contains(&profile) {
        return;
    }
    match profile.strip_prefix(LOCALHOST) {
        Some(path) => paths::descending(path, at, errors),
        None => errors.push(Error::invalid(at, profile, "must be a valid seccomp profile")),
    }
}

/// Whether the text is a 32-bit integer in canonical form: no plus sign and no leading zeros.
fn is_cost(text: &str) -> bool {
    let canonical = text == "0" || text.starts_with(|c: char| c == '-' || matches!(c, '1'..='9'));
    canonical && text.parse::<i32>().is_ok()
}

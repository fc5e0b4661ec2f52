//! Fields that a pod's `os.name` forbids.

use apimachinery::field::Error;
use apimachinery::{At, Errors};

use super::report::required;

const WINDOWS: &str = "cannot be set for a windows pod";

/// Pod fields that are forbidden on Windows, with the parent in the error path.
const POD_FIELDS: [(&str, FieldLocation); 15] = [
    ("appArmorProfile", FieldLocation::Context),
    ("seLinuxOptions", FieldLocation::Context),
    ("hostUsers", FieldLocation::Spec),
    ("hostPID", FieldLocation::Spec),
    ("hostIPC", FieldLocation::Spec),
    ("seccompProfile", FieldLocation::Context),
    ("fsGroup", FieldLocation::Context),
    ("fsGroupChangePolicy", FieldLocation::Context),
    ("sysctls", FieldLocation::Context),
    ("shareProcessNamespace", FieldLocation::Spec),
    ("runAsUser", FieldLocation::Context),
    ("runAsGroup", FieldLocation::Context),
    ("supplementalGroups", FieldLocation::Context),
    ("supplementalGroupsPolicy", FieldLocation::Context),
    ("seLinuxChangePolicy", FieldLocation::Context),
];

/// Container fields that are forbidden on Windows.
const CONTAINER_FIELDS: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldLocation {
    Context,
    Spec,
}

/// Validates the OS name and the fields that depend on it.
pub(crate) fn validate(spec: &At<'_>, errors: &mut Errors) {
    let os = spec.get("os");
    let name = os.get("name");
    if os.is_absent() || !required(&name, errors) {
        return;
    }
    match name.str() {
        "linux" => linux(spec, errors),
        "windows" => windows(spec, errors),
        other => errors.push(Error::not_supported(os.path(), other, &["linux", "windows"])),
    }
}

fn linux(spec: &At<'_>, errors: &mut Errors) {
    let mut check = |holder: &At<'_>| {
        let context = holder.get("securityContext");
        let options = context.get("windowsOptions");
        if options.is_present() {
            errors.push(options.forbidden("windows options cannot be set for a linux pod"));
        }
    };
    check(spec);
    super::visit(spec, |container| check(container));
}

fn windows(spec: &At<'_>, errors: &mut Errors) {
    let context = spec.get("securityContext");
    for (field, holder) in POD_FIELDS {
        let found = match holder {
            FieldLocation::Context => context.get(field),
            FieldLocation::Spec => spec.get(field),
        };
        let is_plain = matches!(field, "hostPID" | "hostIPC");
        if if is_plain { found.bool() } else { found.is_present() } {
            errors.push(found.forbidden(WINDOWS));
        }
    }
    super::visit(spec, |container| {
        let context = container.get("securityContext");
        for field in CONTAINER_FIELDS {
            if context.get(field).is_present() {
                errors.push(context.get(field).forbidden(WINDOWS));
            }
        }
    });
}

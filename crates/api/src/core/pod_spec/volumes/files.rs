//! Secret, configMap, downwardAPI and projected volumes.

use std::collections::BTreeSet;

use apimachinery::field::Error;
use apimachinery::{At, Errors, Path, names};

use super::super::paths;
use super::super::report::{invalid_int, required};
use crate::field_rules::quantity;

/// Pod fields that can be projected into a file.
const VOLUME_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

/// Container resources that can be projected into a file or an environment variable.
const CONTAINER_RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// All pod fields of the downward API; `spec.host` is the legacy name of `spec.nodeName`.
const FIELDS: [&str; 14] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// Maximum token lifetime: 2^32 seconds.
const TOKEN_SECONDS_MAX: i64 = 1 << 32;
/// Minimum token lifetime: ten minutes.
const TOKEN_SECONDS_MIN: i64 = 10 * 60;

pub(super) fn secret(source: &At<'_>, errors: &mut Errors) {
    required(&source.get("secretName"), errors);
    keys(source, errors);
}

pub(super) fn config_map(source: &At<'_>, errors: &mut Errors) {
    required(&source.get("name"), errors);
    keys(source, errors);
}

pub(super) fn downward_api(source: &At<'_>, errors: &mut Errors) {
    mode(&source.get("defaultMode"), errors);
    for file in source.get("items").items() {
        // Upstream reports the path of the volume, not of the item.
        downward_file(&At::new(file.value(), *source.path()), errors);
    }
}

pub(super) fn projected(source: &At<'_>, errors: &mut Errors) {
    mode(&source.get("defaultMode"), errors);
    let mut taken = BTreeSet::new();
    for projection in source.get("sources").items() {
        let (secret, map) = (projection.get("secret"), projection.get("configMap"));
        let (downward, token) = (projection.get("downwardAPI"), projection.get("serviceAccountToken"));
        for holder in [&secret, &map] {
            if holder.is_present() {
                projected_keys(holder, source.path(), &mut taken, errors);
            }
        }
        for file in downward.get("items").items() {
            downward_file(&At::new(file.value(), *downward.path()), errors);
            take(file.get("path").str(), file.get("path").str(), source.path(), &mut taken, errors);
        }
        if token.is_present() {
            projected_token(&token, source.path(), errors);
        }
        let present = [&secret, &map, &downward, &token].iter().filter(|it| it.is_present()).count();
        if present > 1 {
            errors.push(projection.forbidden("may not specify more than 1 volume type per source"));
        }
    }
}

/// Validates a `fieldRef` to one of the `allowed` pod fields.
pub(crate) fn field_ref(reference: &At<'_>, allowed: &[&str], errors: &mut Errors) {
    let (version, path) = (reference.get("apiVersion"), reference.get("fieldPath"));
    if !required(&version, errors) || !required(&path, errors) {
        return;
    }
    let converting = |detail: String| path.invalid(format!("error converting fieldPath: {detail}"));
    if version.str() != "v1" {
        errors.push(converting(format!("unsupported pod version: {}", version.str())));
        return;
    }
    let blame = |wrong: Vec<String>, subscript: &str, errors: &mut Errors| {
        errors.extend(wrong.into_iter().map(|detail| Error::invalid(reference.path(), subscript, detail)));
    };
    match subscript(path.str()) {
        Some(("metadata.annotations", key)) => {
            let key = key.to_lowercase();
            blame(names::qualified_name(&key), &key, errors);
        }
        Some(("metadata.labels", key)) => blame(names::qualified_name(key), key, errors),
        Some(_) => errors.push(converting(format!("field label does not support subscript: {}", path.str()))),
        None => {
            let field = if path.str() == "spec.host" { "spec.nodeName" } else { path.str() };
            if !FIELDS.contains(&field) {
                errors.push(converting(format!("field label not supported: {field}")));
            } else if !allowed.contains(&field) {
                errors.push(Error::not_supported(path.path(), field, allowed));
            }
        }
    }
}

/// Validates a `resourceFieldRef`. `names_container`: whether it must name the container, as in a file.
pub(crate) fn resource_field_ref(reference: &At<'_>, names_container: bool, errors: &mut Errors) {
    let resource = reference.get("resource");
    let is_huge = ["requests.hugepages-", "limits.hugepages-"].iter().any(|it| resource.str().starts_with(it));
    if names_container && reference.get("containerName").is_empty() {
        errors.push(reference.get("containerName").required(""));
    } else if required(&resource, errors) && !CONTAINER_RESOURCES.contains(&resource.str()) && !is_huge {
        errors.push(Error::not_supported(resource.path(), resource.str(), &CONTAINER_RESOURCES));
    }
    divisor(reference, is_huge, errors);
}

fn divisor(reference: &At<'_>, is_huge: bool, errors: &mut Errors) {
    const BYTES: [&str; 13] = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let (divisor, resource) = (reference.get("divisor"), reference.get("resource").str().to_owned());
    if quantity(divisor.value()).is_zero() {
        return;
    }
    let bytes = |what: &str| {
        let values = BYTES.join(", ");
        format!("only divisor's values {values} are supported with the {what} resource")
    };
    let (values, detail): (&[&str], String) = match resource.as_str() {
        "limits.cpu" | "requests.cpu" => {
            (&["1m", "1"], "only divisor's values 1m and 1 are supported with the cpu resource".to_owned())
        }
        "limits.memory" | "requests.memory" => (&BYTES, bytes("memory")),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => (&BYTES, bytes("local ephemeral storage")),
        _ if is_huge => (&BYTES, bytes("hugepages")),
        _ => return,
    };
    if !values.contains(&divisor.str()) {
        errors.push(Error::invalid(divisor.path(), resource, detail));
    }
}

fn keys(source: &At<'_>, errors: &mut Errors) {
    mode(&source.get("defaultMode"), errors);
    for item in source.get("items").items() {
        key_to_path(&item, errors);
    }
}

fn key_to_path(item: &At<'_>, errors: &mut Errors) {
    required(&item.get("key"), errors);
    let path = item.get("path");
    required(&path, errors);
    paths::not_reserved(path.str(), path.path(), errors);
    mode(&item.get("mode"), errors);
}

fn mode(mode: &At<'_>, errors: &mut Errors) {
    if !(0..=0o777).contains(&mode.int()) {
        errors.push(invalid_int(mode, MODE));
    }
}

fn downward_file(file: &At<'_>, errors: &mut Errors) {
    let path = file.get("path");
    required(&path, errors);
    paths::not_reserved(path.str(), path.path(), errors);
    let (field, resource) = (file.get("fieldRef"), file.get("resourceFieldRef"));
    if field.is_present() {
        field_ref(&field, &VOLUME_FIELDS, errors);
        if resource.is_present() {
            let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
            errors.push(Error::invalid(file.path(), "resource", detail));
        }
    } else if resource.is_present() {
        resource_field_ref(&resource, true, errors);
    } else {
        errors.push(file.required("one of fieldRef and resourceFieldRef is required"));
    }
    mode(&file.get("mode"), errors);
}

fn projected_keys(holder: &At<'_>, volume: &Path<'_>, taken: &mut BTreeSet<String>, errors: &mut Errors) {
    required(&holder.get("name"), errors);
    for item in holder.get("items").items() {
        key_to_path(&item, errors);
        take(item.get("path").str(), holder.get("name").str(), volume, taken, errors);
    }
}

fn projected_token(token: &At<'_>, volume: &Path<'_>, errors: &mut Errors) {
    let seconds = token.get("expirationSeconds");
    if seconds.int() < TOKEN_SECONDS_MIN {
        errors.push(invalid_int(&seconds, "may not specify a duration less than 10 minutes"));
    }
    if seconds.int() > TOKEN_SECONDS_MAX {
        errors.push(invalid_int(&seconds, "may not specify a duration larger than 2^32 seconds"));
    }
    let path = volume.field("path");
    let text = token.get("path");
    if text.is_empty() {
        errors.push(Error::required(&path, ""));
    } else {
        paths::not_reserved(text.str(), &path, errors);
    }
}

/// Rejects a path that two sources create.
fn take(path: &str, blamed: &str, volume: &Path<'_>, taken: &mut BTreeSet<String>, errors: &mut Errors) {
    if !path.is_empty() && !taken.insert(path.to_owned()) {
        errors.push(Error::invalid(volume, blamed, "conflicting duplicate paths"));
    }
}

/// Splits `metadata.labels['a']` into field and key.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (field, key) = path.strip_suffix("']")?.split_once("['")?;
    (!field.is_empty()).then_some((field, key))
}

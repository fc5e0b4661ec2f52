//! Environment variables of a container.

use apimachinery::field::Error;
use apimachinery::{At, Errors, names};

use super::paths;
use super::report::{required, text};
use super::volumes::{field_ref, resource_field_ref};
use crate::field_rules::looks;

/// Validates one source of an environment variable.
type Check = fn(&At<'_>, &mut Errors);

/// Pod fields that an environment variable can refer to.
const FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Validates `env`.
pub(crate) fn variables(variables: &At<'_>, errors: &mut Errors) {
    for variable in variables.items() {
        let name = variable.get("name");
        if required(&name, errors) {
            looks(&name, names::relaxed_env_var_name, errors);
        }
        let from = variable.get("valueFrom");
        if from.is_present() {
            value_from(&from, variable.get("value").is_empty(), errors);
        }
    }
}

/// Validates `envFrom`.
pub(crate) fn sources(sources: &At<'_>, errors: &mut Errors) {
    for source in sources.items() {
        let prefix = source.get("prefix");
        if !prefix.is_empty() {
            looks(&prefix, names::relaxed_env_var_name, errors);
        }
        let mut found = 0;
        for field in ["configMapRef", "secretRef"] {
            let reference = source.get(field);
            let name = reference.get("name");
            if reference.is_present() {
                found += 1;
                if required(&name, errors) {
                    text(&name, prefix_name(name.str()), errors);
                }
            }
        }
        // Upstream reports the path of the list, not of the item.
        match found {
            1 => {}
            0 => errors.push(Error::invalid(sources.path(), "", "must specify one of: `configMapRef` or `secretRef`")),
            _ => {
                let detail = "may not have more than one field specified at a time";
                errors.push(Error::invalid(sources.path(), "", detail));
            }
        }
    }
}

fn value_from(from: &At<'_>, value_is_empty: bool, errors: &mut Errors) {
    let mut found = 0;
    let sources: [(&str, Check); 5] = [
        ("fieldRef", |it, errors| field_ref(it, &FIELDS, errors)),
        ("resourceFieldRef", |it, errors| resource_field_ref(it, false, errors)),
        ("configMapKeyRef", key_ref),
        ("secretKeyRef", key_ref),
        ("fileKeyRef", file_key_ref),
    ];
    for (field, check) in sources {
        let source = from.get(field);
        if source.is_present() {
            found += 1;
            check(&source, errors);
        }
    }
    let detail = match found {
        0 => "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        _ if !value_is_empty => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    errors.push(Error::invalid(from.path(), "", detail));
}

fn key_ref(reference: &At<'_>, errors: &mut Errors) {
    let (name, key) = (reference.get("name"), reference.get("key"));
    looks(&name, names::dns1123_subdomain, errors);
    if required(&key, errors) {
        looks(&key, names::config_map_key, errors);
    }
}

fn file_key_ref(reference: &At<'_>, errors: &mut Errors) {
    let (key, volume, path) = (reference.get("key"), reference.get("volumeName"), reference.get("path"));
    if required(&key, errors) {
        looks(&key, names::relaxed_env_var_name, errors);
    }
    if required(&volume, errors) {
        looks(&volume, names::dns1123_label, errors);
    }
    if required(&path, errors) {
        paths::no_backsteps(path.str(), path.path(), errors);
    }
}

/// Validates a name with upstream's rule for generateName, which accepts a trailing dash.
fn prefix_name(name: &str) -> Vec<String> {
    match name.strip_suffix('-') {
        Some(stem) => names::dns1123_subdomain(&format!("{stem}a")),
        None => names::dns1123_subdomain(name),
    }
}

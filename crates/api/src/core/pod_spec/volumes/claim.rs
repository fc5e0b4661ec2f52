//! The claim that is made for an ephemeral volume.

use machinery::field::Error;
use machinery::{At, Errors, Value, labels, meta, names};

use super::super::report::{one_of, quantity, required, text};

/// Metadata of a template may only have these.
const METADATA: [&str; 2] = ["annotations", "labels"];

/// What is wrong with the template of a claim.
pub(super) fn template(template: &At<'_>, errors: &mut Errors) {
    let metadata = template.get("metadata");
    if let Some(annotations) = metadata.value().get("annotations").and_then(Value::as_object) {
        meta::validate_annotations(annotations, &metadata.path().field("annotations"), errors);
    }
    if let Some(of) = metadata.value().get("labels").and_then(Value::as_object) {
        meta::validate_labels(of, &metadata.path().field("labels"), errors);
    }
    for (field, value) in metadata.value().as_object().into_iter().flat_map(machinery::Object::iter) {
        if !METADATA.contains(&field) && !value.is_null() {
            errors.push(Error::forbidden(&metadata.path().field(field), "cannot be set"));
        }
    }
    spec(&template.get("spec"), errors);
}

fn spec(spec: &At<'_>, errors: &mut Errors) {
    let modes = spec.get("accessModes");
    if modes.is_empty() {
        errors.push(modes.required("at least 1 access mode is required"));
    }
    let selector = spec.get("selector");
    if selector.is_present() {
        labels::validate_object(selector.value(), selector.path(), errors);
    }
    access_modes(&modes, errors);
    let resources = spec.get("resources");
    let storage = resources.value().at(&["requests", "storage"]);
    let path = resources.path().key("storage");
    match storage {
        None => errors.push(Error::required(&path, "")),
        Some(amount) if quantity(amount) <= machinery::quantity::Quantity::ZERO => {
            errors.push(Error::invalid(&path, amount.clone(), "must be greater than zero"));
        }
        Some(_) => {}
    }
    for class in ["storageClassName", "volumeAttributesClassName"] {
        let class = spec.get(class);
        if !class.is_empty() {
            text(&class, names::dns1123_subdomain(class.str()), errors);
        }
    }
    let mode = spec.get("volumeMode");
    if mode.is_present() {
        one_of(&mode, &["Block", "Filesystem"], errors);
    }
    for source in ["dataSource", "dataSourceRef"] {
        let source = spec.get(source);
        if source.is_present() {
            data_source(&source, errors);
        }
    }
}

fn access_modes(modes: &At<'_>, errors: &mut Errors) {
    const SUPPORTED: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    let given = || modes.list().iter().filter_map(Value::as_str);
    for mode in given().filter(|mode| !SUPPORTED.contains(mode)) {
        errors.push(Error::not_supported(modes.path(), mode, &SUPPORTED));
    }
    let others = given().any(|mode| mode != "ReadWriteOncePod" && SUPPORTED.contains(&mode));
    if given().any(|mode| mode == "ReadWriteOncePod") && others {
        errors.push(modes.forbidden("may not use ReadWriteOncePod with other access modes"));
    }
}

fn data_source(source: &At<'_>, errors: &mut Errors) {
    required(&source.get("name"), errors);
    let (kind, group) = (source.get("kind"), source.get("apiGroup"));
    required(&kind, errors);
    if group.is_empty() && kind.str() != "PersistentVolumeClaim" {
        let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.push(Error::invalid(source.path(), kind.str(), why));
    }
    if !group.is_empty() {
        text(&group, names::dns1123_subdomain(group.str()), errors);
    }
}

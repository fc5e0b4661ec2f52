//! VolumeAttachment: a request to attach a volume to a node.

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::Scope;
use apimachinery::{At, Errors, Value, names};

use crate::core::persistent_volume;
use crate::field_rules::{
    column, driver_name, drop_field, immutable_with_value, keep, keep_for_status, looks, reset_with_metadata,
};
use crate::go_form;
use crate::kind::{Context, Kind, Rules, Subresource, age_column, name_column};

const EXACTLY_ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
const METADATA_BYTES_MAX: usize = 256 << 10;
const MESSAGE_MAX: usize = 1024;

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        subresources: vec![Subresource::status()],
        unconditional_update: false,
        rules: Arc::new(VolumeAttachment),
        ..Kind::stored("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments")
    }
    .with_columns(&[
        name_column(),
        column("Attacher", "string", "Driver that attaches the volume.", |object, _| {
            text(object, &["spec", "attacher"])
        }),
        column("PV", "string", "PersistentVolume.", |object, _| {
            text(object, &["spec", "source", "persistentVolumeName"])
        }),
        column("Node", "string", "Node.", |object, _| text(object, &["spec", "nodeName"])),
        column("Attached", "boolean", "Whether the volume is attached.", |object, _| {
            object.at(&["status", "attached"]).and_then(Value::as_bool).unwrap_or_default().into()
        }),
        age_column(),
    ])
}

#[derive(Debug)]
struct VolumeAttachment;

impl Rules for VolumeAttachment {
    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        reset_with_metadata(subresource)
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        drop_field(object, "status");
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        match context.subresource {
            "status" => keep_for_status(object, old),
            _ => keep(object, old, "status"),
        }
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let spec = root.get("spec");
        validate_spec(&spec, errors);
        validate_status(&root.get("status"), errors);
        let attacher = spec.get("attacher");
        if !attacher.is_empty() {
            driver_name(&attacher, errors);
        }
        let source = spec.get("source");
        let volume = source.get("persistentVolumeName");
        if volume.is_present() {
            looks(&volume, names::dns1123_subdomain, errors);
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        let (root, before) = (At::root(object), At::root(old));
        let spec = root.get("spec");
        validate_spec(&spec, errors);
        validate_status(&root.get("status"), errors);
        let bad_value = || go_form::bad_value_at(&spec, context.version.schema(), &["spec"]);
        immutable_with_value(&spec, &before.get("spec"), bad_value, errors);
    }
}

fn validate_spec(spec: &At<'_>, errors: &mut Errors) {
    if spec.get("attacher").is_empty() {
        errors.push(spec.get("attacher").required(""));
    }
    let source = spec.get("source");
    let (inline, named) = (source.get("inlineVolumeSpec"), source.get("persistentVolumeName"));
    match (inline.is_present(), named.is_present()) {
        (false, false) => errors.push(source.required(EXACTLY_ONE)),
        (true, true) => errors.push(source.forbidden(EXACTLY_ONE)),
        (false, true) if named.is_empty() => {
            errors.push(named.required("must specify non empty persistentVolumeName"));
        }
        (false, true) => {}
        (true, false) => persistent_volume::validate_inline(&inline, errors),
    }
    looks(&spec.get("nodeName"), names::dns1123_subdomain, errors);
}

fn validate_status(status: &At<'_>, errors: &mut Errors) {
    let metadata = status.get("attachmentMetadata");
    let bytes: usize = metadata.entries().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > METADATA_BYTES_MAX {
        errors.push(Error::too_long(metadata.path(), METADATA_BYTES_MAX));
    }
    for field in ["attachError", "detachError"] {
        let failure = status.get(field);
        if failure.get("message").len() > MESSAGE_MAX {
            errors.push(Error::too_long(failure.get("message").path(), MESSAGE_MAX));
        }
    }
}

fn text(object: &Value, path: &[&str]) -> Value {
    object.text_at(path).into()
}

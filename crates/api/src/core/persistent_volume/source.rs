//! PersistentVolumeSource: exactly one volume source, which is immutable.

use apimachinery::field::Error;
use apimachinery::{At, Errors, Value, names};

use crate::field_rules::{default_to, driver_name, looks, one_of, same};
use crate::go_form;
use crate::kind::Context;

/// Sources in upstream's order, each with its required fields.
const SOURCES: [(&str, &[&str]); 22] = [
    ("hostPath", &["path"]),
    ("gcePersistentDisk", &["pdName"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("glusterfs", &["endpoints", "path"]),
    ("flocker", &[]),
    ("nfs", &["server", "path"]),
    ("rbd", &["monitors", "image"]),
    ("quobyte", &["registry", "volume"]),
    ("cephfs", &["monitors"]),
    ("iscsi", &["targetPortal", "iqn"]),
    ("cinder", &["volumeID"]),
    ("fc", &[]),
    ("flexVolume", &["driver"]),
    ("azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
    ("local", &["path"]),
    ("storageos", &["volumeName"]),
    ("csi", &[]),
];

const HOST_PATH_TYPES: &[&str] =
    &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

pub(super) fn default(spec: &mut Value) {
    const DEFAULTS: [(&str, &str, &str); 10] = [
        ("hostPath", "type", ""),
        ("rbd", "pool", "rbd"),
        ("rbd", "user", "admin"),
        ("rbd", "keyring", "/etc/ceph/keyring"),
        ("iscsi", "iscsiInterface", "default"),
        ("azureDisk", "cachingMode", "ReadWrite"),
        ("azureDisk", "kind", "Shared"),
        ("azureDisk", "fsType", "ext4"),
        ("scaleIO", "storageMode", "ThinProvisioned"),
        ("scaleIO", "fsType", "xfs"),
    ];
    for (source, field, value) in DEFAULTS {
        if let Some(source) = spec.get_mut(source).filter(|source| !source.is_null()) {
            default_to(source, field, value);
        }
    }
    if let Some(disk) = spec.get_mut("azureDisk").filter(|disk| !disk.is_null()) {
        default_to(disk, "readOnly", false);
    }
}

pub(super) fn validate(spec: &At<'_>, errors: &mut Errors) {
    let mut found = 0;
    for (name, needs) in SOURCES.iter().filter(|(name, _)| spec.get(name).is_present()) {
        found += 1;
        if found > 1 {
            errors.push(spec.get(name).forbidden("may not specify more than 1 volume type"));
            continue;
        }
        let source = spec.get(name);
        for field in needs.iter().filter(|field| source.get(field).is_empty()) {
            errors.push(source.get(field).required(""));
        }
        validate_particulars(name, &source, spec, errors);
    }
    if found == 0 {
        errors.push(spec.required("must specify a volume type"));
    }
    let path = spec.get("hostPath");
    let policy = spec.get("persistentVolumeReclaimPolicy");
    let is_root =
        path.is_present() && !path.get("path").is_empty() && path.get("path").str().trim_matches('/').is_empty();
    if is_root && policy.str() == "Recycle" {
        errors.push(policy.forbidden("may not be 'recycle' for a hostPath mount of '/'"));
    }
}

/// Rejects a change of the volume source.
pub(super) fn validate_same(spec: &At<'_>, had: &At<'_>, context: &Context<'_>, errors: &mut Errors) {
    let mut before = had.value().clone();
    // The secret for expansion can be added later.
    let secret = ["csi", "controllerExpandSecretRef"];
    if had.value().at(&secret).is_none_or(Value::is_null)
        && let Some(secret_ref) = spec.value().at(&secret)
        && let Some(csi) = before.get_mut(secret[0]).and_then(Value::as_object_mut)
    {
        csi.insert(secret[1], secret_ref.clone());
    }
    let unchanged = SOURCES.iter().all(|(name, _)| {
        same(spec.get(name).value(), before.get(name).unwrap_or(&Value::Null))
            && spec.get(name).is_present() == before.get(name).is_some_and(|source| !source.is_null())
    });
    if !unchanged {
        let schema = context.version.schema().child("spec");
        let difference =
            schema.map(|schema| go_form::inlined_difference(&before, spec.value(), schema, "PersistentVolumeSource"));
        let detail =
            format!("spec.persistentvolumesource is immutable after creation\n{}", difference.unwrap_or_default());
        errors.push(spec.get("persistentvolumesource").forbidden(detail));
    }
}

fn validate_particulars(name: &str, source: &At<'_>, spec: &At<'_>, errors: &mut Errors) {
    match name {
        "hostPath" => {
            no_backsteps(&source.get("path"), errors);
            if source.get("type").is_present() {
                one_of(&source.get("type"), HOST_PATH_TYPES, errors);
            }
        }
        "local" => {
            no_backsteps(&source.get("path"), errors);
            if spec.get("nodeAffinity").is_absent() {
                let metadata = At::new(source.value(), apimachinery::Path::of("metadata"));
                errors.push(metadata.get("annotations").required("Local volume requires node affinity"));
            }
        }
        "nfs" => {
            let path = source.get("path");
            if !path.is_empty() && !path.str().starts_with('/') {
                errors.push(path.invalid("must be an absolute path"));
            }
        }
        "csi" => {
            driver_name(&source.get("driver"), errors);
            if source.get("volumeHandle").is_empty() {
                errors.push(source.get("volumeHandle").required(""));
            }
            const SECRETS: [&str; 5] = [
                "controllerPublishSecretRef",
                "nodeStageSecretRef",
                "nodePublishSecretRef",
                "controllerExpandSecretRef",
                "nodeExpandSecretRef",
            ];
            for secret in SECRETS {
                validate_secret(&source.get(secret), errors);
            }
        }
        "fc" => validate_fibre_channel(source, errors),
        "iscsi" => {
            let lun = source.get("lun");
            if !(0..=255).contains(&lun.int()) {
                errors.push(Error::invalid(lun.path(), lun.int(), names::in_range(lun.int(), 0, 255).join("")));
            }
        }
        _ => {}
    }
}

fn validate_fibre_channel(source: &At<'_>, errors: &mut Errors) {
    let (names, ids) = (source.get("targetWWNs"), source.get("wwids"));
    match (names.is_empty(), ids.is_empty()) {
        (true, true) => {
            errors.push(names.required("must specify either targetWWNs or wwids, but not both"));
        }
        (false, false) => {
            errors.push(names.invalid("targetWWNs and wwids can not be specified simultaneously"));
        }
        (false, true) if source.get("lun").is_absent() => {
            errors.push(source.get("lun").required("lun is required if targetWWNs is specified"));
        }
        _ => {}
    }
}

fn validate_secret(secret: &At<'_>, errors: &mut Errors) {
    if secret.is_absent() {
        return;
    }
    for (field, rule) in [("name", names::dns1123_subdomain as fn(&str) -> _), ("namespace", names::dns1123_label)] {
        if secret.get(field).is_empty() {
            errors.push(secret.get(field).required(""));
        } else {
            looks(&secret.get(field), rule, errors);
        }
    }
}

fn no_backsteps(path: &At<'_>, errors: &mut Errors) {
    if path.str().split('/').any(|segment| segment == "..") {
        errors.push(path.invalid("must not contain '..'"));
    }
}

//! Volume sources, in upstream's validation order.

use apimachinery::field::Error;
use apimachinery::{At, Errors, names};

use super::super::paths;
use super::super::report::{int, invalid_text, required, required_one_of};
use super::{claim, files, iscsi};
use crate::field_rules::{driver_name, looks, one_of, quantity};

pub(super) struct Source {
    pub(super) field: &'static str,
    /// The error path of a second source; upstream spells some differently.
    pub(super) blamed: &'static str,
    /// The error path of the source's own fields.
    pub(super) path: &'static str,
    pub(super) check: fn(&At<'_>, &mut Errors),
}

const fn row(field: &'static str, check: fn(&At<'_>, &mut Errors)) -> Source {
    Source { field, blamed: field, path: field, check }
}

pub(super) const ALL: &[Source] = &[
    row("emptyDir", empty_dir),
    row("hostPath", host_path),
    row("gitRepo", git_repo),
    Source { path: "persistentDisk", ..row("gcePersistentDisk", gce_disk) },
    row("awsElasticBlockStore", aws_disk),
    row("secret", files::secret),
    row("nfs", nfs),
    row("iscsi", iscsi::validate),
    row("glusterfs", glusterfs),
    row("flocker", flocker),
    row("persistentVolumeClaim", |it, errors| fields(it, &["claimName"], errors)),
    row("rbd", |it, errors| fields(it, &["monitors", "image"], errors)),
    row("cinder", cinder),
    Source { blamed: "cephFS", ..row("cephfs", |it, errors| fields(it, &["monitors"], errors)) },
    row("quobyte", quobyte),
    Source { blamed: "downwarAPI", ..row("downwardAPI", files::downward_api) },
    row("fc", fibre_channel),
    row("flexVolume", flex_volume),
    row("configMap", files::config_map),
    row("azureFile", |it, errors| fields(it, &["secretName", "shareName"], errors)),
    row("vsphereVolume", |it, errors| fields(it, &["volumePath"], errors)),
    row("photonPersistentDisk", |it, errors| fields(it, &["pdID"], errors)),
    row("portworxVolume", |it, errors| fields(it, &["volumeID"], errors)),
    row("azureDisk", azure_disk),
    row("storageos", storage_os),
    row("projected", files::projected),
    row("scaleIO", |it, errors| fields(it, &["gateway", "system", "volumeName"], errors)),
    row("csi", csi),
    row("ephemeral", ephemeral),
    row("image", image),
];

const HOST_PATH_TYPES: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// Requires fields that must not be empty.
fn fields(source: &At<'_>, names: &[&str], errors: &mut Errors) {
    for name in names {
        required(&source.get(name), errors);
    }
}

fn empty_dir(source: &At<'_>, errors: &mut Errors) {
    let limit = source.get("sizeLimit");
    if quantity(limit.value()).is_negative() {
        errors.push(limit.forbidden("SizeLimit field must be a valid resource quantity"));
    }
}

fn host_path(source: &At<'_>, errors: &mut Errors) {
    let path = source.get("path");
    if !required(&path, errors) {
        return;
    }
    paths::no_backsteps(path.str(), path.path(), errors);
    let kind = source.get("type");
    if kind.is_present() {
        one_of(&kind, &HOST_PATH_TYPES, errors);
    }
}

fn git_repo(source: &At<'_>, errors: &mut Errors) {
    required(&source.get("repository"), errors);
    let directory = source.get("directory");
    paths::descending(directory.str(), directory.path(), errors);
}

fn gce_disk(source: &At<'_>, errors: &mut Errors) {
    required(&source.get("pdName"), errors);
    partition(source, errors);
}

fn aws_disk(source: &At<'_>, errors: &mut Errors) {
    required(&source.get("volumeID"), errors);
    partition(source, errors);
}

/// Validates a partition. 0 means the entire disk, although the message does not mention it.
fn partition(source: &At<'_>, errors: &mut Errors) {
    let partition = source.get("partition");
    if partition.int() != 0 {
        int(&partition, names::in_range(partition.int(), 1, 255), errors);
    }
}

fn nfs(source: &At<'_>, errors: &mut Errors) {
    fields(source, &["server", "path"], errors);
    let path = source.get("path");
    if !path.str().starts_with('/') {
        errors.push(invalid_text(&path, "must be an absolute path"));
    }
}

fn glusterfs(source: &At<'_>, errors: &mut Errors) {
    fields(source, &["endpoints", "path"], errors);
}

fn flocker(source: &At<'_>, errors: &mut Errors) {
    let (name, uuid) = (source.get("datasetName"), source.get("datasetUUID"));
    if name.is_empty() && uuid.is_empty() {
        errors.push(source.required("one of datasetName and datasetUUID is required"));
    }
    if !name.is_empty() && !uuid.is_empty() {
        let detail = "datasetName and datasetUUID can not be specified simultaneously";
        errors.push(Error::invalid(source.path(), "resource", detail));
    }
    if name.str().contains('/') {
        errors.push(name.invalid("must not contain '/'"));
    }
}

fn cinder(source: &At<'_>, errors: &mut Errors) {
    required(&source.get("volumeID"), errors);
    secret_ref(source, errors);
}

fn secret_ref(source: &At<'_>, errors: &mut Errors) {
    let secret = source.get("secretRef");
    if secret.is_present() {
        required(&secret.get("name"), errors);
    }
}

fn quobyte(source: &At<'_>, errors: &mut Errors) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let (registry, tenant) = (source.get("registry"), source.get("tenant"));
    if registry.is_empty() {
        errors.push(registry.required(PAIRS));
    } else if tenant.len() >= 65 {
        errors.push(tenant.required("must be a UUID and may not exceed a length of 64 characters"));
    } else {
        let wrong = registry.str().split(',').filter(|pair| !is_host_port(pair));
        errors.extend(wrong.map(|_| registry.invalid(PAIRS)));
    }
    required(&source.get("volume"), errors);
}

fn is_host_port(pair: &str) -> bool {
    let (host, port) = match pair.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, rest)) => match rest.strip_prefix(':') {
                Some(port) => (host, port),
                None => return false,
            },
            None => return false,
        },
        None => match pair.rsplit_once(':') {
            Some((host, _)) if host.contains(':') => return false,
            Some(parts) => parts,
            None => return false,
        },
    };
    !host.contains(['[', ']']) && !port.contains(['[', ']', ':'])
}

fn fibre_channel(source: &At<'_>, errors: &mut Errors) {
    let (targets, ids, lun) = (source.get("targetWWNs"), source.get("wwids"), source.get("lun"));
    if targets.is_empty() && ids.is_empty() {
        errors.push(targets.required("must specify either targetWWNs or wwids, but not both"));
    }
    if !targets.is_empty() && !ids.is_empty() {
        errors.push(targets.invalid("targetWWNs and wwids can not be specified simultaneously"));
    }
    if targets.is_empty() {
        return;
    }
    if lun.is_absent() {
        errors.push(lun.required("lun is required if targetWWNs is specified"));
    } else {
        int(&lun, names::in_range(lun.int(), 0, 255), errors);
    }
}

fn flex_volume(source: &At<'_>, errors: &mut Errors) {
    required(&source.get("driver"), errors);
    for (key, option) in source.get("options").entries() {
        let namespace = key.split_once('/').map_or(key, |(namespace, _)| namespace);
        let normalized = format!(".{}", namespace.to_lowercase());
        if normalized.ends_with(".kubernetes.io") || normalized.ends_with(".k8s.io") {
            let detail = "kubernetes.io and k8s.io namespaces are reserved";
            errors.push(Error::invalid(option.path(), key, detail));
        }
    }
}

fn azure_disk(source: &At<'_>, errors: &mut Errors) {
    const MANAGED: &str =
        "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    fields(source, &["diskName", "diskURI"], errors);
    let (caching, kind, uri) = (source.get("cachingMode"), source.get("kind"), source.get("diskURI"));
    if caching.is_present() {
        one_of(&caching, &["None", "ReadOnly", "ReadWrite"], errors);
    }
    if kind.is_absent() {
        return;
    }
    one_of(&kind, &["Dedicated", "Managed", "Shared"], errors);
    let (prefix, form) = if kind.str() == "Managed" { ("/subscriptions/", MANAGED) } else { ("https://", BLOB) };
    if !uri.str().starts_with(prefix) {
        errors.push(Error::not_supported(uri.path(), uri.str(), &[form]));
    }
}

fn storage_os(source: &At<'_>, errors: &mut Errors) {
    let (name, namespace) = (source.get("volumeName"), source.get("volumeNamespace"));
    if required(&name, errors) {
        looks(&name, names::dns1123_label, errors);
    }
    if !namespace.is_empty() {
        looks(&namespace, names::dns1123_label, errors);
    }
    secret_ref(source, errors);
}

fn csi(source: &At<'_>, errors: &mut Errors) {
    driver_name(&source.get("driver"), errors);
    let secret = source.get("nodePublishSecretRef");
    let name = secret.get("name");
    if secret.is_present() && required(&name, errors) {
        let path = source.path().field("name");
        let wrong = names::dns1123_subdomain(name.str()).into_iter();
        errors.extend(wrong.map(|detail| Error::invalid(&path, name.str(), detail)));
    }
}

fn ephemeral(source: &At<'_>, errors: &mut Errors) {
    let template = source.get("volumeClaimTemplate");
    if template.is_absent() {
        errors.push(template.required(""));
    } else {
        claim::template(&template, errors);
    }
}

fn image(source: &At<'_>, errors: &mut Errors) {
    required(&source.get("reference"), errors);
    required_one_of(&source.get("pullPolicy"), &["Always", "IfNotPresent", "Never"], errors);
}

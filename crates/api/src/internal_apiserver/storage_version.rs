//! StorageVersion: the version in which each API server stores the objects of a resource.

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::{Meta, Scope, name_is_path_segment};
use apimachinery::{At, Errors, Value, names};

use crate::field_rules::{drop_field, keep, keep_for_status, looks, reset_with_metadata};
use crate::kind::{Context, Kind, Rules, Subresource};

pub fn kind() -> Kind {
    let mut kind = Kind {
        scope: Scope::Cluster,
        subresources: vec![Subresource::status()],
        name_rule: name_is_path_segment,
        rules: Arc::new(StorageVersion),
        ..Kind::stored("internal.apiserver.k8s.io", "v1alpha1", "StorageVersion", "storageversions")
    };
    for version in &mut kind.versions {
        version.served = false;
    }
    kind
}

#[derive(Debug)]
struct StorageVersion;

impl Rules for StorageVersion {
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
        validate_name(object, errors);
        let root = At::root(object);
        let status = root.get("status");
        validate_servers(&status, errors);
    }
}

/// The name must be `group.resource`.
fn validate_name(object: &Value, errors: &mut Errors) {
    let name = Meta::of(object).name();
    let root = At::root(object);
    let metadata = root.get("metadata");
    let at = metadata.get("name");
    let Some((group, resource)) = name.rsplit_once('.') else {
        if !name.is_empty() {
            errors.push(at.invalid("name must be in the form of <group>.<resource>"));
        }
        return;
    };
    let mut wrong = names::dns1035_label(resource).into_iter().map(|wrong| format!("the resource segment {wrong}"));
    let groups = names::dns1123_subdomain(group).into_iter().map(|wrong| format!("the group segment {wrong}"));
    errors.extend(groups.chain(wrong.by_ref()).map(|wrong| Error::invalid(at.path(), name, wrong)));
}

fn validate_servers(status: &At<'_>, errors: &mut Errors) {
    let servers = status.get("storageVersions");
    for server in servers.items() {
        looks(&server.get("apiServerID"), names::dns1123_subdomain, errors);
        let (encoding, decodable) = (server.get("encodingVersion"), server.get("decodableVersions"));
        if !decodable.items().any(|version| version.str() == encoding.str()) {
            let detail = format!("decodableVersions must include encodingVersion {}", encoding.str());
            errors.push(decodable.invalid(detail));
        }
        let served = server.get("servedVersions");
        for version in served.items() {
            if !decodable.items().any(|known| known.str() == version.str()) {
                errors.push(version.invalid("individual served version must be included in decodableVersions"));
            }
        }
    }
    let common = status.get("commonEncodingVersion");
    let all: Vec<_> = servers.items().map(|server| server.get("encodingVersion").str().to_owned()).collect();
    let agreed = all.first().filter(|first| all.iter().all(|version| version == *first));
    match (agreed, common.is_present()) {
        (Some(_), false) => errors.push(common.invalid("should not be nil when servers agree on common encoding version")),
        (None, true) => errors.push(common.invalid("should be nil when servers do not agree on common encoding version, or there is no server reporting the supported versions yet")),
        (Some(agreed), true) if agreed != common.str() => {
            errors.push(common.invalid(format!("the actual common encoding version is {agreed}")));
        }
        _ => {}
    }
    let conditions = status.get("conditions");
    for condition in conditions.items() {
        for field in ["type", "status", "reason", "message"].iter().filter(|field| condition.get(field).is_empty()) {
            errors.push(condition.get(field).required(""));
        }
    }
}

//! Discovery: the documents under `/api` and `/apis`, per group version and aggregated.

use api::kind::{Kind, Persistence, Subresource, Verb};
use apimachinery::{GroupVersionKind, Object, Str, Value, value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use crate::Table;

/// The version of aggregated discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AggregatedVersion {
    /// `apidiscovery.k8s.io/v2`.
    V2,
    /// `apidiscovery.k8s.io/v2beta1`, for clients before 1.30.
    V2Beta1,
}

/// Returns `/api`: the versions of the core group and the server's address.
pub fn legacy_versions(table: &Table<'_>, server_address: &str) -> Value {
    value!({
        "kind": "APIVersions",
        "versions": (strings(table.versions(""))),
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    })
}

/// Returns `/apis`: all groups except the core group.
pub fn groups(table: &Table<'_>) -> Value {
    let named = table.groups().into_iter().filter(|group| !group.is_empty());
    let groups: Vec<_> = named.map(|group| Value::Object(group_fields(table, group))).collect();
    value!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// Returns `/apis/<group>`, or `None` for an unknown group.
pub fn group(table: &Table<'_>, group: &str) -> Option<Value> {
    if group.is_empty() || table.versions(group).is_empty() {
        return None;
    }
    let mut out = group_fields(table, group);
    out.insert("kind", "APIGroup");
    out.insert("apiVersion", "v1");
    Some(Value::Object(out))
}

/// Returns `/api/v1` or `/apis/<group>/<version>`, or `None` for an unknown version.
pub fn resources(table: &Table<'_>, group: &str, version: &str) -> Option<Value> {
    let rows = table.resources(group, version);
    if rows.is_empty() {
        return None;
    }
    let mut resources: Vec<(String, Value)> = Vec::new();
    for (kind, _) in rows {
        resources.push((kind.plural.to_string(), resource(kind)));
        let parts = kind.subresources_in(version).iter();
        resources
            .extend(parts.map(|part| (format!("{}/{}", kind.plural, part.name), subresource(kind, part, version))));
    }
    resources.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut out = Object::new();
    out.insert("kind", "APIResourceList");
    if !group.is_empty() {
        out.insert("apiVersion", "v1");
    }
    out.insert("groupVersion", group_version(group, version));
    out.insert("resources", resources.into_iter().map(|(_, resource)| resource).collect::<Vec<_>>());
    Some(Value::Object(out))
}

/// Returns `/apis` as an aggregated `APIGroupDiscoveryList`.
pub fn aggregated(table: &Table<'_>, form: AggregatedVersion) -> Value {
    aggregate(table, table.groups().into_iter().filter(|group| !group.is_empty()), form)
}

/// Returns `/api` as an aggregated `APIGroupDiscoveryList`.
pub fn legacy_aggregated(table: &Table<'_>, form: AggregatedVersion) -> Value {
    aggregate(table, std::iter::once(""), form)
}

/// Returns the storageVersionHash of a kind: eight bytes of the hash of its stored group, version and kind.
pub fn storage_version_hash(stored: &GroupVersionKind) -> String {
    let name = format!("{}/{}/{}", stored.group, stored.version, stored.kind);
    STANDARD.encode(&Sha256::digest(name.as_bytes())[..8])
}

fn group_fields(table: &Table<'_>, group: &str) -> Object {
    let versions: Vec<_> =
        table.versions(group).into_iter().map(|version| discovered_version(group, version)).collect();
    let mut out = Object::new();
    out.insert("name", group);
    out.insert("preferredVersion", versions.first().cloned().unwrap_or_default());
    out.insert("versions", versions);
    out
}

fn discovered_version(group: &str, version: &str) -> Value {
    value!({"groupVersion": (group_version(group, version)), "version": version})
}

fn resource(kind: &Kind) -> Value {
    let mut out = Object::new();
    out.insert("name", kind.plural.clone());
    out.insert("singularName", kind.singular.clone());
    out.insert("namespaced", kind.is_namespaced());
    out.insert("kind", kind.kind.clone());
    out.insert("verbs", verbs(kind.verbs));
    insert_names(&mut out, kind);
    if let Persistence::Stored { version, .. } = &kind.persistence {
        out.insert("storageVersionHash", storage_version_hash(&version.clone().kind(kind.kind.clone())));
    }
    Value::Object(out)
}

fn subresource(kind: &Kind, part: &Subresource, version: &str) -> Value {
    let mut out = Object::new();
    out.insert("name", format!("{}/{}", kind.plural, part.name));
    out.insert("singularName", "");
    out.insert("namespaced", kind.is_namespaced());
    let (gvk, foreign) = subresource_kind(kind, part, version);
    if foreign {
        out.insert("group", gvk.group);
        out.insert("version", gvk.version);
    }
    out.insert("kind", gvk.kind);
    out.insert("verbs", verbs(part.verbs));
    Value::Object(out)
}

/// Returns the kind of a subresource, and whether its group or version differs from its parent's.
fn subresource_kind(kind: &Kind, part: &Subresource, version: &str) -> (GroupVersionKind, bool) {
    let own = kind.gvk(version);
    match &part.kind {
        Some(other) => (other.clone(), (&other.group, &other.version) != (&own.group, &own.version)),
        None => (own, false),
    }
}

fn aggregate<'a>(table: &Table<'_>, groups: impl Iterator<Item = &'a str>, form: AggregatedVersion) -> Value {
    let api_version = match form {
        AggregatedVersion::V2 => "apidiscovery.k8s.io/v2",
        AggregatedVersion::V2Beta1 => "apidiscovery.k8s.io/v2beta1",
    };
    let items: Vec<_> = groups.map(|group| aggregated_group(table, group)).collect();
    value!({"kind": "APIGroupDiscoveryList", "apiVersion": api_version, "metadata": {}, "items": items})
}

fn aggregated_group(table: &Table<'_>, group: &str) -> Value {
    let versions = table.versions(group).into_iter().map(|version| {
        let rows = table.resources(group, version).into_iter();
        let resources: Vec<_> = rows.map(|(kind, _)| aggregated_resource(kind, version)).collect();
        value!({"version": version, "freshness": "Current", "resources": resources})
    });
    let versions: Vec<_> = versions.collect();
    let metadata = if group.is_empty() { Value::object() } else { value!({"name": group}) };
    value!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(kind: &Kind, version: &str) -> Value {
    let mut out = Object::new();
    out.insert("resource", kind.plural.clone());
    out.insert("responseKind", response_kind(kind.gvk(version), is_custom(kind)));
    out.insert("scope", if kind.is_namespaced() { "Namespaced" } else { "Cluster" });
    out.insert("singularResource", kind.singular.clone());
    out.insert("verbs", verbs(kind.verbs));
    insert_names(&mut out, kind);
    let mut parts: Vec<_> = kind.subresources_in(version).iter().collect();
    parts.sort_by(|a, b| a.name.cmp(&b.name));
    let parts: Vec<_> = parts.into_iter().map(|part| aggregated_part(kind, part, version)).collect();
    if !parts.is_empty() {
        out.insert("subresources", parts);
    }
    Value::Object(out)
}

fn aggregated_part(kind: &Kind, part: &Subresource, version: &str) -> Value {
    let (gvk, foreign) = subresource_kind(kind, part, version);
    let response_kind = response_kind(gvk, foreign || is_custom(kind));
    value!({"subresource": (part.name.clone()), "responseKind": response_kind, "verbs": (verbs(part.verbs))})
}

/// Returns the response kind of a discovery entry. Unless `qualified`, group and version are empty: they are those of
/// the enclosing list, and upstream omits them.
fn response_kind(gvk: GroupVersionKind, qualified: bool) -> Value {
    let (group, version) = if qualified { (gvk.group, gvk.version) } else { (Str::default(), Str::default()) };
    value!({"group": group, "version": version, "kind": (gvk.kind)})
}

fn is_custom(kind: &Kind) -> bool {
    kind.versions.iter().any(|version| matches!(version.shape, api::kind::Shape::Custom(..)))
}

fn insert_names(out: &mut Object, kind: &Kind) {
    for (key, names) in [("shortNames", &kind.short_names), ("categories", &kind.categories)] {
        if !names.is_empty() {
            out.insert(key, strings(names));
        }
    }
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

fn verbs(verbs: &[Verb]) -> Value {
    strings(verbs.iter().map(|verb| verb.name()))
}

fn strings(of: impl IntoIterator<Item = impl AsRef<str>>) -> Value {
    Value::Array(of.into_iter().map(|one| Value::from(one.as_ref())).collect())
}

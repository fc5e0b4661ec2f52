//! Discovery and OpenAPI documents merged with those of extension API servers.

use apimachinery::{Object, Value, value};

use crate::Table;

/// A group version that an extension API server serves.
#[derive(Clone, Copy, Debug)]
pub struct Foreign<'a> {
    pub group: &'a str,
    pub version: &'a str,
    /// `groupPriorityMinimum` of the APIService.
    pub group_priority: i64,
    /// `versionPriority` of the APIService.
    pub version_priority: i64,
    /// The `APIResourceList`, if known.
    pub resources: Option<&'a Value>,
    /// The entry in the OpenAPI v3 index, if the server has one.
    pub openapi: Option<&'a Value>,
    /// The OpenAPI v2 document and its hash, if the server has one.
    pub swagger: Option<(&'a str, &'a Value)>,
    /// Whether the APIService is available.
    pub available: bool,
}

/// Group and version priority of built-in groups, compared with those of extension servers.
const BUILT_IN: (i64, i64) = (16_000, 15);
/// Group and version priority of the groups of custom resources.
const CUSTOM: (i64, i64) = (1000, 100);

/// Adds the groups of extension servers to `/apis`.
pub fn groups(table: &Table<'_>, mut document: Value, foreign: &[Foreign<'_>]) -> Value {
    if let Some(Value::Array(groups)) = document.get_mut("groups") {
        for one in foreign.iter().filter(|one| !one.group.is_empty()) {
            let at = group_index(table, groups, one, |group| group.str_at(&["name"]));
            add_version(table, &mut groups[at], one);
        }
    }
    document
}

/// Adds the versions of extension servers to `/apis/<group>`; `own` is the local document.
pub fn group(table: &Table<'_>, name: &str, own: Option<Value>, foreign: &[Foreign<'_>]) -> Option<Value> {
    let others: Vec<_> = foreign.iter().filter(|one| one.group == name && !name.is_empty()).collect();
    if others.is_empty() {
        return own;
    }
    let mut document = own.unwrap_or_else(|| value!({"kind": "APIGroup", "apiVersion": "v1", "name": name}));
    for one in others {
        add_version(table, &mut document, one);
    }
    Some(document)
}

/// Adds the groups of extension servers to aggregated discovery.
pub fn aggregated(table: &Table<'_>, mut document: Value, foreign: &[Foreign<'_>]) -> Value {
    if let Some(Value::Array(items)) = document.get_mut("items") {
        for one in foreign.iter().filter(|one| !one.group.is_empty()) {
            let at = group_index(table, items, one, |item| item.str_at(&["metadata", "name"]));
            let version = aggregated_version(one);
            insert_version(table, &mut items[at], one, version, |version| version.str_at(&["version"]));
        }
    }
    document
}

/// Adds the documents of extension servers to the OpenAPI v3 index.
pub fn index(mut document: Value, foreign: &[Foreign<'_>]) -> Value {
    if let Some(Value::Object(paths)) = document.get_mut("paths") {
        for one in foreign.iter().filter(|one| one.available) {
            if let Some(entry) = one.openapi {
                paths.insert(format!("apis/{}/{}", one.group, one.version), entry.clone());
            }
        }
    }
    document
}

/// Adds the paths and definitions of extension servers to the OpenAPI v2 document.
// DEVIATION: if two OpenAPI v2 definitions have the same name, this server's own is kept; upstream renames the other
// one.
pub fn swagger(mut document: Value, foreign: &[Foreign<'_>]) -> Value {
    for one in foreign.iter().filter(|one| one.available) {
        let Some((_, remote)) = one.swagger else { continue };
        let prefix = format!("/apis/{}/{}/", one.group, one.version);
        let remote_entries =
            |field: &str| remote.get(field).and_then(Value::as_object).into_iter().flat_map(Object::iter);
        if let Some(Value::Object(paths)) = document.get_mut("paths") {
            for (path, item) in remote_entries("paths").filter(|(path, _)| path.starts_with(&prefix)) {
                paths.insert(path, item.clone());
            }
        }
        if let Some(Value::Object(definitions)) = document.get_mut("definitions") {
            for (name, definition) in remote_entries("definitions") {
                definitions.get_or_insert_with(name, || definition.clone());
            }
        }
    }
    document
}

/// Returns the hash of the merged document from the hash of the local one.
pub fn swagger_hash(own: String, foreign: &[Foreign<'_>]) -> String {
    let remote = foreign.iter().filter(|one| one.available).filter_map(|one| one.swagger);
    remote.fold(own, |hash, (their_hash, _)| hash + their_hash)
}

/// Returns the index of a version's group in a list; inserts the group if it is new.
fn group_index(
    table: &Table<'_>,
    groups: &mut Vec<Value>,
    one: &Foreign<'_>,
    name: impl Fn(&Value) -> Option<&str>,
) -> usize {
    if let Some(at) = groups.iter().position(|group| name(group) == Some(one.group)) {
        return at;
    }
    let has_lower_priority = |group: &Value| {
        let other = name(group).unwrap_or_default();
        let priority = own_priority(table, other).0;
        priority < one.group_priority || (priority == one.group_priority && other > one.group)
    };
    let at = groups.iter().position(has_lower_priority).unwrap_or(groups.len());
    groups.insert(at, value!({"name": (one.group), "metadata": {"name": (one.group)}}));
    at
}

/// Adds a version to an `APIGroup`.
fn add_version(table: &Table<'_>, group: &mut Value, one: &Foreign<'_>) {
    let entry = value!({"groupVersion": (format!("{}/{}", one.group, one.version)), "version": (one.version)});
    if let Value::Object(fields) = &mut *group {
        fields.remove("metadata");
    }
    insert_version(table, group, one, entry, |version| version.str_at(&["version"]));
    let Value::Object(fields) = group else { return };
    let first = fields.get("versions").and_then(Value::as_array).and_then(|versions| versions.first()).cloned();
    if let Some(first) = first {
        fields.insert("preferredVersion", first);
    }
}

/// Inserts a version by priority, and replaces one of the same name.
fn insert_version(
    table: &Table<'_>,
    group: &mut Value,
    one: &Foreign<'_>,
    entry: Value,
    name: impl Fn(&Value) -> Option<&str>,
) {
    let Value::Object(fields) = group else { return };
    if fields.contains_key("metadata") {
        fields.remove("name");
    }
    let Value::Array(versions) = fields.get_or_insert_with("versions", || Value::Array(Vec::new())) else { return };
    versions.retain(|version| name(version) != Some(one.version));
    let own = own_priority(table, one.group).1;
    let is_own = |version: &str| table.versions(one.group).contains(&version);
    let has_lower_priority = |version: &Value| name(version).is_some_and(&is_own) && own < one.version_priority;
    let at = versions.iter().position(has_lower_priority).unwrap_or(versions.len());
    versions.insert(at, entry);
}

fn own_priority(table: &Table<'_>, group: &str) -> (i64, i64) {
    let custom = table.kinds.iter().any(|kind| {
        kind.group == group && kind.versions.iter().any(|version| matches!(version.shape, api::kind::Shape::Custom(..)))
    });
    let known = table.kinds.iter().any(|kind| kind.group == group);
    if known && !custom { BUILT_IN } else { CUSTOM }
}

/// Converts an APIResourceList to a version of aggregated discovery.
fn aggregated_version(one: &Foreign<'_>) -> Value {
    let listed = one.resources.and_then(|list| list.get("resources")).and_then(Value::as_array).unwrap_or_default();
    let mut resources: Vec<Value> = Vec::new();
    for listed in listed.iter().filter(|listed| !name_of(listed).contains('/')) {
        let parts = listed_parts(one, name_of(listed));
        resources.push(aggregated_resource(one, listed, parts));
    }
    let freshness = if one.available { "Current" } else { "Stale" };
    let mut version = value!({"version": (one.version), "freshness": freshness});
    if let (Value::Object(fields), false) = (&mut version, resources.is_empty()) {
        fields.insert("resources", resources);
    }
    version
}

fn listed_parts(one: &Foreign<'_>, parent: &str) -> Vec<Value> {
    let listed = one.resources.and_then(|list| list.get("resources")).and_then(Value::as_array).unwrap_or_default();
    let own =
        listed.iter().filter_map(|listed| Some((listed, name_of(listed).strip_prefix(parent)?.strip_prefix('/')?)));
    own.map(|(listed, name)| {
        value!({"subresource": name, "responseKind": (response_kind(one, listed)), "verbs": (listed["verbs"].clone())})
    })
    .collect()
}

fn aggregated_resource(one: &Foreign<'_>, listed: &Value, parts: Vec<Value>) -> Value {
    let namespaced = listed.get("namespaced").and_then(Value::as_bool).unwrap_or_default();
    let mut out = Object::new();
    out.insert("resource", name_of(listed));
    out.insert("responseKind", response_kind(one, listed));
    out.insert("scope", if namespaced { "Namespaced" } else { "Cluster" });
    out.insert("singularResource", listed.text_at(&["singularName"]));
    out.insert("verbs", listed["verbs"].clone());
    for names in ["shortNames", "categories"] {
        if let Some(names_of) = listed.get(names).filter(|list| !list.is_null()) {
            out.insert(names, names_of.clone());
        }
    }
    if !parts.is_empty() {
        out.insert("subresources", parts);
    }
    Value::Object(out)
}

/// Returns the response kind, whose group and version default to those of the list.
fn response_kind(one: &Foreign<'_>, listed: &Value) -> Value {
    let text = |field: &str, own: &str| match listed.text_at(&[field]) {
        "" => own.to_owned(),
        other => other.to_owned(),
    };
    value!({
        "group": (text("group", one.group)), "version": (text("version", one.version)), "kind": (text("kind", "")),
    })
}

fn name_of(listed: &Value) -> &str {
    listed.text_at(&["name"])
}

#[cfg(test)]
mod tests {
    use api::kind::{Kind, Version};

    use super::*;
    use crate::discovery;

    fn with_table<R>(make: impl FnOnce(&Table<'_>) -> R) -> R {
        let served = |_: &Kind, version: &Version| version.served;
        make(&Table { kinds: &api::kinds::all(), served: &served })
    }

    fn list() -> Value {
        value!({"kind": "APIResourceList", "groupVersion": "metrics.k8s.io/v1beta1", "resources": [
            {"name": "nodes", "singularName": "", "namespaced": false, "kind": "NodeMetrics", "verbs": ["get", "list"]},
            {"name": "nodes/scale", "singularName": "", "namespaced": false, "group": "autoscaling", "version": "v1",
                "kind": "Scale", "verbs": ["get"]},
        ]})
    }

    fn foreign<'a>(group: &'a str, version: &'a str, resources: &'a Value) -> Foreign<'a> {
        Foreign {
            group,
            version,
            group_priority: 100,
            version_priority: 100,
            resources: Some(resources),
            openapi: None,
            swagger: None,
            available: true,
        }
    }

    #[test]
    fn aggregated_groups_are_sorted_by_priority() {
        let list = list();
        with_table(|table| {
            let merged = groups(table, discovery::groups(table), &[foreign("metrics.k8s.io", "v1beta1", &list)]);
            let last = merged["groups"].as_array().unwrap().last().unwrap().clone();
            let version = value!({"groupVersion": "metrics.k8s.io/v1beta1", "version": "v1beta1"});
            assert_eq!(
                last,
                value!({"name": "metrics.k8s.io", "preferredVersion": (version.clone()), "versions": [(version)]})
            );
            let one = group(table, "metrics.k8s.io", None, &[foreign("metrics.k8s.io", "v1beta1", &list)]).unwrap();
            assert_eq!(one["kind"], "APIGroup".into());
            assert!(group(table, "absent", None, &[]).is_none());
        });
    }

    #[test]
    fn openapi_paths_of_aggregated_servers_are_merged() {
        let remote = value!({
            "paths": {"/apis/metrics.k8s.io/v1beta1/nodes": {"get": {}}, "/apis/apps/v1/deployments": {"theirs": {}}},
            "definitions": {"ours": "theirs", "NodeMetrics": {}},
        });
        let list = list();
        let one = Foreign { swagger: Some(("h", &remote)), ..foreign("metrics.k8s.io", "v1beta1", &list) };
        let own = value!({"paths": {"/apis/apps/v1/deployments": {}}, "definitions": {"ours": "ours"}});
        assert_eq!(
            swagger(own.clone(), &[one]),
            value!({
                "paths": {"/apis/apps/v1/deployments": {}, "/apis/metrics.k8s.io/v1beta1/nodes": {"get": {}}},
                "definitions": {"ours": "ours", "NodeMetrics": {}},
            })
        );
        assert_eq!(swagger_hash("own".to_owned(), &[one]), "ownh");
        let lost = Foreign { available: false, ..one };
        assert_eq!((swagger(own.clone(), &[lost]), swagger_hash("own".to_owned(), &[lost])), (own, "own".to_owned()));
    }

    #[test]
    fn aggregated_discovery_includes_resources_of_extension_servers() {
        let list = list();
        with_table(|table| {
            let document = discovery::aggregated(table, discovery::AggregatedVersion::V2);
            let merged = aggregated(table, document, &[foreign("metrics.k8s.io", "v1beta1", &list)]);
            let last = merged["items"].as_array().unwrap().last().unwrap().clone();
            assert_eq!(last["metadata"], value!({"name": "metrics.k8s.io"}));
            let version = &last["versions"][0];
            assert_eq!(version["freshness"], "Current".into());
            assert_eq!(version["resources"].as_array().unwrap().len(), 1);
            let resource = &version["resources"][0];
            assert_eq!(
                resource["responseKind"],
                value!({"group": "metrics.k8s.io", "version": "v1beta1", "kind": "NodeMetrics"})
            );
            assert_eq!(resource["subresources"][0]["responseKind"]["kind"], "Scale".into());
            assert_eq!(resource["scope"], "Cluster".into());
        });
    }
}

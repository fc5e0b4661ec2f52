//! The discovery cache on disk, in kubectl's format: `servergroups.json`, and `GROUP/VERSION/serverresources.json`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use apimachinery::meta::Scope;
use apimachinery::{Object, Resource, Str, Value, json, value};

use super::{ApiGroup, Mapping};
use crate::cache_file;

/// Files older than this are requested again.
const TTL: Duration = Duration::from_secs(6 * 3600);

/// The cache of one server.
pub struct Cache {
    directory: PathBuf,
}

impl Cache {
    pub const fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    pub fn groups(&self) -> Option<Vec<ApiGroup>> {
        let value = read_fresh(&self.directory.join("servergroups.json"))?;
        Some(read_groups(&value)).filter(|groups| !groups.is_empty())
    }

    pub fn list(&self, group: &Str, version: &Str) -> Option<Vec<Mapping>> {
        Some(read_list(&read_fresh(&self.list_file(group, version))?, group, version))
    }

    /// Replaces the cache. A cache that cannot be written is not an error: the next command requests everything again.
    /// `lists` are `APIResourceList`s: other programs read the cache too and need all of their fields.
    pub fn write(&self, groups: &[ApiGroup], lists: &BTreeMap<(Str, Str), Value>) {
        for ((group, version), list) in lists {
            let _ = replace(&self.list_file(group, version), list);
        }
        let _ = replace(&self.directory.join("servergroups.json"), &groups_value(groups));
    }

    fn list_file(&self, group: &Str, version: &Str) -> PathBuf {
        let directory = if group.is_empty() { self.directory.clone() } else { self.directory.join(group.as_str()) };
        directory.join(version.as_str()).join("serverresources.json")
    }
}

fn read_fresh(file: &Path) -> Option<Value> {
    let modified = std::fs::metadata(file).ok()?.modified().ok()?;
    if SystemTime::now().duration_since(modified).is_ok_and(|age| age > TTL) {
        return None;
    }
    json::parse(&std::fs::read(file).ok()?).ok()
}

fn replace(file: &Path, value: &Value) -> std::io::Result<()> {
    let mut bytes = json::to_vec(value);
    bytes.push(b'\n');
    cache_file::replace(file, &bytes)
}

/// Reads the groups of an `APIGroupList` or of `APIVersions`.
pub(super) fn read_groups(response: &Value) -> Vec<ApiGroup> {
    if response.str_at(&["kind"]) == Some("APIVersions") {
        let versions: Vec<Str> = strings(response.get("versions"));
        let preferred = versions.first().cloned().unwrap_or_default();
        return vec![ApiGroup { name: Str::default(), versions, preferred }];
    }
    let group = |group: &Value| {
        let version = |version: &Value| version.str_at(&["version"]).map(Str::from);
        ApiGroup {
            name: text(group, "name"),
            versions: array(group, "versions").iter().filter_map(version).collect(),
            preferred: group.str_at(&["preferredVersion", "version"]).unwrap_or_default().into(),
        }
    };
    array(response, "groups").iter().map(group).collect()
}

/// Reads an `APIResourceList`.
pub(super) fn read_list(response: &Value, group: &Str, version: &Str) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = Vec::new();
    let items = array(response, "resources");
    for item in items.iter().filter(|item| !text(item, "name").contains('/')) {
        let kind = text(item, "kind");
        let named = text(item, "singularName");
        let singular = if named.is_empty() { kind.to_lowercase() } else { named };
        let scope = if item.get("namespaced").and_then(Value::as_bool) == Some(true) {
            Scope::Namespaced
        } else {
            Scope::Cluster
        };
        mappings.push(Mapping {
            resource: Resource {
                group: group.clone(),
                version: version.clone(),
                plural: text(item, "name"),
                kind,
                scope,
            },
            singular,
            short_names: strings(item.get("shortNames")),
            categories: strings(item.get("categories")),
            verbs: strings(item.get("verbs")),
            subresources: Vec::new(),
        });
    }
    for item in items {
        let name = text(item, "name");
        if let Some((plural, subresource)) = name.split_once('/')
            && let Some(mapping) = mappings.iter_mut().find(|mapping| mapping.resource.plural == plural)
        {
            mapping.subresources.push(subresource.into());
        }
    }
    mappings
}

/// Reads an `APIGroupDiscoveryList` into groups and `APIResourceList`s.
pub(super) fn read_aggregated(response: &Value, groups: &mut Vec<ApiGroup>, lists: &mut BTreeMap<(Str, Str), Value>) {
    for item in array(response, "items") {
        let name: Str = item.str_at(&["metadata", "name"]).unwrap_or_default().into();
        let mut group = ApiGroup { name: name.clone(), ..ApiGroup::default() };
        for version_item in array(item, "versions") {
            let version = text(version_item, "version");
            let resources = array(version_item, "resources").iter().flat_map(aggregated).collect();
            lists.insert((name.clone(), version.clone()), list_value(&name, &version, resources));
            group.versions.push(version);
        }
        group.preferred = group.versions.first().cloned().unwrap_or_default();
        groups.push(group);
    }
}

/// Returns a resource and its subresources as `APIResource`s. A resource without a kind has only subresources.
fn aggregated(item: &Value) -> Vec<Value> {
    let name = text(item, "resource");
    let resource = |item: &Value, name: String| {
        let kind = item.get("responseKind").filter(|kind| !text(kind, "kind").is_empty())?;
        let mut out = Object::new();
        out.insert("name", name);
        out.insert("singularName", text(item, "singularResource"));
        for field in ["group", "version", "kind"].into_iter().filter(|field| !text(kind, field).is_empty()) {
            out.insert(field, text(kind, field));
        }
        out.insert("verbs", values(&strings(item.get("verbs"))));
        for field in ["shortNames", "categories"] {
            let list = strings(item.get(field));
            if !list.is_empty() {
                out.insert(field, values(&list));
            }
        }
        Some(out)
    };
    let subresources = array(item, "subresources").iter().filter_map(|sub| {
        let mut out = resource(sub, format!("{name}/{}", text(sub, "subresource")))?;
        out.insert("singularName", text(item, "singularResource"));
        Some(out)
    });
    let namespaced = item.str_at(&["scope"]) == Some("Namespaced");
    let all = resource(item, name.to_string()).into_iter().chain(subresources);
    let with_scope = |mut out: Object| {
        out.insert("namespaced", namespaced);
        Value::Object(out)
    };
    all.map(with_scope).collect()
}

fn groups_value(groups: &[ApiGroup]) -> Value {
    let version = |group: &ApiGroup, version: &Str| {
        let prefix = if group.name.is_empty() { String::new() } else { format!("{}/", group.name) };
        value!({"groupVersion": (format!("{prefix}{version}")), "version": (version.clone())})
    };
    let group = |group: &ApiGroup| {
        let versions: Vec<Value> = group.versions.iter().map(|it| version(group, it)).collect();
        value!({"name": (group.name.clone()), "versions": versions, "preferredVersion": (version(group, &group.preferred))})
    };
    value!({"kind": "APIGroupList", "apiVersion": "v1", "groups": (groups.iter().map(group).collect::<Vec<_>>())})
}

fn list_value(group: &Str, version: &Str, resources: Vec<Value>) -> Value {
    let prefix = if group.is_empty() { String::new() } else { format!("{group}/") };
    value!({
        "kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": (format!("{prefix}{version}")), "resources": resources,
    })
}

fn array<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).unwrap_or_default()
}

fn text(value: &Value, field: &str) -> Str {
    value.str_at(&[field]).unwrap_or_default().into()
}

fn strings(value: Option<&Value>) -> Vec<Str> {
    value.and_then(Value::as_array).unwrap_or_default().iter().filter_map(Value::as_str).map(Str::from).collect()
}

fn values(strings: &[Str]) -> Vec<Value> {
    strings.iter().map(|text| Value::from(text.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_returns_what_was_discovered() {
        let response = value!({"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": "apps"}, "versions": [
            {"version": "v1", "resources": [{"resource": "deployments", "scope": "Namespaced", "singularResource": "deployment",
                "responseKind": {"kind": "Deployment"}, "verbs": ["get", "list"], "shortNames": ["deploy"], "categories": ["all"],
                "subresources": [
                    {"subresource": "scale", "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"}},
                    {"subresource": "status", "responseKind": {"kind": "Deployment"}},
                ]}]},
        ]}]});
        let (mut groups, mut lists) = (Vec::new(), BTreeMap::new());
        read_aggregated(&response, &mut groups, &mut lists);
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::new(directory.path().to_owned());
        assert_eq!(cache.groups(), None);
        cache.write(&groups, &lists);
        assert_eq!(cache.groups(), Some(groups));
        let list = cache.list(&"apps".into(), &"v1".into()).unwrap();
        assert_eq!(list[0].subresources, ["scale", "status"]);
        assert_eq!(
            (list[0].short_names.as_slice(), list[0].categories.as_slice()),
            (&["deploy".into()][..], &["all".into()][..])
        );
        // kubectl finds the type of a subresource in the cache.
        let file = json::parse(&std::fs::read(directory.path().join("apps/v1/serverresources.json")).unwrap()).unwrap();
        let scale = &file["resources"][1];
        assert_eq!((scale["name"].as_str(), scale["group"].as_str()), (Some("deployments/scale"), Some("autoscaling")));
        assert!(directory.path().join("apps/v1/serverresources.json").exists());
    }
}

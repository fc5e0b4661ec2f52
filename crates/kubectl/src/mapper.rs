//! The types of the server: discovery with a cache on disk in kubectl's format, and the names of types.

mod cache;
mod names;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use apimachinery::meta::Scope;
use apimachinery::status::{Reason, Status};
use apimachinery::{GroupVersionKind, Resource, Str, Value, json};
use bytes::Bytes;
use client::{Client, ResponseError};
use http::header::{ACCEPT, HeaderValue};
use http::{Method, Request};
use http_body_util::BodyExt;

pub use cache::Cache;
pub use names::TypeName;

use crate::Failure;

const ACCEPTED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// A type of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub resource: Resource,
    pub singular: Str,
    pub short_names: Vec<Str>,
    pub categories: Vec<Str>,
    pub verbs: Vec<Str>,
    /// The subresources: `status`, `scale`.
    pub subresources: Vec<Str>,
}

/// A group of the server with its versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiGroup {
    pub name: Str,
    /// In the order of the server, the most stable first.
    pub versions: Vec<Str>,
    pub preferred: Str,
}

/// A group and one of its versions.
type GroupVersion = (Str, Str);

/// Finds types by name or kind. Lists of types are read when they are needed.
pub struct Mapper {
    client: Client,
    cache: Cache,
    groups: RefCell<Option<Rc<Vec<ApiGroup>>>>,
    lists: RefCell<BTreeMap<GroupVersion, Rc<Vec<Mapping>>>>,
    /// Whether this process has requested all lists, so that further requests are useless.
    fresh: Cell<bool>,
}

impl Mapping {
    pub fn namespaced(&self) -> bool {
        self.resource.scope == Scope::Namespaced
    }

    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|have| have == verb)
    }

    /// Returns the name of an object as commands print it: `pod/a`, `deployment.apps/b`.
    pub fn object_name(&self, name: &str) -> String {
        let kind = self.resource.kind.to_lowercase();
        if self.resource.group.is_empty() {
            format!("{kind}/{name}")
        } else {
            format!("{kind}.{}/{name}", self.resource.group)
        }
    }
}

impl Mapper {
    pub fn new(client: Client, directory: PathBuf) -> Self {
        Self {
            client,
            cache: Cache::new(directory),
            groups: RefCell::default(),
            lists: RefCell::default(),
            fresh: Cell::new(false),
        }
    }

    /// Finds a type by plural, singular or short name or kind, optionally with version and group.
    pub async fn resource(&self, name: &str) -> Result<Mapping, Failure> {
        let requested = TypeName::parse(name);
        if let Some(found) = self.find(&requested).await? {
            return Ok(found);
        }
        if !self.fresh.get() {
            self.refresh().await?;
            if let Some(found) = self.find(&requested).await? {
                return Ok(found);
            }
        }
        Err(Failure::new(format!("the server doesn't have a resource type {:?}", requested.resource())))
    }

    /// Finds all types with a plural, singular or short name, in the order of preference.
    pub async fn resources(&self, name: &str) -> Result<Vec<Mapping>, Failure> {
        let found = self.find_all(name).await?;
        if found.is_empty() && !self.fresh.get() {
            self.refresh().await?;
            return self.find_all(name).await;
        }
        Ok(found)
    }

    /// Finds the type of an object. An empty version selects the preferred one.
    pub async fn kind(&self, kind: &GroupVersionKind) -> Result<Mapping, Failure> {
        if let Some(found) = self.find_kind(kind).await? {
            return Ok(found);
        }
        if !self.fresh.get() {
            self.refresh().await?;
            if let Some(found) = self.find_kind(kind).await? {
                return Ok(found);
            }
        }
        let version = kind.group_version();
        Err(Failure::new(format!("no matches for kind {:?} in version {:?}", kind.kind.as_str(), version.to_string())))
    }

    /// Returns the types of a category such as `all`, in the order of the server; `None` if there is no such category.
    pub async fn category(&self, name: &str) -> Result<Option<Vec<Mapping>>, Failure> {
        let mut found: Vec<Mapping> = Vec::new();
        for mapping in self.preferred().await? {
            let same = |have: &Mapping| {
                have.resource.plural == mapping.resource.plural && have.resource.group == mapping.resource.group
            };
            if mapping.categories.iter().any(|category| category == name) && !found.iter().any(same) {
                found.push(mapping);
            }
        }
        Ok(Some(found).filter(|found| !found.is_empty()))
    }

    /// Whether the core group has a type with this plural, singular or short name.
    pub async fn is_core(&self, name: &str) -> Result<bool, Failure> {
        let groups = self.groups().await?;
        let Some(core) = groups.iter().find(|group| group.name.is_empty()) else { return Ok(false) };
        let list = self.list(&core.name, &core.preferred).await?;
        Ok(list.iter().any(|mapping| {
            mapping.resource.plural == name
                || mapping.singular == name
                || mapping.short_names.iter().any(|it| it == name)
        }))
    }

    /// Returns all types in all versions, in the order of the server.
    pub async fn all(&self) -> Result<Vec<Mapping>, Failure> {
        let mut all = Vec::new();
        for group in self.groups().await?.iter() {
            for version in &group.versions {
                all.extend(self.list(&group.name, version).await?.iter().cloned());
            }
        }
        Ok(all)
    }

    /// Returns each type in its preferred version only, in the order of the server.
    pub async fn preferred(&self) -> Result<Vec<Mapping>, Failure> {
        let mut all: Vec<Mapping> = Vec::new();
        for group in self.groups().await?.iter() {
            let first = all.len();
            for version in group.by_preference() {
                for mapping in self.list(&group.name, version).await?.iter() {
                    if !all[first..].iter().any(|have| have.resource.plural == mapping.resource.plural) {
                        all.push(mapping.clone());
                    }
                }
            }
        }
        Ok(all)
    }

    pub async fn groups(&self) -> Result<Rc<Vec<ApiGroup>>, Failure> {
        if let Some(groups) = &*self.groups.borrow() {
            return Ok(Rc::clone(groups));
        }
        if let Some(groups) = self.cache.groups() {
            return Ok(Rc::clone(self.groups.borrow_mut().insert(Rc::new(groups))));
        }
        self.refresh().await?;
        Ok(self.groups.borrow().clone().unwrap_or_default())
    }

    /// Requests all types and replaces the cache.
    pub async fn refresh(&self) -> Result<(), Failure> {
        let mut groups = Vec::new();
        let mut lists = BTreeMap::new();
        for path in ["/api", "/apis"] {
            let answer = self.fetch(path).await?;
            if answer.str_at(&["kind"]) == Some("APIGroupDiscoveryList") {
                cache::read_aggregated(&answer, &mut groups, &mut lists);
            } else {
                self.legacy(&answer, &mut groups, &mut lists).await?;
            }
        }
        self.cache.write(&groups, &lists);
        let read = |(key, list): ((Str, Str), Value)| {
            let list = cache::read_list(&list, &key.0, &key.1);
            (key, Rc::new(list))
        };
        *self.lists.borrow_mut() = lists.into_iter().map(read).collect();
        *self.groups.borrow_mut() = Some(Rc::new(groups));
        self.fresh.set(true);
        Ok(())
    }

    /// Returns the types of one version of a group.
    pub async fn list(&self, group: &Str, version: &Str) -> Result<Rc<Vec<Mapping>>, Failure> {
        let key = (group.clone(), version.clone());
        if let Some(list) = self.lists.borrow().get(&key) {
            return Ok(Rc::clone(list));
        }
        if !self.fresh.get() {
            if let Some(list) = self.cache.list(group, version) {
                return Ok(Rc::clone(self.lists.borrow_mut().entry(key).or_insert_with(|| Rc::new(list))));
            }
            self.refresh().await?;
        }
        Ok(self.lists.borrow().get(&key).cloned().unwrap_or_default())
    }

    async fn find(&self, requested: &TypeName) -> Result<Option<Mapping>, Failure> {
        for pattern in requested.patterns() {
            for group in self.groups().await?.iter().filter(|group| pattern.allows_group(&group.name)) {
                for version in group.by_preference().filter(|version| pattern.allows_version(version)) {
                    let list = self.list(&group.name, version).await?;
                    if let Some(found) = list.iter().find(|mapping| pattern.matches(mapping)) {
                        let found = found.clone();
                        if pattern.is_short() {
                            self.warn_of_other_types(&pattern, &found).await?;
                        }
                        return Ok(Some(found));
                    }
                }
            }
        }
        Ok(None)
    }

    async fn find_all(&self, name: &str) -> Result<Vec<Mapping>, Failure> {
        for pattern in TypeName::parse(name).patterns() {
            let mut found = Vec::new();
            for group in self.groups().await?.iter().filter(|group| pattern.allows_group(&group.name)) {
                for version in group.by_preference().filter(|version| pattern.allows_version(version)) {
                    let list = self.list(&group.name, version).await?;
                    found.extend(list.iter().filter(|mapping| pattern.matches(mapping)).cloned());
                }
            }
            if !found.is_empty() {
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }

    /// Warns that a short name matches more than one type.
    async fn warn_of_other_types(&self, pattern: &names::Pattern, found: &Mapping) -> Result<(), Failure> {
        let mut warned: Vec<String> = vec![found.resource.to_string()];
        for mapping in self.all().await? {
            let name = mapping.resource.to_string();
            if pattern.allows_group(&mapping.resource.group) && pattern.matches(&mapping) && !warned.contains(&name) {
                crate::transport::print_warning(&format!(
                    "short name {:?} could also match lower priority resource {name}",
                    pattern.name()
                ));
                warned.push(name);
            }
        }
        Ok(())
    }

    async fn find_kind(&self, requested: &GroupVersionKind) -> Result<Option<Mapping>, Failure> {
        for group in self.groups().await?.iter().filter(|group| group.name == requested.group) {
            for version in group.by_preference() {
                if !requested.version.is_empty() && *version != requested.version {
                    continue;
                }
                let list = self.list(&group.name, version).await?;
                if let Some(found) = list.iter().find(|mapping| mapping.resource.kind == requested.kind) {
                    return Ok(Some(found.clone()));
                }
            }
        }
        Ok(None)
    }

    /// Requests the types of a server without aggregated discovery, one version at a time.
    async fn legacy(
        &self,
        answer: &Value,
        groups: &mut Vec<ApiGroup>,
        lists: &mut BTreeMap<(Str, Str), Value>,
    ) -> Result<(), Failure> {
        for group in cache::read_groups(answer) {
            for version in &group.versions {
                let path = if group.name.is_empty() {
                    format!("/api/{version}")
                } else {
                    format!("/apis/{}/{version}", group.name)
                };
                // The server of an aggregated API may be down. The other types are still known.
                if let Ok(list) = self.fetch(&path).await {
                    lists.insert((group.name.clone(), version.clone()), list);
                }
            }
            groups.push(group);
        }
        Ok(())
    }

    // DEVIATION: kubectl logs a failed discovery five times before its final message.
    async fn fetch(&self, path: &str) -> Result<Value, Failure> {
        let request = Request::builder().method(Method::GET).uri(path).body(Bytes::new());
        let mut request = request.map_err(client::Error::from)?;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(ACCEPTED));
        let response = self.client.raw(request).await?;
        let status = response.status();
        let bytes = response.into_body().collect().await.map_err(client::TransportError::Broken)?.to_bytes();
        let answer = json::parse(&bytes);
        if !status.is_success() {
            let mut rejected = answer.ok().and_then(|value| Status::from_value(&value));
            // kubectl does not read the Status of a discovery request.
            if let Some(rejected) = rejected.as_mut().filter(|rejected| rejected.is(&Reason::Unauthorized)) {
                rejected.message = "the server has asked for the client to provide credentials".into();
            }
            return Err(rejected.map_or_else(
                || {
                    Failure::plain(format!(
                        "Error from server: the server responded with the status code {}",
                        status.as_u16()
                    ))
                },
                Failure::from_status,
            ));
        }
        Ok(answer.map_err(ResponseError::from)?)
    }
}

impl ApiGroup {
    /// Returns the versions, the preferred one first.
    pub fn by_preference(&self) -> impl Iterator<Item = &Str> {
        let preferred = self.versions.iter().filter(|version| **version == self.preferred);
        preferred.chain(self.versions.iter().filter(|version| **version != self.preferred))
    }
}

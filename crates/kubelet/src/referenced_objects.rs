//! Watches of the ConfigMaps, Secrets and ClusterTrustBundles that pods of this node refer to, one per object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use apimachinery::{Key, Resource, Value};
use client::Client;
use client::cache::{self, ChangeQueue, Reader, Source};
use component_base::spans;
use controller::kinds;
use tokio::task::AbortHandle;
use tracing::Instrument;

use crate::pod::Pod;

/// Timeout for the initial state of a watched object, which counts as absent afterwards.
const FIRST_TIMEOUT: Duration = Duration::from_secs(5);

/// Name that refers to all objects of a kind.
const EVERY: &str = "*";

/// Kinds of objects that a pod may refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    ConfigMap,
    Secret,
    /// All ClusterTrustBundles, since some are selected by signer and labels.
    TrustBundle,
}

/// The objects that pods of this node refer to.
pub struct Objects {
    client: Client,
    /// Receives the UIDs of pods, as names, whose objects changed.
    notices: ChangeQueue,
    watched: Mutex<BTreeMap<(Kind, Key), WatchedObject>>,
}

struct WatchedObject {
    reader: Reader<Value>,
    watch: AbortHandle,
    users: Arc<Mutex<BTreeSet<String>>>,
}

impl Kind {
    fn resource(self) -> &'static Resource {
        match self {
            Self::ConfigMap => &kinds::CONFIG_MAPS,
            Self::Secret => &kinds::SECRETS,
            Self::TrustBundle => &kinds::CLUSTER_TRUST_BUNDLES,
        }
    }

    fn key(self, pod: Pod<'_>, name: &str) -> Key {
        match self {
            Self::ConfigMap | Self::Secret => Key::new(pod.namespace(), name),
            Self::TrustBundle => Key::default(),
        }
    }
}

/// Returns the objects that a pod refers to, by kind and name.
pub(crate) fn references(pod: Pod<'_>) -> BTreeSet<(Kind, String)> {
    let mut found = BTreeSet::new();
    let mut note = |kind: Kind, name: Option<&str>| {
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            found.insert((kind, name.to_owned()));
        }
    };
    for secret in pod.list("imagePullSecrets") {
        note(Kind::Secret, secret.str_at(&["name"]));
    }
    for container in pod.containers() {
        let list = |field: &str| container.spec[field].as_array().unwrap_or_default();
        for from in list("envFrom") {
            note(Kind::ConfigMap, from.str_at(&["configMapRef", "name"]));
            note(Kind::Secret, from.str_at(&["secretRef", "name"]));
        }
        for variable in list("env") {
            note(Kind::ConfigMap, variable.str_at(&["valueFrom", "configMapKeyRef", "name"]));
            note(Kind::Secret, variable.str_at(&["valueFrom", "secretKeyRef", "name"]));
        }
    }
    for volume in pod.list("volumes") {
        note(Kind::ConfigMap, volume.str_at(&["configMap", "name"]));
        note(Kind::Secret, volume.str_at(&["secret", "secretName"]));
        for source in volume["projected"]["sources"].as_array().unwrap_or_default() {
            note(Kind::ConfigMap, source.str_at(&["configMap", "name"]));
            note(Kind::Secret, source.str_at(&["secret", "name"]));
            note(Kind::TrustBundle, source.get("clusterTrustBundle").map(|_| EVERY));
        }
    }
    found
}

impl Objects {
    /// Creates an empty cache. `notices` receives the pods whose objects changed.
    pub fn new(client: Client, notices: ChangeQueue) -> Self {
        Self { client, notices, watched: Mutex::new(BTreeMap::new()) }
    }

    /// Watches the objects that a pod refers to, and stops watches that only its previous version needed.
    pub fn follow(&self, pod: Pod<'_>) {
        let referenced: BTreeSet<(Kind, Key)> =
            references(pod).into_iter().map(|(kind, name)| (kind, kind.key(pod, &name))).collect();
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, key) in &referenced {
            let entry = watched.entry((*kind, key.clone())).or_insert_with(|| self.watch(*kind, key));
            entry.users.lock().unwrap_or_else(PoisonError::into_inner).insert(pod.uid().to_owned());
        }
        drop_user(&mut watched, pod.uid(), &referenced);
    }

    /// Stops the watches that only this pod needed.
    pub fn remove_pod(&self, uid: &str) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        drop_user(&mut watched, uid, &BTreeSet::new());
    }

    /// Returns the current objects that a pod refers to; `None` for absent ones.
    pub async fn of(&self, pod: Pod<'_>) -> BTreeMap<Kind, BTreeMap<String, Option<Value>>> {
        let mut all = BTreeMap::from([(Kind::ConfigMap, BTreeMap::new()), (Kind::Secret, BTreeMap::new())]);
        for (kind, name) in references(pod) {
            let key = kind.key(pod, &name);
            let reader = {
                let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
                watched.get(&(kind, key.clone())).map(|entry| entry.reader.clone())
            };
            if let Some(reader) = &reader {
                let _ = tokio::time::timeout(FIRST_TIMEOUT, reader.synced()).await;
            }
            let snapshot = reader.map(|reader| reader.snapshot());
            let found = all.entry(kind).or_default();
            if kind == Kind::TrustBundle {
                let bundles = snapshot.iter().flat_map(|snapshot| snapshot.objects.iter());
                found.extend(bundles.map(|entry| (entry.key.name.to_string(), Some(entry.value.clone()))));
            } else {
                found.insert(name, snapshot.and_then(|snapshot| snapshot.objects.get(&key).cloned()));
            }
        }
        all
    }

    fn watch(&self, kind: Kind, key: &Key) -> WatchedObject {
        let source = Source {
            client: self.client.clone(),
            resource: kind.resource().clone(),
            namespace: key.namespace.clone(),
            label_selector: String::new(),
            field_selector: if key.name.is_empty() { String::new() } else { format!("metadata.name={}", key.name) },
        };
        let (reflector, reader) = cache::new(source, cache::Settings::default(), Vec::new(), |object| object);
        let users: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let shared_users = Arc::clone(&users);
        reader.subscribe(&self.notices, move |_, keys| {
            let users = shared_users.lock().unwrap_or_else(PoisonError::into_inner);
            keys.extend(users.iter().map(|uid| Key::cluster(uid.as_str())));
        });
        // Several pods share the watch, so its span is that of the kubelet.
        let watch = tokio::spawn(reflector.run().instrument(spans::component("kubelet"))).abort_handle();
        WatchedObject { reader, watch, users }
    }
}

fn drop_user(watched: &mut BTreeMap<(Kind, Key), WatchedObject>, uid: &str, still: &BTreeSet<(Kind, Key)>) {
    watched.retain(|key, entry| {
        let mut users = entry.users.lock().unwrap_or_else(PoisonError::into_inner);
        if !still.contains(key) {
            users.remove(uid);
        }
        !users.is_empty()
    });
}

impl Drop for WatchedObject {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn all_references_of_a_pod_are_found() {
        let pod = value!({"spec": {
            "imagePullSecrets": [{"name": "pull"}],
            "containers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "s1"}}}], "envFrom": [{"configMapRef": {"name": "c1"}}]}],
            "volumes": [{"configMap": {"name": "c2"}}, {"secret": {"secretName": "s2"}},
                {"projected": {"sources": [{"configMap": {"name": "c3"}}, {"secret": {"name": "s3"}},
                    {"clusterTrustBundle": {"signerName": "s/s", "path": "p"}}]}}]}});
        let names: Vec<String> = references(Pod(&pod)).into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["c1", "c2", "c3", "pull", "s1", "s2", "s3", "*"]);
    }
}

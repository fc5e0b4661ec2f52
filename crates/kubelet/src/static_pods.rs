//! Static pods from files or from a URL, which run without an API server, and their mirror pods.

mod url;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use apimachinery::meta::{Meta, MetaMut};
use apimachinery::{Key, Value, value, yaml};
use client::{Client, DeleteOptions, Target, WriteOptions};
use component_base::inotify::Changes;
use controller::kinds;
use futures_util::future::select_all;
use tokio::sync::watch;

use crate::pod::{CONFIG_HASH, CONFIG_MIRROR, CONFIG_SOURCE, Pod};

/// Maximum size of a manifest.
const MANIFEST_BYTES_MAX: u64 = 10 << 20;

/// The built-in priority classes.
const SYSTEM_PRIORITIES: &[(&str, i64)] =
    &[("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// Delay after a failed change of a mirror pod.
const RETRY: std::time::Duration = std::time::Duration::from_secs(10);

/// Static pods by source.
#[derive(Default)]
pub(crate) struct StaticPods(Vec<watch::Receiver<Vec<Arc<Value>>>>);

pub(crate) use url::{Manifests, follow};

impl StaticPods {
    /// Combines the sources.
    #[must_use]
    pub(crate) fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Watches the pods of a directory. Reads it again after each change and at least every `every`.
    pub(crate) fn watch(
        dir: PathBuf,
        node: String,
        every: std::time::Duration,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (sender, receiver) = watch::channel(read_all(&dir, &node));
        let work = async move {
            let changes = Changes::of(&dir).ok();
            loop {
                let changed = async {
                    match &changes {
                        Some(changes) if changes.next().await.is_ok() => {}
                        _ => std::future::pending::<()>().await,
                    }
                };
                // Some changes cannot be watched, such as those of symlink targets, so the directory is also polled.
                tokio::select! {
                    () = changed => {}
                    () = tokio::time::sleep(every) => {}
                }
                let (dir, node) = (dir.clone(), node.clone());
                let Ok(read) = tokio::task::spawn_blocking(move || read_all(&dir, &node)).await else { return };
                publish(&sender, read);
            }
        };
        (Self(vec![receiver]), work)
    }

    /// Returns the current static pods.
    pub(crate) fn pods(&self) -> Vec<Arc<Value>> {
        self.0.iter().flat_map(|pods| pods.borrow().clone()).collect()
    }

    /// Waits for a change of any source.
    pub(crate) async fn changed(&mut self) {
        if !self.0.is_empty() {
            let changes = self.0.iter_mut().map(|pods| Box::pin(pods.changed()));
            if select_all(changes).await.0.is_ok() {
                return;
            }
        }
        std::future::pending::<()>().await;
    }
}

/// Publishes pods if they changed.
fn publish(sender: &watch::Sender<Vec<Arc<Value>>>, read: Vec<Arc<Value>>) {
    sender.send_if_modified(|known| {
        let changed = known.len() != read.len() || known.iter().zip(&read).any(|(a, b)| a != b);
        if changed {
            *known = read;
        }
        changed
    });
}

fn read_all(dir: &Path, node: &str) -> Vec<Arc<Value>> {
    let files: Vec<PathBuf> = if dir.is_file() {
        vec![dir.to_owned()]
    } else {
        std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    };
    let hidden = |file: &PathBuf| file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let mut pods: Vec<Arc<Value>> = files
        .iter()
        .filter(|file| file.is_file() && !hidden(file))
        .filter_map(|file| match read_one(file, node) {
            Ok(pod) => Some(Arc::new(pod)),
            Err(problem) => {
                tracing::warn!(file = %file.display(), problem, "failed to load a static pod manifest");
                None
            }
        })
        .collect();
    pods.sort_by_key(|pod| Key::of(pod));
    pods
}

fn read_one(file: &Path, node: &str) -> Result<Value, String> {
    let length = std::fs::metadata(file).map_err(|error| error.to_string())?.len();
    if length > MANIFEST_BYTES_MAX {
        return Err(format!("it is larger than {MANIFEST_BYTES_MAX} bytes"));
    }
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    manifest(&text, node)
}

fn manifest(text: &str, node: &str) -> Result<Value, String> {
    let pod = yaml::parse(text).map_err(|error| error.to_string())?;
    completed(pod, &hash(text), "file", node)
}

/// Completes a static pod: appends the node name to its name, assigns it to the node, and tolerates all NoExecute
/// taints.
fn completed(mut pod: Value, hash: &str, source: &str, node: &str) -> Result<Value, String> {
    if pod.str_at(&["kind"]) != Some("Pod") {
        return Err("it is not a Pod".to_owned());
    }
    let name = format!("{}-{node}", Meta::of(&pod).name());
    let namespace = Some(Meta::of(&pod).namespace()).filter(|name| !name.is_empty()).unwrap_or("default").to_owned();
    let mut meta = MetaMut::of(&mut pod).ok_or("it has no metadata")?;
    meta.set("name", name);
    meta.set("namespace", namespace);
    meta.set("uid", hash);
    meta.set_annotation(CONFIG_HASH, hash);
    meta.set_annotation(CONFIG_SOURCE, source);
    meta.set_annotation("kubernetes.io/config.seen", "1970-01-01T00:00:00Z");
    let spec = pod.get_mut("spec").and_then(Value::as_object_mut).ok_or("it has no spec")?;
    spec.insert("nodeName", node);
    spec.insert("tolerations", value!([{"operator": "Exists", "effect": "NoExecute"}]));
    // Without an API server, the built-in priority classes must be resolved here.
    let class = spec.get("priorityClassName").and_then(Value::as_str).unwrap_or_default();
    if let Some((_, priority)) = SYSTEM_PRIORITIES.iter().find(|(name, _)| *name == class) {
        spec.get_or_insert_with("priority", || (*priority).into());
    }
    api::core::pod::kind().rules.default(&mut pod, "v1");
    if pod.at(&["spec", "containers"]).and_then(Value::as_array).is_none_or(<[Value]>::is_empty) {
        return Err("it has no containers".to_owned());
    }
    Ok(pod)
}

/// Returns a 32-digit hexadecimal hash of the text.
fn hash(text: &str) -> String {
    let mut parts = [0xcbf2_9ce4_8422_2325_u64, 0x9ae1_6a3b_2f90_404f];
    for byte in text.bytes() {
        for part in &mut parts {
            *part = (*part ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3).rotate_left(5);
        }
    }
    format!("{:016x}{:016x}", parts[0], parts[1])
}

/// A mirror pod that must be created, replaced or deleted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mirroring {
    /// The static pod to mirror; `None` to delete only.
    pub pod: Option<Arc<Value>>,
    /// The mirror pod to delete.
    pub old: Option<Arc<Value>>,
}

/// Returns the changes that make the mirror pods match the static pods.
pub(crate) fn mirror(pods: &[Arc<Value>], mirrors: &BTreeMap<Key, Arc<Value>>) -> BTreeMap<Key, Mirroring> {
    let of = |pod: &Value| Meta::of(pod).annotation(CONFIG_HASH).unwrap_or_default().to_owned();
    let mut all = BTreeMap::new();
    for pod in pods {
        let (key, hash) = (Pod(pod).key(), of(pod));
        let old = mirrors.get(&key);
        if old.is_none_or(|mirror| of(mirror) != hash || Meta::of(mirror).is_deleting()) {
            all.insert(key, Mirroring { pod: Some(Arc::clone(pod)), old: old.cloned() });
        }
    }
    for (key, mirror) in mirrors {
        if !pods.iter().any(|pod| Pod(pod).key() == *key) {
            all.insert(key.clone(), Mirroring { pod: None, old: Some(Arc::clone(mirror)) });
        }
    }
    all
}

/// Applies a change. After a failure, waits before it returns; the caller then computes the change again.
pub(crate) async fn reflect(client: Client, mirroring: Mirroring) {
    let mut done = true;
    if let Some(old) = mirroring.old {
        done &= delete(&client, &old).await;
    }
    if let Some(pod) = mirroring.pod {
        done &= create(&client, &pod).await;
    }
    if !done {
        tokio::time::sleep(RETRY).await;
    }
}

async fn delete(client: &Client, mirror: &Value) -> bool {
    let options = DeleteOptions { grace_seconds: Some(0), ..DeleteOptions::of(Meta::of(mirror).uid()) };
    let target = Target::object(&kinds::PODS, &Key::of(mirror));
    if let Err(error) = client.delete(&target, &options).await
        && !error.is_not_found()
    {
        tracing::warn!(pod = %Key::of(mirror), error = %error, "failed to delete a mirror pod");
        return false;
    }
    true
}

async fn create(client: &Client, pod: &Value) -> bool {
    let mut mirror = pod.clone();
    if let Some(mut meta) = MetaMut::of(&mut mirror) {
        let hash = meta.view().annotation(CONFIG_HASH).unwrap_or_default().to_owned();
        meta.remove("uid");
        meta.set_annotation(CONFIG_MIRROR, &hash);
        let node = pod.str_at(&["spec", "nodeName"]).unwrap_or_default();
        // The node owns the mirror pod, which is deleted with it. Without permission to read nodes the owner is
        // omitted.
        if let Ok(node) = client.get(&Target::named(&kinds::NODES, "", node)).await {
            let owner = value!([{"apiVersion": "v1", "kind": "Node", "controller": true,
                "name": (Meta::of(&node).name()), "uid": (Meta::of(&node).uid())}]);
            meta.set("ownerReferences", owner);
        }
    }
    let target = Target::within(&kinds::PODS, Pod(pod).namespace());
    if let Err(error) = client.create(&target, &mirror, &WriteOptions::default()).await
        && !error.is_already_exists()
    {
        tracing::warn!(pod = %Key::of(pod), error = %error, "failed to create a mirror pod");
        return false;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirror_pods_follow_static_pods() {
        let pod = |text: &str| {
            Arc::new(
                manifest(&format!("kind: Pod\nmetadata: {{name: {text}}}\nspec: {{containers: [{{name: a}}]}}\n"), "n")
                    .unwrap(),
            )
        };
        let (a, b) = (pod("a"), pod("b"));
        let key = |pod: &Value| Key::of(pod);
        let existing = BTreeMap::from([(key(&b), Arc::clone(&b))]);
        let found = mirror(std::slice::from_ref(&a), &existing);
        let expect = BTreeMap::from([
            (key(&a), Mirroring { pod: Some(Arc::clone(&a)), old: None }),
            (key(&b), Mirroring { pod: None, old: Some(Arc::clone(&b)) }),
        ]);
        assert_eq!(found, expect);
        assert!(mirror(std::slice::from_ref(&b), &existing).is_empty());
    }

    #[test]
    fn manifest_becomes_a_static_pod_of_its_node() {
        let text = "kind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: a, image: x}]}\n";
        let pod = manifest(text, "n1").unwrap();
        assert_eq!(Key::of(&pod).to_string(), "default/web-n1");
        assert!(Pod(&pod).is_static() && Pod(&pod).uid().len() == 32);
        assert_ne!(manifest(&text.replace('x', "y"), "n1").unwrap()["metadata"]["uid"], pod["metadata"]["uid"]);
        let spec = &pod["spec"];
        assert_eq!((&spec["restartPolicy"], &spec["dnsPolicy"]), (&"Always".into(), &"ClusterFirst".into()));
        let container = &spec["containers"][0];
        assert_eq!(container["terminationMessagePath"], "/dev/termination-log".into());
        assert_eq!(container["imagePullPolicy"], "Always".into(), "without a tag, latest is used");
        let vital = text.replace("spec: {", "spec: {priorityClassName: system-node-critical, ");
        assert_eq!(manifest(&vital, "n1").unwrap()["spec"]["priority"], Value::Int(2_000_001_000));
        assert_eq!(manifest("kind: Service", "n").unwrap_err(), "it is not a Pod");
        assert_eq!(manifest("kind: Pod\nspec: {}", "n").unwrap_err(), "it has no containers");
    }
}

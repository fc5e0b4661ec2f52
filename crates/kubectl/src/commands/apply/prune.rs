//! `--prune`: deletes applied objects that are no longer in the configuration.

use std::collections::BTreeSet;

use apimachinery::{GroupVersion, Value};
use client::{ListOptions, Target};

use super::Apply;
use crate::changes::{DryRun, log_warning};
use crate::generate::last_applied::ANNOTATION as LAST_APPLIED;
use crate::{Context, Failure, Mapping};

/// The applied objects and their namespaces.
#[derive(Default)]
pub(super) struct AppliedObjects {
    pub namespaces: BTreeSet<String>,
    uids: BTreeSet<String>,
}

/// The kinds of objects that may be pruned.
pub(crate) struct Kinds {
    mappings: Vec<Mapping>,
}

/// Whether an object may be pruned.
pub(super) enum PruneDecision {
    Yes,
    No,
}

/// The kinds that are pruned by default.
const DEFAULT: &[(&str, &str, &str)] = &[
    ("", "v1", "ConfigMap"),
    ("", "v1", "Endpoints"),
    ("", "v1", "PersistentVolumeClaim"),
    ("", "v1", "Pod"),
    ("", "v1", "ReplicationController"),
    ("", "v1", "Secret"),
    ("", "v1", "Service"),
    ("batch", "v1", "Job"),
    ("batch", "v1", "CronJob"),
    ("networking.k8s.io", "v1", "Ingress"),
    ("apps", "v1", "DaemonSet"),
    ("apps", "v1", "Deployment"),
    ("apps", "v1", "ReplicaSet"),
    ("apps", "v1", "StatefulSet"),
    ("", "v1", "Namespace"),
    ("", "v1", "PersistentVolume"),
];

const DEPRECATED: &str = "Deprecated: kubectl apply will no longer prune non-namespaced resources by default when used \
    with the --namespace flag in a future release. To preserve the current behaviour, list the resources you want to \
    target explicitly in the --prune-allowlist flag.";

impl AppliedObjects {
    pub(super) fn add(&mut self, object: &Value) {
        self.uids.insert(object.str_at(&["metadata", "uid"]).unwrap_or_default().to_owned());
    }

    /// Whether an object was applied before, but not now.
    pub(super) fn allows_pruning(&self, object: &Value) -> PruneDecision {
        let applied = object.at(&["metadata", "annotations", LAST_APPLIED]).is_some();
        let uid = object.str_at(&["metadata", "uid"]).unwrap_or_default();
        if applied && !self.uids.contains(uid) { PruneDecision::Yes } else { PruneDecision::No }
    }
}

impl Kinds {
    /// Finds the kinds of `--prune-allowlist`, each written as `group/version/kind`; the default kinds if it is empty.
    pub(crate) async fn parse(context: &Context, allowlist: &[String]) -> Result<Self, Failure> {
        let mapper = context.mapper().await?;
        let mut mappings = Vec::new();
        if allowlist.is_empty() {
            for (group, version, kind) in DEFAULT {
                let version = GroupVersion { group: (*group).into(), version: (*version).into() };
                mappings.push(mapper.kind(&version.kind(*kind)).await?);
            }
        }
        for entry in allowlist {
            let [group, version, kind] = entry.split('/').collect::<Vec<_>>()[..] else {
                return Err(Failure::new(format!(
                    "invalid GroupVersionKind format: {entry}, please follow <group/version/kind>"
                )));
            };
            let group = if group == "core" { "" } else { group };
            let version = GroupVersion { group: group.into(), version: version.into() };
            mappings.push(mapper.kind(&version.kind(kind)).await?);
        }
        Ok(Self { mappings })
    }

    /// Returns each kind in each namespace, then the kinds without namespace.
    pub(crate) fn targets<'a>(
        &'a self,
        namespaces: &'a BTreeSet<String>,
    ) -> impl Iterator<Item = (&'a Mapping, &'a str)> {
        let namespaced = || self.mappings.iter().filter(|mapping| mapping.namespaced());
        let in_namespaces =
            namespaces.iter().flat_map(move |namespace| namespaced().map(move |mapping| (mapping, namespace.as_str())));
        let cluster = self.mappings.iter().filter(|mapping| !mapping.namespaced()).map(|mapping| (mapping, ""));
        in_namespaces.chain(cluster)
    }
}

impl Apply<'_> {
    pub(super) async fn prune(&mut self, kinds: Kinds) -> Result<(), Failure> {
        let options =
            ListOptions { label_selector: self.invocation.text("selector").to_owned(), ..ListOptions::default() };
        if self.invocation.list("prune-allowlist").is_empty() {
            log_warning(self.context, "prune.go:71", DEPRECATED);
        }
        let namespaces = std::mem::take(&mut self.visited.namespaces);
        for (mapping, namespace) in kinds.targets(&namespaces) {
            let pruned = self.prune_kind(mapping, namespace, &options).await;
            pruned.map_err(|failure| {
                let scope = if mapping.namespaced() { "namespaced" } else { "nonNamespaced" };
                let resource = &mapping.resource;
                let version = format!("{}/{}", resource.group, resource.version);
                let message = failure.status().map_or_else(|| failure.message.clone(), |status| status.message.clone());
                Failure::new(format!("error pruning {scope} object {version}, Kind={}: {message}", resource.kind))
            })?;
        }
        Ok(())
    }

    async fn prune_kind(&mut self, mapping: &Mapping, namespace: &str, options: &ListOptions) -> Result<(), Failure> {
        let list = self.client.list_all(&Target::within(&mapping.resource, namespace), options).await?;
        for object in list.items {
            if matches!(self.visited.allows_pruning(&object), PruneDecision::No) {
                continue;
            }
            let name = object.str_at(&["metadata", "name"]).unwrap_or_default();
            let namespace = object.str_at(&["metadata", "namespace"]).unwrap_or_default();
            if self.dry_run != DryRun::Client {
                let target = Target::named(&mapping.resource, namespace, name);
                self.client.delete(&target, &self.delete_options()).await?;
            }
            self.results.print(&object, "pruned")?;
            std::io::Write::flush(&mut self.context.out())?;
        }
        Ok(())
    }
}

//! Decides which objects to apply and to delete, without I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use apimachinery::meta::{MetaMut, Scope as ResourceScope};
use apimachinery::{GroupVersionKind, Key, Resource, Value};
use client::apply_set::{self, GroupKind};
use client::discovery::ServerResources;

use crate::directory::{Directory, FileState, FileVersion, Root};
use crate::document::Document;
use crate::report::{Problem, Scope};

/// The annotation of an object with the path of its file in the directory.
pub(crate) const FILE: &str = "knarr.io/manifest-file";
/// The annotation of an object that existed before it was applied. It is never deleted.
pub(crate) const ADOPTED: &str = "knarr.io/manifest-adopted";

/// The order of kinds: a stage is applied before the next one, and deleted after it. Other kinds are in the stage of
/// [`WORKLOADS`].
const STAGES: &[&[(&str, &str)]] = &[
    &[("", "Namespace"), ("apiextensions.k8s.io", "CustomResourceDefinition")],
    &[
        ("scheduling.k8s.io", "PriorityClass"),
        ("node.k8s.io", "RuntimeClass"),
        ("storage.k8s.io", "StorageClass"),
        ("networking.k8s.io", "IngressClass"),
        ("gateway.networking.k8s.io", "GatewayClass"),
        ("", "ResourceQuota"),
        ("", "LimitRange"),
        ("networking.k8s.io", "NetworkPolicy"),
    ],
    &[
        ("", "ServiceAccount"),
        ("", "Secret"),
        ("", "ConfigMap"),
        ("", "PersistentVolume"),
        ("", "PersistentVolumeClaim"),
        ("rbac.authorization.k8s.io", "ClusterRole"),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
        ("rbac.authorization.k8s.io", "Role"),
        ("rbac.authorization.k8s.io", "RoleBinding"),
    ],
    &[("", "Service")],
    &[],
    // These can reject objects until a workload serves them.
    &[
        ("apiregistration.k8s.io", "APIService"),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
    ],
];
const WORKLOADS: usize = 4;

/// Identifies an object in any version. Printed as `Deployment.apps shop/web`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectId {
    pub kind: GroupKind,
    pub key: Key,
}

/// An object of a file.
#[derive(Clone, Debug)]
pub(crate) struct Manifest {
    pub resource: Resource,
    pub object: Value,
    pub file: String,
    pub line: usize,
    pub version: FileVersion,
}

/// The objects of the files.
#[derive(Debug, Default)]
pub(crate) struct Desired {
    pub objects: BTreeMap<ObjectId, Manifest>,
    /// Objects in files that cannot be applied now. They are neither applied nor deleted.
    untouched: BTreeSet<ObjectId>,
    /// Files and, with a slash at the end, directories that were not read. Their objects are kept.
    unread: BTreeSet<String>,
    /// Whether objects may be deleted: the directory was read, and no file is being written.
    prunable: bool,
    missing: bool,
    problems: Vec<Problem>,
}

/// An object with the label of the set.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub resource: Resource,
    pub uid: String,
    pub metadata: ObjectMetadata,
}

/// The facts about an object in the cluster that decide whether it is applied and deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectMetadata {
    /// The ApplySet of the object.
    pub part_of: Option<String>,
    /// The file that it was applied from.
    pub file: Option<String>,
    pub adopted: bool,
    pub deleting: bool,
}

/// The ApplySet of another directory.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub id: String,
    /// The objects that are also in its directory, as text.
    pub claims: BTreeSet<String>,
}

/// The observed cluster.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    /// The kinds in the annotation of the parent; `None` if there is no parent.
    pub parent: Option<Scope>,
    pub members: BTreeMap<ObjectId, Member>,
    /// Kinds whose members could not be listed.
    pub unlisted: BTreeMap<GroupKind, String>,
    /// The desired objects that exist and are not members.
    pub others: BTreeMap<ObjectId, ObjectMetadata>,
    pub peers: Vec<Peer>,
}

/// Applies an object with server-side apply.
#[derive(Clone, Debug)]
pub(crate) struct Apply {
    pub id: ObjectId,
    pub manifest: Manifest,
}

/// Removes an object from the set.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Prune {
    pub id: ObjectId,
    pub resource: Resource,
    pub uid: String,
    pub how: Removal,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    Delete,
    /// Removes the marks of the set from an object that existed before.
    Release,
    /// Gives the object to the set of another directory, which also has it.
    HandOver(String),
}

#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub create_directory: bool,
    /// The kinds and namespaces of all objects that are members before or after the plan.
    pub scope: Scope,
    /// In order.
    pub apply: Vec<Apply>,
    /// In order.
    pub prune: Vec<Prune>,
    /// The objects that are applied already.
    pub unchanged: usize,
    /// The objects that another directory applies.
    pub claims: BTreeSet<ObjectId>,
    pub problems: Vec<Problem>,
}

impl Plan {
    /// Whether objects are applied or removed.
    pub(crate) const fn changes_objects(&self) -> bool {
        !self.apply.is_empty() || !self.prune.is_empty()
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.kind, self.key)
    }
}

impl ObjectId {
    pub(crate) fn of(resource: &Resource, object: &Value) -> Self {
        Self { kind: GroupKind::of(resource), key: Key::of(object) }
    }

    fn stage(&self) -> usize {
        let is = |(group, kind): &(&str, &str)| self.kind.group == *group && self.kind.kind == *kind;
        STAGES.iter().position(|stage| stage.iter().any(is)).unwrap_or(WORKLOADS)
    }
}

/// Finds the resource of each object of the files, and reports those that cannot be applied.
pub(crate) fn resolve(directory: Directory, served: &ServerResources) -> Desired {
    let mut desired = Desired { prunable: directory.root == Root::Present, ..Desired::default() };
    match directory.root {
        Root::Present => {}
        Root::Missing => desired.missing = true,
        Root::Refused(problem) => desired.report("", 0, "", format!("the directory is not read: {problem}")),
    }
    if let Some(problem) = directory.unwatched {
        let advice = "changes are not noticed before the next start; see fs.inotify.max_user_watches";
        desired.report("", 0, "", format!("{problem}; {advice}"));
    }
    let mut places: BTreeMap<ObjectId, Vec<(String, usize)>> = BTreeMap::new();
    for (file, state) in directory.files {
        match state {
            FileState::BeingWritten => {
                desired.prunable = false;
                let message = "a process is writing the file, which is read when it is closed; until then nothing is \
                    deleted"
                    .to_owned();
                // Some filesystems do not report that the file is closed.
                let problem = Problem { file: file.clone(), line: 0, object: String::new(), message, retry: true };
                desired.problems.push(problem);
                desired.unread.insert(file);
            }
            FileState::Refused { line, problem } => {
                desired.report(&file, line, "", format!("{problem}; the objects that the file had are kept"));
                desired.unread.insert(file);
            }
            FileState::Parsed { version, documents } => {
                for document in documents {
                    let place = (file.clone(), document.line);
                    let id = desired.add(document, &file, version, served);
                    places.entry(id).or_default().push(place);
                }
            }
        }
    }
    for (id, places) in places {
        let [(first, first_line), .., (last, last_line)] = places.as_slice() else { continue };
        let advice = "it is neither applied nor deleted until only one of them is left";
        let message = format!("the object is also in {first}:{first_line}; {advice}");
        desired.report(last, *last_line, &id.to_string(), message);
        desired.objects.remove(&id);
        desired.untouched.insert(id);
    }
    desired
}

impl Desired {
    fn report(&mut self, file: &str, line: usize, object: &str, message: String) {
        let (file, object) = (file.to_owned(), object.to_owned());
        self.problems.push(Problem { file, line, object, message, retry: false });
    }

    fn add(&mut self, document: Document, file: &str, version: FileVersion, served: &ServerResources) -> ObjectId {
        let Document { mut object, line } = document;
        let kind = GroupVersionKind::of_object(&object).expect("checked by the parser");
        let found = served.served.iter().map(|served| &served.resource).find(|resource| {
            resource.kind == kind.kind && resource.group == kind.group && resource.version == kind.version
        });
        let Some(resource) = found.cloned() else {
            let id = ObjectId {
                kind: GroupKind { kind: kind.kind.clone(), group: kind.group.clone() },
                key: Key::of(&object),
            };
            let message = unknown(&kind, served);
            let problem = Problem { file: file.to_owned(), line, object: id.to_string(), message, retry: true };
            self.problems.push(problem);
            self.untouched.insert(id.clone());
            return id;
        };
        if let Some(mut meta) = MetaMut::of(&mut object) {
            match resource.scope {
                ResourceScope::Namespaced if meta.view().namespace().is_empty() => meta.set("namespace", "default"),
                ResourceScope::Namespaced => {}
                ResourceScope::Cluster => drop(meta.remove("namespace")),
            }
        }
        let id = ObjectId::of(&resource, &object);
        self.objects.insert(id.clone(), Manifest { resource, object, file: file.to_owned(), line, version });
        id
    }

    /// Whether the object of a file that was not read may still be in that file.
    fn may_contain(&self, file: &str) -> bool {
        self.unread.iter().any(|unread| file == unread || (unread.ends_with('/') && file.starts_with(unread.as_str())))
    }
}

/// Returns why a kind is unknown.
fn unknown(kind: &GroupVersionKind, served: &ServerResources) -> String {
    let api_version = kind.api_version();
    let versions: Vec<String> = served
        .served
        .iter()
        .filter(|served| served.resource.kind == kind.kind && served.resource.group == kind.group)
        .map(|served| served.resource.api_version())
        .collect();
    match kind.group.as_str() {
        "helm.cattle.io" => {
            "Helm charts are not installed; store the output of `helm template` in this directory instead".to_owned()
        }
        "kustomize.config.k8s.io" => {
            "kustomizations are not built; store the output of `kubectl kustomize` in this directory instead".to_owned()
        }
        _ if served.stale.iter().any(|stale| *stale == api_version) => {
            format!("the aggregated API server of {api_version} does not respond")
        }
        _ if !versions.is_empty() => {
            format!("the server has no {} of {api_version}; use {}", kind.kind, versions.join(" or "))
        }
        _ => format!(
            "the server has no {} of {api_version}; the object is applied when a CustomResourceDefinition provides it",
            kind.kind
        ),
    }
}

/// Decides on one pass. `applied` has the versions of the files from which members were applied.
pub(crate) fn plan(desired: Desired, cluster: &Cluster, applied: &BTreeMap<ObjectId, FileVersion>, set: &str) -> Plan {
    let mut plan = Plan { prune: prune(&desired, cluster), ..Plan::default() };
    plan.scope.kinds.extend(cluster.unlisted.keys().cloned());
    for id in desired.objects.keys().chain(cluster.members.keys()) {
        plan.scope.add(id.kind.clone(), &id.key.namespace);
    }
    plan.problems = desired.problems;
    if desired.missing {
        plan.create_directory = cluster.members.is_empty() && cluster.unlisted.is_empty();
        if !plan.create_directory {
            let message = "the directory is missing, and its objects are kept; move it back with all of its files, \
                because an empty directory deletes them";
            let message = message.to_owned();
            plan.problems.push(Problem { file: String::new(), line: 0, object: String::new(), message, retry: false });
        }
    }
    for (kind, error) in &cluster.unlisted {
        let message = format!("failed to list the applied objects, which are kept: {error}");
        plan.problems.push(Problem { file: String::new(), line: 0, object: kind.to_string(), message, retry: true });
    }
    for (id, mut manifest) in desired.objects {
        let member = cluster.members.get(&id).map(|member| &member.metadata);
        let found = member.or_else(|| cluster.others.get(&id));
        match decide(&manifest, found, member.is_some(), applied.get(&id), cluster) {
            Decision::Unchanged => plan.unchanged += 1,
            Decision::Claim => drop(plan.claims.insert(id)),
            Decision::Wait(message) => {
                let (file, line, object) = (manifest.file, manifest.line, id.to_string());
                plan.problems.push(Problem { file, line, object, message, retry: true });
            }
            Decision::Apply { adopted } => {
                label(&mut manifest, set, adopted);
                plan.apply.push(Apply { id, manifest });
            }
        }
    }
    plan.apply.sort_by_cached_key(|apply| (apply.id.stage(), apply.manifest.file.clone(), apply.manifest.line));
    plan
}

enum Decision {
    Apply {
        adopted: bool,
    },
    Unchanged,
    /// Another directory applies the object.
    Claim,
    Wait(String),
}

fn decide(
    manifest: &Manifest,
    found: Option<&ObjectMetadata>,
    is_member: bool,
    applied: Option<&FileVersion>,
    cluster: &Cluster,
) -> Decision {
    let Some(found) = found else { return Decision::Apply { adopted: false } };
    if found.deleting {
        return Decision::Wait("the object is being deleted, and is applied when it is gone".to_owned());
    }
    if is_member {
        let unchanged = applied == Some(&manifest.version) && found.file.as_ref() == Some(&manifest.file);
        return if unchanged { Decision::Unchanged } else { Decision::Apply { adopted: found.adopted } };
    }
    match &found.part_of {
        None => Decision::Apply { adopted: true },
        Some(id) if cluster.peers.iter().any(|peer| peer.id == *id) => Decision::Claim,
        // The directory of a server that was removed from the cluster.
        Some(_) if found.file.is_some() => Decision::Apply { adopted: found.adopted },
        Some(_) => Decision::Wait(format!(
            "the object belongs to the ApplySet of another tool; remove its label {} to apply it from here",
            apply_set::PART_OF
        )),
    }
}

/// Makes an object a member of the set.
fn label(manifest: &mut Manifest, set: &str, adopted: bool) {
    let Some(mut meta) = MetaMut::of(&mut manifest.object) else { return };
    meta.set_label(apply_set::PART_OF, set);
    meta.set_annotation(FILE, &manifest.file);
    if adopted {
        meta.set_annotation(ADOPTED, "true");
    }
}

/// Returns the members that are in no file any more, those that others depend on last.
fn prune(desired: &Desired, cluster: &Cluster) -> Vec<Prune> {
    if !desired.prunable {
        return Vec::new();
    }
    let is_gone = |id: &ObjectId, member: &Member| {
        // Only this component sets the annotation; the label alone may be a copy from another object.
        let file = member.metadata.file.as_ref();
        !desired.objects.contains_key(id)
            && !desired.untouched.contains(id)
            && !member.metadata.deleting
            && file.is_some_and(|file| !desired.may_contain(file))
    };
    let mut prune: Vec<Prune> = cluster
        .members
        .iter()
        .filter(|(id, member)| is_gone(id, member))
        .map(|(id, member)| {
            let claim = id.to_string();
            let claimant = cluster.peers.iter().find(|peer| peer.claims.contains(&claim));
            let how = match claimant {
                Some(peer) => Removal::HandOver(peer.id.clone()),
                None if member.metadata.adopted => Removal::Release,
                None => Removal::Delete,
            };
            Prune { id: id.clone(), resource: member.resource.clone(), uid: member.uid.clone(), how }
        })
        .collect();
    prune.sort_by_cached_key(|prune| (std::cmp::Reverse(prune.id.stage()), prune.id.clone()));
    prune
}

#[cfg(test)]
mod tests;

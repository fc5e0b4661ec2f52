//! The revisions of workloads: the ReplicaSets of a Deployment, the ControllerRevisions of other workloads.

use apimachinery::meta::Meta;
use apimachinery::patch::strategic;
use apimachinery::{Object, Resource, Value, labels};
use client::{ListOptions, Target};

use super::status::kind_name;
use crate::describe::workloads::split_replica_sets;
use crate::resources::Info;
use crate::{Context, Failure};

pub(super) const DEPLOYMENTS: Resource = Resource::namespaced("apps", "v1", "deployments", "Deployment");
pub(super) const STATEFUL_SETS: Resource = Resource::namespaced("apps", "v1", "statefulsets", "StatefulSet");
pub(super) const DAEMON_SETS: Resource = Resource::namespaced("apps", "v1", "daemonsets", "DaemonSet");
static REPLICA_SETS: Resource = Resource::namespaced("apps", "v1", "replicasets", "ReplicaSet");
static CONTROLLER_REVISIONS: Resource = Resource::namespaced("apps", "v1", "controllerrevisions", "ControllerRevision");

const REVISION_ANNOTATION: &str = "deployment.kubernetes.io/revision";
pub(super) const CHANGE_CAUSE_ANNOTATION: &str = "kubernetes.io/change-cause";

/// A workload and its revisions.
pub(super) struct History {
    pub object: Value,
    pub revisions: Vec<Revision>,
}

/// A revision: its number and the ReplicaSet or ControllerRevision with its template.
#[derive(Clone, Debug)]
pub(super) struct Revision {
    pub number: i64,
    pub source: Value,
}

impl Revision {
    pub(super) fn change_cause(&self) -> Option<&str> {
        Meta::of(&self.source).annotation(CHANGE_CAUSE_ANNOTATION).filter(|cause| !cause.is_empty())
    }
}

/// Returns the resource of a workload that has revisions.
pub(super) fn workload(info: &Info) -> Option<&'static Resource> {
    static KINDS: [Resource; 3] = [DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS];
    let resource = &info.mapping.resource;
    KINDS.iter().find(|kind| matches!(resource.group.as_str(), "apps" | "extensions") && kind.kind == resource.kind)
}

/// Returns the failure of an object without revisions. `verb` and `noun` are those of the command.
pub(super) fn unsupported(info: &Info, verb: &str, noun: &str) -> Failure {
    /// Kinds that kubectl knows, but without revisions.
    const KNOWN: [&str; 5] = ["Job", "Pod", "ReplicaSet", "ReplicationController", "CronJob"];
    let resource = &info.mapping.resource;
    let (group, kind) = (&resource.group, &resource.kind);
    let name = kind_name(kind, group);
    if KNOWN.contains(&kind.as_str()) {
        return Failure::new(format!("no {noun} has been implemented for {name:?}"));
    }
    Failure::new(format!("error retrieving {verb} for {name:?}, no visitor method exists for {{{group} {kind}}}"))
}

/// Reads a workload and its revisions.
pub(super) async fn read(context: &Context, resource: &'static Resource, info: &Info) -> Result<History, Failure> {
    let client = context.client()?;
    let (namespace, name) = (info.namespace.as_str(), info.name.as_str());
    let kind = match resource.kind.as_str() {
        "Deployment" => "deployment",
        "StatefulSet" => "Statefulset",
        kind => kind,
    };
    let target = Target::named(resource, namespace, name);
    let object = client
        .get(&target)
        .await
        .map_err(|error| Failure::new(format!("failed to retrieve {kind} {name}: {error}")))?;
    let selector = labels::from_object(object.at(&["spec", "selector"]));
    let selector =
        selector.map_err(|error| Failure::new(format!("failed to create selector for {kind} {name}: {error}")))?;
    let options = ListOptions { label_selector: selector.to_string(), ..ListOptions::default() };
    let revisions = if resource.kind == "Deployment" {
        let sets = client.list_all(&Target::within(&REPLICA_SETS, namespace), &options).await;
        let sets = sets.map_err(|error| {
            Failure::new(format!("failed to retrieve replica sets from deployment {name}: {error}"))
        })?;
        let (old, new) = split_replica_sets(&object, &sets.items);
        old.into_iter().chain(new).filter_map(of_replica_set).collect()
    } else {
        let list = client.list_all(&Target::within(&CONTROLLER_REVISIONS, namespace), &options).await;
        let list = list.map_err(|error| {
            Failure::new(format!("unable to find history controlled by {} {name}: {error}", resource.kind))
        })?;
        let uid = Meta::of(&object).uid();
        let owned = |revision: &Value| Meta::of(revision).controller().is_some_and(|owner| owner.uid() == uid);
        list.items.into_iter().filter(owned).map(of_controller_revision).collect()
    };
    Ok(History { object, revisions })
}

fn of_replica_set(set: &Value) -> Option<Revision> {
    let number = Meta::of(set).annotation(REVISION_ANNOTATION).unwrap_or("0").parse().ok()?;
    Some(Revision { number, source: set.clone() })
}

fn of_controller_revision(revision: Value) -> Revision {
    Revision { number: revision.get("revision").and_then(Value::as_int).unwrap_or_default(), source: revision }
}

impl History {
    pub(super) fn find(&self, number: i64) -> Option<&Revision> {
        // Of several revisions with the same number, the last one is used.
        self.revisions.iter().rfind(|revision| revision.number == number)
    }

    /// Returns the state of a workload in a revision. For a Deployment this is the ReplicaSet.
    pub(super) fn at(&self, revision: &Revision) -> Result<Value, Failure> {
        if revision.source.get("spec").is_some() {
            return Ok(revision.source.clone());
        }
        let data = revision.source.get("data").and_then(Value::as_object).cloned().unwrap_or_default();
        let object: Object = self.object.as_object().cloned().unwrap_or_default();
        let kind =
            apimachinery::GroupVersionKind::of_object(&self.object).map_err(|error| Failure::new(error.to_string()))?;
        let schema = api::catalogue::schema(&kind)
            .ok_or_else(|| Failure::new(format!("unable to parse history {}", Meta::of(&revision.source).name())))?;
        let applied = strategic::apply(object, data, schema).map_err(|error| Failure::new(error.to_string()))?;
        Ok(Value::Object(applied))
    }

    /// Returns the pod template of a revision.
    pub(super) fn template(&self, revision: &Revision) -> Result<Value, Failure> {
        Ok(self.at(revision)?.at(&["spec", "template"]).cloned().unwrap_or_default())
    }

    /// Returns the pod template of a revision, for a Deployment with the cause of the revision as an annotation.
    pub(super) fn annotated_template(&self, revision: &Revision) -> Result<Value, Failure> {
        let mut template = self.template(revision)?;
        if let (Some(cause), true) = (revision.change_cause(), revision.source.get("spec").is_some()) {
            set_annotation(&mut template, cause);
        }
        Ok(template)
    }
}

fn set_annotation(template: &mut Value, cause: &str) {
    if let Some(template) = template.as_object_mut()
        && let Some(metadata) = template.get_or_insert_with("metadata", Value::object).as_object_mut()
        && let Some(annotations) = metadata.get_or_insert_with("annotations", Value::object).as_object_mut()
    {
        annotations.insert(CHANGE_CAUSE_ANNOTATION, cause);
    }
}

//! Workloads: ReplicationControllers, ReplicaSets, Deployments, StatefulSets and DaemonSets.

use apimachinery::labels::format_labels;
use apimachinery::meta::Meta;
use apimachinery::{Object, Value};

use super::common;
use super::pod::write_template;
use super::query::{PODS, Query, REPLICA_SETS, Tolerate};
use super::read::{Read, int_or_string, name, namespace};
use super::storage;
use super::writer::{Writer, line};
use super::{RelatedObjects, WriteResult};

const TEMPLATE_HASH_LABEL: &str = "pod-template-hash";

/// Returns a query for the pods that the selector of a workload selects.
pub fn pod_queries(workload: &Value) -> Result<Vec<Query>, String> {
    let selector = common::selector(workload.sub("spec.selector"))?;
    Ok(vec![Query::list(&PODS, namespace(workload)).with_labels(selector)])
}

pub fn replica_set_queries(set: &Value) -> Result<Vec<Query>, String> {
    let queries = pod_queries(set)?;
    Ok(queries.into_iter().map(|query| query.tolerating(Tolerate::All)).collect())
}

/// The selector of a ReplicationController is a map of labels.
pub fn controller_queries(controller: &Value) -> Result<Vec<Query>, String> {
    let labels = controller.map("spec.selector").iter();
    let labels: Vec<_> = labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    Ok(vec![Query::list(&PODS, namespace(controller)).with_labels(labels.join(","))])
}

pub fn controller(w: &mut Writer<'_>, controller: &Value, related: &RelatedObjects) -> WriteResult {
    common::identity(w, controller);
    line!(w, 0, "Selector:\t{}", format_labels(controller.at(&["spec", "selector"])));
    common::metadata(w, controller);
    write_replicas(w, controller);
    write_pod_status(w, controller, related);
    write_template(w, controller.sub("spec.template"));
    common::conditions(w, controller);
    Ok(())
}

pub fn replica_set(w: &mut Writer<'_>, set: &Value, related: &RelatedObjects) -> WriteResult {
    common::identity(w, set);
    line!(w, 0, "Selector:\t{}", common::describe_selector(set.sub("spec.selector")));
    common::metadata(w, set);
    common::controlled_by(w, set);
    write_replicas(w, set);
    write_pod_status(w, set, related);
    write_template(w, set.sub("spec.template"));
    common::conditions(w, set);
    Ok(())
}

fn write_replicas(w: &mut Writer<'_>, set: &Value) {
    line!(w, 0, "Replicas:\t{} current / {} desired", set.int("status.replicas"), set.int("spec.replicas"));
}

/// Counts the pods of a workload by phase.
fn write_pod_status(w: &mut Writer<'_>, workload: &Value, related: &RelatedObjects) {
    let pods = match related.list(&PODS) {
        Ok(pods) => pods,
        Err(error) => {
            line!(w, 0, "Pods Status:\terror in fetching pods: {error}");
            return;
        }
    };
    let owned = || pods.iter().filter(|pod| is_controlled_by(pod, workload));
    let [running, waiting, succeeded, failed] = ["Running", "Pending", "Succeeded", "Failed"]
        .map(|phase| owned().filter(|pod| pod.text("status.phase") == phase).count());
    line!(w, 0, "Pods Status:\t{running} Running / {waiting} Waiting / {succeeded} Succeeded / {failed} Failed");
}

fn is_controlled_by(object: &Value, owner: &Value) -> bool {
    Meta::of(object).controller().is_some_and(|reference| reference.uid() == owner.text("metadata.uid"))
}

pub fn daemon_set(w: &mut Writer<'_>, set: &Value, related: &RelatedObjects) -> WriteResult {
    let status = set.sub("status");
    common::identity(w, set);
    line!(w, 0, "Selector:\t{}", common::selector(set.sub("spec.selector"))?);
    line!(w, 0, "Node-Selector:\t{}", format_labels(set.at(&["spec", "template", "spec", "nodeSelector"])));
    common::metadata(w, set);
    line!(w, 0, "Desired Number of Nodes Scheduled: {}", status.int("desiredNumberScheduled"));
    line!(w, 0, "Current Number of Nodes Scheduled: {}", status.int("currentNumberScheduled"));
    line!(w, 0, "Number of Nodes Scheduled with Up-to-date Pods: {}", status.int("updatedNumberScheduled"));
    line!(w, 0, "Number of Nodes Scheduled with Available Pods: {}", status.int("numberAvailable"));
    line!(w, 0, "Number of Nodes Misscheduled: {}", status.int("numberMisscheduled"));
    write_pod_status(w, set, related);
    write_template(w, set.sub("spec.template"));
    Ok(())
}

pub fn stateful_set(w: &mut Writer<'_>, set: &Value, related: &RelatedObjects) -> WriteResult {
    let spec = set.sub("spec");
    common::identity(w, set);
    common::time(w, "CreationTimestamp", set.text("metadata.creationTimestamp"));
    line!(w, 0, "Selector:\t{}", common::selector(spec.sub("selector"))?);
    common::metadata(w, set);
    line!(w, 0, "Replicas:\t{} desired | {} total", spec.int("replicas"), set.int("status.replicas"));
    line!(w, 0, "Update Strategy:\t{}", spec.text("updateStrategy.type"));
    let rolling = spec.sub("updateStrategy.rollingUpdate");
    if rolling.has("partition") {
        line!(w, 1, "Partition:\t{}", rolling.int("partition"));
        if rolling.has("maxUnavailable") {
            line!(w, 1, "MaxUnavailable:\t{}", int_or_string(rolling.sub("maxUnavailable")));
        }
    }
    write_pod_status(w, set, related);
    write_template(w, spec.sub("template"));
    storage::write_claim_templates(w, spec.list("volumeClaimTemplates"));
    Ok(())
}

pub fn deployment_queries(deployment: &Value) -> Result<Vec<Query>, String> {
    let selector = common::selector(deployment.sub("spec.selector"))?;
    let sets = Query::list(&REPLICA_SETS, namespace(deployment)).with_labels(selector);
    Ok(vec![sets.tolerating(Tolerate::All)])
}

pub fn deployment(w: &mut Writer<'_>, deployment: &Value, related: &RelatedObjects) -> WriteResult {
    let (spec, status) = (deployment.sub("spec"), deployment.sub("status"));
    common::identity(w, deployment);
    common::time(w, "CreationTimestamp", deployment.text("metadata.creationTimestamp"));
    common::metadata(w, deployment);
    line!(w, 0, "Selector:\t{}", common::selector(spec.sub("selector"))?);
    let counts = ["updatedReplicas", "replicas", "availableReplicas", "unavailableReplicas"];
    let [updated, total, available, unavailable] = counts.map(|field| status.int(field));
    let desired = spec.int("replicas");
    line!(
        w,
        0,
        "Replicas:\t{desired} desired | {updated} updated | {total} total | {available} available | {unavailable} unavailable"
    );
    line!(w, 0, "StrategyType:\t{}", spec.text("strategy.type"));
    line!(w, 0, "MinReadySeconds:\t{}", spec.int("minReadySeconds"));
    let rolling = spec.sub("strategy.rollingUpdate");
    if !rolling.is_null() {
        let [unavailable, surge] = ["maxUnavailable", "maxSurge"].map(|field| int_or_string(rolling.sub(field)));
        line!(w, 0, "RollingUpdateStrategy:\t{unavailable} max unavailable, {surge} max surge");
    }
    write_template(w, spec.sub("template"));
    common::conditions(w, deployment);
    let (old, new) = split_replica_sets(deployment, related.list(&REPLICA_SETS).unwrap_or_default());
    if !old.is_empty() || new.is_some() {
        line!(w, 0, "OldReplicaSets:\t{}", replica_sets(&old));
        line!(w, 0, "NewReplicaSet:\t{}", replica_sets(new.as_slice()));
    }
    Ok(())
}

/// Returns the old ReplicaSets of a deployment, oldest first, and the one of its current template.
pub fn split_replica_sets<'a>(deployment: &Value, sets: &'a [Value]) -> (Vec<&'a Value>, Option<&'a Value>) {
    let mut owned: Vec<&Value> = sets.iter().filter(|set| is_controlled_by(set, deployment)).collect();
    owned.sort_by_key(|set| (set.text("metadata.creationTimestamp"), name(set)));
    let template = deployment.sub("spec.template");
    let new = owned.iter().copied().find(|set| is_same_template(set.sub("spec.template"), template));
    let uid = |set: &Value| set.text("metadata.uid").to_owned();
    let old = owned.into_iter().filter(|set| new.is_none_or(|new| uid(new) != uid(set))).collect();
    (old, new)
}

/// Whether two pod templates are equal, except for the label with their hash. Empty fields are equal to absent ones.
pub fn is_same_template(one: &Value, other: &Value) -> bool {
    normalized(one) == normalized(other)
}

fn normalized(template: &Value) -> Value {
    let mut template = without_empty(template);
    let labels = template.get_mut("metadata").and_then(|metadata| metadata.get_mut("labels"));
    if let Some(labels) = labels.and_then(Value::as_object_mut) {
        labels.remove(TEMPLATE_HASH_LABEL);
    }
    without_empty(&template)
}

fn without_empty(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| (key, without_empty(value)));
            Value::Object(fields.filter(|(_, value)| !is_empty(value)).collect::<Object>())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_empty).collect()),
        other => other.clone(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn replica_sets(sets: &[&Value]) -> String {
    let set = |set: &&Value| {
        format!("{} ({}/{} replicas created)", name(set), set.int("status.replicas"), set.int("spec.replicas"))
    };
    if sets.is_empty() { "<none>".to_owned() } else { sets.iter().map(set).collect::<Vec<_>>().join(", ") }
}

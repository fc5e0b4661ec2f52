//! Attach/detach controller: creates VolumeAttachments for CSI volumes that a node's pods need and deletes the others.
//!
//! A key is a node. The CSI driver's external-attacher acts on the VolumeAttachment. `status.volumesAttached` of the
//! node reports attached volumes to the kubelet:
//!
//! ```text
//!   wanted     ──> VolumeAttachment created ──> attached ──> listed in volumesAttached
//!   not wanted ──> kubelet unmounted it     ──> removed from volumesAttached ──> VolumeAttachment deleted
//! ```

mod volume;

use std::collections::BTreeMap;
use std::convert::Infallible;

use api::resources::{
    CSI_DRIVERS, EVENTS, NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, VOLUME_ATTACHMENTS,
};
use api::view::Pod;
use apimachinery::meta::Meta;
use apimachinery::time::{Duration, Time};
use apimachinery::{GroupResource, Key, Value, value};
use controller::{Action, Cache, Controller, EventType, Patch, Plan, Preconditions, Regarding, Write, kinds};

use crate::{condition, pvc_protection};
use volume::Volume;

/// Annotation of nodes whose kubelet leaves attach and detach to this controller.
const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// Taint of nodes that are shut down, so that no container on them runs.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// Time after which volumes that a NotReady node reports in use are detached.
const UNMOUNT_MAX: Duration = Duration::from_seconds(6 * 60);

pub struct AttachDetach;

/// A node, the volumes that its pods use, and its VolumeAttachments.
pub struct Observation<'a> {
    node: &'a Value,
    desired_volumes: BTreeMap<String, DesiredVolume<'a>>,
    /// VolumeAttachments of this node by name. The name is derived from driver, volume and node.
    attachments: BTreeMap<&'a str, &'a Value>,
}

/// A volume used by pods of the node.
struct DesiredVolume<'a> {
    volume: Volume<'a>,
    pods: Vec<&'a Value>,
    /// Whether an exclusive volume is attached to another node.
    elsewhere: bool,
}

impl Controller for AttachDetach {
    type Observed<'a> = Observation<'a>;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "attachdetach-controller";
    const READS: &'static [GroupResource] =
        &[NODES, PODS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, VOLUME_ATTACHMENTS, CSI_DRIVERS];
    const WRITES: &'static [Write] = &[(VOLUME_ATTACHMENTS, ""), (NODES, "status"), (EVENTS, "")];

    fn affected_keys(cache: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        match kind {
            NODES => keys.push(Key::of(object)),
            PODS if !Pod(object).node_name().is_empty() => {
                keys.extend(pvc_protection::claims_of(object).next().map(|_| Key::cluster(Pod(object).node_name())));
            }
            PERSISTENT_VOLUME_CLAIMS => keys.extend(nodes_of_claim(cache, &Key::of(object))),
            PERSISTENT_VOLUMES => keys.extend(nodes_of_volume(cache, object)),
            VOLUME_ATTACHMENTS => {
                keys.push(Key::cluster(object.text_at(&["spec", "nodeName"])));
                let volume = Key::cluster(object.text_at(&["spec", "source", "persistentVolumeName"]));
                keys.extend(
                    cache.get(PERSISTENT_VOLUMES, &volume).into_iter().flat_map(|it| nodes_of_volume(cache, it)),
                );
            }
            CSI_DRIVERS => keys.extend(cache.of(NODES).iter().map(|it| it.key.clone())),
            _ => {}
        }
    }

    /// Ignores the kubelet's heartbeats, which update the node every few minutes.
    fn is_relevant_change(kind: GroupResource, old: &Value, new: &Value) -> bool {
        let part = |node: &Value| {
            let status = ["volumesInUse", "volumesAttached"].map(|field| node.at(&["status", field]).cloned());
            let managed = Meta::of(node).annotation(MANAGED).map(str::to_owned);
            (status, managed, node.at(&["spec", "taints"]).cloned(), silent_since(node))
        };
        kind != NODES || part(old) != part(new)
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        let node = cache.get(NODES, key).filter(|node| Meta::of(node).annotation(MANAGED) == Some("true"))?;
        let mut desired_volumes: BTreeMap<String, DesiredVolume<'a>> = BTreeMap::new();
        for pod in cache.on_node(PODS, &key.name).filter(|found| !Pod(found).is_terminal()) {
            for claim in pvc_protection::claims_of(pod) {
                let Some(volume) = Volume::of_claim(cache, &claim) else { continue };
                let name = volume.attachment(&key.name);
                let elsewhere = volume.is_exclusive() && is_elsewhere(cache, &volume, &key.name);
                desired_volumes
                    .entry(name)
                    .or_insert_with(|| DesiredVolume { volume, pods: Vec::new(), elsewhere })
                    .pods
                    .push(pod);
            }
        }
        let of_node = |attachment: &&Value| {
            attachment.text_at(&["spec", "nodeName"]) == key.name && volume::is_our_name(Meta::of(attachment).name())
        };
        let attachments = cache.of(VOLUME_ATTACHMENTS).iter().map(|it| &it.value).filter(of_node);
        Some(Observation {
            node,
            desired_volumes,
            attachments: attachments.map(|it| (Meta::of(it).name(), it)).collect(),
        })
    }

    fn plan(observed: &Observation<'_>, now: Time) -> Plan {
        let mut plan = Plan::default();
        for (name, desired) in &observed.desired_volumes {
            if observed.attachments.contains_key(name.as_str()) {
                continue;
            }
            if desired.elsewhere {
                plan.actions.extend(desired.pods.iter().map(|pod| multi_attach_event(pod, &desired.volume)));
                plan.waiting = Some("a volume is attached to another node".to_owned());
            } else {
                plan.push(desired.volume.attach(name, Meta::of(observed.node).name()));
            }
        }
        report_attached(observed, &mut plan);
        detach(observed, now, &mut plan);
        plan
    }
}

/// Writes the attached and wanted volumes to `status.volumesAttached` and emits events for their pods.
fn report_attached(observed: &Observation<'_>, plan: &mut Plan) {
    let attached = |name: &String| observed.attachments.get(name.as_str()).is_some_and(|it| is_attached(it));
    let there: Vec<&DesiredVolume<'_>> =
        observed.desired_volumes.iter().filter(|(name, _)| attached(name)).map(|(_, desired)| desired).collect();
    let mut names: Vec<String> = there.iter().map(|desired| desired.volume.unique_name()).collect();
    names.sort_unstable();
    let attached_names = attached_volume_names(observed.node);
    if names == attached_names {
        return;
    }
    for desired in there.iter().filter(|desired| !attached_names.contains(&desired.volume.unique_name().as_str())) {
        let message = format!("AttachVolume.Attach succeeded for volume {:?} ", desired.volume.name());
        plan.actions.extend(desired.pods.iter().map(|pod| Action::Event {
            regarding: Regarding::object(pod),
            kind: EventType::Normal,
            reason: "SuccessfulAttachVolume",
            message: message.clone(),
        }));
    }
    let list: Vec<Value> = names.into_iter().map(|name| value!({"name": name, "devicePath": ""})).collect();
    let list = if list.is_empty() { Value::Null } else { list.into() };
    plan.push(Action::Patch {
        resource: kinds::NODES.clone(),
        key: Key::of(observed.node),
        subresource: "status",
        only_if: Preconditions::same(observed.node),
        patch: Patch::Merge(value!({"status": {"volumesAttached": list}})),
    });
}

/// Deletes the VolumeAttachments of unwanted volumes, after the kubelet unmounted them and they left `volumesAttached`.
// DEVIATION: all volumes in use are detached six minutes after the node became NotReady; upstream counts the six
// minutes for each volume since it became unwanted.
fn detach(observed: &Observation<'_>, now: Time, plan: &mut Plan) {
    let attached_names = attached_volume_names(observed.node);
    let in_use: Vec<&str> =
        observed.node.list_at(&["status", "volumesInUse"]).iter().filter_map(Value::as_str).collect();
    let off = observed.node.list_at(&["spec", "taints"]).iter().any(|taint| taint.text_at(&["key"]) == OUT_OF_SERVICE);
    let deadline = silent_since(observed.node).map(|since| since.plus(UNMOUNT_MAX));
    for (name, attachment) in &observed.attachments {
        if observed.desired_volumes.contains_key(*name) || Meta::of(attachment).is_deleting() {
            continue;
        }
        let is_of =
            |unique: &&str| volume::attachment_name(unique, Meta::of(observed.node).name()).as_deref() == Some(*name);
        if attached_names.iter().any(is_of) {
            // This plan removes the volume from volumesAttached. The VolumeAttachment is deleted once that write is
            // observed.
            continue;
        }
        let mounted = in_use.iter().any(is_of) && !off && deadline.is_none_or(|until| until > now);
        if mounted {
            if let Some(until) = deadline {
                plan.wake(until);
            }
            plan.waiting = Some("the node still uses an unwanted volume".to_owned());
        } else {
            plan.push(Action::delete(&kinds::VOLUME_ATTACHMENTS, attachment));
        }
    }
}

fn is_attached(attachment: &Value) -> bool {
    attachment.is_true_at(&["status", "attached"]) && !Meta::of(attachment).is_deleting()
}

/// Returns the sorted names in `status.volumesAttached`.
fn attached_volume_names(node: &Value) -> Vec<&str> {
    let attached = node.list_at(&["status", "volumesAttached"]).iter();
    let mut names: Vec<&str> = attached.map(|volume| volume.text_at(&["name"])).collect();
    names.sort_unstable();
    names
}

/// Returns the last transition of the Ready condition if the node is not ready.
fn silent_since(node: &Value) -> Option<Time> {
    let ready = condition::find(node, "Ready").filter(|ready| ready.text_at(&["status"]) != "True")?;
    Time::parse(ready.text_at(&["lastTransitionTime"])).ok()
}

fn multi_attach_event(pod: &Value, volume: &Volume<'_>) -> Action {
    Action::Event {
        regarding: Regarding::object(pod),
        kind: EventType::Warning,
        reason: "FailedAttachVolume",
        message: format!(
            "Multi-Attach error for volume {:?} Volume is already exclusively attached to one node and can't be attached to another",
            volume.name(),
        ),
    }
}

/// Whether the volume is attached to another node.
fn is_elsewhere(cache: &Cache, volume: &Volume<'_>, node: &str) -> bool {
    cache.of(VOLUME_ATTACHMENTS).iter().any(|it| {
        it.value.text_at(&["spec", "source", "persistentVolumeName"]) == volume.name()
            && it.value.text_at(&["spec", "nodeName"]) != node
    })
}

fn nodes_of_volume(cache: &Cache, volume: &Value) -> Vec<Key> {
    let reference = |field| volume.text_at(&["spec", "claimRef", field]);
    nodes_of_claim(cache, &Key::new(reference("namespace"), reference("name")))
}

/// Returns the nodes of the pods that use the claim.
fn nodes_of_claim(cache: &Cache, claim: &Key) -> Vec<Key> {
    let uses = |found: &&Value| {
        !Pod(found).node_name().is_empty() && pvc_protection::claims_of(found).any(|key| key == *claim)
    };
    cache.in_namespace(PODS, &claim.namespace).filter(uses).map(|found| Key::cluster(Pod(found).node_name())).collect()
}

#[cfg(test)]
mod tests;

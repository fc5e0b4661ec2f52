//! DaemonSet status, computed from its nodes and pods.

use api::view::Pod;
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{Object, Value};
use controller::{Action, kinds};

use super::Fleet;

/// The status update, and the next time at which a pod becomes available.
pub(super) struct Status {
    pub update: Option<Action>,
    pub wake_at: Option<Time>,
}

pub(super) fn of(fleet: &Fleet<'_>, now: Time) -> Status {
    let set = fleet.set;
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let desired = fleet.nodes.iter().filter(|node_state| node_state.should_run).count();
    let first: Vec<&Value> = fleet
        .nodes
        .iter()
        .filter(|node_state| node_state.should_run)
        .filter_map(|node_state| node_state.pods.first().copied())
        .collect();
    let strays = fleet.nodes.iter().filter(|node_state| !node_state.should_run && !node_state.pods.is_empty()).count();
    let available = first.iter().filter(|pod| fleet.is_available(pod, now)).count();
    let mut status = Object::new();
    status.insert("currentNumberScheduled", count(first.len()));
    status.insert("desiredNumberScheduled", count(desired));
    status.insert("numberMisscheduled", count(strays));
    status.insert("numberReady", count(first.iter().filter(|pod| Pod(pod).is_ready()).count()));
    let counted = [
        ("observedGeneration", Meta::of(set).generation()),
        ("updatedNumberScheduled", count(first.iter().filter(|pod| fleet.is_updated(pod)).count())),
        ("numberAvailable", count(available)),
        ("numberUnavailable", count(desired - available.min(desired))),
    ];
    // Go omits zero fields, except the first four.
    for (field, number) in counted.into_iter().filter(|(_, number)| *number != 0) {
        status.insert(field, number);
    }
    for field in ["collisionCount", "conditions"] {
        if let Some(value) = set.at(&["status", field]) {
            status.insert(field, value.clone());
        }
    }
    let status = Value::Object(status);
    let update = (set.get("status") != Some(&status)).then(|| {
        let mut object = set.clone();
        object.as_object_mut().expect("cached objects are JSON objects").insert("status", status);
        Action::UpdateStatus { resource: kinds::DAEMON_SETS.clone(), object }
    });
    let later = fleet.pods.iter().filter_map(|pod| fleet.available_at(pod)).filter(|at| *at > now);
    Status { update, wake_at: later.min() }
}

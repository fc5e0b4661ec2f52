//! Pod termination: containers, then sidecars from last to first, then the sandbox.

use apimachinery::time::Duration;

use super::{Action, Ending, Observation, PodPlan};
use crate::pod::Role;
use crate::runtime_status::Container;

/// Returns the next step of a terminating pod.
pub(super) fn plan(observed: &Observation<'_>, ending: &Ending) -> PodPlan {
    let Observation { pod, runtime, local, .. } = *observed;
    let mut plan = PodPlan::default();
    let is_sidecar = |container: &&Container| {
        pod.container(&container.name).is_some_and(|container| container.role == Role::Sidecar)
    };
    let mut others = runtime.running().filter(|container| !is_sidecar(container)).peekable();
    if others.peek().is_some() {
        others.for_each(|container| kill(observed, ending, container, &mut plan));
        return plan;
    }
    let sidecars = pod.init_containers().rev().filter(|container| container.role == Role::Sidecar);
    let running = sidecars.filter_map(|one| runtime.latest(one.name()).filter(|known| known.is_running())).next();
    if let Some(container) = running {
        kill(observed, ending, container, &mut plan);
        return plan;
    }
    // A sandbox or container that is being created appears in the next observation.
    if local.starting {
        return plan;
    }
    for sandbox in runtime.sandboxes.iter().filter(|sandbox| sandbox.ready) {
        plan.actions.push(Action::StopSandbox { id: sandbox.id.clone() });
    }
    plan.done = plan.actions.is_empty();
    plan
}

/// Kills a container within the pod's remaining grace period; again if that period became shorter.
fn kill(observed: &Observation<'_>, ending: &Ending, container: &Container, plan: &mut PodPlan) {
    let over = ending.since.plus(Duration::from_seconds(ending.grace_seconds));
    if observed.local.killing.get(&container.id).is_some_and(|known| *known <= over) {
        return;
    }
    // Containers that are killed late, such as sidecars, still get two seconds.
    let left = over.since(observed.now).whole_seconds().clamp(ending.grace_seconds.min(2), ending.grace_seconds);
    plan.actions.push(Action::Kill {
        id: container.id.clone(),
        name: container.name.clone(),
        grace_seconds: left,
        message: format!("Stopping container {}", container.name),
        restart: false,
        hook: true,
    });
}

//! Garbage collection of dead containers and their logs, before a pod is evicted for disk space.

use std::collections::BTreeSet;
use std::sync::Arc;

use apimachinery::Value;
use node_api::cri::v1;

use super::log_of;
use crate::blocking;
use crate::context::Context;
use crate::pod::Pod;
use crate::runtime_status::labels;

/// Removes the containers of terminated pods.
pub(super) async fn collect(context: &Context, pods: &[Arc<Value>]) {
    let state = Some(v1::ContainerStateValue { state: v1::ContainerState::ContainerExited.into() });
    let filter = Some(v1::ContainerFilter { state, ..Default::default() });
    let mut runtime = context.runtime.runtime.clone();
    let Ok(listed) = runtime.list_containers(v1::ListContainersRequest { filter }).await else { return };
    let listed = listed.into_inner().containers;
    for container in plan(&listed, pods) {
        let request = v1::RemoveContainerRequest { container_id: container.id.clone() };
        match runtime.remove_container(request).await {
            Ok(_) => {
                blocking::in_place(|| context.logs.remove_one(&log_of(context, container)));
                tracing::info!(id = container.id, "removed a dead container to free disk space");
            }
            Err(status) => {
                tracing::warn!(id = container.id, status = status.message(), "failed to remove a dead container");
            }
        }
    }
}

/// Returns the containers to remove: those of terminated pods whose final status is in the API server. A pod that can
/// still restart its containers keeps them, since restart counts, backoffs and previous logs come from them.
fn plan<'a>(containers: &'a [v1::Container], pods: &[Arc<Value>]) -> Vec<&'a v1::Container> {
    // Without an API server, the dead containers of a static pod are the only record that it ran.
    let terminal = pods.iter().map(|pod| Pod(pod)).filter(|pod| pod.is_terminal() && !pod.is_static());
    let terminal: BTreeSet<&str> = terminal.map(Pod::uid).collect();
    let is_dead = |container: &&v1::Container| {
        let uid = container.labels.get(labels::POD_UID);
        container.state() == v1::ContainerState::ContainerExited
            && uid.is_some_and(|uid| terminal.contains(uid.as_str()))
    };
    containers.iter().filter(is_dead).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use apimachinery::value;

    use super::*;

    #[test]
    fn only_exited_containers_of_terminated_pods_are_removed() {
        let pod = |uid: &str, phase: &str| Arc::new(value!({"metadata": {"uid": uid}, "status": {"phase": phase}}));
        let pods = [pod("done", "Succeeded"), pod("evicted", "Failed"), pod("active", "Running")];
        let container = |id: &str, uid: &str, state: v1::ContainerState| v1::Container {
            id: id.into(),
            state: state.into(),
            labels: HashMap::from([(labels::POD_UID.to_owned(), uid.to_owned())]),
            ..Default::default()
        };
        let (exited, running) = (v1::ContainerState::ContainerExited, v1::ContainerState::ContainerRunning);
        let mut containers = vec![
            container("a", "done", exited),
            container("b", "evicted", exited),
            container("c", "evicted", running),
            container("d", "active", exited),
            container("e", "unknown", exited),
        ];
        containers.push(v1::Container { id: "f".into(), state: exited.into(), ..Default::default() });
        let removed: Vec<&str> = plan(&containers, &pods).into_iter().map(|one| one.id.as_str()).collect();
        assert_eq!(removed, ["a", "b"]);
    }
}

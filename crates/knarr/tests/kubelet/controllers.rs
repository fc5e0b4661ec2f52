//! A node without cgroup controllers.

use std::io::Read;
use std::process::{Command, Stdio};

use apimachinery::{Value, value};
use cgroups::Cgroup;

use crate::cluster::*;

const ALLOW: &str = "--allow-missing-cgroup-controllers";

/// Waits until a kubelet exits, and returns its errors.
async fn fail(mut command: Command) -> String {
    let mut kubelet = Process(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    let status = loop {
        if let Some(status) = kubelet.0.try_wait().unwrap() {
            break status;
        }
        assert!(tokio::time::Instant::now() < deadline, "the kubelet does not exit");
        tokio::task::yield_now().await;
    };
    let mut errors = String::new();
    kubelet.0.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(!status.success(), "{errors}");
    errors
}

#[tokio::test(flavor = "multi_thread")]
async fn kubelet_does_not_start_without_cgroup_controllers() {
    let mut machine = Machine::new().await;
    machine.without_controllers = true;
    machine.configure("podPidsLimit: 100\n");
    let mut kubelet = machine.kubelet();
    kubelet.args(["--authentication-token-webhook=false", "--authorization-mode", "AlwaysAllow"]);
    let errors = fail(kubelet).await;
    let missing = format!("the cgroup controllers cpu, memory, pids are missing in {}/kubepods", machine.cgroup);
    assert!(errors.contains(&missing), "{errors}");
    assert!(errors.contains("cgroup.subtree_control") && errors.contains(ALLOW), "{errors}");
    let group = Cgroup::at(&format!("{0}/bare{0}", machine.cgroup));
    assert!(group.exists() && !group.has_children(), "the kubelet removes the cgroup of all pods");
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_missing_controllers_are_not_enforced_if_this_is_allowed_and_reported() {
    let mut cluster = cluster_without_controllers(&[ALLOW]).await;
    let message = "limits of pods that need these cgroup controllers are not enforced: cpu, memory";
    cluster.event(&format!("LimitsUnenforced: {message}")).await;
    let condition = |node: &Value| {
        let list = node["status"]["conditions"].as_array().unwrap_or_default();
        list.iter().find(|one| one.str_at(&["type"]) == Some("LimitsUnenforced")).cloned().unwrap_or(Value::Null)
    };
    let node = cluster.wait(&NODES, NODE, "ready", is_ready).await;
    let reported = condition(&node);
    assert_eq!(["status", "message"].map(|field| reported.str_at(&[field])), [Some("True"), Some(message)]);
    let warnings = || cluster.machine.log.lock().unwrap().matches("missing_controllers=cpu, memory").count();
    assert_eq!(warnings(), 1, "{}", cluster.machine.log.lock().unwrap());
    assert!(!cluster.events().await.iter().any(|event| event.starts_with("NodeAllocatableEnforced")));

    let mut limited = pod("limited", "cat /proc/self/oom_score_adj /proc/self/cgroup; sleep 1000");
    let resources =
        value!({"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}});
    set_container(&mut limited, "resources", resources.clone());
    let running = cluster.run(&limited, "ready", is_ready).await;
    let status = &running["status"]["containerStatuses"][0];
    assert_eq!(status["resources"], value!({"requests": (resources["requests"].clone())}));
    assert_eq!(status["allocatedResources"], resources["requests"]);
    let conditions = running["status"]["conditions"].as_array().unwrap();
    let is_resizing = |one: &Value| one.str_at(&["type"]).is_some_and(|kind| kind.starts_with("PodResize"));
    assert!(!conditions.iter().any(is_resizing), "what cannot be applied is not awaited");
    cluster.logged("limited", "c", 0, "0::/").await;

    cluster.terminate();
    let errors = fail(cluster.kubelet_command(&[&format!("{ALLOW}=false")])).await;
    assert!(errors.contains("the cgroup controllers cpu, memory are missing"), "{errors}");
    cluster.restart();
    let same = cluster.wait(&PODS, "limited", "ready", is_ready).await;
    assert_eq!(
        same["status"]["containerStatuses"][0]["containerID"], status["containerID"],
        "the container kept running"
    );
    cluster.finish().await;
}

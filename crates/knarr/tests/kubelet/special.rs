//! Static pods, ephemeral containers, in-place resize, deadlines and admission by the kubelet.

use std::fs;

use apimachinery::{Value, json, value};
use client::{Patch, Target, WriteOptions};

use crate::cluster::*;

#[tokio::test(flavor = "multi_thread")]
async fn static_pod_runs_with_a_mirror_pod_until_its_file_is_removed() {
    let manifests = tempfile::tempdir().unwrap();
    let spec =
        value!({"containers": [(container("c", "echo static; sleep 1000"))], "terminationGracePeriodSeconds": 1});
    let manifest = value!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "manifest"}, "spec": spec});
    fs::write(manifests.path().join("pod.yaml"), json::to_string(&manifest)).unwrap();
    let cluster = cluster_with(&["--pod-manifest-path", manifests.path().to_str().unwrap()]).await;
    let name = format!("manifest-{NODE}");
    let mirror = cluster.wait(&PODS, &name, "ready", is_ready).await;
    let annotations = &mirror["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/config.source"], Value::from("file"));
    assert_eq!(annotations["kubernetes.io/config.mirror"], annotations["kubernetes.io/config.hash"]);
    assert_eq!(mirror["metadata"]["ownerReferences"][0]["kind"], Value::from("Node"));
    // A changed file is another pod. The mirror pod describes the pod that runs.
    let changed = json::to_string(&manifest).replace("echo static", "echo changed");
    fs::write(manifests.path().join("pod.yaml"), changed).unwrap();
    let hash = annotations["kubernetes.io/config.hash"].clone();
    let is_new = |pod: &Value| pod["metadata"]["annotations"]["kubernetes.io/config.hash"] != hash && is_ready(pod);
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    // The old mirror pod is deleted before the new one is created.
    while !cluster.find(&PODS, &name).await.is_some_and(|pod| is_new(&pod)) {
        assert!(tokio::time::Instant::now() < deadline, "the old pod is still shown");
        tokio::task::yield_now().await;
    }
    fs::remove_file(manifests.path().join("pod.yaml")).unwrap();
    cluster.wait_until_deleted(&name).await;
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ephemeral_container_sees_the_target_container() {
    let cluster = cluster().await;
    cluster.run(&pod("opaque", "exec sleep 98765"), "ready", is_ready).await;
    let mut debugger = container("debugger", "ps | grep -q 'sleep 98765' && echo seen");
    debugger.as_object_mut().unwrap().insert("targetContainerName", "c");
    let target = Target::named(&PODS, "default", "opaque").subresource("ephemeralcontainers");
    let patch = Patch::Strategic(value!({"spec": {"ephemeralContainers": [debugger]}}));
    cluster.client.patch(&target, &patch, &WriteOptions::default()).await.unwrap();
    let over = |pod: &Value| pod["status"]["ephemeralContainerStatuses"][0]["state"].get("terminated").is_some();
    let pod = cluster.wait(&PODS, "opaque", "looked into", over).await;
    assert_eq!(cluster.printed(&pod, "debugger", 0), "seen\n");
    assert!(is_ready(&pod));
    cluster.finish().await;
}

/// Returns a pod that prints its memory limit, with requests and limits.
fn sized(name: &str) -> Value {
    let files = "/sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes";
    let mut sized = pod(name, &format!("while :; do cat {files} 2>/dev/null; sleep 0.2; done"));
    set_container(&mut sized, "resources", resources("100m", "200m", "64Mi"));
    sized
}

fn resources(request: &str, limit: &str, memory: &str) -> Value {
    value!({"requests": {"cpu": request, "memory": memory}, "limits": {"cpu": limit, "memory": memory}})
}

async fn resize(cluster: &Cluster, name: &str, resources: &Value) {
    let patch = value!({"spec": {"containers": [{"name": "c", "resources": (resources.clone())}]}});
    let target = Target::named(&PODS, "default", name).subresource("resize");
    cluster.client.patch(&target, &Patch::Strategic(patch), &WriteOptions::default()).await.unwrap();
}

/// Returns a predicate for a pod with these resources and no pending resize.
fn has(resources: &Value) -> impl Fn(&Value) -> bool {
    let resources = resources.clone();
    move |pod| {
        let conditions = pod["status"]["conditions"].as_array().unwrap_or_default();
        let resizing = conditions.iter().any(|one| one.str_at(&["type"]).unwrap().starts_with("PodResize"));
        pod["status"]["containerStatuses"][0]["resources"] == resources && is_ready(pod) && !resizing
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn container_is_resized_in_place() {
    let cluster = cluster().await;
    let before = cluster.run(&sized("sized"), "ready", is_ready).await;
    cluster.logged("sized", "c", 0, &(64 << 20).to_string()).await;
    for (request, limit, mib) in [("150m", "300m", 96), ("50m", "100m", 80)] {
        let desired = resources(request, limit, &format!("{mib}Mi"));
        resize(&cluster, "sized", &desired).await;
        let after = cluster.wait(&PODS, "sized", "resized", has(&desired)).await;
        cluster.logged("sized", "c", 0, &(mib << 20).to_string()).await;
        let of = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
        assert_eq!(of(&before), of(&after), "it was not started again");
    }
    cluster.event("ResizeCompleted: ").await;

    let mut again = sized("again");
    let policies = value!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    set_container(&mut again, "resizePolicy", policies);
    cluster.run(&again, "ready", is_ready).await;
    let desired = resources("100m", "200m", "96Mi");
    resize(&cluster, "again", &desired).await;
    let found = cluster.wait(&PODS, "again", "resized", has(&desired)).await;
    assert_eq!(found["status"]["containerStatuses"][0]["restartCount"], Value::Int(1));
    cluster.logged("again", "c", 1, &(96 << 20).to_string()).await;
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deferred_resize_survives_a_kubelet_restart() {
    let mut cluster = cluster().await;
    let node = cluster.wait(&NODES, NODE, "ready", is_ready).await;
    let all: i64 = node.str_at(&["status", "capacity", "cpu"]).unwrap().parse().unwrap();
    let mut other = pod("other", "sleep 1000");
    let most = format!("{}m", all * 1000 - 500);
    set_container(&mut other, "resources", value!({"requests": {"cpu": (most.as_str())}}));
    cluster.run(&other, "ready", is_ready).await;
    let old = resources("100m", "200m", "64Mi");
    cluster.run(&sized("sized"), "ready", is_ready).await;
    let pending = |reason: &'static str| {
        let old = old.clone();
        move |pod: &Value| {
            let conditions = pod["status"]["conditions"].as_array().unwrap_or_default();
            let is_pending = |one: &Value| one["type"] == "PodResizePending".into() && one["reason"] == reason.into();
            conditions.iter().any(is_pending) && pod["status"]["containerStatuses"][0]["resources"] == old
        }
    };
    resize(&cluster, "sized", &resources("1000", "1001", "64Mi")).await;
    cluster.wait(&PODS, "sized", "refused", pending("Infeasible")).await;
    cluster.event("ResizeInfeasible: Node didn't have enough capacity: cpu, requested: 1000000, capacity: ").await;
    let desired = resources("600m", "700m", "64Mi");
    resize(&cluster, "sized", &desired).await;
    cluster.wait(&PODS, "sized", "put off", pending("Deferred")).await;
    cluster.restart();
    let mut third = pod("third", "true");
    set(&mut third, "restartPolicy", "Never");
    cluster.output(&third).await;
    assert!(pending("Deferred")(&cluster.get(&PODS, "sized").await), "desired resources are not allocated yet");
    cluster.delete("other").await;
    cluster.wait(&PODS, "sized", "resized", has(&desired)).await;
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn active_deadline_node_admission_and_readiness_gates_are_enforced() {
    let cluster = cluster().await;
    let mut brief = pod("brief", "sleep 1000");
    set(&mut brief, "activeDeadlineSeconds", 1);
    let found = cluster.run(&brief, "over", |pod| phase(pod) == "Failed").await;
    assert_eq!(found["status"]["reason"], Value::from("DeadlineExceeded"));
    let mut elsewhere = pod("elsewhere", "true");
    set(&mut elsewhere, "nodeSelector", value!({"kubernetes.io/hostname": "another"}));
    let found = cluster.run(&elsewhere, "refused", |pod| phase(pod) == "Failed").await;
    assert_eq!(found["status"]["reason"], Value::from("NodeAffinity"));
    let mut large = pod("large", "true");
    set_container(&mut large, "resources", value!({"requests": {"cpu": "1000"}}));
    let found = cluster.run(&large, "refused", |pod| phase(pod) == "Failed").await;
    assert_eq!(found["status"]["reason"], Value::from("OutOfcpu"));
    let mut gated = pod("gated", "sleep 1000");
    set(&mut gated, "readinessGates", value!([{"conditionType": "example.com/gate"}]));
    cluster.run(&gated, "running", |pod| phase(pod) == "Running").await;
    let gate = value!({"status": {"conditions": [{"type": "example.com/gate", "status": "True"}]}});
    let target = Target::named(&PODS, "default", "gated").subresource("status");
    cluster.client.patch(&target, &Patch::Strategic(gate), &WriteOptions::default()).await.unwrap();
    cluster.wait(&PODS, "gated", "ready", is_ready).await;
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pre_stop_hook_runs_before_termination() {
    let cluster = cluster().await;
    let host = cluster.path("witness");
    fs::create_dir(&host).unwrap();
    let mut polite = pod("polite", "sleep 1000");
    set(&mut polite, "terminationGracePeriodSeconds", 10);
    set(&mut polite, "volumes", value!([{"name": "w", "hostPath": {"path": (host.display().to_string())}}]));
    set_container(&mut polite, "volumeMounts", value!([{"name": "w", "mountPath": "/w"}]));
    set_container(
        &mut polite,
        "lifecycle",
        value!({"preStop": {"exec": {"command": ["sh", "-c", "echo bye >/w/bye; kill 1"]}}}),
    );
    cluster.run(&polite, "ready", is_ready).await;
    cluster.delete("polite").await;
    assert_eq!(fs::read_to_string(host.join("bye")).unwrap(), "bye\n");
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn user_namespace_maps_root_to_an_unprivileged_host_uid() {
    let cluster = cluster_with_built_in().await;
    let mut apart = pod("apart", "echo x >/v/mine; id -u; tr -s ' ' </proc/self/uid_map; stat -c %u /v; sleep 1000");
    set(&mut apart, "hostUsers", false);
    set(&mut apart, "volumes", value!([{"name": "v", "emptyDir": {}}]));
    set_container(&mut apart, "volumeMounts", value!([{"name": "v", "mountPath": "/v"}]));
    let made = cluster.run(&apart, "ready", is_ready).await;
    cluster.logged("apart", "c", 0, "65536\n0\n").await;
    assert_eq!(cluster.printed(&made, "c", 0), "0\n 0 65536 65536\n0\n");
    let uid = made.str_at(&["metadata", "uid"]).unwrap();
    let mine = cluster.path("kubelet/pods").join(uid).join("volumes/kubernetes.io~empty-dir/v/mine");
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&fs::metadata(mine).unwrap()), 0, "volumes have the host's owners");
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_max_pids_limits_processes() {
    let cluster = cluster_with(&["--pod-max-pids=40"]).await;
    let mut forks = pod("forks", "for n in $(seq 100); do sleep 1000 & done; echo all");
    set(&mut forks, "restartPolicy", "Never");
    let finished = cluster.run(&forks, "over", |pod| phase(pod) == "Failed").await;
    let output = cluster.printed(&finished, "c", 0);
    assert!(output.contains("can't fork") && !output.contains("all"), "{output}");
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn critical_pod_preempts_another_pod() {
    let cluster = cluster().await;
    let node = cluster.wait(&NODES, NODE, "ready", is_ready).await;
    let all: i64 = node.str_at(&["status", "capacity", "cpu"]).unwrap().parse().unwrap();
    let most = format!("{}m", all * 1000 - 500);
    let asking = |name: &str| {
        let mut pod = pod(name, "sleep 1000");
        set_container(&mut pod, "resources", value!({"requests": {"cpu": (most.as_str())}}));
        pod
    };
    cluster.run(&asking("plain"), "ready", is_ready).await;
    let rejected = cluster.run(&asking("late"), "refused", |pod| phase(pod) == "Failed").await;
    assert_eq!(rejected["status"]["reason"], Value::from("OutOfcpu"));
    let mut vital = asking("vital");
    set(&mut vital, "priorityClassName", "system-node-critical");
    cluster.run(&vital, "ready", is_ready).await;
    let found = cluster.wait(&PODS, "plain", "put out", |pod| phase(pod) == "Failed").await;
    assert_eq!(found["status"]["reason"], Value::from("Preempting"));
    cluster.finish().await;
}

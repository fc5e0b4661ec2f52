//! Life cycle of nodes and pods.

use std::fs;
use std::path::PathBuf;

use apimachinery::{Value, value};
use client::{Patch, Target, WriteOptions};

use crate::cluster::*;

#[tokio::test(flavor = "multi_thread")]
async fn node_registers_its_capacity_and_renews_its_lease() {
    let cluster = cluster_with(&["--node-labels", "example.com/a=b", "--register-with-taints", "t=v:NoSchedule"]).await;
    let node = cluster.wait(&NODES, NODE, "ready", is_ready).await;
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], Value::from(NODE));
    assert_eq!(node["metadata"]["labels"]["example.com/a"], Value::from("b"));
    let taints = node["spec"]["taints"].as_array().unwrap();
    assert!(taints.iter().any(|taint| taint.str_at(&["key"]) == Some("t")), "{taints:?}");
    let status = &node["status"];
    for field in ["cpu", "memory", "pods", "ephemeral-storage"] {
        assert!(status["capacity"].get(field).is_some() && status["allocatable"].get(field).is_some(), "{field}");
    }
    assert_eq!(status["addresses"][0], value!({"type": "InternalIP", "address": "127.0.0.1"}));
    let runtime = format!("{}://", cluster.runtime_name());
    assert!(status.str_at(&["nodeInfo", "containerRuntimeVersion"]).unwrap().starts_with(&runtime));
    assert!(
        status["images"]
            .as_array()
            .unwrap()
            .iter()
            .any(|image| image["names"].as_array().unwrap().contains(&IMAGE.into()))
    );
    let features = status["declaredFeatures"].as_array().unwrap();
    assert!(features.contains(&"RestartAllContainersOnContainerExits".into()), "{features:?}");
    let lease = cluster.wait_in(&LEASES, "kube-node-lease", NODE, "held", |_| true).await;
    assert_eq!(lease["spec"]["holderIdentity"], Value::from(NODE));
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn extended_resources_of_a_node_are_preserved() {
    let cluster = cluster().await;
    cluster.wait(&NODES, NODE, "ready", is_ready).await;
    let target = Target::named(&NODES, "", NODE).subresource("status");
    let set_capacity = async |amount: Value| {
        let patch = Patch::Merge(value!({"status": {"capacity": {"example.com/fakecpu": amount}}}));
        cluster.client.patch(&target, &patch, &WriteOptions::default()).await.unwrap();
    };
    set_capacity("1k".into()).await;
    let found = |node: &Value, field: &str| node["status"][field].get("example.com/fakecpu").cloned();
    let both = |node: &Value| (found(node, "capacity"), found(node, "allocatable"));
    let given = (Some(Value::from("1k")), Some(Value::from("1k")));
    cluster.wait(&NODES, NODE, "given something", |node| both(node) == given).await;
    set_capacity(Value::Null).await;
    cluster.wait(&NODES, NODE, "without it again", |node| both(node) == (None, None)).await;
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_runs_is_reported_and_is_removed_completely() {
    let cluster = cluster().await;
    let pod = cluster.run(&pod("web", "echo hello; sleep 1000"), "ready", is_ready).await;
    let status = &pod["status"];
    assert_eq!((phase(&pod), &status["qosClass"]), ("Running", &Value::from("BestEffort")));
    assert_eq!(status["hostIP"], Value::from("127.0.0.1"));
    assert!(status.get("podIP").is_some() && status.get("startTime").is_some(), "{status:?}");
    let container = &status["containerStatuses"][0];
    assert_eq!(container["image"], Value::from(IMAGE));
    let runtime = format!("{}://", cluster.runtime_name());
    assert!(container.str_at(&["containerID"]).unwrap().starts_with(&runtime));
    for event in [
        "Pulled: Container image \"test.local/busybox:1\" already present",
        "Created: Created container: c",
        "Started: Started container c",
    ] {
        cluster.event(event).await;
    }
    cluster.delete("web").await;
    cluster.event("Killing: Stopping container c").await;
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn container_log_links_exist_until_the_containers_are_removed() {
    let cluster = cluster_with_config("crashLoopBackOff: {maxContainerRestartPeriod: 1s}\n").await;
    let started =
        |count: i64| move |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].as_int() >= Some(count);
    let links = || -> Vec<PathBuf> {
        let entries = fs::read_dir(cluster.path("containers")).into_iter().flatten().flatten();
        let mut links: Vec<_> = entries.map(|entry| entry.path()).collect();
        links.sort();
        links
    };
    let until = async |what: &str, is: &dyn Fn() -> bool| {
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        while !is() {
            assert!(tokio::time::Instant::now() < deadline, "{what}: {:?}", links());
            tokio::task::yield_now().await;
        }
    };
    let once = cluster.run(&pod("once", "echo words; sleep 1000"), "ready", is_ready).await;
    let id = once["status"]["containerStatuses"][0].str_at(&["containerID"]).unwrap().rsplit('/').next().unwrap();
    let link = cluster.path(&format!("containers/once_default_c-{id}.log"));
    until("the log has a link", &|| links() == [link.clone()]).await;
    cluster.logged("once", "c", 0, "words").await;
    assert!(fs::read_to_string(&link).unwrap().ends_with(" stdout F words\n"));
    cluster.delete("once").await;
    assert!(!links().contains(&link));
    let made = cluster.run(&pod("often", "echo again; exit 1"), "started a few times", started(3)).await;
    let dir = cluster.path(&format!("logs/default_often_{}/c", made.str_at(&["metadata", "uid"]).unwrap()));
    // The last two logs are kept, and perhaps one is just being created.
    until("old logs go", &|| links().len() <= 3 && fs::read_dir(&dir).unwrap().count() <= 3).await;
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_pods_leave_no_resources_behind() {
    let cluster = cluster().await;
    for round in 0..4 {
        let names: Vec<String> = (0..5).map(|n| format!("round-{round}-{n}")).collect();
        for name in &names {
            cluster.create(&PODS, &pod(name, "sleep 1000")).await;
        }
        for name in &names {
            cluster.wait(&PODS, name, "ready", is_ready).await;
        }
        for name in &names {
            cluster.delete(name).await;
        }
    }
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_restart_according_to_restart_policy() {
    let cluster = cluster().await;
    let terminated = |policy: &'static str, script: &'static str, expect: &'static str| {
        let name = format!("{}-{}", policy.to_lowercase(), expect.to_lowercase());
        let mut pod = pod(&name, script);
        set(&mut pod, "restartPolicy", policy);
        (pod, expect)
    };
    for (pod, expect) in [
        terminated("Never", "exit 0", "Succeeded"),
        terminated("Never", "echo why >/dev/termination-log; exit 3", "Failed"),
        terminated("OnFailure", "exit 0", "Succeeded"),
    ] {
        let found = cluster.run(&pod, expect, |pod| phase(pod) == expect).await;
        if expect == "Failed" {
            let terminated = &found["status"]["containerStatuses"][0]["state"]["terminated"];
            assert_eq!(
                (&terminated["exitCode"], &terminated["reason"], &terminated["message"]),
                (&3.into(), &"Error".into(), &"why\n".into())
            );
        }
    }
    let crash = pod("crash", "exit 1");
    let waiting = |pod: &Value| {
        pod.at(&["status", "containerStatuses"])
            .is_some_and(|list| list[0]["state"]["waiting"]["reason"] == Value::from("CrashLoopBackOff"))
    };
    let found = cluster.run(&crash, "in its back-off", waiting).await;
    let container = &found["status"]["containerStatuses"][0];
    assert!(container["restartCount"].as_int().unwrap() >= 1, "{container:?}");
    assert_eq!(container["lastState"]["terminated"]["exitCode"], Value::Int(1));
    assert_eq!(phase(&found), "Running");
    cluster.event("BackOff: Back-off restarting failed container c in pod crash_default(").await;
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn init_containers_and_sidecars_start_first_and_in_order() {
    let cluster = cluster().await;
    let mut sidecar = container("side", "echo side >>/out/log; trap 'exit 0' TERM; while :; do sleep 0.1; done");
    sidecar.as_object_mut().unwrap().insert("restartPolicy", "Always");
    let mount = value!([{"name": "out", "mountPath": "/out"}]);
    let mut list = [container("first", "echo first >>/out/log"), sidecar, container("c", "sleep 0.2; cat /out/log")];
    for one in &mut list {
        one.as_object_mut().unwrap().insert("volumeMounts", mount.clone());
    }
    let [first, side, main] = list;
    let pod = with(
        "order",
        value!({"restartPolicy": "Never", "initContainers": [first, side], "containers": [main],
        "volumes": [{"name": "out", "emptyDir": {}}], "terminationGracePeriodSeconds": 5}),
    );
    assert_eq!(cluster.output(&pod).await, "first\nside\n");
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn terminal_phase_is_reported_after_all_containers_terminated() {
    let cluster = cluster().await;
    let slow = "trap 'sleep 2; exit 0' TERM; while :; do sleep 0.1; done";
    let mut late = pod("late", slow);
    // Long enough for the container to have started.
    set(&mut late, "activeDeadlineSeconds", 4);
    set(&mut late, "terminationGracePeriodSeconds", 20);
    let over = |pod: &Value| matches!(phase(pod), "Succeeded" | "Failed");
    let found = cluster.run(&late, "over", over).await;
    assert_eq!((phase(&found), &found["status"]["reason"]), ("Failed", &Value::from("DeadlineExceeded")));
    assert!(found["status"]["containerStatuses"][0]["state"].get("terminated").is_some(), "{:?}", found["status"]);
    let mut sidecar = container("side", slow);
    sidecar.as_object_mut().unwrap().insert("restartPolicy", "Always");
    let spec = value!({"restartPolicy": "Never", "initContainers": [sidecar], "containers": [(container("c", "true"))],
        "terminationGracePeriodSeconds": 20});
    let found = cluster.run(&with("job", spec), "over", over).await;
    assert_eq!(phase(&found), "Succeeded");
    assert!(found["status"]["initContainerStatuses"][0]["state"].get("terminated").is_some(), "{:?}", found["status"]);
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn liveness_failure_restarts_a_container_that_exits_with_zero() {
    let cluster = cluster().await;
    let script = "test -e /v/once && touch /v/well; touch /v/once; trap 'exit 0' TERM; while :; do sleep 0.1; done";
    let mut ill = pod("ill", script);
    set(&mut ill, "restartPolicy", "OnFailure");
    set(&mut ill, "volumes", value!([{"name": "v", "emptyDir": {}}]));
    set_container(&mut ill, "volumeMounts", value!([{"name": "v", "mountPath": "/v"}]));
    let probe = value!({"exec": {"command": ["test", "-e", "/v/well"]}, "periodSeconds": 1, "failureThreshold": 1});
    set_container(&mut ill, "livenessProbe", probe);
    let again = |pod: &Value| is_ready(pod) && pod["status"]["containerStatuses"][0]["restartCount"] == Value::Int(1);
    let found = cluster.run(&ill, "running again", again).await;
    let last = &found["status"]["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!((phase(&found), &last["exitCode"]), ("Running", &Value::Int(0)));
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn container_has_environment_variables_hosts_file_and_host_name() {
    let cluster = cluster().await;
    cluster.create(&CONFIG_MAPS, &value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"}, "data": {"KEY": "from-map"}})).await;
    cluster.create(&SERVICES, &value!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "db", "namespace": "default"}, "spec": {"ports": [{"port": 5432}]}})).await;
    let script = "echo $A $NAME $KEY $FROM_IMAGE $CPU $DB_SERVICE_PORT; grep -c alias.example /etc/hosts; grep search /etc/resolv.conf; hostname; id -u";
    let mut pod = pod("env", script);
    set(&mut pod, "restartPolicy", "Never");
    set(&mut pod, "hostAliases", value!([{"ip": "192.0.2.9", "hostnames": ["alias.example"]}]));
    set(&mut pod, "securityContext", value!({"runAsUser": 1234}));
    set_container(&mut pod, "envFrom", value!([{"configMapRef": {"name": "c"}}]));
    set_container(&mut pod, "resources", value!({"limits": {"cpu": "500m", "memory": "64Mi"}}));
    set_container(
        &mut pod,
        "env",
        value!([{"name": "B", "value": "b"}, {"name": "A", "value": "a-$(B)"},
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}}]),
    );
    let out = cluster.output(&pod).await;
    let searches = "search default.svc.cluster.local svc.cluster.local cluster.local";
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "a-b env from-map 1 500 5432");
    assert_eq!(lines[1], "1");
    assert!(lines[2].starts_with(searches), "{out}");
    assert_eq!(&lines[3..], ["env", "1234"]);
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_hooks_and_grace_periods_are_respected() {
    let cluster = cluster().await;
    let mut live = pod("live", "touch /tmp/ok; trap 'exit 0' TERM; while :; do sleep 0.1; done");
    set_container(
        &mut live,
        "livenessProbe",
        value!({"exec": {"command": ["cat", "/tmp/ok"]}, "periodSeconds": 1, "failureThreshold": 1}),
    );
    set_container(
        &mut live,
        "lifecycle",
        value!({"postStart": {"exec": {"command": ["sh", "-c", "sleep 1; rm /tmp/ok"]}}}),
    );
    let restarted = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].as_int() >= Some(1);
    cluster.run(&live, "started again", restarted).await;
    cluster.event("Unhealthy: Liveness probe failed: cat: can't open '/tmp/ok'").await;
    cluster.event("Killing: Container c failed liveness probe, will be restarted").await;
    let mut ready = pod("ready", "httpd -p 127.0.0.1:8099 -h /tmp; sleep 2; echo x >/tmp/f; sleep 1000");
    set(&mut ready, "hostNetwork", true);
    set_container(&mut ready, "readinessProbe", value!({"httpGet": {"path": "/f", "port": 8099}, "periodSeconds": 1}));
    let up = |pod: &Value| phase(pod) == "Running" && !is_ready(pod);
    cluster.run(&ready, "running but not ready", up).await;
    cluster.event("Unhealthy: Readiness probe failed: HTTP probe failed with statuscode: 404").await;
    cluster.wait(&PODS, "ready", "ready", is_ready).await;
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_kubelet_finds_its_pods() {
    let mut cluster = cluster().await;
    let before = cluster.run(&pod("stays", "sleep 1000"), "ready", is_ready).await;
    cluster.restart();
    let mut second = pod("second", "true");
    set(&mut second, "restartPolicy", "Never");
    cluster.output(&second).await;
    let after = cluster.get(&PODS, "stays").await;
    let of = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
    assert_eq!(
        (of(&before), before["status"]["conditions"].clone()),
        (of(&after), after["status"]["conditions"].clone())
    );
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_deleted_while_the_kubelet_is_down_is_removed() {
    let mut cluster = cluster().await;
    cluster.run(&pod("goes", "echo words; sleep 1000"), "ready", is_ready).await;
    cluster.logged("goes", "c", 0, "words").await;
    cluster.terminate();
    let now = client::DeleteOptions { grace_seconds: Some(0), ..Default::default() };
    cluster.client.delete(&Target::named(&PODS, "default", "goes"), &now).await.unwrap();
    cluster.restart();
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_container_restarts_and_killed_shim_affects_only_its_pod() {
    let cluster = cluster_with_built_in().await;
    let other = cluster.run(&pod("other", "sleep 1000"), "ready", is_ready).await;
    cluster.run(&pod("victim", "exec sleep 54321"), "ready", is_ready).await;
    cluster.kill_processes("sleep 54321");
    let again = |times: i64| {
        move |pod: &Value| {
            is_ready(pod) && pod["status"]["containerStatuses"][0]["restartCount"].as_int() >= Some(times)
        }
    };
    let found = cluster.wait(&PODS, "victim", "started again", again(1)).await;
    let terminated = &found["status"]["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!((&terminated["exitCode"], &terminated["reason"]), (&137.into(), &"Error".into()));
    let sandbox = cluster.sandboxes_of(&found)[0].clone();
    cluster.kill_processes(&sandbox);
    cluster.wait(&PODS, "victim", "started again in a new sandbox", again(2)).await;
    cluster.event("SandboxChanged: Pod sandbox changed, it will be killed and re-created.").await;
    let after = cluster.get(&PODS, "other").await;
    assert_eq!(after["status"]["containerStatuses"], other["status"]["containerStatuses"]);
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_is_deleted_while_its_image_pull_hangs() {
    let cluster = cluster().await;
    // A registry that accepts connections and never responds. The runtime's timeout is a minute.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stuck = pod("stuck", "true");
    set_container(&mut stuck, "image", format!("{}/absent:1", silent.local_addr().unwrap()));
    cluster.create(&PODS, &stuck).await;
    cluster.event("Pulling: Pulling image").await;
    let short = std::time::Duration::from_secs(20);
    tokio::time::timeout(short, cluster.delete("stuck")).await.expect("the deletion does not wait for the image");
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn start_failures_are_reported_in_the_status() {
    let cluster = cluster().await;
    let mut never = pod("never", "true");
    set_container(&mut never, "image", "test.local/absent:1");
    set_container(&mut never, "imagePullPolicy", "Never");
    let reason = |pod: &Value| pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].clone();
    cluster.run(&never, "refused", |pod| reason(pod) == Value::from("ErrImageNeverPull")).await;
    let mut missing = pod("missing", "true");
    set_container(&mut missing, "envFrom", value!([{"configMapRef": {"name": "later"}}]));
    let found = cluster.run(&missing, "refused", |pod| reason(pod) == Value::from("CreateContainerConfigError")).await;
    let message = &found["status"]["containerStatuses"][0]["state"]["waiting"]["message"];
    assert_eq!(message, &Value::from("configmap \"later\" not found"));
    cluster
        .create(
            &CONFIG_MAPS,
            &value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "later", "namespace": "default"}}),
        )
        .await;
    cluster
        .wait(&PODS, "missing", "started once its map is there", |pod| {
            pod["status"]["containerStatuses"][0].get("containerID").is_some()
        })
        .await;
    cluster.finish().await;
}

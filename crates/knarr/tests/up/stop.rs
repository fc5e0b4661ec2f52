//! `knarr down` and a later `knarr up`.

use super::*;

const UP: &str = "up -d --nodes 2 --node-name one --kubelet-arg eviction-hard=nodefs.available<1Mi,memory.available<100Mi \
    --node-cpu 500m --node-memory 512Mi";

/// Returns a pod that terminates in order and one that ignores SIGTERM, each on a separate node.
fn pods(out: &Path) -> String {
    let pod = |name: &str, node: &str, grace: u8, script: &str| {
        format!(
            r#"{{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "{name}"}}, "spec": {{"nodeName": "{node}",
            "terminationGracePeriodSeconds": {grace}, "volumes": [{{"name": "out", "hostPath": {{"path": "{}"}}}}],
            "containers": [{{"name": "c", "image": "{IMAGE}", "imagePullPolicy": "Never",
                "volumeMounts": [{{"name": "out", "mountPath": "/out"}}], "command": ["/bin/busybox", "sh", "-c", "{script}"],
                "lifecycle": {{"preStop": {{"exec": {{"command": ["/bin/busybox", "sh", "-c", "echo hook >> /out/{name}"]}}}}}}}}]}}}}"#,
            out.display()
        )
    };
    let polite = "trap 'echo term >> /out/polite; exit 0' TERM; echo begun; while :; do busybox sleep 0.1; done";
    let stubborn = "trap '' TERM; while :; do busybox sleep 0.1; done";
    let items = [pod("polite", "one", 20, polite), pod("stubborn", "one-2", 3, stubborn)].join(", ");
    format!(r#"{{"apiVersion": "v1", "kind": "List", "items": [{items}]}}"#)
}

#[test]
fn down_gives_containers_their_grace_period_and_up_starts_them_again() {
    let machine = Machine::new();
    let out = machine.dir.path().join("out");
    std::fs::create_dir(&out).unwrap();
    machine.knarr(UP);
    build_image(&machine);
    machine.apply(&pods(&out));
    let running = "kubectl get pods -o jsonpath={.items[*].status.phase}";
    machine.eventually(running, |phases| phases == "Running Running");
    let addresses = "kubectl get nodes -o jsonpath={.items[*].status.addresses[0].address}";
    let before = machine.succeed(addresses);
    let allocatable =
        |what: &str| machine.succeed(&format!("kubectl get nodes -o jsonpath={{.items[*].status.allocatable.{what}}}"));
    assert_eq!((allocatable("cpu").as_str(), allocatable("memory").as_str()), ("500m 500m", "512Mi 512Mi"));

    let start = Instant::now();
    let stdout = machine.knarr("down");
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}: {stdout}", start.elapsed());
    for part in [
        "stopping 1 containers, for up to 20 s",
        "node one-2: stopping 1 containers, for up to 3 s",
        "default/stubborn/c: killed after its grace period of 3 s",
    ] {
        assert!(stdout.contains(part), "{part:?} is not in {stdout}");
    }
    assert!(!stdout.contains("no process runs") && !stdout.contains("default/polite"), "{stdout}");
    assert_eq!(std::fs::read_to_string(out.join("polite")).unwrap(), "hook\nterm\n");
    assert_eq!(std::fs::read_to_string(out.join("stubborn")).unwrap(), "hook\n");

    machine.knarr(UP);
    assert_eq!(machine.succeed(addresses), before, "nodes keep their addresses");
    let restarts = "kubectl get pods -o jsonpath={.items[*].status.containerStatuses[0].restartCount}";
    machine.eventually(restarts, |counts| counts == "1 1");
    machine.eventually(running, |phases| phases == "Running Running");
    assert_eq!(machine.succeed("kubectl logs polite --previous"), "begun");

    let uids = machine.succeed("kubectl get pods -A -o jsonpath={.items[*].metadata.uid}");
    let start = Instant::now();
    machine.knarr("down --purge");
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    assert!(!machine.data().exists());
    for uid in uids.split(' ') {
        for (dir, name) in [("/sys/fs/cgroup", format!("pod{uid}")), ("/var/log/pods", format!("*{uid}"))] {
            let found = Command::new("find").args([dir, "-name", &name]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&found.stdout), "", "{dir}");
        }
    }
}

//! Security contexts and resources of pods, as seen from inside.

use std::fs;

use apimachinery::{Value, value};
use cgroups::Cgroup;

use crate::cluster::*;

/// Returns a pod that runs a script once, with the given pod and container security contexts.
fn confined(name: &str, script: &str, of_pod: Value, of_container: Value) -> Value {
    let mut pod = pod(name, script);
    set(&mut pod, "restartPolicy", "Never");
    set(&mut pod, "securityContext", of_pod);
    set_container(&mut pod, "securityContext", of_container);
    pod
}

#[tokio::test(flavor = "multi_thread")]
async fn localhost_seccomp_profiles_are_files_of_the_node() {
    let cluster = cluster_with_config("seccompDefault: true\n").await;
    let profiles = cluster.path("kubelet/seccomp/team");
    fs::create_dir_all(&profiles).unwrap();
    let no_directories = r#"{"defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}]}"#;
    fs::write(profiles.join("no-directories.json"), no_directories).unwrap();
    let script =
        "mkdir /tmp/d 2>/dev/null && echo made || echo refused; grep ^Seccomp: /proc/self/status | tr -d '\\t'";
    let check = async |name: &str, profile: Value, expect: &str| {
        let context = if profile.is_null() { value!({}) } else { value!({"seccompProfile": profile}) };
        assert_eq!(cluster.output(&confined(name, script, context, value!({}))).await, expect, "{name}");
    };
    let local = |file: &str| value!({"type": "Localhost", "localhostProfile": file});
    check("local", local("team/no-directories.json"), "refused\nSeccomp:2\n").await;
    check("by-default", Value::Null, "made\nSeccomp:2\n").await;
    check("unconfined", value!({"type": "Unconfined"}), "made\nSeccomp:0\n").await;
    let absent = confined("absent", "true", value!({"seccompProfile": (local("none.json"))}), value!({}));
    let waits = |pod: &Value| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].as_str() == Some("CreateContainerError")
    };
    let message = cluster.run(&absent, "refused", waits).await;
    let message = message["status"]["containerStatuses"][0]["state"]["waiting"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("none.json"), "{message}");
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn users_groups_and_capabilities_follow_the_security_context() {
    let cluster = cluster().await;
    let ids = "id -u; id -g; id -G";
    let check = async |name: &str, script: &str, of_pod: Value, own: Value, expect: &str| {
        assert_eq!(cluster.output(&confined(name, script, of_pod, own)).await, expect, "{name}");
    };
    // The image has no user, so it runs as root.
    check("group", ids, value!({"runAsGroup": 3000}), value!({}), "0\n3000\n3000\n").await;
    check("own", ids, value!({"runAsUser": 1000}), value!({"runAsUser": 2000, "runAsGroup": 5}), "2000\n5\n5\n").await;
    let groups = value!({"runAsUser": 33, "runAsGroup": 7, "fsGroup": 8, "supplementalGroups": [9]});
    check("more", ids, groups, value!({}), "33\n7\n7 8 9\n").await;
    let bounded = "grep ^CapBnd /proc/self/status | tr -d '\\t'";
    let none = value!({"capabilities": {"drop": ["ALL"]}});
    check("none", bounded, value!({}), none, "CapBnd:0000000000000000\n").await;
    let one = value!({"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}});
    check("one", bounded, value!({}), one, "CapBnd:0000000000000400\n").await;
    let escalates = "grep ^NoNewPrivs /proc/self/status | tr -d '\\t'";
    check("tame", escalates, value!({}), value!({"allowPrivilegeEscalation": false}), "NoNewPrivs:1\n").await;
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn supplemental_groups_policy_strict_ignores_groups_of_the_image() {
    let cluster = cluster().await;
    let ids = "id -G | tr ' ' '\\n' | sort -nu | tr '\\n' ' '; echo";
    let context =
        |policy: &str| value!({"runAsUser": 1001, "supplementalGroups": [9], "supplementalGroupsPolicy": policy});
    assert_eq!(cluster.output(&confined("merge", ids, context("Merge"), value!({}))).await, "9 50 1001 \n");
    let strict = confined("strict", ids, context("Strict"), value!({}));
    let node = cluster.wait(&NODES, NODE, "ready", is_ready).await;
    if node["status"]["features"]["supplementalGroupsPolicy"].as_bool() == Some(true) {
        assert_eq!(cluster.output(&strict).await, "9 1001 \n");
    } else {
        let rejected = cluster.run(&strict, "refused", |pod| phase(pod) == "Failed").await;
        assert_eq!(rejected["status"]["reason"], "SupplementalGroupsPolicyNotSupported".into());
        let message =
            "SupplementalGroupsPolicyNotSupported: SupplementalGroupsPolicy=Strict is not supported in this node";
        cluster.event(message).await;
    }
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_with_user_namespace_may_have_unmasked_proc() {
    let cluster = cluster_with_built_in().await;
    // A masked path is a mount.
    let hidden = "grep -c ' /proc/' /proc/self/mounts; true";
    let check = async |name: &str, mount: &str| {
        let mut pod = confined(name, hidden, value!({}), value!({"procMount": mount}));
        set(&mut pod, "hostUsers", false);
        cluster.output(&pod).await
    };
    assert_eq!(check("open", "Unmasked").await, "0\n");
    assert_ne!(check("closed", "Default").await, "0\n");
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn masked_paths_sysctls_and_read_only_root_are_enforced() {
    let cluster = cluster().await;
    let masked = "wc -c </proc/keys; v=$(cat /proc/sys/vm/swappiness); \
        (echo $v >/proc/sys/vm/swappiness) 2>/dev/null && echo changed || echo refused; \
        sysctl -n net.ipv4.ip_unprivileged_port_start; touch /new 2>/dev/null && echo wrote || echo read-only; \
        for f in /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max; do \
        test -e $f && (echo max >$f) 2>/dev/null && echo freed; done; echo held";
    let sysctls = value!({"sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "80"}]});
    let own = value!({"readOnlyRootFilesystem": true});
    assert_eq!(cluster.output(&confined("tame", masked, sysctls, own)).await, "0\nrefused\n80\nread-only\nheld\n");
    let open =
        "touch /new && echo wrote; v=$(cat /proc/sys/vm/swappiness); echo $v >/proc/sys/vm/swappiness && echo changed";
    let privileged = confined("wild", open, value!({}), value!({"privileged": true}));
    assert_eq!(cluster.output(&privileged).await, "wrote\nchanged\n");
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_limits_are_enforced_and_oom_kills_are_reported() {
    let cluster = cluster().await;
    let v1 = !Cgroup::is_unified();
    let limits = if v1 {
        "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu/cpu.shares"
    } else {
        "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu.weight"
    };
    let resources =
        value!({"requests": {"cpu": "250m", "memory": "32Mi"}, "limits": {"cpu": "500m", "memory": "64Mi"}});
    let mut limited = pod("held", &format!("{limits}; cat /proc/self/oom_score_adj"));
    set(&mut limited, "restartPolicy", "Never");
    set_container(&mut limited, "resources", resources);
    let seen = cluster.output(&limited).await;
    let seen: Vec<&str> = seen.lines().collect();
    let expect: &[&str] = if v1 { &["67108864", "50000", "256"] } else { &["67108864", "50000 100000", "10"] };
    assert_eq!(&seen[..3], expect);
    let score: i64 = seen[3].parse().unwrap();
    assert!((3..1000).contains(&score), "{score}");

    let mut greedy = pod("greedy", "dd if=/dev/zero of=/dev/null bs=256M count=1");
    set(&mut greedy, "restartPolicy", "Never");
    set_container(&mut greedy, "resources", value!({"limits": {"memory": "32Mi"}}));
    let failed = cluster.run(&greedy, "over", |pod| phase(pod) == "Failed").await;
    let state = &failed["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((state["reason"].as_str(), state["exitCode"].as_int()), (Some("OOMKilled"), Some(137)));
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cpu_limits_are_not_enforced_without_cpu_cfs_quota() {
    let cluster = cluster_with_config("cpuCFSQuota: false\n").await;
    let limits = if Cgroup::is_unified() {
        "cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/memory.max"
    } else {
        "cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/memory/memory.limit_in_bytes"
    };
    let mut free = pod("free", &format!("{limits}; sleep 1000"));
    let resources =
        value!({"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}});
    set_container(&mut free, "resources", resources.clone());
    let made = cluster.run(&free, "ready", is_ready).await;
    cluster.logged("free", "c", 0, "67108864").await;
    let expect = if Cgroup::is_unified() { "max 100000\n67108864\n" } else { "-1\n67108864\n" };
    assert_eq!(cluster.printed(&made, "c", 0), expect);
    let uid = made.str_at(&["metadata", "uid"]).unwrap();
    let group = Cgroup::at(&format!("{}/kubepods/burstable/pod{uid}", cluster.cgroup())).usage();
    assert_eq!((group.cpu_quota_micros, group.memory_limit_bytes), (None, Some(64 << 20)));
    assert_eq!(made["status"]["containerStatuses"][0]["resources"], resources, "it has what it asked for");
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn qos_cgroup_shares_are_the_sum_of_the_pods_requests() {
    let cluster = cluster().await;
    let group = |class: &str| Cgroup::at(&format!("{}/kubepods{class}", cluster.cgroup())).usage();
    assert!(group("").memory_limit_bytes.is_some(), "all pods together are held to what the node has");
    cluster.event("NodeAllocatableEnforced: Updated Node Allocatable limit across pods").await;
    let shares = |class: &str| group(class).cpu_shares.unwrap();
    assert_eq!(shares("/besteffort"), 2);
    // cgroup v2 weights are coarser than v1 shares.
    let weighs = async |milli: u64| {
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        while shares("/burstable").abs_diff(milli * 1024 / 1000) > 26 {
            assert!(tokio::time::Instant::now() < deadline, "{} instead of {milli}", shares("/burstable"));
            tokio::task::yield_now().await;
        }
    };
    weighs(0).await;
    for (name, cpu) in [("one", "200m"), ("two", "300m")] {
        let mut burstable = pod(name, "sleep 1000");
        set_container(&mut burstable, "resources", value!({"requests": {"cpu": cpu}}));
        cluster.run(&burstable, "ready", is_ready).await;
    }
    weighs(500).await;
    cluster.delete_wholly("two").await;
    weighs(200).await;
    cluster.finish().await;
}

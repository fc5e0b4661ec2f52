//! Operator commands on a running cluster: doctor, status, trace, certificate rotation.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Instant;

use super::{DEADLINE, KNARR, Machine, text};

/// Runs all checks, on a cluster with the Deployment and the Service `web`.
pub(crate) fn run_checks(machine: &Machine) {
    doctor_finds_the_cluster_well(machine);
    status_names_every_component(machine);
    state_is_machine_readable_and_collected(machine);
    deployment_is_traced_from_creation_to_rules(machine);
    certificates_are_made_anew_while_everything_runs(machine);
    tokens_are_listed_and_taken_back(machine);
}

fn doctor_finds_the_cluster_well(machine: &Machine) {
    let data = machine.data();
    let output = machine.command(&format!("{KNARR} doctor -o json --data-dir {}", data.display())).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["checks"].as_array().unwrap();
    let verdict = |name: &str| {
        let row = rows.iter().find(|row| row["check"] == name).unwrap_or_else(|| panic!("{name} is not in {report:#}"));
        row["verdict"].as_str().unwrap().to_owned()
    };
    for check in ["API server", "store", "nodes", "DNS", "certificates", "namespaces", "overlay", "veth", "nf_tables"] {
        assert_eq!(verdict(check), "good", "{check} in {report:#}");
    }
    let is_own = |port: &str| rows.iter().any(|row| row["check"] == port && row["found"] == "held by this cluster");
    assert!(is_own("port 6443") && is_own("port 10250") && is_own("port 10053"), "{report:#}");
    let left = std::fs::read_dir(&data).unwrap().flatten().map(|entry| entry.file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with(".doctor")).collect();
    assert!(left.is_empty(), "{left:?}");
}

fn status_names_every_component(machine: &Machine) {
    let status = machine.knarr("status");
    for part in [
        "kube-apiserver ready",
        "kube-controller-manager running",
        "kube-scheduler running",
        "kubelet running",
        "kube-proxy running",
        "dns running",
        "only is ready",
        "MiB resident",
        "days left",
        "Kubernetes v1.36",
    ] {
        assert!(status.contains(part), "{part:?} is not in\n{status}");
    }
}

/// The data of `knarr status -o json`, `knarr logs` and `knarr doctor --bundle`.
fn state_is_machine_readable_and_collected(machine: &Machine) {
    let status: serde_json::Value = serde_json::from_str(&machine.knarr("status -o json")).unwrap();
    assert_eq!(status["cluster"]["state"], "ready", "{status:#}");
    let component = |name: &str| status["components"].as_array().unwrap().iter().any(|one| one["name"] == name);
    assert!(component("kube-apiserver") && component("kubelet"), "{status:#}");
    assert_eq!(status["nodes"][0]["name"], "only", "{status:#}");
    assert!(status["certificates"][0]["daysLeft"].as_i64().unwrap() > 100, "{status:#}");

    let log = machine.knarr("logs kubelet --tail 5");
    assert!(log.lines().filter(|line| line.contains("component{name=")).count() > 0, "{log}");
    assert!(!log.contains("component{name=\"kube-apiserver\"}"), "{log}");
    let unknown = machine.output_of(&format!("{KNARR} logs kublet --data-dir {}", machine.data().display()));
    assert!(unknown.contains("kubelet"), "{unknown}");

    machine.succeed("kubectl create secret generic hidden --from-literal=password=hunter2-hunter2");
    let bundle = machine.dir.path().join("bundle.tgz");
    machine.knarr(&format!("doctor --bundle {}", bundle.display()));
    let dir = machine.dir.path().join("bundle");
    std::fs::create_dir(&dir).unwrap();
    machine.succeed(&format!("tar -C {} -xzf {}", dir.display(), bundle.display()));
    let text = |name: &str| {
        std::fs::read_to_string(dir.join("knarr-bundle").join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    assert!(text("objects/apps/deployments.json").contains("\"name\": \"web\""));
    assert!(text("checks.txt").contains("API server") && text("logs/knarr.log").contains("component{"));
    assert!(text("versions.json").contains("v1.36") && text("settings/up.txt").contains("node-name"));
    assert!(!dir.join("knarr-bundle/objects/core/secrets.json").exists());
    let leaked = machine.output_of(&format!("grep -rlE hunter2|aHVudGVyMi {}", dir.display()));
    assert_eq!(leaked, "", "{}", text("problems.txt"));
    machine.succeed("kubectl delete secret hidden");
}

fn deployment_is_traced_from_creation_to_rules(machine: &Machine) {
    let trace = machine.knarr("trace deployment/web");
    let order = [
        ("Deployment/web", "written"),
        ("Deployment/web", "seen by the deployment controller"),
        ("ReplicaSet/web-", "written for Deployment/web"),
        ("Pod/web-", "written for ReplicaSet/web-"),
        ("Pod/web-", "Scheduled: Successfully assigned default/web-"),
        ("Pod/web-", "container c started"),
        ("Pod/web-", "ready"),
        ("EndpointSlice/web-", "endpoints of service web published"),
        ("EndpointSlice/web-", "rules "),
    ];
    let mut lines = trace.lines();
    for (object, what) in order {
        let found = lines.by_ref().any(|line| line.contains(object) && line.contains(what));
        assert!(found, "{object} {what:?} is not at its position in\n{trace}");
    }
    for object in ["svc/web", "namespace/default"] {
        assert!(machine.knarr(&format!("trace {object}")).contains("written"), "{object}");
    }
    let error = machine.output_of(&format!("{KNARR} trace nonsense/web --data-dir {}", machine.data().display()));
    assert!(error.contains("the server does not have a resource type \"nonsense\""), "{error}");
}

fn tokens_are_listed_and_taken_back(machine: &Machine) {
    let token = machine.knarr("token create --ttl 1h");
    let id = token.split('.').next().unwrap();
    let listed = machine.knarr("token ls");
    let row = listed.lines().find(|line| line.starts_with(id)).unwrap_or_else(|| panic!("{id} is not in {listed}"));
    assert!(row.ends_with("system:bootstrappers:knarr:agents"), "{row}");
    let status_code = |path: &str| {
        let token: Vec<&str> = token.split('.').collect();
        let (curl, bearer) =
            ("curl -sk -o /dev/null -w %{http_code}", format!("Authorization:Bearer {}.{}", token[0], token[1]));
        let mut curl = machine.command(curl);
        text(&curl.arg("-H").arg(bearer).arg(format!("https://127.0.0.1:6443{path}")).output().unwrap())
    };
    let settings = "/api/v1/namespaces/kube-system/configmaps/knarr-cluster";
    assert_eq!(status_code(settings), "200", "a join token can read the settings for joining nodes");
    assert_eq!(status_code("/api/v1/namespaces/kube-system/secrets"), "403", "and nothing else");
    machine.knarr(&format!("token rm {id}"));
    assert!(!machine.knarr("token ls").contains(id));
    let deadline = Instant::now() + DEADLINE;
    while status_code(settings) != "401" {
        assert!(Instant::now() < deadline, "a revoked token is still valid");
    }
    let missing = machine.output_of(&format!("{KNARR} token rm {id} --data-dir {}", machine.data().display()));
    assert!(missing.contains("not found"), "{missing}");
}

fn certificates_are_made_anew_while_everything_runs(machine: &Machine) {
    let served_certificates = || machine.succeed("curl -sk -o /dev/null -w %{certs} https://127.0.0.1:6443/version");
    let kubeconfig = machine.data().join("admin.kubeconfig");
    let (process, first) = (machine.process(), served_certificates());
    let old = machine.dir.path().join("old.kubeconfig");
    std::fs::copy(&kubeconfig, &old).unwrap();
    let mut watch = machine.command("kubectl get configmaps --watch -o name").stdout(Stdio::piped()).spawn().unwrap();
    let mut events = BufReader::new(watch.stdout.take().unwrap()).lines();
    assert_eq!(events.next().unwrap().unwrap(), "configmap/kube-root-ca.crt");

    let listed = machine.knarr("certs ls");
    for name in ["admin ", "apiserver ", "ca ", "etcd-ca ", "front-proxy-client ", "kubelet "] {
        assert!(listed.lines().any(|line| line.starts_with(name)), "{name:?} is not in {listed}");
    }
    assert!(
        listed.lines().skip(1).all(|line| line.rsplit(' ').next().unwrap().parse::<u32>().unwrap() >= 364),
        "{listed}"
    );
    let output = machine.knarr("certs rotate");
    assert!(output.contains("renewed"), "{output}");
    assert_ne!(std::fs::read(&kubeconfig).unwrap(), std::fs::read(&old).unwrap(), "the kubeconfig has changed");
    machine.eventually("curl -sk -o /dev/null -w %{certs} https://127.0.0.1:6443/version", |seen| {
        seen.contains("BEGIN CERTIFICATE") && seen != first
    });
    machine.succeed("kubectl create configmap after-rotation");
    assert_eq!(events.next().unwrap().unwrap(), "configmap/after-rotation", "the old connection stays open");
    watch.kill().unwrap();
    watch.wait().unwrap();
    machine.succeed(&format!("kubectl --kubeconfig {} get nodes", old.display()));
    machine.succeed("kubectl delete configmap after-rotation");
    // The API server presents its new client certificate to kubelets, which trust its CA.
    let first = machine.succeed("kubectl get pods -l app=web -o jsonpath={.items[0].metadata.name}");
    machine.succeed(&format!("kubectl exec {first} -- busybox true"));
    assert_eq!(machine.process(), process, "nothing was restarted");
}

/// Checks the control plane in static pods: every component is a pod that can be killed, and the cluster recovers.
pub(crate) fn live_in_pods(machine: &Machine) {
    // A separate cgroup root, so that no other test counts these cgroups.
    let up = format!(
        "up -d --static-pods --node-name only --kubelet-arg eviction-hard=nodefs.available<1Mi --kubelet-arg cgroup-root=/knarr-node-{}",
        std::process::id()
    );
    let output = machine.knarr(&up);
    assert!(output.contains("ready in "), "{output}");
    let pods = "kubectl get pods -n kube-system -l tier=control-plane --field-selector status.phase=Running -o name";
    let running = machine.eventually(pods, |pods| pods.lines().count() == 4);
    for name in ["etcd-only", "kube-apiserver-only", "kube-controller-manager-only", "kube-scheduler-only"] {
        assert!(running.contains(name), "{name} is not in {running}");
    }
    machine.succeed("kubectl create deployment hello --image=knarr.local/hello --replicas=2");
    machine.succeed("kubectl wait --for=condition=Available deployment/hello --timeout=60s");
    let status = machine.knarr("status");
    assert!(status.contains("kubelet running") && status.contains("kube-apiserver-only Running"), "{status}");

    let containers =
        "kubectl get pods -A --sort-by=.metadata.name -o jsonpath={.items[*].status.containerStatuses[0].containerID}";
    let before = machine.succeed(containers);
    machine.kill();
    machine.succeed("kubectl get nodes");
    machine.knarr(&up);
    assert_eq!(machine.succeed(containers), before, "the control plane keeps running without the process");

    let rejection = machine.output_of(&format!("{KNARR} up --secure-port 0 --data-dir {}", machine.data().display()));
    assert!(rejection.contains("already runs") || rejection.contains("belongs to a cluster"), "{rejection}");
    machine.knarr("certs rotate");
    machine.succeed("kubectl delete deployment hello");
    machine.eventually("kubectl get pods -o name", |pods| !pods.contains("pod/hello"));
    machine.knarr("down --purge");
    assert!(!machine.data().exists());
    // The innermost cgroups first. A cgroup that is not empty is still in use.
    machine
        .output_of(&format!("find /sys/fs/cgroup -depth -type d -path */knarr-node-{}* -delete", std::process::id()));
}

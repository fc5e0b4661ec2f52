//! Deletion of a namespace with every kind of workload, on three nodes.

use super::*;

const UP: &str = "up -d --nodes 3 --node-name one --kubelet-arg eviction-hard=nodefs.available<1Mi";

/// Objects that allocate something on nodes or carry finalizers: volumes, ports, rules, addresses, tracked pods.
const SHOP: &str = r#"{"apiVersion": "v1", "kind": "List", "items": [
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"colour": "blue"}},
    {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": {"key": "value"}},
    {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
     "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"terminationGracePeriodSeconds": 5,
            "volumes": [{"name": "memory", "emptyDir": {"medium": "Memory"}},
                {"name": "all", "projected": {"sources": [{"configMap": {"name": "settings"}}, {"secret": {"name": "key"}}]}}],
            "initContainers": [{"name": "i", "image": "knarr.local/hello", "imagePullPolicy": "IfNotPresent",
                "command": ["/knarr", "--version"]}],
            "containers": [{"name": "c", "image": "knarr.local/hello", "imagePullPolicy": "IfNotPresent",
                "volumeMounts": [{"name": "memory", "mountPath": "/memory"},
                    {"name": "all", "mountPath": "/colour", "subPath": "colour"}]}]}}}},
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
     "spec": {"type": "LoadBalancer", "sessionAffinity": "ClientIP", "selector": {"app": "web"},
        "ports": [{"port": 8081, "targetPort": 8080}]}},
    {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
     "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}},
    {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
     "spec": {"replicas": 2, "serviceName": "db", "podManagementPolicy": "Parallel", "selector": {"matchLabels": {"app": "db"}},
        "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"terminationGracePeriodSeconds": 5,
            "containers": [{"name": "c", "image": "knarr.local/pause", "imagePullPolicy": "IfNotPresent",
                "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}},
        "volumeClaimTemplates": [{"metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}}]}},
    {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
     "spec": {"selector": {"matchLabels": {"app": "agent"}},
        "template": {"metadata": {"labels": {"app": "agent"}}, "spec": {"terminationGracePeriodSeconds": 5,
            "containers": [{"name": "c", "image": "knarr.local/hello", "imagePullPolicy": "IfNotPresent",
                "ports": [{"containerPort": 8080, "hostPort": 8099}]}]}}}},
    {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "task"},
     "spec": {"parallelism": 2, "completions": 2, "template": {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5,
        "containers": [{"name": "c", "image": "knarr.local/pause", "imagePullPolicy": "IfNotPresent"}]}}}}]}"#;
const POLICY: &str = r#"{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "web"},
    "spec": {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"], "ingress": [{"ports": [{"port": 8080}]}]}}"#;
const PODS: usize = 3 + 2 + 3 + 2;

#[test]
fn deleted_namespace_leaves_no_object_finalizer_or_resource_of_a_node() {
    let machine = Machine::new();
    machine.knarr(UP);
    // The ports of the API server, the DNS server and the metrics server.
    let has_rules = |rules: &str| [". 6443", ". 10053", ". 4443"].iter().all(|port| rules.contains(port));
    for node in NODES {
        machine.eventually(&at(&machine, node, "nft list ruleset"), has_rules);
    }
    let before = resources(&machine);

    machine.succeed("kubectl create namespace shop");
    machine.succeed("kubectl config set-context --current --namespace=shop");
    machine.apply(SHOP);
    machine.apply(POLICY);
    let running = "kubectl get pods --field-selector status.phase=Running -o name";
    machine.eventually(running, |pods| pods.lines().count() == PODS);
    machine.succeed("kubectl wait --for=condition=Ready pods --all --timeout=60s");
    let uids = machine.succeed("kubectl get pods -o jsonpath={.items[*].metadata.uid}");
    assert!(!traces_of(&machine, &uids).is_empty(), "pods have directories and cgroups");
    assert!(resources(&machine).1.iter().zip(&before.1).all(|([.., now], [.., before])| now > before));
    release_a_pod_of_the_job(&machine);

    machine.succeed("kubectl delete namespace shop --timeout=60s");
    nothing_is_terminating(&machine);
    machine.eventually("kubectl get persistentvolumes -o name", str::is_empty);
    let deadline = Instant::now() + DEADLINE;
    while resources(&machine) != before || !traces_of(&machine, &uids).is_empty() {
        assert!(
            Instant::now() < deadline,
            "before {before:?}, after {:?}, {:?}",
            resources(&machine),
            traces_of(&machine, &uids)
        );
        std::thread::yield_now();
    }
}

const NODES: [&str; 3] = ["one", "one-2", "one-3"];

/// Returns a command line that runs in the network namespace of the node.
fn at(machine: &Machine, node: &str, line: &str) -> String {
    match node {
        "one" => line.to_owned(),
        _ => format!("nsenter --net={} {line}", machine.data().join("nodes").join(node).join("netns").display()),
    }
}

/// Returns the host's resources, and the number of links, routes and elements of nftables sets and maps of each node.
/// Tables and chains stay for later use, and so does the set with the address of the cluster DNS, which the first policy
/// adds.
fn resources(machine: &Machine) -> (HostResources, Vec<[usize; 3]>) {
    let nodes = NODES.map(|node| {
        let list = |line: &str| machine.succeed(&at(machine, node, line));
        let elements = ["nft list sets", "nft list maps"].map(|line| {
            let listed = list(line).replace("elements = { 10.96.0.10 }", "");
            listed.matches("elements = {").count() + listed.matches(',').count()
        });
        [list("ip -o link").lines().count(), list("ip route").lines().count(), elements.iter().sum()]
    });
    (HostResources { rules: 0, ..machine.count_resources("") }, nodes.to_vec())
}

/// Returns the paths of cgroups, logs and node directories that are named after a pod.
fn traces_of(machine: &Machine, uids: &str) -> Vec<String> {
    let data = machine.data();
    let roots = ["/sys/fs/cgroup", "/var/log/pods", "/var/log/containers"].map(Path::new);
    let mut command = Command::new("find");
    command.args(roots).arg(&data).arg("(");
    for uid in uids.split(' ') {
        command.args(["-name", &format!("*{uid}*"), "-o"]);
    }
    // Directories may disappear while find reads them, so that its exit code says nothing.
    let output = command.args(["-false", ")"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Takes a pod out of its Job's selector, so that no controller owns it.
fn release_a_pod_of_the_job(machine: &Machine) {
    let pod = machine.succeed("kubectl get pods -l batch.kubernetes.io/job-name=task -o name");
    let pod = pod.lines().next().unwrap();
    machine.succeed(&format!("kubectl label {pod} batch.kubernetes.io/controller-uid- controller-uid-"));
    let left = format!("kubectl get {pod} -o jsonpath={{.metadata.ownerReferences}}{{.metadata.finalizers}}");
    machine.eventually(&left, str::is_empty);
}

/// Checks that no object of any kind belongs to the namespace or waits for a finalizer.
fn nothing_is_terminating(machine: &Machine) {
    let kinds = machine.succeed("kubectl api-resources --verbs=list -o name");
    // Metrics of a pod outlive it by one scrape.
    let kinds: Vec<&str> = kinds.lines().filter(|kind| !kind.ends_with("metrics.k8s.io")).collect();
    assert!(kinds.len() > 50, "{kinds:?}");
    let objects = "jsonpath={range.items[*]}{.kind}/{.metadata.name}:{.metadata.namespace}:{.metadata.deletionTimestamp}{\"\\n\"}{end}";
    let objects = machine.succeed(&format!("kubectl get {} -A -o {objects}", kinds.join(",")));
    assert!(objects.lines().count() > 50, "{objects}");
    let left = |line: &&str| line.contains(":shop:") || !line.ends_with(':') && !line.starts_with("Warning: ");
    assert_eq!(objects.lines().filter(left).collect::<Vec<_>>(), Vec::<&str>::new());
}

//! Three nodes on one host, from one command: reachability, roll-outs, and node failures.

use std::collections::BTreeSet;

use super::*;

/// Arguments of a cluster that detects a lost node quickly.
const UP: &str = "up -d --nodes 3 --node-name one --kubelet-arg eviction-hard=nodefs.available<1Mi \
    --kube-controller-manager-arg node-monitor-grace-period=8s";

const SPREAD: &str = r#"{"apiVersion": "v1", "kind": "List", "items": [
    {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
     "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
        "strategy": {"rollingUpdate": {"maxUnavailable": 0}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"terminationGracePeriodSeconds": 5,
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": "web"}}}],
            "tolerations": [
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1},
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}],
            "containers": [{"name": "c", "image": "knarr.local/hello", "imagePullPolicy": "IfNotPresent",
                "lifecycle": {"preStop": {"sleep": {"seconds": 2}}},
                "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 1}}]}}}},
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
     "spec": {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080, "nodePort": 30080}]}}]}"#;

#[test]
fn three_nodes_on_one_host_pass_the_cluster_scenarios() {
    let machine = Machine::new();
    let output = machine.knarr(UP);
    assert!(output.contains("further nodes"), "{output}");
    components_of_a_node_write_nothing_of_another(&machine);
    machine.apply(SPREAD);
    ready(&machine, 3);
    assert_eq!(placed(&machine), ["one", "one-2", "one-3"]);
    is_reachable_from_everywhere(&machine);

    machine.succeed("kubectl scale deployment web --replicas=10");
    ready(&machine, 10);
    rolls_out_and_back_without_a_failed_request(&machine);
    moves_pods_off_a_node_that_is_drained_or_lost(&machine);
    moves_pods_off_a_killed_node(&machine);
    rules_of_every_node_are_traced(&machine);

    // Pods that were evicted from the killed node are deleted after its return.
    machine.eventually("kubectl get pods -l app=web -o name", |pods| pods.lines().count() == 10);
    ready(&machine, 10);
    let containers = "kubectl get pods -l app=web --sort-by=.metadata.name -o jsonpath={.items[*].status.containerStatuses[0].containerID}";
    let before = machine.succeed(containers);
    machine.kill();
    machine.knarr(UP);
    assert_eq!(machine.succeed(containers), before, "the same containers keep running on every node");

    everything_returns_when_the_machine_is_started_again(&machine);
    assert_eq!(machine.knarr("node ls").lines().collect::<Vec<_>>(), ["one-2", "one-3"]);
    machine.knarr("node add another");
    assert_eq!(machine.knarr("node ls").lines().collect::<Vec<_>>(), ["one-2", "one-3", "another"]);
    assert_eq!(machine.succeed("kubectl get nodes -o name").lines().count(), 4);
    machine.knarr("node rm another");
    assert_eq!(machine.succeed("kubectl get nodes -o name").lines().count(), 3);
    assert!(
        machine
            .output_of(&format!("{KNARR} node rm one --data-dir {}", machine.data().display()))
            .contains("is not a network-namespace node")
    );

    machine.succeed("kubectl delete deployment web");
    machine.eventually("kubectl get replicasets,pods -o name", |left| !left.contains("web-"));
    machine.knarr("down --purge");
    let links = machine.succeed("ip -o link");
    assert_eq!(links.lines().count(), 3, "only the links that existed before: {links}");
    assert_eq!(machine.succeed("nft list tables"), "");
    assert_eq!(machine.succeed("ip route").lines().count(), 2);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&machine.data().display().to_string()), "{mounts}");
}

/// Credentials stolen from a node are those of its own components, and contain no token.
fn components_of_a_node_write_nothing_of_another(machine: &Machine) {
    let node = machine.data().join("nodes").join("one-2");
    for left in ["join-token", "bootstrap.kubeconfig"] {
        assert!(!node.join(left).exists(), "{left} is not dropped");
    }
    let as_component = |component: &str, command: &str| {
        let (netns, kubeconfig) = (node.join("netns"), node.join(format!("{component}.kubeconfig")));
        let there = format!("nsenter --net={} kubectl --kubeconfig {}", netns.display(), kubeconfig.display());
        machine.output_of(&format!("{there} {command}"))
    };
    let who = as_component("dns", "auth whoami -o jsonpath={.status.userInfo.username}");
    assert_eq!(who.trim(), "knarr:dns:one-2");
    for (component, command) in [
        ("dns", "delete endpointslice kube-dns-one -n kube-system"),
        ("dns", "label endpointslice kube-dns-one -n kube-system a=b"),
        ("network", "delete lease one -n kube-node-lease"),
        ("network", "delete lease load-balancer-one -n kube-node-lease --ignore-not-found=false"),
        ("kubelet", "annotate node one a=b"),
    ] {
        let output = as_component(component, command);
        let is_rejected = output.contains("orbidden") || output.contains("not found");
        assert!(is_rejected, "{component}: {command}: {output}");
    }
    let own = as_component("dns", "label endpointslice kube-dns-one-2 -n kube-system knarr.dev/tried=yes");
    assert!(own.contains("labeled"), "{own}");
}

fn ready(machine: &Machine, count: usize) {
    let line =
        "kubectl get deployment web -o jsonpath={.status.readyReplicas}/{.status.updatedReplicas}/{.status.replicas}";
    machine.eventually(line, |seen| seen == format!("{count}/{count}/{count}"));
}

/// Returns the distinct nodes of the pods.
fn placed(machine: &Machine) -> Vec<String> {
    let nodes = machine.succeed("kubectl get pods -l app=web -o jsonpath={.items[*].spec.nodeName}");
    let mut nodes: Vec<String> = nodes.split(' ').map(str::to_owned).collect();
    nodes.sort();
    nodes.dedup();
    nodes
}

/// Connects by name from a pod, by node port and load balancer from the host, and by address and name from every node.
fn is_reachable_from_everywhere(machine: &Machine) {
    let is_page = |output: &str| output.starts_with("Hello from web-");
    let mut reachable = 0;
    for pod in machine.succeed("kubectl get pods -l app=web -o name").lines() {
        let fetch_command = format!("kubectl exec {pod} -- /knarr hello --ask http://web.default.svc.cluster.local/");
        // A pod of a node that was slow to come back may have been replaced meanwhile.
        reachable += usize::from(is_page(
            &machine.eventually(&fetch_command, |output| is_page(output) || output.contains("NotFound")),
        ));
    }
    assert!(reachable >= 3, "only {reachable} pods could send a request");
    let addresses = "kubectl get nodes -o jsonpath={.items[*].status.addresses[?(@.type==\"InternalIP\")].address}";
    let own = machine.succeed("kubectl get service web -o jsonpath={.spec.clusterIP}");
    let nodes = machine.succeed(addresses);
    let balancer = "kubectl get service web -o jsonpath={.status.loadBalancer.ingress[*].ip}";
    let sorted = |list: &str| -> Vec<String> {
        let mut addresses: Vec<String> = list.split_whitespace().map(str::to_owned).collect();
        addresses.sort();
        addresses
    };
    machine.eventually(balancer, |given| sorted(given) == sorted(&nodes));
    for address in nodes.split(' ') {
        for endpoint in [format!("{address}:30080"), address.to_owned()] {
            machine.eventually(&format!("curl -s --max-time 5 http://{endpoint}/"), |page| page.starts_with("Hello"));
        }
        for node in ["one", "one-2", "one-3"] {
            let netns = machine.data().join("nodes").join(node).join("netns");
            let there = if node == "one" { String::new() } else { format!("nsenter --net={} ", netns.display()) };
            let dig = format!("{there}dig +short +time=2 -p 10053 @{address} web.default.svc.cluster.local");
            machine.eventually(&dig, |output| output.trim() == own);
        }
    }
    for pod in machine.succeed("kubectl get pods -l app=web -o jsonpath={.items[*].status.podIP}").split(' ') {
        for node in ["one-2", "one-3"] {
            let netns = machine.data().join("nodes").join(node).join("netns");
            let curl = format!("nsenter --net={} curl -s --max-time 5 http://{pod}:8080/", netns.display());
            machine.eventually(&curl, |page| page.starts_with("Hello"));
        }
    }
}

/// Sends requests sequentially during both roll-outs, and counts them.
fn rolls_out_and_back_without_a_failed_request(machine: &Machine) {
    build_second_image(machine);
    let address = machine.succeed("kubectl get service web -o jsonpath={.spec.clusterIP}");
    let fetch_command = format!("curl -sS --max-time 10 http://{address}/");
    let (stop, requests) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut failed = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let page = machine.output_of(&fetch_command);
                requests.fetch_add(1, Ordering::Relaxed);
                if !page.starts_with("Hello") {
                    failed.push(page);
                }
            }
            failed
        });
        machine.succeed(&format!("kubectl set image deployment/web c={SECOND}"));
        machine.succeed("kubectl rollout status deployment/web --timeout=120s");
        // Pods of the old ReplicaSet may still be endpoints for a moment.
        machine.eventually(&fetch_command, |page| page == "Hello from the second image");
        machine.succeed("kubectl rollout undo deployment/web");
        machine.succeed("kubectl rollout status deployment/web --timeout=120s");
        stop.store(true, Ordering::Relaxed);
        let failed = load.join().unwrap();
        assert!(
            failed.is_empty(),
            "{} of {} requests failed: {failed:?}",
            failed.len(),
            requests.load(Ordering::Relaxed)
        );
    });
    assert!(requests.load(Ordering::Relaxed) > 10);
    machine.eventually(&fetch_command, |page| page.starts_with("Hello from web-"));
    ready(machine, 10);
}

fn moves_pods_off_a_node_that_is_drained_or_lost(machine: &Machine) {
    // Pods of the last roll-out take time to terminate.
    machine.eventually("kubectl get pods -l app=web -o name", |pods| pods.lines().count() == 10);
    let first = machine.succeed("kubectl get pods -l app=web -o jsonpath={.items[0].metadata.name}");
    machine.succeed(&format!("kubectl delete pod {first} --wait=false"));
    ready(machine, 10);
    machine.succeed("kubectl drain one-3 --ignore-daemonsets --timeout=60s");
    let on = |node: &str| format!("kubectl get pods -l app=web --field-selector spec.nodeName={node} -o name");
    machine.eventually(&on("one-3"), |pods| !pods.contains("pod/"));
    ready(machine, 10);
    machine.succeed("kubectl uncordon one-3");

    // All packets of the node are dropped, as if its cable were pulled.
    machine.succeed("nft add table ip cut");
    machine.succeed("nft add chain ip cut wire { type filter hook prerouting priority -300 ; }");
    machine.succeed("nft add rule ip cut wire ip saddr 172.30.0.2 drop");
    let condition = "kubectl get node one-2 -o jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
    machine.eventually(condition, |status| status == "Unknown");
    let elsewhere = "kubectl get deployment web -o jsonpath={.status.availableReplicas}";
    machine.eventually(elsewhere, |count| count == "10");
    machine.succeed("nft delete table ip cut");
    machine.eventually(condition, |status| status == "True");
    ready(machine, 10);
}

const SECOND: &str = "test.local/hello:2";

/// Builds an image whose web server names it in its response. Every node has its own image store.
fn build_second_image(machine: &Machine) {
    let image = machine.dir.path().join("second");
    std::fs::create_dir_all(image.join("bin")).unwrap();
    std::fs::create_dir_all(image.join("www")).unwrap();
    std::fs::copy("/bin/busybox", image.join("bin/busybox")).unwrap();
    for page in ["index.html", "readyz"] {
        std::fs::write(image.join("www").join(page), "Hello from the second image\n").unwrap();
    }
    let command = ["/bin/busybox", "httpd", "-f", "-p", "8080", "-h", "/www"];
    let flags: Vec<String> = command.iter().map(|word| format!("--entrypoint={word}")).collect();
    let output = machine.knarr(&format!("image build {SECOND} {} {}", image.display(), flags.join(" ")));
    assert!(output.contains("on nodes one, one-2, one-3"), "{output}");
}

/// Returns the PIDs of processes whose command line contains the directory or one below, and of all their descendants.
fn processes_of(dir: &Path) -> BTreeSet<i32> {
    let own = dir.display().to_string();
    let within = format!("{own}/");
    let mut parents = Vec::new();
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let read = |file: &str| std::fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        // A zombie has an empty command line.
        let cmdline = read("cmdline");
        if cmdline.split(['\0', '=']).any(|word| word == own || word.starts_with(&within)) {
            found.insert(number);
        }
        let status = read("status");
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse::<i32>().ok());
        parents.extend(parent.filter(|_| !cmdline.is_empty()).map(|parent| (number, parent)));
    }
    loop {
        let before = found.len();
        let children = parents.iter().filter(|(_, parent)| found.contains(parent)).map(|(number, _)| *number);
        found = children.chain(found.iter().copied()).collect();
        if found.len() == before {
            found.remove(&std::process::id().cast_signed());
            return found;
        }
    }
}

fn kill_all(processes: &BTreeSet<i32>) {
    for number in processes.iter().filter_map(|number| rustix::process::Pid::from_raw(*number)) {
        let _ = rustix::process::kill_process(number, rustix::process::Signal::KILL);
    }
}

/// Kills the agent of a node and all its shims and prevents a restart, as after a power failure.
fn moves_pods_off_a_killed_node(machine: &Machine) {
    let dir = machine.data().join("nodes").join("one-3");
    let condition = "kubectl get node one-3 -o jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
    let lock = std::fs::File::open(dir.join("knarr.lock")).unwrap();
    let deadline = Instant::now() + DEADLINE;
    loop {
        kill_all(&processes_of(&dir));
        if rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok() {
            break;
        }
        assert!(Instant::now() < deadline, "the agent does not die");
    }
    kill_all(&processes_of(&dir));
    machine.eventually(condition, |status| status == "Unknown");
    let elsewhere = "kubectl get deployment web -o jsonpath={.status.availableReplicas}";
    machine.eventually(elsewhere, |count| count == "10");
    let ready = "kubectl get endpointslices -l kubernetes.io/service-name=web \
                 -o jsonpath={.items[*].endpoints[?(@.conditions.ready==true)].nodeName}";
    machine.eventually(ready, |nodes| nodes.split(' ').all(|node| node == "one" || node == "one-2"));
    drop(lock);
    machine.eventually(condition, |status| status == "True");
    self::ready(machine, 10);
    // The replaced pods are deleted once their node has seen their deletion.
    machine.eventually("kubectl get pods -l app=web -o name", |pods| pods.lines().count() == 10);
}

fn rules_of_every_node_are_traced(machine: &Machine) {
    let trace = machine.knarr("trace service/web");
    for proxy in ["(kube-proxy)", "(kube-proxy on one-2)", "(kube-proxy on one-3)"] {
        let found = trace.lines().any(|line| line.contains("rules in place") && line.ends_with(proxy));
        assert!(found, "{proxy} is not in\n{trace}");
    }
}

/// Removes all processes, namespaces, links and rules, as after a reboot of the host.
fn everything_returns_when_the_machine_is_started_again(machine: &Machine) {
    let (data, before) = (machine.data(), placed(machine));
    let deadline = Instant::now() + DEADLINE;
    while !processes_of(&data).is_empty() {
        kill_all(&processes_of(&data));
        assert!(Instant::now() < deadline, "{:?} do not die", processes_of(&data));
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mut places: Vec<&str> = mounts.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    places.retain(|mount_point| Path::new(mount_point).starts_with(&data));
    for mount_point in places.into_iter().rev() {
        run(Command::new("umount").args(["--lazy", mount_point]));
    }
    machine.succeed("nft flush ruleset");
    for link in machine.succeed("ip -o link").lines() {
        let name = link.split([':', '@']).nth(1).unwrap().trim();
        if !["lo", "uplink", "wire"].contains(&name) {
            // Deleting one end of a veth pair deletes the other.
            machine.output_of(&format!("ip link delete {name}"));
        }
    }
    assert_eq!(machine.succeed("ip -o link").lines().count(), 3);

    machine.knarr(UP);
    ready(machine, 10);
    assert_eq!(placed(machine), before, "pods stay where they are");
    is_reachable_from_everywhere(machine);
}

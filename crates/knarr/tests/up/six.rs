//! IPv6 and dual-stack clusters.

use super::*;

const SIX: &str = "--pod-cidr fd00:10:244::/56 --service-cidr fd00:10:96::/108";
const BOTH: &str = "--pod-cidr 10.244.0.0/16,fd00:10:244::/56 --service-cidr 10.96.0.0/16,fd00:10:96::/108";
const QUIET: &str = "--kubelet-arg eviction-hard=nodefs.available<1Mi";

fn web(policy: &str) -> String {
    let mut objects = r#"{"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
         "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"terminationGracePeriodSeconds": 1,
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}],
                "containers": [{"name": "c", "image": "knarr.local/hello", "imagePullPolicy": "IfNotPresent",
                    "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 1}}]}}}},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
         "spec": {"ipFamilyPolicy": "POLICY", "type": "NodePort", "selector": {"app": "web"},
            "ports": [{"port": 80, "targetPort": 8080, "nodePort": 30080}]}}]}"#
        .to_owned();
    objects = objects.replace("POLICY", policy);
    objects
}

/// Connects by name from every pod, and by node port on every address of every node.
fn is_reachable(machine: &Machine, addresses: &[&str]) {
    machine.eventually("kubectl get deployment web -o jsonpath={.status.readyReplicas}", |ready| ready == "2");
    for pod in machine.succeed("kubectl get pods -l app=web -o name").lines() {
        let fetch_command = format!("kubectl exec {pod} -- /knarr hello --ask http://web.default.svc.cluster.local/");
        machine.eventually(&fetch_command, |page| page.starts_with("Hello from web-"));
    }
    for address in addresses {
        let fetch_command = format!("curl -sg --max-time 5 http://{address}:30080/");
        machine.eventually(&fetch_command, |page| page.starts_with("Hello from web-"));
    }
}

#[test]
fn ipv6_only_host_runs_a_cluster() {
    let machine = Machine::new();
    machine.succeed("ip address delete 198.51.100.2/24 dev uplink");
    machine.succeed("ip address add 2001:db8:7::2/64 dev uplink nodad");
    machine.succeed("ip -6 route add default via 2001:db8:7::1");
    let rejection = machine.output_of(&format!("{KNARR} up --data-dir {}", machine.data().display()));
    assert!(rejection.contains("in the IP family of 10.96.0.0/16"), "{rejection}");

    machine.knarr(&format!("up -d --node-name only --node-ip 2001:db8:7::2 {SIX} {QUIET}"));
    machine.apply(&web("SingleStack"));
    is_reachable(&machine, &["[2001:db8:7::2]"]);
    let doctor = machine.output_of(&format!("{KNARR} doctor --data-dir {}", machine.data().display()));
    assert!(doctor.contains("fd00:10:96::1, resolved by [2001:db8:7::2]:10053"), "{doctor}");
    assert_eq!(machine.succeed("kubectl get service kubernetes -o jsonpath={.spec.clusterIP}"), "fd00:10:96::1");
    // Logs go through the kubelet and metrics through the Service: both must work over IPv6.
    let pod = machine.succeed("kubectl get pods -l app=web -o jsonpath={.items[0].metadata.name}");
    machine.succeed(&format!("kubectl logs {pod}"));
    machine.eventually("kubectl top node --no-headers", |top| top.starts_with("only ") && top.contains('%'));
    machine.knarr("down --purge");
}

#[test]
fn two_nodes_on_one_host_are_dual_stack() {
    let machine = Machine::new();
    machine.succeed("ip address add 2001:db8:7::2/64 dev uplink nodad");
    machine.succeed("ip -6 route add default via 2001:db8:7::1");
    machine.knarr(&format!("up -d --nodes 2 --node-name one {BOTH} {QUIET}"));
    let addresses = "kubectl get nodes -o jsonpath={.items[*].status.addresses[?(@.type==\"InternalIP\")].address}";
    let addresses = machine.succeed(addresses);
    let mut addresses: Vec<&str> = addresses.split(' ').collect();
    addresses.sort_unstable();
    assert_eq!(addresses, ["172.30.0.2", "198.51.100.2", "2001:db8:7::2", "fd4b:6e61:7272::2"]);
    machine.apply(&web("RequireDualStack"));
    is_reachable(&machine, &["198.51.100.2", "[2001:db8:7::2]", "172.30.0.2", "[fd4b:6e61:7272::2]"]);
    let slices = "kubectl get endpointslices -n kube-system -l kubernetes.io/service-name=kube-dns -o jsonpath={.items[*].addressType}";
    let slices = machine.succeed(slices);
    assert_eq!((slices.matches("IPv4").count(), slices.matches("IPv6").count()), (2, 2), "{slices}");
    machine.knarr("down --purge");
    let links = machine.succeed("ip -o link");
    assert_eq!(links.lines().count(), 3, "only the links that existed before: {links}");
}

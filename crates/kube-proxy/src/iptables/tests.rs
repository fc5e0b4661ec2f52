//! Tests of the generated iptables rules.

use apimachinery::{Key, value};

use super::*;
use crate::service::Node;
use crate::service_state::Rules;

fn settings() -> Settings {
    Settings {
        pods: netlink::Cidr::parse_list("10.244.0.0/16").unwrap(),
        node_addresses: vec!["192.0.2.1".parse().unwrap()],
        mark: 0x4000,
        ..Settings::default()
    }
}

/// Returns the chains of a service with endpoints on this node and another.
fn chains(spec: apimachinery::Value, endpoints: &[(&str, &str)]) -> (Chains, String, String) {
    let mut rules = Rules::new(Node { name: "a".into(), zone: String::new() }, false);
    let mut service = value!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.50"}]}}});
    service.as_object_mut().unwrap().insert("spec", spec);
    rules.set_service(&Key::new("default", "kubernetes"), Some(&service));
    let list: Vec<apimachinery::Value> =
        endpoints.iter().map(|(ip, node)| value!({"addresses": [(*ip)], "nodeName": (*node)})).collect();
    let slice = value!({"metadata": {"namespace": "default", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "endpoints": list, "ports": [{"name": "https", "port": 6443}]});
    rules.set_slice(&Key::new("default", "s"), Some(&slice));
    let mut writer = Writer { settings: settings(), ..Writer::default() };
    let (chains, removed) = writer.take(Family::Ip, &rules.changes());
    assert!(removed.is_empty());
    let (nat, filter) = (writer.nat(Family::Ip, &chains, &removed, ""), writer.filter(Family::Ip));
    // A deleted service leaves no chains.
    rules.set_service(&Key::new("default", "kubernetes"), None);
    let (left, removed) = writer.take(Family::Ip, &rules.changes());
    assert_eq!((left.len(), removed.len()), (0, chains.len()));
    assert!(writer.ports[&Family::Ip].is_empty());
    (chains, nat, filter)
}

#[test]
fn chains_have_upstreams_names_and_rules() {
    let spec = value!({"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443}]});
    let (chains, nat, filter) = chains(spec, &[("10.244.1.2", "a"), ("10.244.2.2", "b")]);
    let service = &chains["KUBE-SVC-NPX46M4PTMTKRN6Y"];
    assert_eq!(
        service[0],
        "-m comment --comment \"default/kubernetes:https cluster IP\" -m tcp -p tcp -d 10.96.0.1/32 --dport 443 \
         ! -s 10.244.0.0/16 -j KUBE-MARK-MASQ"
    );
    assert!(service[1].contains("-m statistic --mode random --probability 0.5000000000 -j KUBE-SEP-"), "{service:?}");
    assert!(!service[2].contains("statistic"), "{service:?}");
    let ends = chains.iter().filter(|(name, _)| name.starts_with("KUBE-SEP-"));
    let mut to: Vec<&str> = ends.map(|(_, rules)| rules[1].rsplit(' ').next().unwrap()).collect();
    to.sort_unstable();
    assert_eq!(to, ["10.244.1.2:6443", "10.244.2.2:6443"]);
    assert!(nat.contains("-A KUBE-SERVICES -m comment --comment \"default/kubernetes:https cluster IP\" -m tcp -p tcp -d 10.96.0.1/32 --dport 443 -j KUBE-SVC-NPX46M4PTMTKRN6Y\n"), "{nat}");
    assert!(!filter.contains("default/kubernetes"), "{filter}");
}

#[test]
fn external_traffic_has_separate_chains() {
    let spec = value!({"clusterIP": "10.96.0.1", "externalTrafficPolicy": "Local", "sessionAffinity": "ClientIP",
        "healthCheckNodePort": 32000, "loadBalancerSourceRanges": ["198.51.100.0/24"],
        "ports": [{"name": "https", "port": 443, "nodePort": 30443}]});
    let (chains, nat, filter) = chains(spec, &[("10.244.2.2", "b")]);
    let external = &chains["KUBE-EXT-NPX46M4PTMTKRN6Y"];
    assert_eq!(external.len(), 3, "pods, this node twice, and nobody here: {external:?}");
    assert_eq!(chains["KUBE-FW-NPX46M4PTMTKRN6Y"], ["-s 198.51.100.0/24 -j KUBE-EXT-NPX46M4PTMTKRN6Y"]);
    assert!(chains["KUBE-SVC-NPX46M4PTMTKRN6Y"][1].contains("--rcheck --seconds 10800 --reap"));
    for expect in [
        "-d 192.0.2.50/32 --dport 443 -j KUBE-FW-",
        "--dport 30443 -j KUBE-EXT-",
        "-d 192.0.2.1/32 -j KUBE-NODEPORTS\n",
    ] {
        assert!(nat.contains(expect), "{expect} is not in {nat}");
    }
    for expect in [
        "--dst-type LOCAL -m tcp -p tcp --dport 30443 -j DROP",
        "-A KUBE-PROXY-FIREWALL",
        "-A KUBE-NODEPORTS -m comment --comment \"default/kubernetes:https health check node port\" -m tcp -p tcp --dport 32000 -j ACCEPT\n",
        "-A KUBE-FIREWALL -m comment --comment \"block incoming localnet connections\" -d 127.0.0.0/8 ! -s 127.0.0.0/8 \
         -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP\n",
    ] {
        assert!(filter.contains(expect), "{expect} is not in {filter}");
    }
}

#[test]
fn service_without_endpoints_is_rejected() {
    let spec = value!({"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443}]});
    let (chains, nat, filter) = chains(spec, &[]);
    assert!(chains.is_empty() && !nat.contains("10.96.0.1"));
    assert!(filter.contains("has no endpoints\" -m tcp -p tcp -d 10.96.0.1/32 --dport 443 -j REJECT"), "{filter}");
}

#[test]
fn cleanup_removes_only_kube_proxy_chains() {
    let saved = "*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-A - [0:0]\n:KUBE-KUBELET-CANARY - [0:0]\n\
                 :DOCKER - [0:0]\n-A PREROUTING -j KUBE-SERVICES\n-A PREROUTING -j DOCKER\n-A KUBE-SERVICES -j KUBE-SVC-A\nCOMMIT\n";
    assert_eq!(
        removal("nat", saved),
        "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-A - [0:0]\n-D PREROUTING -j KUBE-SERVICES\n-X KUBE-SERVICES\n-X KUBE-SVC-A\nCOMMIT\n"
    );
    assert_eq!(removal("nat", "*nat\n:DOCKER - [0:0]\nCOMMIT\n"), "");
    let firewall = "*filter\n:KUBE-FIREWALL - [0:0]\n-A INPUT -j KUBE-FIREWALL\nCOMMIT\n";
    assert_eq!(
        removal("filter", firewall),
        "*filter\n:KUBE-FIREWALL - [0:0]\n-D INPUT -j KUBE-FIREWALL\n-X KUBE-FIREWALL\nCOMMIT\n"
    );
    let kubelets = firewall.replace("-A INPUT", ":KUBE-KUBELET-CANARY - [0:0]\n-A INPUT");
    assert_eq!(removal("filter", &kubelets), "", "a kubelet of upstream's keeps its own");
}

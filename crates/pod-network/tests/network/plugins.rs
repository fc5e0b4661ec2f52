//! Tests of the CNI project's plugins, and of the built-in network as a CNI plugin.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use netlink::Protocol;
use pod_network::routed::Config;
use pod_network::{Attachment, Auto, Cni, Network, PortMapping, RoutedNetwork};
use serde_json::{Value, json};

use crate::topology::{Namespace, Topology};

/// Plugin directory of Debian.
const PLUGINS: &str = "/usr/lib/cni";

fn configured(directory: &Path, list: &Value) -> Cni {
    let conf = directory.join("conf");
    fs::create_dir_all(&conf).unwrap();
    fs::write(conf.join("10-test.conflist"), list.to_string()).unwrap();
    Cni::new(&conf, &[PathBuf::from(PLUGINS)], &directory.join("results"))
}

#[test]
fn reference_plugins_attach_pods() {
    test_requirements::file(&format!("{PLUGINS}/bridge"), "containernetworking-plugins");
    let topology = Topology::new();
    let directory = tempfile::tempdir().unwrap();
    let ipam = json!({"type": "host-local", "dataDir": directory.path().join("ipam"),
        "ranges": [[{"subnet": "10.7.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]});
    let cni = configured(
        directory.path(),
        &json!({"name": "test", "cniVersion": "1.0.0", "plugins": [
            {"type": "bridge", "bridge": "br0", "isGateway": true, "ipMasq": false, "ipam": ipam},
            {"type": "portmap", "capabilities": {"portMappings": true}},
            {"type": "tuning"}]}),
    );
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (one, two) = (Namespace::new(), Namespace::new());
    let ports = vec![PortMapping { protocol: Protocol::Tcp, host_port: 9000, container_port: 80, host_ip: None }];
    let sandbox = |id: &str| Attachment { id: id.to_owned(), ports: ports.clone(), ..Attachment::default() };
    // Plugins run in the namespace of the thread that starts them.
    topology.node.enter(|| {
        runtime().block_on(async {
            let ips = cni.attach(&one.path, &sandbox("one")).await.unwrap();
            assert_eq!(ips.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.7.0.2"]);
            let plain = Attachment { id: "two".to_owned(), ..Attachment::default() };
            cni.attach(&two.path, &plain).await.unwrap();
            cni.check(&two.path, &plain).await.unwrap();
        });
    });
    one.serve("0.0.0.0:80");
    assert_eq!(two.call("10.7.0.2:80").unwrap().to_string(), "10.7.0.3");
    assert_eq!(topology.outside.call("192.0.2.1:9000").unwrap().to_string(), "192.0.2.2");
    topology.node.enter(|| {
        runtime().block_on(async {
            cni.collect(&["two".to_owned()]).await.unwrap();
            assert!(cni.check(&one.path, &sandbox("one")).await.is_err());
            cni.detach(Some(&two.path), &Attachment { id: "two".to_owned(), ..Attachment::default() }).await.unwrap();
        });
    });
    let files = fs::read_dir(directory.path().join("ipam/test")).unwrap().flatten();
    let addresses: Vec<_> =
        files.map(|file| file.file_name()).filter(|name| name.to_string_lossy().starts_with("10.")).collect();
    assert!(addresses.is_empty(), "{addresses:?}");
}

#[test]
fn built_in_network_works_as_a_plugin() {
    let topology = Topology::new();
    let directory = tempfile::tempdir().unwrap();
    let pod = Namespace::new();
    let call = |verb: &str, more: Value| {
        let mut input = json!({"name": "test", "cniVersion": "1.1.0", "podCIDRs": ["10.8.0.0/24", "fd00:8::/64"],
            "dataDir": directory.path()});
        for (key, value) in more.as_object().unwrap() {
            input[key] = value.clone();
        }
        let environment: BTreeMap<String, String> = [
            ("CNI_COMMAND", verb),
            ("CNI_CONTAINERID", "abc"),
            ("CNI_IFNAME", "net1"),
            ("CNI_NETNS", pod.path.to_str().unwrap()),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        topology.node.enter(|| pod_network::plugin::handle_call(&environment, input.to_string().as_bytes()))
    };
    let runtime_config = json!({"runtimeConfig": {"portMappings": [{"hostPort": 9000, "containerPort": 80, "protocol": "tcp"}],
        "bandwidth": {"ingressRate": 8_000_000, "ingressBurst": 2_147_483_647, "egressRate": 16_000_000}}});
    let result = call("ADD", runtime_config).unwrap().unwrap();
    let qdiscs = topology.node.run("tc qdisc show");
    for rate in ["rate 8Mbit", "rate 16Mbit"] {
        assert!(qdiscs.contains(rate), "{qdiscs}");
    }
    assert_eq!(
        result["ips"],
        json!([{"address": "10.8.0.2/32", "gateway": "10.8.0.1", "interface": 0},
               {"address": "fd00:8::2/128", "gateway": "fd00:8::1", "interface": 0}])
    );
    pod.serve("0.0.0.0:80");
    assert_eq!(topology.outside.call("192.0.2.1:9000").unwrap().to_string(), "192.0.2.2");
    call("CHECK", json!({"prevResult": result})).unwrap();
    call("STATUS", json!({})).unwrap();
    call("GC", json!({"cni.dev/valid-attachments": [{"containerID": "abc", "ifname": "net1"}]})).unwrap();
    call("CHECK", json!({})).unwrap();
    call("DEL", json!({})).unwrap();
    call("DEL", json!({})).unwrap();
    assert_eq!(call("CHECK", json!({})).unwrap_err().code, 999);
    assert!(!pod.run("ip -o link").contains("net1"));
}

#[test]
fn configuration_selects_the_network_of_new_pods_and_old_pods_keep_theirs_until_detached() {
    test_requirements::file(&format!("{PLUGINS}/bridge"), "containernetworking-plugins");
    let topology = Topology::new();
    let directory = tempfile::tempdir().unwrap();
    let conf = directory.path().join("conf");
    fs::create_dir(&conf).unwrap();
    // A new process with the stored state.
    let network = || {
        let cni = Cni::new(&conf, &[PathBuf::from(PLUGINS)], &directory.path().join("results"));
        Auto::new(cni, RoutedNetwork::new(Config::new(&directory.path().join("state"))))
    };
    let run = |work: &(dyn Fn(&Auto, &tokio::runtime::Runtime) -> Option<String> + Sync)| {
        topology.node.enter(|| {
            let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            work(&network(), &executor)
        })
    };
    let pods = [Namespace::new(), Namespace::new(), Namespace::new()];
    let sandbox = |number: usize| Attachment { id: format!("pod-{number}"), ..Attachment::default() };
    let attach = |number: usize| {
        run(&|network, executor| {
            let ips = executor.block_on(network.attach(&pods[number].path, &sandbox(number))).unwrap();
            Some(ips[0].to_string())
        })
        .unwrap()
    };
    let detach = |number: usize| {
        run(&|network, executor| {
            executor.block_on(network.check(&pods[number].path, &sandbox(number))).unwrap();
            executor.block_on(network.detach(Some(&pods[number].path), &sandbox(number))).unwrap();
            None
        })
    };
    run(&|network, _| {
        network.start().unwrap();
        network.set_pod_cidr("10.244.1.0/24");
        None
    });
    assert_eq!(attach(0), "10.244.1.2", "nothing is configured: it is built in");
    let ipam = json!({"type": "host-local", "dataDir": directory.path().join("ipam"), "ranges": [[{"subnet": "10.7.0.0/24"}]]});
    let list =
        json!({"name": "test", "cniVersion": "1.0.0", "plugins": [{"type": "bridge", "bridge": "br0", "ipam": ipam}]});
    fs::write(conf.join("10-test.conflist"), list.to_string()).unwrap();
    assert_eq!(attach(1), "10.7.0.2");
    detach(0);
    assert!(!topology.node.run("ip -o link").contains(": kn"));
    fs::remove_file(conf.join("10-test.conflist")).unwrap();
    assert_eq!(attach(2), "10.244.1.3", "it is built in again");
    detach(1);
    detach(2);
    let files = fs::read_dir(directory.path().join("ipam/test")).unwrap().flatten();
    assert!(files.into_iter().all(|file| !file.file_name().to_string_lossy().starts_with("10.")));
    assert!(!topology.node.run("ip -o link").contains(": kn"));
}

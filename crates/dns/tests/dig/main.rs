//! Tests of the DNS server over real sockets with `dig` (Debian's dnsutils).

#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod resolvers;
mod strangers;
#[expect(dead_code, reason = "other test binaries use the rest")]
#[path = "../../../pod-network/tests/network/topology.rs"]
mod topology;

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;

use apimachinery::{Key, Value, value};
use dns::Zone;
use dns::clients::Clients;
use dns::forward::Forwarder;
use dns::serve::{Knowledge, Listeners};

fn zone() -> Zone {
    let mut zone = Zone::of("cluster.local").unwrap();
    zone.complete = true;
    zone.set_namespace("default", true);
    let kubernetes = value!({"spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443}]}});
    zone.set_service(&Key::new("default", "kubernetes"), Some(&kubernetes));
    zone.set_service(&Key::new("default", "many"), Some(&value!({"spec": {"clusterIP": "None"}})));
    let list: Vec<Value> = (0..200).map(|last| value!({"addresses": [(format!("10.1.0.{last}"))]})).collect();
    let slice = value!({"metadata": {"namespace": "default", "labels": {"kubernetes.io/service-name": "many"}},
        "endpoints": list});
    zone.set_slice(&Key::new("default", "many-1"), Some(&slice));
    zone
}

async fn start(zone: Zone, resolvers: Vec<SocketAddr>) -> SocketAddr {
    let listeners = Listeners::bind(&["127.0.0.1:0".parse().unwrap()]).await.unwrap();
    let address = listeners.addresses().unwrap()[0];
    tokio::spawn(listeners.serve(Arc::new(Knowledge::new(zone, Forwarder::new(resolvers), Clients::all()))));
    address
}

/// Returns the output of `dig`.
async fn dig(server: SocketAddr, question: &'static str) -> String {
    let run = move || {
        let mut command = Command::new(test_requirements::program("dig", "bind9-dnsutils"));
        command.args([&format!("@{}", server.ip()), "-p", &server.port().to_string(), "+tries=1", "+time=3"]);
        command.args(question.split_whitespace()).output()
    };
    let output = tokio::task::spawn_blocking(run).await.unwrap().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn dig_resolves_cluster_and_external_names() {
    let mut upstream = Zone::of("example.org").unwrap();
    upstream.complete = true;
    upstream.servers = vec!["192.0.2.7".parse().unwrap()];
    let upstream = start(upstream, Vec::new()).await;
    let server = start(zone(), vec![upstream]).await;
    let check = async |question: &'static str, expect: &[&str]| {
        let output = dig(server, question).await;
        for expect in expect {
            let output = output.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(output.contains(expect), "{question}: {expect:?} is not in\n{output}");
        }
    };
    check(
        "kubernetes.default.svc.cluster.local A",
        &[
            "status: NOERROR",
            "kubernetes.default.svc.cluster.local. 5 IN A 10.96.0.1",
            "flags: qr aa rd ra",
            "EDNS: version: 0",
        ],
    )
    .await;
    check("+tcp +short kubernetes.default.svc.cluster.local A", &["10.96.0.1"]).await;
    check(
        "_https._tcp.kubernetes.default.svc.cluster.local SRV",
        &["IN SRV 0 100 443 kubernetes.default.svc.cluster.local.", "ADDITIONAL: 2"],
    )
    .await;
    check("+short -x 10.96.0.1", &["kubernetes.default.svc.cluster.local."]).await;
    check(
        "nothere.default.svc.cluster.local A",
        &[
            "status: NXDOMAIN",
            "cluster.local. 5 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 1 7200 1800 86400 5",
        ],
    )
    .await;
    // Two hundred addresses do not fit into a packet: dig retries over TCP.
    check("many.default.svc.cluster.local A", &["ANSWER: 200", "10.1.0.199"]).await;
    check("+ignore +noedns many.default.svc.cluster.local A", &["flags: qr aa tc rd ra"]).await;
    check("+short ns.dns.example.org A", &["192.0.2.7"]).await;
    check("+noall +comments x.example.org A", &["status: NXDOMAIN"]).await;
}

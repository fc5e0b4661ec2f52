//! Scale test with many services.

use std::time::Instant;

use apimachinery::{Key, Value, value};
use kube_proxy::nftables::{ExistingTable, Writer};
use kube_proxy::{Node, Rules};

use crate::fixture::settings;
use crate::topology::Namespace;

#[test]
fn five_thousand_services_are_written_quickly_and_one_more_cheaply() {
    let node = Namespace::new();
    let mut rules = Rules::new(Node { name: "a".into(), zone: String::new() }, false);
    let add = |rules: &mut Rules, number: u32| {
        let address = std::net::Ipv4Addr::from(0x0a60_0000 + number);
        let name = format!("s{number}");
        let service = value!({"spec": {"clusterIP": (address.to_string()), "ports": [{"name": "p", "port": 80}]}});
        let list: Vec<Value> = (0..4)
            .map(|at| value!({"addresses": [(std::net::Ipv4Addr::from(0x0af4_0000 + number * 4 + at).to_string())]}))
            .collect();
        let slice = value!({"metadata": {"namespace": "x", "labels": {"kubernetes.io/service-name": (name.as_str())}},
            "endpoints": list, "ports": [{"name": "p", "port": 8080}]});
        rules.set_service(&Key::new("x", name.as_str()), Some(&service));
        rules.set_slice(&Key::new("x", name.as_str()), Some(&slice));
    };
    for number in 1..=5000 {
        add(&mut rules, number);
    }
    let start = Instant::now();
    rules.changes();
    let decided = start.elapsed();
    let mut writer = Writer::default();
    let batch = writer.everything(&ExistingTable::New, settings(), &rules.everything());
    let made = start.elapsed();
    node.enter(|| batch.commit()).unwrap();
    let loaded = start.elapsed();
    add(&mut rules, 5001);
    let start = Instant::now();
    let batch = writer.change(&rules.changes());
    node.enter(|| batch.commit()).unwrap();
    println!("decided {decided:?}, made {made:?}, loaded {loaded:?}, one more {:?}", start.elapsed());
    assert_eq!(node.run("nft list map ip kube-proxy endpoints").matches("10.244.").count().min(20_004), 20_004);
}

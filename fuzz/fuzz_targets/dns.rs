//! DNS: every packet is processed in bounded time, and a response is a message that fits and matches its query.
#![no_main]

use std::sync::LazyLock;

use dns::Zone;
use dns::message::{Next, Transport, respond};
use libfuzzer_sys::fuzz_target;
use apimachinery::{Key, value};

static ZONE: LazyLock<Zone> = LazyLock::new(|| {
    let mut zone = Zone::of("cluster.local").expect("it is a name");
    zone.complete = true;
    zone.set_namespace("default", true);
    let kubernetes = value!({"spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443}]}});
    zone.set_service(&Key::new("default", "kubernetes"), Some(&kubernetes));
    zone.set_service(&Key::new("default", "many"), Some(&value!({"spec": {"clusterIP": "None"}})));
    let slice = value!({"metadata": {"namespace": "default", "labels": {"kubernetes.io/service-name": "many"}},
        "endpoints": [{"addresses": ["10.1.0.1"], "hostname": "one"}, {"addresses": ["10.1.0.2"]}]});
    zone.set_slice(&Key::new("default", "many-1"), Some(&slice));
    zone
});

fuzz_target!(|bytes: &[u8]| {
    for transport in [Transport::Udp, Transport::Tcp] {
        if let Next::Reply(reply) = respond(&ZONE, bytes, transport, 0) {
            assert!(reply.len() >= 12 && reply.len() <= 65_535, "a reply has a header and an end");
            assert_eq!(reply[..2], bytes[..2], "a reply has the ID of its query");
            assert_ne!(reply[2] & 0x80, 0, "a reply has the QR flag");
        }
    }
});

//! Network policies.

use proxy::config::Mode;

use crate::fixture::{Fixture, ip};
use crate::world::is_root;

#[test]
fn policies_let_through_what_they_allow() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new(Mode::Nftables);
    let Fixture { world, pods, .. } = &fixture;
    let range = |text: &str| (ip(text), ip(text));
    let tcp = |first, last| Some(vec![proxy::policy::Ports { protocol: net::Protocol::Tcp, first, last }]);
    let limit = |ingress, egress| proxy::policy::Limits { ingress, egress };
    let enforce = |limits: &[(&str, proxy::policy::Limits)]| {
        let limits = limits.iter().map(|(text, limits)| (ip(text), limits.clone())).collect();
        world.node.enter(|| proxy::policy::table::rules(&limits).commit()).unwrap();
    };
    // 2 and 3 and 4 are the pods; 3 takes only 2, and only at its port.
    let only = vec![proxy::policy::Allow { peers: Some(vec![range("10.244.1.2")]), ports: tcp(8000, 8080) }];
    enforce(&[("10.244.1.3", limit(Some(only.clone()), None)), ("10.244.1.4", limit(None, Some(only.clone())))]);
    assert!(pods[0].call("10.244.1.3:8080").is_ok());
    assert!(pods[2].call("10.244.1.3:8080").is_err(), "not one of those who may");
    assert!(pods[2].call("10.244.1.2:8080").is_ok(), "where it may go");
    assert!(pods[2].call("192.0.2.2:9").unwrap_err().contains("timed out"), "where it may not go");
    assert!(world.node.call("10.244.1.3:8080").is_ok(), "a node may always talk to its pods");
    assert!(pods[1].call("10.244.1.4:8080").is_ok(), "nobody limits who comes");
    // Another port is none of those.
    let other = vec![proxy::policy::Allow { peers: None, ports: tcp(1, 79) }];
    enforce(&[("10.244.1.3", limit(Some(other), None))]);
    assert!(pods[0].call("10.244.1.3:8080").is_err());
    // Nothing is allowed, and of the other family all is.
    enforce(&[("10.244.1.3", limit(Some(Vec::new()), None))]);
    assert!(pods[0].call("10.244.1.3:8080").is_err());
    assert!(pods[0].call("[fd00:1::3]:8080").is_ok());
    world.node.enter(|| proxy::policy::table::no_rules().commit()).unwrap();
    assert!(pods[2].call("10.244.1.3:8080").is_ok());
}

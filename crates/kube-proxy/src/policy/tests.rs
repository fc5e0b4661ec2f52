//! Tests of NetworkPolicy decisions.

use apimachinery::{Value, json};

use super::*;

fn object(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

/// Creates three pods in two namespaces, the first on this node.
fn cluster(policies: &[&str]) -> Cluster {
    let mut cluster = Cluster::default();
    for (name, team) in [("x", "red"), ("y", "blue")] {
        let labels = object(&format!(r#"{{"team": "{team}"}}"#));
        cluster.namespaces.insert(Key::cluster(name), labels.as_object().unwrap().clone());
    }
    for (namespace, name, ip, app, node) in
        [("x", "web", "10.0.0.1", "web", "a"), ("x", "db", "10.0.0.2", "db", "b"), ("y", "web", "10.0.0.9", "web", "b")]
    {
        let pod = object(&format!(
            r#"{{"metadata": {{"labels": {{"app": "{app}"}}}}, "spec": {{"nodeName": "{node}", "containers": [
                {{"ports": [{{"name": "http", "containerPort": 8080}}]}}]}}, "status": {{"podIPs": [{{"ip": "{ip}"}}]}}}}"#
        ));
        cluster.pods.insert(Key::new(namespace, name), Pod::read(&pod).unwrap());
    }
    for (number, text) in policies.iter().enumerate() {
        let policy = Policy::read(&object(&format!(r#"{{"spec": {text}}}"#))).unwrap();
        cluster.policies.insert(Key::new("x", format!("p{number}")), policy);
    }
    cluster
}

fn format_allows(decision: &Decision, allows: Option<&[Allow]>) -> String {
    let Some(allows) = allows else { return "all".to_owned() };
    let one = |allow: &Allow| {
        let peers = allow.peers.as_ref().map_or("everyone".to_owned(), |list| {
            let ranges = decision.peers[list]
                .iter()
                .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") });
            ranges.collect::<Vec<_>>().join(",")
        });
        let ports = allow.ports.as_ref().map_or(String::new(), |ports| {
            let ports = ports.iter().map(|it| format!("{}:{}-{}", it.protocol.as_str(), it.first, it.last));
            format!(" at {}", ports.collect::<Vec<_>>().join(","))
        });
        format!("{peers}{ports}")
    };
    allows.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// Checks the limits of the pod on this node.
fn check(policies: &[&str], expect: &str) {
    let decision = decide(&cluster(policies), "a");
    let mine = decision.pods.get(&"10.0.0.1".parse().unwrap()).cloned().unwrap_or_default();
    let side = |allows: Option<&[Allow]>| format_allows(&decision, allows);
    let actual = format!("in {} | out {}", side(mine.ingress.as_deref()), side(mine.egress.as_deref()));
    assert_eq!(actual, expect, "{policies:?}");
}

#[test]
fn pods_are_restricted_to_the_union_of_policies() {
    check(&[], "in all | out all");
    check(&[r#"{"podSelector": {"matchLabels": {"app": "db"}}}"#], "in all | out all");
    check(&[r#"{"podSelector": {}}"#], "in  | out all");
    check(&[r#"{"podSelector": {}, "policyTypes": ["Egress"]}"#], "in all | out ");
    check(&[r#"{"podSelector": {}, "ingress": [{}]}"#], "in everyone | out all");
    check(
        &[r#"{"podSelector": {}, "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "db"}}}]}]}"#],
        "in 10.0.0.2 | out all",
    );
    check(
        &[r#"{"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "blue"}}}]}]}"#],
        "in 10.0.0.9 | out all",
    );
    check(
        &[
            r#"{"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "web"}}}]}]}"#,
        ],
        "in 10.0.0.1,10.0.0.9 | out all",
    );
    check(
        &[
            r#"{"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}]}]}"#,
            r#"{"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]}"#,
        ],
        "in everyone at TCP:80-80; 10.0.0.1-10.0.0.2 | out all",
    );
}

#[test]
fn policy_ports_are_numbers_ranges_or_names() {
    check(
        &[
            r#"{"podSelector": {}, "ingress": [{"ports": [{"port": 80, "endPort": 90}, {"protocol": "UDP"}, {"port": "http"}, {"port": "no"}]}]}"#,
        ],
        "in everyone at TCP:80-90,UDP:0-65535,TCP:8080-8080 | out all",
    );
    check(
        &[
            r#"{"podSelector": {}, "egress": [{"ports": [{"port": "http"}], "to": [{"podSelector": {"matchLabels": {"app": "db"}}}]}]}"#,
        ],
        "in  | out 10.0.0.2 at TCP:8080-8080",
    );
}

#[test]
fn ip_block_exceptions_are_excluded() {
    let check = |block: &str, except: &str, expect: &str| {
        let policy = format!(
            r#"{{"podSelector": {{}}, "policyTypes": ["Egress"], "egress": [{{"to": [{{"ipBlock": {{"cidr": "{block}", "except": [{except}]}}}}]}}]}}"#
        );
        let decision = decide(&cluster(&[&policy]), "a");
        let mine = decision.pods[&"10.0.0.1".parse::<IpAddr>().unwrap()].clone();
        assert_eq!(format_allows(&decision, mine.egress.as_deref()), expect, "{block} without {except}");
    };
    check("10.1.0.0/24", "", "10.1.0.0-10.1.0.255");
    check("10.1.0.0/24", r#""10.1.0.0/25""#, "10.1.0.128-10.1.0.255");
    check(
        "10.1.0.0/24",
        r#""10.1.0.64/26", "10.1.0.16/28""#,
        "10.1.0.0-10.1.0.15,10.1.0.32-10.1.0.63,10.1.0.128-10.1.0.255",
    );
    check("10.1.0.0/24", r#""10.1.0.0/24""#, "");
    check("0.0.0.0/0", r#""255.255.255.255/32""#, "0.0.0.0-255.255.255.254");
    check(
        "::/0",
        r#""fd00::/8""#,
        "::-fcff:ffff:ffff:ffff:ffff:ffff:ffff:ffff,fe00::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    );
}

#[test]
fn adjacent_ranges_are_merged() {
    let range = |first: &str, last: &str| (first.parse().unwrap(), last.parse().unwrap());
    let given = vec![
        range("10.0.0.5", "10.0.0.9"),
        range("10.0.0.1", "10.0.0.4"),
        range("10.0.0.6", "10.0.0.7"),
        range("fd00::1", "fd00::1"),
        range("10.0.0.11", "10.0.0.11"),
        range("255.255.255.255", "255.255.255.255"),
    ];
    let expect = [
        range("10.0.0.1", "10.0.0.9"),
        range("10.0.0.11", "10.0.0.11"),
        range("255.255.255.255", "255.255.255.255"),
        range("fd00::1", "fd00::1"),
    ];
    assert_eq!(merged(given), expect);
}

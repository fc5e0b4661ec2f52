use apimachinery::{Value, value};

use super::*;
use crate::framework::{Cycle, Plugin, PreFilterResult};
use crate::node::Node;
use crate::pod::Pod;
use crate::snapshot::Snapshot;

fn node(name: &str, spec: Value, status: Value, zone: &str) -> Node {
    let labels = value!({"kubernetes.io/hostname": name, "zone": zone});
    Node::new(&value!({"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status})).unwrap()
}

fn plain(name: &str, zone: &str) -> Node {
    node(name, value!({}), value!({"allocatable": {"cpu": "4", "memory": "4Gi", "a.io/gpu": "2", "pods": "3"}}), zone)
}

fn pod(name: &str, spec: Value) -> Pod {
    let meta = value!({"name": name, "namespace": "ns", "labels": {"app": name}});
    Pod::new(&value!({"metadata": meta, "spec": spec})).unwrap()
}

fn wants(name: &str, requests: Value) -> Pod {
    pod(name, value!({"containers": [{"name": "c", "resources": {"requests": requests}}]}))
}

fn snapshot(nodes: &[Node], pods: &[(Pod, &str)]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    nodes.iter().for_each(|node| snapshot.set_node(node));
    pods.iter().for_each(|(pod, node)| snapshot.assume(pod, node));
    snapshot
}

/// Returns the result per node: `ok` or the reasons, with `!` if preemption cannot resolve them.
fn verdicts(plugin: &dyn Plugin, mut snapshot: Snapshot, pod: &Pod) -> Vec<String> {
    snapshot.prepare(pod, plugin.topology_keys().into_iter());
    let filter = match plugin.prepare(Cycle { snapshot: &snapshot, pod }) {
        PreFilterResult::Skip => return vec!["skipped".to_owned()],
        PreFilterResult::Reject(reason) => return vec![reason],
        PreFilterResult::Run(filter, _) => filter,
    };
    let describe = |node| match filter.check(node, snapshot.usage(node)) {
        None => "ok".to_owned(),
        Some(it) => format!("{}{}", if it.resolvable { "" } else { "!" }, filter.reasons(it).join(", ")),
    };
    snapshot.nodes().iter().map(|node| describe(*node)).collect()
}

/// Returns the normalized scores of the nodes.
fn scores(plugin: &dyn Plugin, mut snapshot: Snapshot, pod: &Pod) -> Vec<i64> {
    snapshot.prepare(pod, plugin.topology_keys().into_iter());
    let nodes = snapshot.nodes();
    let Some(scorer) = plugin.scorer(Cycle { snapshot: &snapshot, pod }, nodes) else { return Vec::new() };
    let mut scores: Vec<_> = nodes.iter().map(|node| scorer.score(*node)).collect();
    scorer.normalize(nodes, &mut scores);
    scores
}

#[test]
fn node_name() {
    let two = || snapshot(&[plain("n1", "a"), plain("n2", "a")], &[]);
    let reason = "!node(s) didn't match the requested node name";
    assert_eq!(verdicts(&NodeName, two(), &pod("p", value!({"nodeName": "n2"}))), [reason, "ok"]);
    assert_eq!(verdicts(&NodeName, two(), &pod("p", value!({}))), ["skipped"]);
}

#[test]
fn node_unschedulable() {
    let closed = || snapshot(&[node("n1", value!({"unschedulable": true}), value!({}), "a"), plain("n2", "a")], &[]);
    assert_eq!(verdicts(&NodeUnschedulable, closed(), &pod("p", value!({}))), ["!node(s) were unschedulable", "ok"]);
    let bears = value!([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]);
    assert_eq!(verdicts(&NodeUnschedulable, closed(), &pod("p", value!({"tolerations": bears}))), ["skipped"]);
}

#[test]
fn node_ports() {
    let port = |name: &str, ip: &str| pod(name, value!({"containers": [{"ports": [{"hostPort": 80, "hostIP": ip}]}]}));
    let nodes = || snapshot(&[plain("n1", "a"), plain("n2", "a")], &[(port("held", "10.0.0.1"), "n1")]);
    let reason = "node(s) didn't have free ports for the requested pod ports";
    assert_eq!(verdicts(&NodePorts, nodes(), &port("p", "")), [reason, "ok"]);
    assert_eq!(verdicts(&NodePorts, nodes(), &port("p", "10.0.0.2")), ["ok", "ok"]);
}

#[test]
fn node_affinity() {
    let nodes = || snapshot(&[plain("n1", "a"), plain("n2", "b")], &[]);
    let required = |expression: Value| {
        let terms = value!([{"matchExpressions": [expression]}]);
        let rule = value!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        pod("p", value!({"affinity": {"nodeAffinity": rule}}))
    };
    let reason = "!node(s) didn't match Pod's node affinity/selector";
    let plugin = AffinityToNodes::default();
    let check = |pod: &Pod, expect: [&str; 2]| assert_eq!(verdicts(&plugin, nodes(), pod), expect);
    check(&pod("p", value!({"nodeSelector": {"zone": "b"}})), [reason, "ok"]);
    check(&required(value!({"key": "zone", "operator": "In", "values": ["a", "z"]})), ["ok", reason]);
    check(&required(value!({"key": "zone", "operator": "NotIn", "values": ["a"]})), [reason, "ok"]);
    check(&required(value!({"key": "other", "operator": "Exists"})), [reason, reason]);
    check(&required(value!({"key": "other", "operator": "DoesNotExist"})), ["ok", "ok"]);
    let added =
        AffinityToNodes { added: required(value!({"key": "zone", "operator": "In", "values": ["a"]})).node_affinity };
    assert_eq!(
        verdicts(&added, nodes(), &pod("p", value!({}))),
        ["ok", "!node(s) didn't match scheduler-enforced node affinity"]
    );
    let preference = value!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]});
    let preferred =
        value!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "preference": preference}]});
    assert_eq!(scores(&plugin, nodes(), &pod("p", value!({"affinity": {"nodeAffinity": preferred}}))), [0, 100]);
}

#[test]
fn taint_toleration() {
    let taint = |effect: &str| value!({"taints": [{"key": "k", "effect": effect}]});
    let nodes = || {
        let hard = node("n1", taint("NoExecute"), value!({}), "a");
        let soft = node("n2", taint("PreferNoSchedule"), value!({}), "a");
        snapshot(&[hard, soft, plain("n3", "a")], &[])
    };
    let pod = pod("p", value!({}));
    assert_eq!(verdicts(&TaintToleration, nodes(), &pod), ["!node(s) had untolerated taint(s)", "ok", "ok"]);
    assert_eq!(scores(&TaintToleration, nodes(), &pod), [100, 0, 100]);
}

#[test]
fn resources_fit() {
    let full = || {
        snapshot(&[plain("n1", "a"), plain("n2", "a")], &[(wants("held", value!({"cpu": "3", "a.io/gpu": 2})), "n1")])
    };
    let check = |requests: Value, expect: [&str; 2]| {
        assert_eq!(verdicts(&Fit::default(), full(), &wants("p", requests)), expect);
    };
    check(value!({"cpu": "1"}), ["ok", "ok"]);
    check(value!({"cpu": "2", "a.io/gpu": 1}), ["Insufficient cpu, Insufficient a.io/gpu", "ok"]);
    check(value!({"memory": "5Gi"}), ["!Insufficient memory", "!Insufficient memory"]);
    check(value!({"b.io/x": 1}), ["!Insufficient b.io/x", "!Insufficient b.io/x"]);
    let crowd: Vec<_> = ["a", "b", "c"].map(|name| (wants(name, value!({})), "n1")).into();
    assert_eq!(
        verdicts(&Fit::default(), snapshot(&[plain("n1", "a")], &crowd), &wants("p", value!({}))),
        ["Too many pods"]
    );
}

#[test]
fn strategies_of_resources_fit() {
    let half = || {
        snapshot(&[plain("n1", "a"), plain("n2", "a")], &[(wants("held", value!({"cpu": "2", "memory": "2Gi"})), "n1")])
    };
    let pod = wants("p", value!({"cpu": "1", "memory": "1Gi"}));
    let check = |strategy: Strategy, expect: [i64; 2]| {
        assert_eq!(scores(&Fit { strategy, ..Fit::default() }, half(), &pod), expect);
    };
    check(Strategy::LeastAllocated, [25, 75]);
    check(Strategy::MostAllocated, [75, 25]);
    check(Strategy::RequestedToCapacityRatio(vec![(0, 0), (100, 10)]), [75, 25]);
    check(Strategy::RequestedToCapacityRatio(vec![(0, 10), (50, 10), (100, 0)]), [50, 100]);
}

#[test]
fn balanced_allocation() {
    let nodes = || snapshot(&[plain("n1", "a"), plain("n2", "a")], &[(wants("held", value!({"cpu": "2"})), "n1")]);
    let check = |requests: Value, expect: &[i64]| {
        assert_eq!(scores(&BalancedAllocation::default(), nodes(), &wants("p", requests)), expect);
    };
    // The score depends on the change: n1 uses half of its CPU and none of its memory.
    check(value!({"memory": "2Gi"}), &[87, 62]);
    check(value!({"cpu": "1", "memory": "1Gi"}), &[75, 75]);
    check(value!({"cpu": "2"}), &[62, 62]);
    check(value!({"memory": "4Gi"}), &[75, 50]);
    check(value!({}), &[]);
}

#[test]
fn image_locality() {
    let image = value!({"images": [{"names": ["app:1"], "sizeBytes": 1_048_576_000}]});
    let nodes = || snapshot(&[node("n1", value!({}), image.clone(), "a"), plain("n2", "a")], &[]);
    let uses = |image: &str| pod("p", value!({"containers": [{"image": image}]}));
    assert_eq!(scores(&ImageLocality, nodes(), &uses("app:1")), [100 * (500 - 23) / (1000 - 23), 0]);
    assert_eq!(scores(&ImageLocality, nodes(), &uses("other")), [0_i64; 0]);
}

fn rule(field: &str, app: &str) -> Value {
    let terms = value!([{"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": app}}}]);
    let rules = value!({"requiredDuringSchedulingIgnoredDuringExecution": terms});
    value!({"affinity": (apimachinery::Object::from_iter([(field, rules)]))})
}

#[test]
fn inter_pod_affinity() {
    let plugin = InterPodAffinity::default();
    let three = |pods: &[(Pod, &str)]| snapshot(&[plain("n1", "a"), plain("n2", "b"), plain("n3", "a")], pods);
    let check = |pod: &Pod, placed: Pod, expect: [&str; 3]| {
        // Nodes alternate between zones: n1, n2, n3.
        assert_eq!(verdicts(&plugin, three(&[(placed, "n1")]), pod), expect);
    };
    let db = || pod("db", value!({}));
    let alone = "!node(s) didn't match pod affinity rules";
    check(&pod("p", rule("podAffinity", "db")), db(), ["ok", alone, "ok"]);
    check(&pod("p", rule("podAffinity", "none")), db(), [alone, alone, alone]);
    check(&pod("p", rule("podAffinity", "p")), db(), ["ok", "ok", "ok"]);
    let apart = "node(s) didn't match pod anti-affinity rules";
    check(&pod("p", rule("podAntiAffinity", "db")), db(), [apart, "ok", apart]);
    let violation = "node(s) didn't satisfy existing pods anti-affinity rules";
    check(&pod("p", value!({})), pod("db", rule("podAntiAffinity", "p")), [violation, "ok", violation]);
    let fond = pod("db", rule("podAffinity", "p"));
    assert_eq!(scores(&plugin, three(&[(fond, "n1")]), &pod("p", value!({}))), [100, 0, 100]);
}

#[test]
fn preferred_pod_affinity_scores_are_normalized_between_minimum_and_maximum() {
    let preferred = |field: &str| {
        let term = value!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}});
        let terms = value!([{"weight": 5, "podAffinityTerm": term}]);
        let rules = value!({"preferredDuringSchedulingIgnoredDuringExecution": terms});
        pod("p", value!({"affinity": (apimachinery::Object::from_iter([(field, rules)]))}))
    };
    let check = |field: &str, placed: &[&str], expect: [i64; 3]| {
        let db = |at: usize| Pod { name: format!("db{at}").into(), ..pod("db", value!({})) };
        let placed: Vec<_> = placed.iter().enumerate().map(|(at, node)| (db(at), *node)).collect();
        let nodes = [plain("n1", "a"), plain("n2", "a"), plain("n3", "a")];
        let plugin = InterPodAffinity::default();
        assert_eq!(scores(&plugin, snapshot(&nodes, &placed), &preferred(field)), expect, "{field} {placed:?}");
    };
    let (near, apart) = ("podAffinity", "podAntiAffinity");
    check(near, &["n1", "n2", "n2", "n3", "n3", "n3"], [0, 50, 100]);
    check(near, &["n1", "n2", "n2"], [50, 100, 0]);
    check(near, &["n1", "n2", "n3"], [0, 0, 0]);
    check(apart, &["n1", "n2", "n2", "n3", "n3", "n3"], [100, 50, 0]);
}

#[test]
fn node_declared_features() {
    let able = |name: &str, features: Value| node(name, value!({}), value!({"declaredFeatures": features}), "a");
    let nodes = || {
        let both = able("n2", value!(["RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"]));
        snapshot(&[able("n1", value!(["ExtendWebSocketsToKubelet"])), both], &[])
    };
    let check = |spec: Value, expect: &[&str]| {
        assert_eq!(verdicts(&NodeDeclaredFeatures, nodes(), &pod("p", spec)), expect);
    };
    let rules = |action: &str| value!([{"name": "c", "restartPolicyRules": [{"action": action}]}]);
    let needs = &["!node(s) didn't match Pod's required features", "ok"];
    check(value!({"containers": (rules("RestartAllContainers"))}), needs);
    check(value!({"initContainers": (rules("RestartAllContainers"))}), needs);
    check(value!({"hostNetwork": true, "hostUsers": false}), needs);
    check(value!({"containers": (rules("Restart")), "hostNetwork": true}), &["skipped"]);
    check(value!({"hostUsers": false}), &["skipped"]);
    let wanting = pod("p", value!({"hostNetwork": true, "hostUsers": false}));
    let declared = able("n1", value!(["UserNamespacesHostNetworkSupport"]));
    let (before, after) = (able("n1", value!([])).into(), declared.into());
    assert!(NodeDeclaredFeatures.wakes(&wanting, &crate::framework::Event::NodeUpdated(before, after)));
}

#[test]
fn topology_spread() {
    let rule = |when: &str, domains: i64| {
        pod(
            "p",
            value!({"topologySpreadConstraints": [{
                "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": when, "minDomains": domains,
                "labelSelector": {"matchLabels": {"app": "p"}}
            }]}),
        )
    };
    let nodes = || {
        let bare = Node { labels: Box::default(), ..plain("n3", "") };
        let other = |name: &str| Pod { name: name.into(), ..pod("p", value!({})) };
        snapshot(&[plain("n1", "a"), plain("n2", "b"), bare], &[(other("x"), "n1")])
    };
    let plugin = TopologySpread::new(DefaultConstraints::System);
    let reason = "node(s) didn't match pod topology spread constraints";
    let missing = format!("!{reason} (missing required label)");
    assert_eq!(verdicts(&plugin, nodes(), &rule("DoNotSchedule", 1)), [reason, "ok", missing.as_str()]);
    assert_eq!(verdicts(&plugin, nodes(), &rule("ScheduleAnyway", 1)), ["skipped"]);
    assert_eq!(scores(&plugin, nodes(), &rule("ScheduleAnyway", 1)), [0, 100, 0]);
}

#[test]
fn pods_of_a_service_spread_by_default() {
    let selector = apimachinery::labels::Selector::parse("app=p").unwrap();
    let served =
        |name: &str| Pod { name: name.into(), default_selector: Some(selector.clone()), ..pod("p", value!({})) };
    let nodes = snapshot(&[plain("n1", "a"), plain("n2", "a")], &[(served("x"), "n1")]);
    let plugin = TopologySpread::new(DefaultConstraints::System);
    let ranked = scores(&plugin, nodes, &served("y"));
    assert!(ranked[0] < ranked[1], "{ranked:?}");
}

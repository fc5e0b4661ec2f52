use std::sync::Arc;

use apimachinery::{Value, value};

use super::*;
use crate::node::Node;

/// Creates a cluster of three nodes with four CPUs each, one of them tainted.
fn cluster() -> Snapshot {
    let mut snapshot = Snapshot::default();
    for (name, taints) in
        [("n1", value!([])), ("n2", value!([])), ("n3", value!([{"key": "k", "effect": "NoSchedule"}]))]
    {
        let object = value!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {"taints": taints},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}
        });
        snapshot.set_node(&Node::new(&object).unwrap());
    }
    snapshot
}

fn pod(name: &str, cpu: &str, mut spec: Value) -> Pod {
    let container = value!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
    spec.as_object_mut().unwrap().insert("containers", value!([container]));
    let meta = value!({"name": name, "namespace": "ns", "labels": {"app": "web"}});
    Pod::new(&value!({"metadata": meta, "spec": spec})).unwrap()
}

fn decide(snapshot: &mut Snapshot, pod: &Pod) -> Decision {
    schedule(snapshot, pod, &Profile::default(), Context::default()).decision
}

fn message(decision: &Decision) -> &str {
    match decision {
        Decision::Unschedulable { message, .. } | Decision::Preempt { message, .. } | Decision::Failed { message } => {
            message
        }
        Decision::Bind { .. } | Decision::CallExtenders(_) => "",
    }
}

#[test]
fn pod_goes_to_the_least_allocated_node() {
    let mut snapshot = cluster();
    snapshot.assume(&pod("a", "1", value!({})), "n1");
    assert_eq!(decide(&mut snapshot, &pod("b", "1", value!({}))), Decision::Bind { node: "n2".into() });
}

#[test]
fn ties_are_broken_by_the_given_number() {
    let mut snapshot = cluster();
    let pod = pod("a", "1", value!({}));
    let nodes = (0..3).map(|tie| {
        let random_source = RandomSource { tie, ..RandomSource::default() };
        let outcome =
            schedule(&mut snapshot, &pod, &Profile::default(), Context { random_source, ..Context::default() });
        match outcome.decision {
            Decision::Bind { node } => node.to_string(),
            other => format!("{other:?}"),
        }
    });
    assert_eq!(nodes.collect::<Vec<_>>(), ["n1", "n2", "n1"]);
}

#[test]
fn unschedulable_pod_reports_reasons() {
    let mut snapshot = cluster();
    let decision = decide(&mut snapshot, &pod("a", "5", value!({})));
    assert_eq!(
        message(&decision),
        "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. no new claims to \
         deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    );
    let Decision::Unschedulable { plugins, .. } = decision else { panic!("{decision:?}") };
    assert_eq!(plugins, ["NodeResourcesFit", "TaintToleration"]);
    snapshot.assume(&pod("b", "4", value!({})), "n1");
    snapshot.assume(&pod("c", "4", value!({})), "n2");
    assert_eq!(
        message(&decide(&mut snapshot, &pod("a", "1", value!({})))),
        "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. no new claims to \
         deallocate, preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling, 2 No preemption \
         victims found for incoming pod."
    );
}

#[test]
fn nodes_excluded_by_prefilter_are_counted_together() {
    let term = value!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n3"]}]});
    let affinity = value!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}});
    let pod = pod("a", "1", value!({"affinity": {"nodeAffinity": affinity}}));
    assert_eq!(
        message(&decide(&mut cluster(), &pod)).split(". no").next(),
        Some(
            "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 node(s) didn't satisfy plugin(s) [NodeAffinity]"
        )
    );
}

#[test]
fn missing_claim_is_reported_before_filtering_nodes() {
    let pod = pod("a", "1", value!({"volumes": [{"persistentVolumeClaim": {"claimName": "x"}}]}));
    let decision = decide(&mut cluster(), &pod);
    assert_eq!(message(&decision), "0/3 nodes are available: persistentvolumeclaim \"x\" not found. not found");
    assert_eq!(message(&decide(&mut Snapshot::default(), &pod)), "no nodes available to schedule pods");
}

#[test]
fn preemption_evicts_the_least_important_pods() {
    let mut snapshot = cluster();
    let at = |name: &str, cpu: &str, priority: i64| pod(name, cpu, value!({"priority": priority}));
    snapshot.assume(&at("a", "3", 5), "n1");
    snapshot.assume(&at("b", "1", 1), "n1");
    snapshot.assume(&at("c", "2", 2), "n2");
    snapshot.assume(&at("d", "2", 1), "n2");
    let evicted = |snapshot: &mut Snapshot, cpu: &str, priority| match decide(snapshot, &at("new", cpu, priority)) {
        Decision::Preempt { node, victims, .. } => {
            let names: Vec<_> = victims.iter().map(|victim| victim.name.to_string()).collect();
            format!("{node}: {}", names.join(" "))
        }
        other => message(&other).to_owned(),
    };
    assert_eq!(evicted(&mut snapshot, "2", 10), "n2: d", "the least priority of the highest victim");
    assert_eq!(evicted(&mut snapshot, "4", 10), "n2: c d");
    assert_eq!(evicted(&mut snapshot, "1", 10), "n1: b", "of equals the first");
    assert!(evicted(&mut snapshot, "2", 1).contains("2 No preemption victims found for incoming pod"));
    assert!(evicted(&mut snapshot, "4", 2).contains("2 Insufficient cpu"), "going would not make enough room");
}

#[test]
fn disruption_budget_is_violated_only_as_last_resort() {
    let mut snapshot = cluster();
    let guarded = |name: &str| pod(name, "4", value!({"priority": 1}));
    let mut free = guarded("free");
    free.class = Arc::new(crate::pod::Class { labels: Box::default(), ..(*free.class).clone() });
    snapshot.assume(&guarded("guarded"), "n1");
    snapshot.assume(&free, "n2");
    let budget = Budget::new(&value!({
        "metadata": {"namespace": "ns"}, "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 0}
    }));
    let mut check = |pod: &Pod, budgets: &[Budget], expect: &str| {
        let context = Context { budgets, ..Context::default() };
        let decision = schedule(&mut snapshot, pod, &Profile::default(), context).decision;
        assert!(matches!(&decision, Decision::Preempt { node, .. } if node == expect), "{decision:?}");
    };
    let new = pod("new", "4", value!({"priority": 9}));
    check(&new, &[], "n1");
    check(&new, std::slice::from_ref(&budget), "n2");
    let only = pod("new", "4", value!({"priority": 9, "nodeSelector": {"kubernetes.io/hostname": "n1"}}));
    check(&only, &[budget], "n1");
}

#[test]
fn nominated_node_is_reserved_against_lower_priority() {
    let mut snapshot = cluster();
    let mut nominated = NominatedPods::default();
    let mut waiting = pod("waiting", "3", value!({"priority": 5}));
    waiting.nominated_node = "n1".into();
    nominated.set(&Arc::new(waiting.clone()), "n1");
    let context = Context { nominated: Some(&nominated), ..Context::default() };
    let mut check = |pod: &Pod, expect: &str| {
        let decision = schedule(&mut snapshot, pod, &Profile::default(), context).decision;
        assert_eq!(decision, Decision::Bind { node: expect.into() });
    };
    check(&pod("small", "2", value!({})), "n2");
    check(&pod("important", "2", value!({"priority": 6})), "n1");
    check(&waiting, "n1");
}

#[test]
fn pod_with_preemption_policy_never_reports_it() {
    let mut snapshot = cluster();
    snapshot.assume(&pod("a", "4", value!({})), "n1");
    snapshot.assume(&pod("b", "4", value!({})), "n2");
    let never = pod("new", "4", value!({"priority": 9, "preemptionPolicy": "Never"}));
    assert!(
        message(&decide(&mut snapshot, &never)).ends_with("preemption: not eligible due to preemptionPolicy=Never.")
    );
}

#[test]
fn pod_waits_for_terminating_victims_before_preempting_again() {
    let mut snapshot = cluster();
    let mut victim = pod("a", "4", value!({"nodeName": "n1"}));
    victim.preempted = true;
    snapshot.set_pod(&victim);
    snapshot.assume(&pod("b", "4", value!({})), "n2");
    let mut new = pod("new", "4", value!({"priority": 9}));
    new.nominated_node = "n1".into();
    let decision = decide(&mut snapshot, &new);
    assert!(message(&decision).ends_with("preemption: not eligible due to a terminating pod on the nominated node."));
    assert!(matches!(decision, Decision::Unschedulable { clears_nomination: false, .. }));
}

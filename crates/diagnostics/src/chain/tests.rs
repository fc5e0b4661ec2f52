use apimachinery::value;

use super::*;

fn deployment() -> Value {
    value!({"kind": "Deployment", "metadata": {"name": "web", "namespace": "default", "uid": "d",
            "creationTimestamp": "2026-11-16T12:00:01Z",
            "managedFields": [
                {"manager": "kubectl-create", "operation": "Update", "time": "2026-11-16T12:00:01Z"},
                {"manager": "kube-controller-manager", "operation": "Update", "time": "2026-11-16T12:00:02Z", "subresource": "status"}]},
        "status": {"conditions": [
            {"type": "Available", "status": "True", "lastTransitionTime": "2026-11-16T12:00:02Z"},
            {"type": "Progressing", "status": "True", "lastTransitionTime": "2026-11-16T12:00:01Z"}]}})
}

fn owned(kind: &str, name: &str, uid: &str, owner: (&str, &str, &str), more: &Value) -> Value {
    let mut object = value!({"kind": kind, "metadata": {"name": name, "namespace": "default", "uid": uid,
        "creationTimestamp": "2026-11-16T12:00:01Z",
        "ownerReferences": [{"kind": (owner.0), "name": (owner.1), "uid": (owner.2), "controller": true}],
        "managedFields": [{"manager": "kube-controller-manager", "operation": "Update", "time": "2026-11-16T12:00:01Z"}]}});
    for (key, value) in more.as_object().expect("more fields").iter() {
        object.as_object_mut().expect("an object").insert(key, value.clone());
    }
    object
}

fn pod() -> Value {
    owned(
        "Pod",
        "web-1-x",
        "p",
        ("ReplicaSet", "web-1", "r"),
        &value!({"spec": {"nodeName": "only"}, "status": {
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-16T12:00:01Z"},
                {"type": "Initialized", "status": "True", "lastTransitionTime": "2026-11-16T12:00:01Z"},
                {"type": "PodReadyToStartContainers", "status": "True", "lastTransitionTime": "2026-11-16T12:00:01Z"},
                {"type": "ContainersReady", "status": "True", "lastTransitionTime": "2026-11-16T12:00:02Z"},
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-16T12:00:02Z"}],
            "containerStatuses": [{"name": "c", "restartCount": 0, "state": {"running": {"startedAt": "2026-11-16T12:00:02Z"}}}]}}),
    )
}

fn slice() -> Value {
    value!({"kind": "EndpointSlice", "metadata": {"name": "web-s", "namespace": "default", "uid": "s",
            "creationTimestamp": "2026-11-16T12:00:01Z", "labels": {"kubernetes.io/service-name": "web"},
            "ownerReferences": [{"kind": "Service", "name": "web", "uid": "v", "controller": true}],
            "managedFields": [{"manager": "kube-controller-manager", "operation": "Update", "time": "2026-11-16T12:00:02Z"}]},
        "endpoints": [{"addresses": ["10.244.0.5"], "conditions": {"ready": true}, "targetRef": {"kind": "Pod", "uid": "p"}}]})
}

fn service() -> Value {
    value!({"kind": "Service", "metadata": {"name": "web", "namespace": "default", "uid": "v", "creationTimestamp": "2026-11-16T12:00:00Z"},
        "spec": {"clusterIPs": ["10.96.3.4"]}})
}

fn events() -> Vec<Value> {
    vec![
        value!({"regarding": {"uid": "p"}, "reason": "Scheduled", "note": "Successfully assigned default/web-1-x to only",
            "eventTime": "2026-11-16T12:00:01.250000Z", "reportingController": "default-scheduler"}),
        value!({"regarding": {"uid": "p", "fieldPath": "spec.containers{c}"}, "reason": "Pulled", "note": "Container image already present",
            "deprecatedFirstTimestamp": "2026-11-16T12:00:01Z", "deprecatedCount": 1, "deprecatedSource": {"component": "kubelet"}}),
        value!({"regarding": {"uid": "p"}, "reason": "BackOff", "note": "later", "deprecatedFirstTimestamp": "2026-11-16T12:00:09Z",
            "deprecatedCount": 4, "deprecatedSource": {"component": "kubelet"}}),
        value!({"regarding": {"uid": "somebody else"}, "reason": "Killing", "note": "x", "deprecatedFirstTimestamp": "2026-11-16T12:00:01Z"}),
    ]
}

/// Returns the records of a node: time of day and cluster IP of a Service whose rules were applied.
fn node_records(by: &str, applied: &[(&str, &str)]) -> NodeRecords {
    let record = |(at, ip): &(&str, &str)| Record {
        at: Time::parse_micro(&format!("2026-11-16T{at}Z")).expect("a time"),
        stage: NodeStage::ServiceRules { cluster_ips: vec!["10.96.0.10".to_owned(), (*ip).to_owned()] },
    };
    NodeRecords { by: by.to_owned(), records: applied.iter().map(record).collect() }
}

#[test]
fn deployment_trace_runs_from_create_to_installed_rules() {
    let replica_set = owned("ReplicaSet", "web-1", "r", ("Deployment", "web", "d"), &value!({}));
    let stranger = owned("Pod", "other", "o", ("ReplicaSet", "other", "z"), &value!({}));
    let objects = vec![stranger, slice(), service(), pod(), replica_set];
    let expect = "\
12:00:01           +0 s  Deployment/web       written (kubectl-create)
12:00:01           +0 s  Deployment/web       seen by the deployment controller (kube-controller-manager)
12:00:01           +0 s  ReplicaSet/web-1     written for Deployment/web (kube-controller-manager)
12:00:01           +0 s  Pod/web-1-x          written for ReplicaSet/web-1 (kube-controller-manager)
12:00:01           +0 s  EndpointSlice/web-s  written for Service/web
12:00:01.250       +0 s  Pod/web-1-x          Scheduled: Successfully assigned default/web-1-x to only (default-scheduler)
12:00:01           +0 s  Pod/web-1-x          sandbox ready (kubelet)
12:00:01           +0 s  Pod/web-1-x          Pulled: Container image already present (kubelet)
12:00:02           +1 s  Deployment/web       available (kube-controller-manager)
12:00:02           +1 s  Pod/web-1-x          container c started (kubelet)
12:00:02           +1 s  Pod/web-1-x          ready (kubelet)
12:00:02           +1 s  EndpointSlice/web-s  endpoints of service web published: 10.244.0.5 (kube-controller-manager)
12:00:02.700       +1 s  EndpointSlice/web-s  rules in place for 10.96.3.4 (kube-proxy)
12:00:02.900       +1 s  EndpointSlice/web-s  rules in place for 10.96.3.4 (kube-proxy on b)
12:00:03.100       +2 s  EndpointSlice/web-s  rules last changed for 10.96.3.4 (kube-proxy on b)
12:00:09           +8 s  Pod/web-1-x          BackOff: later (4 times) (kubelet)
";
    // Records before the creation of the objects and of other Services are not part of the trace.
    let before = ("11:59:00.000001", "10.96.3.4");
    let other = ("12:00:02.800000", "10.96.9.9");
    let records = [
        node_records("kube-proxy", &[before, ("12:00:02.700000", "10.96.3.4"), other]),
        node_records(
            "kube-proxy on b",
            &[("12:00:02.900000", "10.96.3.4"), ("12:00:03.000000", "10.96.3.4"), ("12:00:03.100000", "10.96.3.4")],
        ),
    ];
    let found = table(&chain(&deployment(), &objects, &events(), &records));
    assert_eq!(found, expect, "\n{found}");
}

#[test]
fn cause_is_observed_before_the_object_created_from_it() {
    let late = value!({"status": {"conditions": [
        {"type": "Progressing", "status": "True", "lastTransitionTime": "2026-11-16T12:00:03Z"}]}});
    let deployment = apimachinery::patch::merge::apply(deployment(), late);
    let replica_set = owned("ReplicaSet", "web-1", "r", ("Deployment", "web", "d"), &value!({}));
    let steps = chain(&deployment, &[replica_set], &[], &[]);
    let descriptions: Vec<&str> = steps.iter().map(|step| step.what.as_str()).collect();
    assert_eq!(descriptions, ["written", "seen by the deployment controller", "written for Deployment/web"]);
}

#[test]
fn any_object_can_be_traced() {
    let object = value!({"kind": "ConfigMap", "metadata": {"name": "c", "uid": "c", "creationTimestamp": "2026-11-16T12:00:01Z",
        "deletionTimestamp": "2026-11-16T12:01:30Z", "deletionGracePeriodSeconds": 30,
        "managedFields": [
            {"manager": "helm", "operation": "Apply", "time": "2026-11-16T12:00:01Z"},
            {"manager": "kubectl-edit", "operation": "Update", "time": "2026-11-16T12:00:05Z"}]}});
    let descriptions: Vec<String> =
        chain(&object, &[], &[], &[]).iter().map(|step| format!("{} by {}", step.what, step.by)).collect();
    assert_eq!(descriptions, ["written by helm", "changed by kubectl-edit", "deletion requested by "]);
    assert!(chain(&Value::object(), &[Value::object()], &[Value::object()], &[]).is_empty());
}

#[test]
fn waiting_reason_of_a_pod_is_included() {
    let pod = value!({"kind": "Pod", "metadata": {"name": "p", "uid": "p", "creationTimestamp": "2026-11-16T12:00:01Z"},
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/1 nodes are available", "lastTransitionTime": "2026-11-16T12:00:01Z"}]}});
    let steps = chain(&pod, &[], &[], &[]);
    assert_eq!(steps.last().map(|step| step.what.as_str()), Some("not PodScheduled: 0/1 nodes are available"));
}

#[test]
fn terminated_container_has_its_exit_reason() {
    let pod = value!({"kind": "Pod", "metadata": {"name": "p", "uid": "p", "creationTimestamp": "2026-11-16T12:00:01Z"},
        "status": {"containerStatuses": [{"name": "c", "restartCount": 1,
            "lastState": {"terminated": {"exitCode": 3, "startedAt": "2026-11-16T12:00:02Z", "finishedAt": "2026-11-16T12:00:04Z"}},
            "state": {"running": {"startedAt": "2026-11-16T12:00:05Z"}}}]}});
    let descriptions: Vec<String> = chain(&pod, &[], &[], &[]).into_iter().map(|step| step.what).collect();
    assert_eq!(descriptions, ["written", "container c exited with code 3", "container c started (restart 1)"]);
}

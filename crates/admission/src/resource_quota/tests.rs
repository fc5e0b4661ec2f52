use apimachinery::json;
use apimachinery::time::Time;

use super::*;
use crate::testing::{Cluster, attributes};

const QUOTA: &str = r#"{"apiVersion":"v1","kind":"ResourceQuota",
    "metadata":{"name":"q","namespace":"n","resourceVersion":"7"},
    "spec":{"hard":{"pods":"2","requests.cpu":"1"}},
    "status":{"hard":{"pods":"2","requests.cpu":"1"},"used":{"pods":"1","requests.cpu":"600m"}}}"#;

fn pod(cpu: &str) -> Value {
    let resources = if cpu.is_empty() { "{}".to_owned() } else { format!(r#"{{"requests":{{"cpu":"{cpu}"}}}}"#) };
    let text =
        format!(r#"{{"metadata":{{"name":"x"}},"spec":{{"containers":[{{"name":"c","resources":{resources}}}]}}}}"#);
    json::parse(text.as_bytes()).unwrap()
}

fn check(quota: &str, pod: &Value, expect: Result<&str, &str>) {
    let (kind, user) = (api::core::pod::kind(), auth::User::default());
    let cluster = Cluster::default().with("", "resourcequotas", quota);
    let charged = ResourceQuota::default().charge(&attributes(&kind, &user, Operation::Create), pod, &cluster);
    let used = charged.map(|effects| {
        let of = |effect: &Effect| effect.object.at(&["status", "used"]).map(json::to_string).unwrap_or_default();
        effects.iter().map(of).collect::<Vec<_>>().join(" ")
    });
    match (used, expect) {
        (Ok(used), Ok(expect)) => assert_eq!(used, expect),
        (Err(status), Err(expect)) => assert_eq!(status.message, format!("pods \"x\" is forbidden: {expect}")),
        (found, expect) => panic!("{found:?} instead of {expect:?}"),
    }
}

#[test]
fn pod_usage_is_charged_to_the_quota_or_the_pod_is_rejected() {
    check(QUOTA, &pod("400m"), Ok(r#"{"pods":"2","requests.cpu":"1"}"#));
    check(
        QUOTA,
        &pod("401m"),
        Err("exceeded quota: q, requested: requests.cpu=401m, used: requests.cpu=600m, limited: requests.cpu=1"),
    );
    check(QUOTA, &pod(""), Err("failed quota: q: must specify requests.cpu for: c"));
    let unknown = QUOTA.replace(r#","used":{"pods":"1","requests.cpu":"600m"}"#, "");
    check(&unknown, &pod("1m"), Err("status unknown for quota: q, resources: pods,requests.cpu"));
}

#[test]
fn quota_with_another_scope_is_not_charged() {
    let scoped = |scope: &str| QUOTA.replace(r#""spec":{"#, &format!(r#""spec":{{"scopes":["{scope}"],"#));
    check(&scoped("Terminating"), &pod("2"), Ok(""));
    check(&scoped("BestEffort"), &pod("2"), Ok(""));
    check(&scoped("NotTerminating"), &pod("100m"), Ok(r#"{"pods":"2","requests.cpu":"700m"}"#));
}

#[test]
fn claim_that_changes_its_class_is_charged_to_the_quota_of_the_new_class() {
    let quota = |name: &str, class: &str, used: &str| {
        format!(
            r#"{{"metadata": {{"name": "{name}", "namespace": "n", "resourceVersion": "7"}},
            "spec": {{"scopeSelector": {{"matchExpressions": [
                {{"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["{class}"]}}]}}}},
            "status": {{"hard": {{"persistentvolumeclaims": "1"}}, "used": {{"persistentvolumeclaims": "{used}"}}}}}}"#
        )
    };
    let old = apimachinery::value!({"metadata": {"name": "x"}, "spec": {"volumeAttributesClassName": "gold"},
        "status": {"currentVolumeAttributesClassName": "gold"}});
    let new = apimachinery::value!({"metadata": {"name": "x"}, "spec": {"volumeAttributesClassName": "silver"},
        "status": {"currentVolumeAttributesClassName": "gold"}});
    let (kind, user) = (api::core::persistent_volume_claim::kind(), auth::User::default());
    let charged = |silver_used: &str| {
        let mut attributes = attributes(&kind, &user, Operation::Update);
        attributes.old = Some(&old);
        let cluster = Cluster::default().with("", "resourcequotas", &quota("gold", "gold", "1")).with(
            "",
            "resourcequotas",
            &quota("silver", "silver", silver_used),
        );
        ResourceQuota::default().charge(&attributes, &new, &cluster)
    };
    let effects = charged("0").unwrap();
    let used: Vec<_> = effects
        .iter()
        .map(|effect| {
            (Meta::of(&effect.object).name(), effect.object.str_at(&["status", "used", "persistentvolumeclaims"]))
        })
        .collect();
    assert_eq!(used, [("silver", Some("1"))], "the quota of the old class still counts the claim");
    let message = charged("1").err().map(|status| status.message);
    let expect = "persistentvolumeclaims \"x\" is forbidden: exceeded quota: silver, \
        requested: persistentvolumeclaims=1, used: persistentvolumeclaims=1, limited: persistentvolumeclaims=1";
    assert_eq!(message.as_deref(), Some(expect));
}

#[test]
fn services_are_charged_by_node_ports() {
    let kind = api::core::service::kind();
    let of = |spec: &str| {
        let service = json::parse(format!(r#"{{"spec":{spec}}}"#).as_bytes()).unwrap();
        let used = usage::of(&kind.group, &kind.plural, &service, Time::from_unix(0, 0));
        (used["services.nodeports"].value(), used["services.loadbalancers"].value())
    };
    assert_eq!(of(r#"{"type":"ClusterIP","ports":[{}]}"#), (0, 0));
    assert_eq!(of(r#"{"type":"NodePort","ports":[{},{}]}"#), (2, 0));
    assert_eq!(of(r#"{"type":"LoadBalancer","ports":[{},{}]}"#), (2, 1));
    let without = r#"{"type":"LoadBalancer","allocateLoadBalancerNodePorts":false,"ports":[{},{"nodePort":30000}]}"#;
    assert_eq!(of(without), (1, 1));
}

#[test]
fn limited_resources_require_a_covering_quota() {
    let limited = apimachinery::value!({"limitedResources": [{"resource": "pods", "matchContains": ["cpu"]}]});
    let plugin = ResourceQuota::of(&limited);
    let (kind, user) = (api::core::pod::kind(), auth::User::default());
    let denial_message = |cluster: &Cluster, pod: &Value| {
        let charged = plugin.charge(&attributes(&kind, &user, Operation::Create), pod, cluster);
        charged.err().map(|status| status.message)
    };
    let message = denial_message(&Cluster::default(), &pod("400m"));
    let expect = "pods \"x\" is forbidden: insufficient quota to consume: cpu,requests.cpu";
    assert_eq!(message.as_deref(), Some(expect));
    assert_eq!(denial_message(&Cluster::default(), &pod("")), None);
    let both = r#"{"metadata":{"name":"q","namespace":"n","resourceVersion":"7"},
        "status":{"hard":{"cpu":"2","requests.cpu":"2"},"used":{"cpu":"0","requests.cpu":"0"}}}"#;
    assert_eq!(denial_message(&Cluster::default().with("", "resourcequotas", both), &pod("400m")), None);
}

#[test]
fn objects_in_a_limited_scope_require_a_quota_of_that_scope() {
    let scope = r#"{"scopeName": "PriorityClass", "operator": "In", "values": ["high", "higher"]}"#;
    let limited = format!(r#"{{"limitedResources": [{{"resource": "pods", "matchScopes": [{scope}]}}]}}"#);
    let plugin = ResourceQuota::of(&json::parse(limited.as_bytes()).unwrap());
    let (kind, user) = (api::core::pod::kind(), auth::User::default());
    let denial_message = |cluster: &Cluster, class: &str| {
        let mut pod = pod("");
        pod.get_mut("spec").and_then(Value::as_object_mut).unwrap().insert("priorityClassName", class);
        let charged = plugin.charge(&attributes(&kind, &user, Operation::Create), &pod, cluster);
        charged.err().map(|status| status.message)
    };
    let none = Cluster::default();
    assert_eq!(denial_message(&none, "low"), None);
    let expect =
        "pods \"x\" is forbidden: insufficient quota to match these scopes: [{PriorityClass In [high higher]}]";
    assert_eq!(denial_message(&none, "high").as_deref(), Some(expect));
    let quota = format!(
        r#"{{"metadata": {{"name": "q", "namespace": "n", "resourceVersion": "7"}},
        "spec": {{"scopeSelector": {{"matchExpressions": [{scope}]}}}},
        "status": {{"hard": {{"pods": "2"}}, "used": {{"pods": "0"}}}}}}"#
    );
    assert_eq!(denial_message(&Cluster::default().with("", "resourcequotas", &quota), "high"), None);
}

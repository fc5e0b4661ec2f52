use apimachinery::{Value, value};

use super::*;
use crate::node::Node;

fn node(name: &str, zone: &str) -> Node {
    let labels = value!({"kubernetes.io/hostname": name, "zone": zone});
    let status = value!({"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "9"}});
    Node::new(&value!({"metadata": {"name": name, "labels": labels}, "status": status})).unwrap()
}

fn slice(devices: Value, node_fields: &Value) -> Value {
    let mut spec = value!({"driver": "gpu.example.com",
        "pool": {"name": "pool", "generation": 1, "resourceSliceCount": 1}, "devices": devices});
    let fields = spec.as_object_mut().unwrap();
    node_fields.as_object().unwrap().iter().for_each(|(name, value)| drop(fields.insert(name, value.clone())));
    value!({"spec": spec})
}

fn gpu(name: &str, memory: &str) -> Value {
    value!({"name": name, "attributes": {"model": {"string": "a100"}, "index": {"int": 1}},
        "capacity": {"memory": {"value": memory}}})
}

fn claim(uid: &str, devices: Value) -> Value {
    value!({"metadata": {"name": "c", "namespace": "ns", "uid": uid}, "spec": {"devices": devices}})
}

fn exactly(count: i64) -> Value {
    value!({"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}}]})
}

fn new_snapshot(claims: &[(&str, Value)], slices: &[(&str, Value)]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    snapshot.set_node(&node("n1", "a"));
    snapshot.set_node(&node("n2", "b"));
    let selector = value!([{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]);
    let class = value!({"metadata": {"name": "gpu"}, "spec": {"selectors": selector, "extendedResourceName": "example.com/gpu"}});
    snapshot.devices.set_class(&"gpu".into(), Some(&class));
    for (name, claim) in claims {
        snapshot.devices.set_claim(&Key::new("ns", *name), Some(claim));
    }
    for (name, slice) in slices {
        snapshot.devices.set_slice(&(*name).into(), Some(slice));
    }
    snapshot
}

fn pod(claims: &[&str]) -> Pod {
    let claims: Vec<Value> =
        claims.iter().map(|name| value!({"name": (*name), "resourceClaimName": (*name)})).collect();
    let meta = value!({"name": "p", "namespace": "ns", "uid": "pod"});
    Pod::new(&value!({"metadata": meta, "spec": {"resourceClaims": claims}})).unwrap()
}

/// Returns the plugin's results for both nodes, and the claim to release.
fn verdicts(snapshot: &mut Snapshot, pod: &Pod) -> Vec<String> {
    snapshot.prepare(pod, std::iter::empty());
    let filter = match DynamicResources.prepare(Cycle { snapshot, pod }) {
        PreFilterResult::Skip => return vec!["skipped".to_owned()],
        PreFilterResult::Reject(reason) => return vec![reason],
        PreFilterResult::Run(filter, _) => filter,
    };
    let describe = |node: &NodeId| match filter.check(*node, snapshot.usage(*node)) {
        None => "ok".to_owned(),
        Some(rejection) => filter.failure().unwrap_or_else(|| filter.reasons(rejection).join(", ")),
    };
    snapshot.nodes().iter().map(describe).collect()
}

/// Returns the devices that the first claim gets on a node.
fn devices_of(snapshot: &Snapshot, pod: &Pod, node: &str) -> Vec<String> {
    let plan = plan(snapshot, pod, snapshot.node(node).unwrap());
    let results = plan.reserve[0].allocation.as_ref().unwrap()["devices"]["results"].clone();
    let name = |it: &Value| format!("{}={}", it.str_at(&["request"]).unwrap(), it.str_at(&["device"]).unwrap());
    results.as_array().unwrap().iter().map(name).collect()
}

#[test]
fn claim_is_allocated_on_nodes_with_enough_devices() {
    let local = || ("s", slice(value!([(gpu("g0", "40Gi")), (gpu("g1", "80Gi"))]), &value!({"nodeName": "n1"})));
    let check = |devices: Value, expect: [&str; 2]| {
        let mut snapshot = new_snapshot(&[("c", claim("u", devices))], &[local()]);
        assert_eq!(verdicts(&mut snapshot, &pod(&["c"])), expect);
    };
    check(exactly(1), ["ok", NO_DEVICES]);
    check(exactly(2), ["ok", NO_DEVICES]);
    check(exactly(3), [NO_DEVICES, NO_DEVICES]);
    let all = value!({"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}]});
    check(all, ["ok", NO_DEVICES]);
    let choosy = |expression: &str| {
        let selectors = value!([{"cel": {"expression": expression}}]);
        value!({"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "selectors": selectors}}]})
    };
    check(choosy("device.attributes['gpu.example.com'].model == 'a100'"), ["ok", NO_DEVICES]);
    check(choosy("device.capacity['gpu.example.com'].memory.compareTo(quantity('60Gi')) > 0"), ["ok", NO_DEVICES]);
    check(choosy("has(device.attributes['other.example.com'].model)"), [NO_DEVICES, NO_DEVICES]);
    let failure = "claim ns/c: selector #0 on device gpu.example.com/pool/g0: CEL runtime error: no such key: x";
    check(choosy("device.attributes['gpu.example.com'].x == 1"), [failure, failure]);
}

#[test]
fn allocation_contains_node_selector_and_configurations() {
    let mut claimed = exactly(1);
    let config = value!([{"requests": ["r"], "opaque": {"driver": "gpu.example.com", "parameters": {}}}]);
    claimed.as_object_mut().unwrap().insert("config", config);
    let local = slice(value!([(gpu("g0", "40Gi"))]), &value!({"nodeName": "n1"}));
    let mut snapshot = new_snapshot(&[("c", claim("u", claimed))], &[("s", local)]);
    let pod = pod(&["c"]);
    snapshot.prepare(&pod, std::iter::empty());
    let plan = plan(&snapshot, &pod, snapshot.node("n1").unwrap());
    let expect = value!({
        "devices": {
            "results": [{"request": "r", "driver": "gpu.example.com", "pool": "pool", "device": "g0"}],
            "config": [{"source": "FromClaim", "opaque": {"driver": "gpu.example.com", "parameters": {}}}],
        },
        "nodeSelector": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
        ]},
    });
    assert_eq!(
        plan.reserve,
        [Reserve { key: Key::new("ns", "c"), uid: "u".into(), allocation: Some(expect), reserved: false }]
    );
    snapshot.devices.assume(&plan, &pod.uid);
    let waits = "resource claim ns/c is in the process of being allocated";
    assert_eq!(verdicts(&mut snapshot, &pod), [waits]);
    snapshot.devices.drop_assumed(&pod.uid);
    assert_eq!(verdicts(&mut snapshot, &pod), ["ok", NO_DEVICES]);
}

#[test]
fn allocated_devices_are_unavailable_until_released() {
    let local = slice(value!([(gpu("g0", "40Gi"))]), &value!({"allNodes": true}));
    let mut snapshot = new_snapshot(&[("c", claim("u", exactly(1)))], &[("s", local)]);
    let mut other = claim("other", exactly(1));
    let results = value!([{"request": "r", "driver": "gpu.example.com", "pool": "pool", "device": "g0"}]);
    other.as_object_mut().unwrap().insert("status", value!({"allocation": {"devices": {"results": results}}}));
    let key = Key::new("ns", "other");
    snapshot.devices.set_claim(&key, Some(&other));
    assert_eq!(verdicts(&mut snapshot, &pod(&["c"])), [NO_DEVICES, NO_DEVICES]);
    assert_eq!(snapshot.devices.set_claim(&key, None), crate::devices::Change::Released);
    assert_eq!(verdicts(&mut snapshot, &pod(&["c"])), ["ok", "ok"]);
}

#[test]
fn allocated_claim_restricts_nodes_or_is_deallocated() {
    let term = value!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]});
    let mut claim = claim("u", exactly(1));
    let allocation = value!({"devices": {"results": []}, "nodeSelector": {"nodeSelectorTerms": [term]}});
    claim.as_object_mut().unwrap().insert("status", value!({"allocation": allocation}));
    let mut snapshot = new_snapshot(&[("c", claim)], &[]);
    let pod = pod(&["c"]);
    assert_eq!(verdicts(&mut snapshot, &pod), ["ok", ELSEWHERE]);
    let filter = Claims::new(Cycle { snapshot: &snapshot, pod: &pod }).unwrap().unwrap();
    assert_eq!(filter.post_filter(), Some(("still not schedulable", None)));
    let n2 = snapshot.node("n2").unwrap();
    assert!(filter.check(n2, snapshot.usage(n2)).is_some());
    let release = Release::Deallocate(Key::new("ns", "c"));
    assert_eq!(filter.post_filter(), Some(("deallocation of ResourceClaim completed", Some(release))));
}

#[test]
fn first_available_subrequest_is_allocated_and_scored() {
    let way = |name: &str, model: &str| {
        let selectors =
            value!([{"cel": {"expression": (format!("device.attributes['gpu.example.com'].model == '{model}'"))}}]);
        value!({"name": name, "deviceClassName": "gpu", "selectors": selectors})
    };
    let devices =
        value!({"requests": [{"name": "r", "firstAvailable": [(way("best", "h100")), (way("good", "a100"))]}]});
    let better = value!({"name": "g0", "attributes": {"model": {"string": "h100"}}});
    let pool = value!({"name": "far", "generation": 1, "resourceSliceCount": 1});
    let far = slice(value!([better]), &value!({"nodeName": "n2", "pool": pool}));
    let near = slice(value!([(gpu("g0", "40Gi"))]), &value!({"nodeName": "n1"}));
    let mut snapshot = new_snapshot(&[("c", claim("u", devices))], &[("near", near), ("far", far)]);
    let pod = pod(&["c"]);
    assert_eq!(verdicts(&mut snapshot, &pod), ["ok", "ok"]);
    assert_eq!(devices_of(&snapshot, &pod, "n1"), ["r/good=g0"]);
    assert_eq!(devices_of(&snapshot, &pod, "n2"), ["r/best=g0"]);
    let scorer = DynamicResources.scorer(Cycle { snapshot: &snapshot, pod: &pod }, snapshot.nodes()).unwrap();
    let scores: Vec<_> = ["n1", "n2"].iter().map(|name| scorer.score(snapshot.node(name).unwrap())).collect();
    assert_eq!(scores, [7, 8]);
}

#[test]
fn constraints_apply_to_all_devices_of_a_claim() {
    let on = |name: &str, root: &str| value!({"name": name, "attributes": {"root": {"string": root}}});
    let devices = value!([(on("a0", "x")), (on("b0", "y")), (on("b1", "y"))]);
    let check = |constraint: Value, expect: &[&str]| {
        let mut claim_spec = exactly(2);
        claim_spec.as_object_mut().unwrap().insert("constraints", value!([constraint]));
        let local = slice(devices.clone(), &value!({"nodeName": "n1"}));
        let mut snapshot = new_snapshot(&[("c", claim("u", claim_spec))], &[("s", local)]);
        let pod = pod(&["c"]);
        snapshot.prepare(&pod, std::iter::empty());
        assert_eq!(devices_of(&snapshot, &pod, "n1"), expect);
    };
    check(value!({"matchAttribute": "gpu.example.com/root"}), &["r=b0", "r=b1"]);
    check(value!({"distinctAttribute": "gpu.example.com/root"}), &["r=a0", "r=b0"]);
}

#[test]
fn admin_access_allocates_devices_in_use() {
    let local = slice(value!([(gpu("g0", "40Gi"))]), &value!({"nodeName": "n1"}));
    let admin = value!({"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "adminAccess": true}}]});
    let mut taken = claim("other", exactly(1));
    let results = value!([{"request": "r", "driver": "gpu.example.com", "pool": "pool", "device": "g0"}]);
    taken.as_object_mut().unwrap().insert("status", value!({"allocation": {"devices": {"results": results}}}));
    let claims = [("c", claim("u", admin)), ("other", taken), ("plain", claim("v", exactly(1)))];
    let mut snapshot = new_snapshot(&claims, &[("s", local)]);
    assert_eq!(verdicts(&mut snapshot, &pod(&["c"])), ["ok", NO_DEVICES]);
    assert_eq!(verdicts(&mut snapshot, &pod(&["plain"])), [NO_DEVICES, NO_DEVICES]);
}

#[test]
fn device_taints_must_be_tolerated() {
    let mut device = gpu("g0", "40Gi");
    device
        .as_object_mut()
        .unwrap()
        .insert("taints", value!([{"key": "sick", "value": "very", "effect": "NoSchedule"}]));
    let check = |tolerations: Value, expect: &str| {
        let request = value!({"deviceClassName": "gpu", "tolerations": tolerations});
        let devices = value!({"requests": [{"name": "r", "exactly": request}]});
        let local = slice(value!([(device.clone())]), &value!({"nodeName": "n1"}));
        let mut snapshot = new_snapshot(&[("c", claim("u", devices))], &[("s", local)]);
        assert_eq!(verdicts(&mut snapshot, &pod(&["c"]))[0], expect);
    };
    check(value!([]), NO_DEVICES);
    check(value!([{"key": "sick", "operator": "Exists"}]), "ok");
    check(value!([{"key": "sick", "operator": "Equal", "value": "a bit"}]), NO_DEVICES);
    check(value!([{"operator": "Exists", "effect": "NoExecute"}]), NO_DEVICES);
}

#[test]
fn partitionable_devices_share_counters() {
    let part = |name: &str, slots: &str| {
        let consumes = value!([{"counterSet": "card", "counters": {"slots": {"value": slots}}}]);
        value!({"name": name, "consumesCounters": consumes})
    };
    let devices = value!([(part("whole", "4")), (part("half0", "2")), (part("half1", "2"))]);
    let node_fields =
        value!({"nodeName": "n1", "sharedCounters": [{"name": "card", "counters": {"slots": {"value": "4"}}}]});
    let check = |count: i64, expect: &str| {
        let local = slice(devices.clone(), &node_fields);
        let mut snapshot = new_snapshot(&[("c", claim("u", exactly(count)))], &[("s", local)]);
        assert_eq!(verdicts(&mut snapshot, &pod(&["c"]))[0], expect);
    };
    check(1, "ok");
    check(2, "ok");
    check(3, NO_DEVICES);
    let mut snapshot = new_snapshot(&[("c", claim("u", exactly(2)))], &[("s", slice(devices.clone(), &node_fields))]);
    let pod = pod(&["c"]);
    snapshot.prepare(&pod, std::iter::empty());
    assert_eq!(devices_of(&snapshot, &pod, "n1"), ["r=half0", "r=half1"]);
}

#[test]
fn device_with_multiple_allocations_is_shared_up_to_its_capacity() {
    let policy = value!({"default": "10Gi", "validRange": {"min": "10Gi", "step": "10Gi", "max": "30Gi"}});
    let device = value!({"name": "g0", "allowMultipleAllocations": true,
        "capacity": {"memory": {"value": "40Gi", "requestPolicy": policy}}});
    let wants = |amount: &str| {
        let request = value!({"deviceClassName": "gpu", "capacity": {"requests": {"memory": amount}}});
        value!({"requests": [{"name": "r", "exactly": request}]})
    };
    let local = || ("s", slice(value!([(device.clone())]), &value!({"nodeName": "n1"})));
    let mut snapshot = new_snapshot(&[("c", claim("u", wants("15Gi"))), ("d", claim("v", wants("25Gi")))], &[local()]);
    let first = pod(&["c"]);
    snapshot.prepare(&first, std::iter::empty());
    let plan = plan(&snapshot, &first, snapshot.node("n1").unwrap());
    let result = &plan.reserve[0].allocation.as_ref().unwrap()["devices"]["results"][0];
    assert_eq!(result.str_at(&["consumedCapacity", "memory"]), Some("20Gi"));
    assert_eq!(result.str_at(&["shareID"]).map(str::len), Some(36));
    assert_eq!(verdicts(&mut snapshot, &pod(&["d"]))[0], "ok");
    snapshot.devices.assume(&plan, &first.uid);
    assert_eq!(
        verdicts(&mut snapshot, &pod(&["d"]))[0],
        NO_DEVICES,
        "20Gi are left of the 30Gi that it is rounded up to"
    );
    snapshot.devices.drop_assumed(&first.uid);
    assert_eq!(verdicts(&mut snapshot, &pod(&["c", "d"]))[0], NO_DEVICES);
}

#[test]
fn devices_back_extended_resources_that_the_node_does_not_report() {
    let container = |name: &str, gpus: &str| value!({"name": name, "resources": {"requests": {"cpu": "1", "example.com/gpu": gpus}}});
    let spec = value!({"initContainers": [(container("first", "3"))], "containers": [(container("main", "2"))]});
    let meta = value!({"name": "p", "namespace": "ns", "uid": "pod"});
    let pod = Pod::new(&value!({"metadata": meta, "spec": spec})).unwrap();
    let devices = value!([(gpu("g0", "1")), (gpu("g1", "1")), (gpu("g2", "1"))]);
    let mut snapshot = new_snapshot(&[], &[("s", slice(devices, &value!({"nodeName": "n1"})))]);
    let status = value!({"allocatable": {"cpu": "4", "pods": "9", "example.com/gpu": "4"}});
    snapshot.set_node(&Node::new(&value!({"metadata": {"name": "n3"}, "status": status})).unwrap());
    assert_eq!(verdicts(&mut snapshot, &pod), ["ok", NO_DEVICES, "ok"]);
    let made = plan(&snapshot, &pod, snapshot.node("n1").unwrap()).create.unwrap();
    let names: Vec<_> =
        made.requests.iter().map(|it| (it.str_at(&["name"]).unwrap(), it["exactly"]["count"].clone())).collect();
    assert_eq!(names, [("container-0-request-1", 1.into()), ("container-1-request-1", 2.into())]);
    assert_eq!(made.allocation["devices"]["results"].as_array().unwrap().len(), 3);
    let maps: Vec<_> =
        made.mappings.iter().map(|it| (it.str_at(&["containerName"]), it.str_at(&["requestName"]))).collect();
    let [own, later] = ["container-0-request-1", "container-1-request-1"].map(Some);
    assert_eq!(maps, [(Some("main"), later), (Some("first"), later), (Some("first"), own)]);
    assert_eq!(plan(&snapshot, &pod, snapshot.node("n3").unwrap()), Plan::default());
}

#[test]
fn pod_with_missing_claim_is_gated() {
    let check = |spec: Value, status: Value, expect: Option<&str>| {
        let snapshot = new_snapshot(&[("c", claim("u", exactly(1)))], &[]);
        let meta = value!({"name": "p", "namespace": "ns", "uid": "pod"});
        let pod = Pod::new(&value!({"metadata": meta, "spec": {"resourceClaims": [spec]}, "status": status})).unwrap();
        assert_eq!(DynamicResources.gate(&pod, &snapshot.devices).as_deref(), expect);
    };
    check(value!({"name": "x", "resourceClaimName": "c"}), value!({}), None);
    let absent = "could not find v1.ResourceClaim \"ns/d\"";
    check(value!({"name": "x", "resourceClaimName": "d"}), value!({}), Some(absent));
    let template = value!({"name": "x", "resourceClaimTemplateName": "t"});
    check(template.clone(), value!({}), Some("pod \"ns/p\": ResourceClaim not created yet"));
    let made = |name: Value| value!({"resourceClaimStatuses": [{"name": "x", "resourceClaimName": name}]});
    check(template.clone(), made(Value::Null), None);
    let foreign = "ResourceClaim ns/c was not created for pod ns/p (pod is not owner)";
    check(template, made("c".into()), Some(foreign));
}

#[test]
fn missing_device_class_makes_the_pod_unschedulable() {
    let devices = value!({"requests": [{"name": "r", "exactly": {"deviceClassName": "none"}}]});
    let mut snapshot = new_snapshot(&[("c", claim("u", devices))], &[]);
    assert_eq!(verdicts(&mut snapshot, &pod(&["c"])), ["request r: device class none does not exist"]);
}

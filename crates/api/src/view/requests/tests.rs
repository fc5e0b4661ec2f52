use apimachinery::{Object, value};

use super::AmountsFrom::{ContainerStatuses, Spec, Status};
use super::*;

fn object(key: &str, value: Value) -> Value {
    Value::Object([(key, value)].into_iter().collect())
}

/// Builds a pod from CPU amounts: `app 2, sidecar 1, init 3, pod 5, overhead 100m`, where `-` is no amount. A part may
/// continue with the status: `app 2 is 1 allocated 1500m`. `Infeasible` and `Deferred` are reasons of a pending resize.
fn pod(field: &str, text: &str) -> Value {
    let cpu = |amount: &str| if amount == "-" { value!({}) } else { value!({"cpu": amount}) };
    let (mut spec, mut status) = (Object::new(), Object::new());
    let push = |object: &mut Object, field: &str, item: Value| {
        let list = object.get_or_insert_with(field, || Value::Array(Vec::new()));
        list.as_array_mut().unwrap().push(item);
    };
    for (index, part) in text.split(", ").enumerate() {
        let words: Vec<&str> = part.split(' ').collect();
        let after = |word: &str| words.iter().position(|have| *have == word).map(|at| cpu(words[at + 1]));
        let name = format!("c{index}");
        let mut reported = Object::new();
        if let Some(actual) = after("is") {
            reported.insert("resources", object(field, actual));
        }
        if let Some(allocated) = after("allocated") {
            reported.insert("allocatedResources", allocated);
        }
        let resources = object(field, cpu(words.get(1).unwrap_or(&"-")));
        let (list, statuses, restart) = match words[0] {
            "app" => ("containers", "containerStatuses", ""),
            "init" => ("initContainers", "initContainerStatuses", ""),
            "sidecar" => ("initContainers", "initContainerStatuses", "Always"),
            "pod" => {
                spec.insert("resources", resources);
                reported.into_iter().for_each(|(name, value)| drop(status.insert(name, value)));
                continue;
            }
            "overhead" => {
                spec.insert("overhead", cpu(words[1]));
                continue;
            }
            reason => {
                push(&mut status, "conditions", value!({"type": "PodResizePending", "reason": reason}));
                continue;
            }
        };
        push(&mut spec, list, value!({"name": (name.as_str()), "restartPolicy": restart, "resources": resources}));
        reported.insert("name", name);
        push(&mut status, statuses, Value::Object(reported));
    }
    value!({"spec": spec, "status": status})
}

fn cpu(amounts: &Amounts) -> String {
    amounts.get("cpu").map(Quantity::to_string).unwrap_or_default()
}

#[test]
fn requests_are_the_maximum_of_running_and_initializing_containers() {
    let check = |text: &str, expect: &str| {
        for from in [Spec, ContainerStatuses, Status] {
            assert_eq!(cpu(&Pod(&pod("requests", text)).requests(from)), expect, "{text} {from:?}");
        }
    };
    check("app -", "");
    check("app 1, app 500m", "1500m");
    check("app 1, init 3", "3");
    check("app 3, init 1, init 2", "3");
    check("app 1, app 2, init 2", "3");
    check("app 1, sidecar 2", "3");
    check("app 1, sidecar 1, sidecar 2, sidecar 3", "7");
    check("app 1, sidecar 2, init 3", "5");
    check("app 4, sidecar 2, init 3", "6");
    check("app 1, init 5, sidecar 2, init 1, sidecar 3", "6");
    check("app 1, init 25, sidecar 5, init 10, sidecar 20", "26");
    check("app 1, sidecar 10, sidecar 2, init 50", "62");
    check("app 1, overhead 250m", "1250m");
    check("app -, overhead 250m", "250m");
    check("app 1, pod 3", "3");
    check("app 3, pod 1", "1");
    check("app 1, init 9, sidecar 9, pod 3, overhead 1", "4");
}

#[test]
fn limits_include_the_overhead_only_if_they_are_set() {
    let check = |text: &str, expect: &str| {
        assert_eq!(cpu(&Pod(&pod("limits", text)).limits(Spec)), expect, "{text}");
    };
    check("app -, app -", "");
    check("app 2, app -", "2");
    check("init 2, init -", "2");
    check("app 2, sidecar 1, init 3", "4");
    check("app 2, overhead 250m", "2250m");
    check("app -, overhead 250m", "");
    check("app 0, overhead 250m", "0");
    check("app 1, pod 4", "4");
    check("app 1, pod 4, overhead 1", "5");
}

#[test]
fn resize_counts_with_the_maximum_of_desired_actual_and_allocated_requests() {
    let check = |text: &str, spec: &str, statuses: &str| {
        let pod = pod("requests", text);
        assert_eq!(cpu(&Pod(&pod).requests(Spec)), spec, "{text}");
        assert_eq!(cpu(&Pod(&pod).requests(ContainerStatuses)), statuses, "{text}");
        assert_eq!(cpu(&Pod(&pod).requests(Status)), statuses, "{text}");
    };
    check("app 2 is 1 allocated 1500m", "2", "2");
    check("app 1 is 2 allocated 1500m", "1", "2");
    check("app 1 is 2 allocated 3", "1", "3");
    check("app 4 is 2 allocated 2, Infeasible", "4", "2");
    check("app 4 is 2 allocated 3, Infeasible", "4", "3");
    check("app 4 is 2 allocated 2, Deferred", "4", "4");
    check("app 4 is 2 allocated 2, Deferred, Infeasible", "4", "4");
    check("app 1, sidecar 2 is 3 allocated 2", "3", "4");
    check("app 1, sidecar 4 is 3 allocated 2, Infeasible", "5", "4");
    check("app -, sidecar - is 3 allocated 2", "", "3");
    // Only sidecars among the init containers can be resized.
    check("app 1, init 2 is 9 allocated 9", "2", "2");
    // Without actual resources, the allocated ones do not count.
    check("app 1 allocated 3", "1", "1");
}

#[test]
fn resize_counts_with_the_maximum_of_desired_and_actual_limits() {
    let check = |text: &str, spec: &str, statuses: &str| {
        let pod = pod("limits", text);
        assert_eq!(cpu(&Pod(&pod).limits(Spec)), spec, "{text}");
        assert_eq!(cpu(&Pod(&pod).limits(ContainerStatuses)), statuses, "{text}");
    };
    check("app 2 is 1", "2", "2");
    check("app 1 is 2", "1", "2");
    check("app 1 is 2 allocated 9", "1", "2");
    check("app 4 is 2, Infeasible", "4", "2");
    check("app 1, sidecar 2 is 3", "3", "4");
}

#[test]
fn resize_of_pod_level_requests_counts_with_the_maximum_of_desired_actual_and_allocated() {
    let check = |text: &str, statuses: &str, status: &str| {
        let pod = pod("requests", text);
        assert_eq!(cpu(&Pod(&pod).requests(ContainerStatuses)), statuses, "{text}");
        assert_eq!(cpu(&Pod(&pod).requests(Status)), status, "{text}");
    };
    check("app 1, pod 2 is 1500m allocated 3", "2", "3");
    check("app 1, pod 2 is 4 allocated 3", "2", "4");
    check("app 1, pod 2 is 1500m allocated 1", "2", "2");
    check("app 1, pod 2 is 1500m allocated 1, Infeasible", "2", "1500m");
    check("app 1, pod 2 allocated 3", "2", "2");
    // A pod without desired requests requests nothing as a whole.
    check("app 1, pod - is 4 allocated 4", "1", "1");
}

#[test]
fn pod_level_resources_override_only_supported_and_desired_resources() {
    let requests =
        |pod: Value, from: AmountsFrom| apimachinery::json::to_string(&amounts::write(&Pod(&pod).requests(from)));
    let container = value!({"name": "a", "resources": {"requests": {"memory": "1Gi", "example.com/gpu": "2"}}});
    let pod_level = value!({"cpu": "1", "example.com/gpu": "9", "hugepages-2Mi": "4Mi"});
    let pod = value!({
        "spec": {"containers": [container], "resources": {"requests": pod_level}},
        "status": {
            "resources": {"requests": {"cpu": "2", "memory": "8Gi"}},
            "allocatedResources": {"cpu": "1", "memory": "8Gi", "hugepages-2Mi": "4Mi"}
        }
    });
    let desired = r#"{"cpu":"1","example.com/gpu":"2","hugepages-2Mi":"4Mi","memory":"1Gi"}"#;
    assert_eq!(requests(pod.clone(), Spec), desired);
    assert_eq!(requests(pod, Status), desired.replace(r#""cpu":"1""#, r#""cpu":"2""#));
}

#[test]
fn assumed_amounts_fill_in_for_containers_without_a_request() {
    let assumed = Amounts::from([("cpu".into(), "100m".parse().unwrap())]);
    let check = |text: &str, expect: &str| {
        let found = Pod(&pod("requests", text)).requests_assuming(&assumed, Status);
        assert_eq!(cpu(&found), expect, "{text}");
    };
    check("app -, app -", "200m");
    check("app -, app 0", "100m");
    check("app -, sidecar -, init 1", "1100m");
    check("app -, pod 3", "3");
}

#[test]
fn request_for_comparing_usage_ignores_containers_of_pods_with_pod_level_resources() {
    let check = |text: &str, expect: &str| {
        assert_eq!(Pod(&pod("requests", text)).request("cpu").to_string(), expect, "{text}");
    };
    check("app 9", "9");
    check("app -, overhead 5", "0");
    check("app 2, overhead 5", "7");
    check("app 8, pod 10", "10");
    check("app -, pod 10", "10");
    let memory = value!({"spec": {
        "containers": [{"resources": {"requests": {"cpu": "8"}}}],
        "resources": {"requests": {"memory": "100Mi"}}}});
    assert_eq!(Pod(&memory).request("cpu"), Quantity::ZERO);
    assert_eq!(Pod(&memory).request("memory").to_string(), "100Mi");
}

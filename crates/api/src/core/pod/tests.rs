use apimachinery::time::Time;
use apimachinery::value;

use super::*;
use crate::kind::Requester;

const NOW: Time = Time::from_unix(1_700_000_000, 0);

fn pod(spec: Value) -> Value {
    let mut pod =
        value!({"metadata": {"name": "p", "namespace": "n", "generation": 1, "resourceVersion": "1"}, "spec": spec});
    Pod.default(&mut pod, "v1");
    pod
}

fn small() -> Value {
    pod(value!({"containers": [{"name": "c", "image": "i", "resources": {}}]}))
}

/// Asserts the errors of replacing `old` through a subresource.
fn check(old: &Value, new: &Value, subresource: &str, expect: &[&str]) {
    let kind = kind();
    let requester = Requester::default();
    let context = Context { version: &kind.versions[0], subresource, now: NOW, requester: &requester };
    let mut new = new.clone();
    Pod.prepare_update(&mut new, old, &context);
    let mut errors = Errors::new();
    Pod.validate_update(&new, old, &context, &mut errors);
    let found: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(found, expect);
}

fn with(mut pod: Value, path: &[&str], value: Value) -> Value {
    let (last, path) = path.split_last().unwrap();
    let holder = path.iter().fold(&mut pod, |holder, key| match key.parse::<usize>() {
        Ok(index) => &mut holder.as_array_mut().unwrap()[index],
        Err(_) => holder.as_object_mut().unwrap().get_or_insert_with(key, Value::object),
    });
    holder.as_object_mut().unwrap().insert(*last, value);
    pod
}

#[test]
fn container_image_is_mutable_and_name_is_not() {
    let old = small();
    check(&old, &with(old.clone(), &["spec", "containers", "0", "image"], "j".into()), "", &[]);
    let renamed = with(old.clone(), &["spec", "containers", "0", "name"], "d".into());
    let changes = "@@ -3,7 +3,7 @@\n  \"InitContainers\": null,\n  \"Containers\": [\n   {\n-   \"Name\": \"c\",\n+   \"Name\": \"d\",\n    \"Image\": \"i\",\n    \"Command\": null,\n    \"Args\": null,\n";
    let expected = format!(
        "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n{changes}"
    );
    check(&old, &renamed, "", &[&expected]);
}

#[test]
fn tolerations_can_only_be_added() {
    let old = with(small(), &["spec", "tolerations"], value!([{"key": "a", "operator": "Exists"}]));
    let more = value!([{"key": "b", "operator": "Exists"}, {"key": "a", "operator": "Exists"}]);
    check(&old, &with(old.clone(), &["spec", "tolerations"], more), "", &[]);
    check(
        &old,
        &with(old.clone(), &["spec", "tolerations"], value!([])),
        "",
        &["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"],
    );
}

#[test]
fn active_deadline_can_only_decrease() {
    let old = with(small(), &["spec", "activeDeadlineSeconds"], 10.into());
    check(&old, &with(old.clone(), &["spec", "activeDeadlineSeconds"], 5.into()), "", &[]);
    check(
        &old,
        &with(old.clone(), &["spec", "activeDeadlineSeconds"], 15.into()),
        "",
        &["spec.activeDeadlineSeconds: Invalid value: 15: must be less than or equal to previous value"],
    );
}

#[test]
fn status_write_keeps_spec_and_terminated_containers() {
    let terminated = value!([{"name": "c", "state": {"terminated": {"exitCode": 0}}}]);
    let old = with(small(), &["status"], value!({"qosClass": "BestEffort", "containerStatuses": terminated}));
    let old = with(old, &["spec", "restartPolicy"], "Never".into());
    let back = with(old.clone(), &["status", "containerStatuses"], value!([{"name": "c", "state": {"running": {}}}]));
    let back = with(back, &["spec", "nodeName"], "elsewhere".into());
    check(
        &old,
        &back,
        "status",
        &["status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"],
    );
    let old = with(old, &["spec", "restartPolicy"], "Always".into());
    check(&old, &back, "status", &[]);
}

#[test]
fn ephemeral_containers_can_only_be_added() {
    let container = value!({
        "name": "e", "image": "i", "resources": {}, "imagePullPolicy": "Always",
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"
    });
    let old = small();
    let added = with(old.clone(), &["spec", "ephemeralContainers"], value!([container]));
    check(&old, &added, "ephemeralcontainers", &[]);
    check(
        &added,
        &old,
        "ephemeralcontainers",
        &["spec.ephemeralContainers: Forbidden: existing ephemeral containers \"e\" may not be removed\n"],
    );
}

#[test]
fn only_cpu_and_memory_can_be_resized() {
    let old = pod(value!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}));
    let resources = ["spec", "containers", "0", "resources"];
    check(&old, &with(old.clone(), &resources, value!({"requests": {"cpu": "2"}})), "resize", &[]);
    check(
        &old,
        &with(old.clone(), &resources, value!({"requests": {"cpu": "1", "ephemeral-storage": "1"}})),
        "resize",
        &["spec: Forbidden: only cpu and memory resources are mutable"],
    );
    check(
        &old,
        &with(old.clone(), &resources, value!({})),
        "resize",
        &[
            "spec: Invalid value: \"\": Pod QOS Class may not change as a result of resizing",
            "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
        ],
    );
}

#[test]
fn new_pod_is_pending_and_has_a_qos_class() {
    let mut pod = pod(value!({
        "containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}],
        "schedulingGates": [{"name": "g"}]
    }));
    prepare::create(&mut pod, NOW);
    assert_eq!(pod["status"]["phase"], value!("Pending"));
    assert_eq!(pod["status"]["qosClass"], value!("Guaranteed"), "requests follow limits");
    assert_eq!(pod["status"]["conditions"][0]["reason"], value!("SchedulingGated"));
}

#[test]
fn unscheduled_pod_is_deleted_without_grace_period() {
    let check = |pod: &Value, requested, expect| assert_eq!(Pod.grace_seconds(pod, requested), Some(expect));
    let bound = with(small(), &["spec", "nodeName"], "n".into());
    check(&small(), Some(5), 0);
    check(&bound, None, 30);
    check(&bound, Some(5), 5);
    check(&with(bound.clone(), &["status", "phase"], "Failed".into()), Some(5), 0);
    check(&with(bound, &["spec", "terminationGracePeriodSeconds"], (-3).into()), None, 1);
}

#[test]
fn negative_termination_grace_period_is_stored_as_one_second() {
    let pod = pod(value!({"containers": [], "terminationGracePeriodSeconds": (-1)}));
    assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], value!(1));
}

#[test]
fn status_column_contains_the_waiting_reason() {
    let check = |status: Value, expect: [&str; 3]| {
        let pod = with(small(), &["status"], status);
        let cells: Vec<_> = columns::all()[1..4].iter().map(|column| column.cell(&pod, NOW)).collect();
        assert_eq!(cells, expect.map(Value::from));
    };
    check(value!({"phase": "Pending"}), ["0/1", "Pending", "0"]);
    check(
        value!({"phase": "Running", "containerStatuses": [{"name": "c", "ready": true, "state": {"running": {}}}]}),
        ["1/1", "Running", "0"],
    );
    check(
        value!({"phase": "Running", "containerStatuses": [{
            "name": "c", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"finishedAt": "2023-11-14T22:12:20Z"}}
        }]}),
        ["0/1", "CrashLoopBackOff", "3 (60s ago)"],
    );
    check(
        value!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 2}}}]}),
        ["0/1", "Init:ExitCode:2", "0"],
    );
}

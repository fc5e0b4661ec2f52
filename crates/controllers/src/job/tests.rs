use api::resources::PODS;
use api::view::Pod;
use apimachinery::patch::merge;
use controller::decide;
use controller::testing::{FakeCluster, check_properties, run_until_stable};
use proptest::prelude::*;

use super::*;

fn job(spec: Value) -> Value {
    let template = value!({"metadata": {"labels": {"job": "j"}}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}});
    let base = value!({"metadata": {"namespace": "a", "name": "j"},
        "spec": {"backoffLimit": 6, "parallelism": 1, "completions": 1, "podReplacementPolicy": "TerminatingOrFailed",
            "selector": {"matchLabels": {"job": "j"}}, "template": template}});
    merge::apply(base, value!({"spec": spec}))
}

/// Creates a Job whose pods `run`, `succeed`, `fail` or `fail:CODE`.
fn doing(does: &str, spec: Value) -> FakeCluster {
    let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
    let annotated = value!({"template": {"metadata": {"annotations": {"does": does}}}});
    cluster.add(&kinds::JOBS, job(merge::apply(annotated, spec)));
    cluster
}

fn key() -> Key {
    Key::new("a", "j")
}

fn change(cluster: &mut FakeCluster, change: Value) {
    cluster.change(&kinds::JOBS, &key(), |job| *job = merge::apply(job.take(), change));
}

/// Simulates nodes: binds pods, applies their annotated behaviour, and terminates pods that are being deleted.
fn nodes(cluster: &mut FakeCluster) -> bool {
    let mut busy = false;
    for entry in cluster.of(PODS).iter() {
        let (key, pod) = (&entry.key, &entry.value);
        if Meta::of(pod).is_deleting() {
            if Meta::of(pod).finalizers().next().is_none() {
                cluster.remove(&kinds::PODS, key);
                busy = true;
            } else if !Pod(pod).is_terminal() {
                let now = cluster.now.to_string();
                let end = value!({"status": {"phase": "Failed", "containerStatuses": [
                    {"name": "c", "state": {"terminated": {"exitCode": 137, "finishedAt": now}}}]}});
                cluster.change(&kinds::PODS, key, |pod| *pod = merge::apply(pod.take(), end));
                busy = true;
            }
        } else if Pod(pod).phase().is_empty() {
            let now = cluster.now.to_string();
            let does = Meta::of(pod).annotation("does").unwrap_or("run").to_owned();
            let code =
                does.strip_prefix("fail").map(|code| code.strip_prefix(':').map_or(1, |code| code.parse().unwrap()));
            let status = match (does.as_str(), code) {
                ("run", _) => {
                    value!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now}]})
                }
                (_, Some(code)) => terminated_status("Failed", code, &now),
                _ => terminated_status("Succeeded", 0, &now),
            };
            cluster.change(&kinds::PODS, key, |pod| {
                *pod = merge::apply(pod.take(), value!({"spec": {"nodeName": "n"}, "status": status}));
            });
            busy = true;
        }
    }
    busy
}

fn terminated_status(phase: &str, code: i64, now: &str) -> Value {
    value!({"phase": phase, "containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": code, "finishedAt": now}}}]})
}

/// Formats the status without times.
fn status(cluster: &FakeCluster) -> String {
    let mut status = cluster.get(&kinds::JOBS, &key()).unwrap()["status"].clone();
    let fields = status.as_object_mut().unwrap();
    fields.remove("startTime");
    fields.remove("completionTime");
    let conditions = fields.remove("conditions").unwrap_or_default();
    let lines = conditions.as_array().unwrap_or_default().iter().map(|have| {
        let text = |field| have.str_at(&[field]).unwrap();
        format!("{} {} {}: {}", text("type"), text("status"), text("reason"), text("message"))
    });
    format!(
        "{}\n{}",
        fields.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" "),
        lines.collect::<Vec<_>>().join("\n")
    )
}

fn check(does: &str, spec: Value, expect: &str) -> FakeCluster {
    let mut cluster = doing(does, spec);
    run_until_stable::<Job>(&mut cluster, nodes);
    assert_eq!(status(&cluster), expect, "{}", cluster.log.join("\n"));
    cluster
}

#[test]
fn job_completes_when_enough_pods_succeeded() {
    let cluster = check(
        "succeed",
        value!({"completions": 3, "parallelism": 2}),
        "ready=0 succeeded=3 terminating=0 uncountedTerminatedPods={}\n\
         SuccessCriteriaMet True CompletionsReached: Reached expected number of succeeded pods\n\
         Complete True CompletionsReached: Reached expected number of succeeded pods",
    );
    assert!(cluster.of(PODS).iter().all(|entry| !has_finalizer(&entry.value)));
    assert_eq!(cluster.of(PODS).len(), 3);
    assert!(cluster.log.iter().any(|line| line == "event Job a/j Normal Completed: Job completed"));
}

#[test]
fn job_backs_off_and_fails_at_the_backoff_limit() {
    let start = doing("fail", value!({})).now;
    let cluster = check(
        "fail",
        value!({"backoffLimit": 2}),
        "failed=3 ready=0 terminating=0 uncountedTerminatedPods={}\n\
         FailureTarget True BackoffLimitExceeded: Job has reached the specified backoff limit\n\
         Failed True BackoffLimitExceeded: Job has reached the specified backoff limit",
    );
    assert_eq!(cluster.now.since(start).whole_seconds(), 30, "10 after the first, 20 after the second");
}

#[test]
fn indexed_job_runs_each_index_once() {
    let cluster = check(
        "succeed",
        value!({"completionMode": "Indexed", "completions": 3, "parallelism": 2}),
        "completedIndexes=\"0-2\" ready=0 succeeded=3 terminating=0 uncountedTerminatedPods={}\n\
         SuccessCriteriaMet True CompletionsReached: Reached expected number of succeeded pods\n\
         Complete True CompletionsReached: Reached expected number of succeeded pods",
    );
    let pods = cluster.of(PODS);
    let pod = &pods.iter().next().unwrap().value;
    assert_eq!(Meta::of(pod).label(make::INDEX), Some("0"));
    assert_eq!((Meta::of(pod).generate_name(), &pod["spec"]["hostname"]), ("j-0-", &"j-0".into()));
    assert_eq!(pod["spec"]["containers"][0]["env"][0]["name"], "JOB_COMPLETION_INDEX".into());
}

#[test]
fn backoff_limit_per_index_fails_indexes_separately() {
    check(
        "fail",
        value!({"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimit": 100, "backoffLimitPerIndex": 1}),
        "failed=4 failedIndexes=\"0,1\" ready=0 terminating=0 uncountedTerminatedPods={}\n\
         FailureTarget True FailedIndexes: Job has failed indexes\n\
         Failed True FailedIndexes: Job has failed indexes",
    );
}

#[test]
fn failure_and_success_policies_are_applied() {
    let rule = value!({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}});
    let cluster = check(
        "fail:42",
        value!({"podFailurePolicy": {"rules": [rule]}, "parallelism": 2, "completions": 2}),
        &status(&{
            let mut cluster = doing(
                "fail:42",
                value!({"podFailurePolicy": {"rules": [
                {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}, "parallelism": 2, "completions": 2}),
            );
            run_until_stable::<Job>(&mut cluster, nodes);
            cluster
        }),
    );
    assert!(
        status(&cluster).contains("failed with exit code 42 matching FailJob rule at index 0"),
        "{}",
        status(&cluster)
    );
    check(
        "succeed",
        value!({"completionMode": "Indexed", "completions": 4, "parallelism": 1, "successPolicy": {"rules": [{"succeededCount": 2}]}}),
        "completedIndexes=\"0,1\" ready=0 succeeded=2 terminating=0 uncountedTerminatedPods={}\n\
         SuccessCriteriaMet True SuccessPolicy: Matched rules at index 0\n\
         Complete True SuccessPolicy: Matched rules at index 0",
    );
}

#[test]
fn suspending_a_job_deletes_its_pods_without_counting_failures() {
    let mut cluster = doing("run", value!({"parallelism": 2, "completions": 2, "suspend": true}));
    run_until_stable::<Job>(&mut cluster, nodes);
    assert_eq!(
        status(&cluster),
        "ready=0 terminating=0 uncountedTerminatedPods={}\nSuspended True JobSuspended: Job suspended"
    );
    change(&mut cluster, value!({"spec": {"suspend": false}}));
    run_until_stable::<Job>(&mut cluster, nodes);
    assert_eq!(
        status(&cluster),
        "active=2 ready=2 terminating=0 uncountedTerminatedPods={}\nSuspended False JobResumed: Job resumed"
    );
    change(&mut cluster, value!({"spec": {"suspend": true}}));
    run_until_stable::<Job>(&mut cluster, nodes);
    assert_eq!(
        status(&cluster),
        "ready=0 terminating=0 uncountedTerminatedPods={}\nSuspended True JobSuspended: Job suspended"
    );
    assert_eq!(cluster.of(PODS).len(), 0);
}

#[test]
fn active_deadline_fails_the_job_and_deletes_its_pods() {
    let mut cluster = doing("run", value!({"activeDeadlineSeconds": 60}));
    run_until_stable::<Job>(&mut cluster, nodes);
    assert!(status(&cluster).contains("Failed True DeadlineExceeded: Job was active longer than specified deadline"));
    assert_eq!(cluster.of(PODS).len(), 0);
}

#[test]
fn job_without_completions_completes_after_the_first_success() {
    let mut cluster = doing("run", value!({"parallelism": 2}));
    change(&mut cluster, value!({"spec": {"completions": null}}));
    run_until_stable::<Job>(&mut cluster, nodes);
    let first = cluster.of(PODS).iter().next().unwrap().key.clone();
    let now = cluster.now.to_string();
    cluster.change(&kinds::PODS, &first, |pod| {
        *pod = merge::apply(pod.take(), value!({"status": (terminated_status("Succeeded", 0, &now))}));
    });
    run_until_stable::<Job>(&mut cluster, nodes);
    assert!(status(&cluster).starts_with("active=1 ready=1 succeeded=1 "), "{}", status(&cluster));
    let second = cluster.of(PODS).iter().find(|one| one.key != first).unwrap().key.clone();
    cluster.change(&kinds::PODS, &second, |pod| {
        *pod = merge::apply(pod.take(), value!({"status": (terminated_status("Succeeded", 0, &now))}));
    });
    run_until_stable::<Job>(&mut cluster, nodes);
    assert!(status(&cluster).contains("Complete True"), "{}", status(&cluster));
}

#[test]
fn pods_of_a_deleted_job_lose_the_finalizer() {
    let mut cluster = doing("run", value!({"parallelism": 2, "completions": 2}));
    run_until_stable::<Job>(&mut cluster, nodes);
    cluster.remove(&kinds::JOBS, &key());
    let plan = decide::<Job>(&cluster.cache::<Job>(), &(), &key(), cluster.now);
    assert_eq!(plan.actions.len(), 2);
    plan.actions.iter().for_each(|action| cluster.execute(action).unwrap());
    assert!(cluster.of(PODS).iter().all(|entry| !has_finalizer(&entry.value)));
}

#[test]
fn released_pod_loses_the_finalizer_with_its_owner_reference() {
    let mut cluster = doing("run", value!({}));
    run_until_stable::<Job>(&mut cluster, nodes);
    let released = cluster.of(PODS).iter().next().unwrap().key.clone();
    cluster.change(&kinds::PODS, &released, |pod| {
        *pod = merge::apply(pod.take(), value!({"metadata": {"labels": {"job": "other"}}}));
    });
    run_until_stable::<Job>(&mut cluster, nodes);
    assert_eq!(cluster.of(PODS).len(), 2, "the Job replaces the pod it released");
    let pods = cluster.of(PODS);
    let pod = pods.get(&released).unwrap();
    assert!(Meta::of(pod).controller().is_none() && !has_finalizer(pod), "{pod:?}");
}

#[test]
fn pod_without_a_controller_loses_the_finalizer() {
    let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
    let stray = value!({"metadata": {"namespace": "a", "name": "stray", "finalizers": [FINALIZER]}});
    cluster.add(&kinds::PODS, stray);
    run_until_stable::<Job>(&mut cluster, nodes);
    assert!(cluster.of(PODS).iter().all(|entry| !has_finalizer(&entry.value)));
}

prop_compose! {
    fn arbitrary_cluster()(
        does in prop::sample::select(vec!["run", "succeed", "fail", "fail:42"]), indexed in any::<bool>(),
        parallelism in 0..4i64, fewer in 0..3i64, completions in 1..4i64, limit in 0..2i64, per_index in prop::option::of(0..2i64),
        policy in prop::option::of(prop::sample::select(vec!["Ignore", "Count"])), suspend in any::<bool>(), only_failed in any::<bool>(),
    ) -> FakeCluster {
        // With parallelism above 1, the number of failures before the first one is observed depends on timing.
        let parallelism = if does.starts_with("fail") { parallelism.min(1) } else { parallelism };
        let mut spec = value!({"parallelism": parallelism, "completions": completions, "backoffLimit": limit});
        if indexed {
            spec = merge::apply(spec, value!({"completionMode": "Indexed"}));
            if let Some(per_index) = per_index {
                spec = merge::apply(spec, value!({"backoffLimitPerIndex": per_index, "backoffLimit": 100}));
            }
        }
        // A Job that ignores every failure never converges. FailJob is omitted because its message contains the pod's
        // name.
        if let Some(action) = policy.filter(|action| *action != "Ignore" || does != "fail:42") {
            let rules = value!([{"action": action, "onExitCodes": {"operator": "In", "values": [42]}}]);
            spec = merge::apply(spec, value!({"podFailurePolicy": {"rules": rules}}));
        }
        if only_failed {
            spec = merge::apply(spec, value!({"podReplacementPolicy": "Failed"}));
        }
        let mut cluster = doing(does, spec);
        if does == "run" {
            run_until_stable::<Job>(&mut cluster, nodes);
            change(&mut cluster, value!({"spec": {"parallelism": ((parallelism - fewer).max(0)), "suspend": suspend}}));
        }
        cluster
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn properties_hold_in_generated_clusters(cluster in arbitrary_cluster()) {
        check_properties::<Job>(&cluster, nodes);
    }
}

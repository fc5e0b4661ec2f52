use api::resources::JOBS;
use apimachinery::patch::merge;
use controller::decide;
use controller::testing::{FakeCluster, check_properties};
use proptest::prelude::*;

use super::*;

/// Midnight of 2026-01-01.
const START: Time = Time::from_unix(1_767_225_600, 0);

fn new_cluster(spec: Value) -> FakeCluster {
    let mut cluster = FakeCluster::new(START);
    let base = value!({"schedule": "*/5 * * * *", "concurrencyPolicy": "Allow", "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1, "jobTemplate": {"metadata": {"labels": {"of": "cron"}}, "spec": {"template": {}}}});
    cluster.add(
        &kinds::CRON_JOBS,
        value!({"metadata": {"namespace": "a", "name": "c"}, "spec": (merge::apply(base, spec))}),
    );
    cluster
}

fn key() -> Key {
    Key::new("a", "c")
}

/// Runs the controller at its wake-up times for `minutes`. Jobs finish with the condition `end`.
fn pass(cluster: &mut FakeCluster, minutes: i64, end: Option<&str>) {
    let until = cluster.now.plus(Duration::from_seconds(minutes * 60));
    for _ in 0..1000 {
        let plan = decide::<CronJob>(&cluster.cache::<CronJob>(), &(), &key(), cluster.now);
        let wrote = plan.actions.iter().any(|action| !matches!(action, Action::Event { .. }));
        plan.actions.iter().for_each(|action| drop(cluster.execute(action)));
        let finished = end.is_some_and(|end| finish(cluster, end));
        if wrote || finished {
            continue;
        }
        match plan.wake_at.filter(|at| *at <= until) {
            Some(at) => cluster.now = at,
            None => break,
        }
    }
    cluster.now = until;
}

fn finish(cluster: &mut FakeCluster, kind: &str) -> bool {
    let open: Vec<Key> =
        cluster.of(JOBS).iter().filter(|one| !job::is_finished(&one.value)).map(|one| one.key.clone()).collect();
    let now = cluster.now.to_string();
    for key in &open {
        let status = value!({"startTime": (now.as_str()), "completionTime": (now.as_str()), "conditions": [{"type": kind, "status": "True"}]});
        cluster.change(&kinds::JOBS, key, |job| *job = merge::apply(job.take(), value!({"status": status})));
    }
    !open.is_empty()
}

fn jobs(cluster: &FakeCluster) -> Vec<String> {
    let minute =
        |name: &str| (name.strip_prefix("c-").unwrap().parse::<i64>().unwrap() - START.unix_seconds() / 60).to_string();
    cluster.of(JOBS).iter().map(|one| minute(&one.key.name)).collect()
}

fn status(cluster: &FakeCluster) -> Value {
    cluster.get(&kinds::CRON_JOBS, &key()).unwrap()["status"].clone()
}

#[test]
fn jobs_start_on_schedule_and_history_limits_apply() {
    let mut cluster = new_cluster(value!({}));
    pass(&mut cluster, 21, Some("Complete"));
    assert_eq!(jobs(&cluster), ["10", "15", "20"], "three are kept");
    assert_eq!(status(&cluster)["lastScheduleTime"], "2026-01-01T00:20:00Z".into());
    assert_eq!(status(&cluster)["lastSuccessfulTime"], "2026-01-01T00:20:00Z".into());
    assert!(status(&cluster).get("active").is_none());
    let pods = cluster.of(JOBS);
    let job = &pods.iter().next().unwrap().value;
    assert_eq!(Meta::of(job).annotation(SCHEDULED), Some("2026-01-01T00:10:00Z"));
    assert_eq!(Meta::of(job).label("of"), Some("cron"));
    pass(&mut cluster, 20, Some("Failed"));
    assert_eq!(jobs(&cluster), ["10", "15", "20", "40"], "one that failed is kept");
}

#[test]
fn concurrency_policy_is_followed_while_a_job_runs() {
    for (policy, expect) in [("Allow", vec!["5", "10", "15"]), ("Forbid", vec!["5"]), ("Replace", vec!["15"])] {
        let mut cluster = new_cluster(value!({"concurrencyPolicy": policy}));
        pass(&mut cluster, 17, None);
        assert_eq!(jobs(&cluster), expect, "{policy}");
        assert_eq!(status(&cluster)["active"].as_array().unwrap().len(), expect.len());
    }
}

#[test]
fn missed_schedules_start_one_job_within_the_starting_deadline() {
    let mut away = new_cluster(value!({}));
    away.now = START.plus(Duration::from_seconds(3600 + 240));
    pass(&mut away, 0, None);
    assert_eq!(jobs(&away), ["60"]);
    let mut late = new_cluster(value!({"startingDeadlineSeconds": 60}));
    late.now = START.plus(Duration::from_seconds(3600 + 240));
    pass(&mut late, 0, None);
    assert_eq!(jobs(&late), [""; 0]);
}

#[test]
fn suspended_cronjob_starts_no_job_and_an_invalid_schedule_is_reported() {
    let mut cluster = new_cluster(value!({"suspend": true}));
    pass(&mut cluster, 30, None);
    assert_eq!(jobs(&cluster), [""; 0]);
    cluster.change(&kinds::CRON_JOBS, &key(), |cron| {
        *cron = merge::apply(cron.take(), value!({"spec": {"suspend": false, "schedule": "x"}}));
    });
    let plan = decide::<CronJob>(&cluster.cache::<CronJob>(), &(), &key(), cluster.now).to_string();
    assert!(plan.starts_with("event CronJob a/c Warning UnparseableSchedule: unparseable schedule: \"x\""), "{plan}");
}

#[test]
fn schedule_that_is_never_due_is_reported_as_invalid() {
    let mut cluster = new_cluster(value!({}));
    cluster.change(&kinds::CRON_JOBS, &key(), |cron| {
        *cron = merge::apply(cron.take(), value!({"spec": {"schedule": "59 23 31 2 *"}}));
    });
    let plan = decide::<CronJob>(&cluster.cache::<CronJob>(), &(), &key(), cluster.now).to_string();
    let expect = "event CronJob a/c Warning InvalidSchedule: invalid schedule: 59 23 31 2 * : time difference between two schedules is less than 1 second";
    assert!(plan.starts_with(expect), "{plan}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, ..ProptestConfig::default() })]

    #[test]
    fn properties_hold_in_generated_clusters(
        policy in prop::sample::select(vec!["Allow", "Forbid", "Replace"]),
        end in prop::option::of(prop::sample::select(vec!["Complete", "Failed"])), minutes in 0..20i64, keep in 0..3i64,
    ) {
        let mut cluster = new_cluster(value!({"concurrencyPolicy": policy, "successfulJobsHistoryLimit": keep}));
        pass(&mut cluster, minutes, end);
        // A suspended CronJob has no new due times: only existing state is reconciled.
        cluster.change(&kinds::CRON_JOBS, &key(), |cron| *cron = merge::apply(cron.take(), value!({"spec": {"suspend": true}})));
        check_properties::<CronJob>(&cluster, |_| false);
    }
}

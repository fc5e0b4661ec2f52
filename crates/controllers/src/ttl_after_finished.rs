//! TTL-after-finished controller: deletes finished Jobs after ttlSecondsAfterFinished.

use std::convert::Infallible;

use api::resources::JOBS;
use apimachinery::meta::Meta;
use apimachinery::time::{Duration, Time};
use apimachinery::{GroupResource, Key, Value};
use controller::{Action, Cache, Controller, Plan, Propagation, Write, kinds};

use crate::job;

pub struct TtlAfterFinished;

impl Controller for TtlAfterFinished {
    type Observed<'a> = &'a Value;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "ttl-after-finished-controller";
    const READS: &'static [GroupResource] = &[JOBS];
    const WRITES: &'static [Write] = &[(JOBS, "")];

    fn affected_keys(_: &Cache, _: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        if ends(object).is_some() {
            keys.push(Key::of(object));
        }
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<&'a Value> {
        cache.get(JOBS, key)
    }

    fn plan(job: &&Value, now: Time) -> Plan {
        match ends(job) {
            Some(at) if at <= now && !Meta::of(job).is_deleting() => {
                let mut action = Action::delete(&kinds::JOBS, job);
                if let Action::Delete { propagation, .. } = &mut action {
                    *propagation = Some(Propagation::Foreground);
                }
                Plan::of(action)
            }
            Some(at) if at > now => Plan { wake_at: Some(at), ..Plan::default() },
            _ => Plan::default(),
        }
    }
}

/// Returns the time at which a finished Job is deleted.
fn ends(job: &Value) -> Option<Time> {
    let seconds = job.int_at(&["spec", "ttlSecondsAfterFinished"])?;
    let finished = job::finished(job)?.str_at(&["lastTransitionTime"])?;
    Some(Time::parse(finished).ok()?.plus(Duration::from_seconds(seconds)))
}

#[cfg(test)]
mod tests {
    use apimachinery::value;
    use controller::testing::{FakeCluster, check_properties, run_until_stable};

    use super::*;

    #[test]
    fn finished_job_is_deleted_after_its_ttl() {
        let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
        let done = value!({"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": (cluster.now.to_string())}]});
        for (name, spec, status) in [
            ("soon", value!({"ttlSecondsAfterFinished": 30}), done.clone()),
            ("never", value!({}), done),
            ("runs", value!({"ttlSecondsAfterFinished": 30}), value!({})),
        ] {
            cluster.add(
                &kinds::JOBS,
                value!({"metadata": {"namespace": "a", "name": name}, "spec": spec, "status": status}),
            );
        }
        check_properties::<TtlAfterFinished>(&cluster, |_| false);
        let start = cluster.now;
        run_until_stable::<TtlAfterFinished>(&mut cluster, |_| false);
        assert_eq!(cluster.log, ["delete jobs.batch a/soon Foreground"]);
        assert_eq!(cluster.now.since(start).whole_seconds(), 30);
    }
}

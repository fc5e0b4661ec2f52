//! Autoscaler samples: the usage of pods, and the replicas that meet a target.

use std::collections::BTreeMap;

use api::view::{AmountsFrom, Pod};
use apimachinery::Value;
use apimachinery::meta::Meta;
use apimachinery::quantity::Quantity;
use apimachinery::time::{Duration, Time};

use super::Config;
use crate::condition;

/// The sample of one pod in milli-units, with its timestamp and window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub value: i64,
    pub at: Option<Time>,
    pub window: Duration,
}

/// Pods grouped by the availability of their samples.
#[derive(Debug, Default)]
pub(super) struct Groups {
    pub samples: BTreeMap<String, Sample>,
    ready: usize,
    unready: Vec<String>,
    missing: Vec<String>,
}

/// Tolerated deviations of the ratio of usage and target, upwards and downwards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tolerances {
    pub up: f64,
    pub down: f64,
}

impl Tolerances {
    /// Returns the tolerances of the autoscaler's behavior, or else the default.
    pub(super) fn of(hpa: &Value, otherwise: f64) -> Self {
        let stated = |way| hpa.at(&["spec", "behavior", way, "tolerance"]).and_then(quantity);
        let tolerance = |way| stated(way).map_or(otherwise, |thousandths| thousandths as f64 / 1000.0);
        Self { up: tolerance("scaleUp"), down: tolerance("scaleDown") }
    }

    pub(super) fn is_near(self, ratio: f64) -> bool {
        (1.0 - self.down..=1.0 + self.up).contains(&ratio)
    }
}

/// The target of a metric.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'a> {
    /// The sum of the samples in percent of the sum of the requests.
    Utilization { percent: i64, requests: &'a BTreeMap<String, i64> },
    /// The mean of the samples.
    Average(i64),
}

impl Target<'_> {
    /// Returns the ratio of usage and target, and the usage as reported in the status.
    fn ratio(self, samples: &BTreeMap<String, Sample>) -> Option<(f64, i64)> {
        match self {
            Self::Utilization { percent, requests } => {
                let known = || samples.iter().filter_map(|(name, sample)| Some((sample.value, *requests.get(name)?)));
                let (used, requested) = known().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
                if requested == 0 || percent == 0 {
                    return None;
                }
                let now = used.saturating_mul(100) / requested;
                Some((now as f64 / percent as f64, now))
            }
            Self::Average(target) => {
                let count = i64::try_from(samples.len()).ok().filter(|count| *count > 0)?;
                let mean = samples.values().map(|sample| sample.value).sum::<i64>() / count;
                (target != 0).then(|| (mean as f64 / target as f64, mean))
            }
        }
    }

    /// Returns the usage assumed for a pod without a sample when scaling down.
    fn full(self, name: &str) -> i64 {
        match self {
            Self::Utilization { percent, requests } => {
                requests.get(name).copied().unwrap_or(0) * percent.max(100) / 100
            }
            Self::Average(target) => target,
        }
    }
}

/// Groups pods into those with usable samples, those that started recently, and those without a sample.
pub(super) fn group(
    pods: &[&Value],
    mut samples: BTreeMap<String, Sample>,
    is_cpu: bool,
    config: &Config,
    now: Time,
) -> Groups {
    let mut groups = Groups::default();
    for pod in pods {
        let name = Meta::of(pod).name().to_owned();
        if Meta::of(pod).is_deleting() || Pod(pod).phase() == "Failed" {
            samples.remove(&name);
        } else if Pod(pod).phase() == "Pending" {
            samples.remove(&name);
            groups.unready.push(name);
        } else if let Some(sample) = samples.get(&name) {
            if is_cpu && misleads(pod, *sample, config, now) {
                samples.remove(&name);
                groups.unready.push(name);
            } else {
                groups.ready += 1;
            }
        } else {
            groups.missing.push(name);
        }
    }
    let known = |name: &String| pods.iter().any(|pod| Meta::of(pod).name() == name);
    samples.retain(|name, _| known(name));
    groups.samples = samples;
    groups
}

/// Returns the desired replicas and the current usage.
pub(super) fn replicas(
    mut groups: Groups,
    target: Target<'_>,
    current: i64,
    tolerances: Tolerances,
) -> Result<(i64, i64), String> {
    if groups.samples.is_empty() {
        return Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
    }
    let (ratio, used) = target.ratio(&groups.samples).ok_or("no metrics returned matched known pods")?;
    let is_near = |ratio: f64| tolerances.is_near(ratio);
    let grows_with_unready = !groups.unready.is_empty() && ratio > 1.0;
    if !grows_with_unready && groups.missing.is_empty() {
        let desired = if is_near(ratio) { current } else { (ratio * groups.ready as f64).ceil() as i64 };
        return Ok((desired, used));
    }
    let mut suppose = |name: &String, value: i64| {
        groups.samples.insert(name.clone(), Sample { value, at: None, window: Duration::default() });
    };
    for name in &groups.missing {
        match ratio.total_cmp(&1.0) {
            std::cmp::Ordering::Less => suppose(name, target.full(name)),
            std::cmp::Ordering::Greater => suppose(name, 0),
            std::cmp::Ordering::Equal => {}
        }
    }
    if grows_with_unready {
        groups.unready.iter().for_each(|name| suppose(name, 0));
    }
    let (again, _) = target.ratio(&groups.samples).ok_or("no metrics returned matched known pods")?;
    let turned = (ratio < 1.0 && again > 1.0) || (ratio > 1.0 && again < 1.0);
    let desired = (again * groups.samples.len() as f64).ceil() as i64;
    let against = (again < 1.0 && desired > current) || (again > 1.0 && desired < current);
    Ok((if is_near(again) || turned || against { current } else { desired }, used))
}

/// Returns the desired replicas for the ratio of a metric that is not per pod, based on the ready pods.
pub(super) fn by_ratio(ratio: f64, pods: &[&Value], current: i64, tolerances: Tolerances) -> i64 {
    if tolerances.is_near(ratio) && current != 0 {
        return current;
    }
    let ready = pods.iter().filter(|pod| Pod(pod).phase() == "Running" && Pod(pod).is_ready()).count();
    if current == 0 { ratio.ceil() as i64 } else { (ratio * ready as f64).ceil() as i64 }
}

/// Returns the requests of each pod, or of one container of each pod, in milli-units. Pod-level requests take precedence
/// over those of the containers.
pub(super) fn requests(
    pods: &[&Value],
    resource: &str,
    container: Option<&str>,
) -> Result<BTreeMap<String, i64>, String> {
    let mut all = BTreeMap::new();
    for pod in pods {
        let name = Meta::of(pod).name();
        if container.is_none() && Pod(pod).has_pod_level("requests") {
            let requested = Pod(pod).requests(AmountsFrom::Spec).get(resource).map(|amount| amount.milli_value());
            let missing = || format!("missing pod-level request for {resource} in Pod {name}");
            all.insert(name.to_owned(), requested.ok_or_else(missing)?);
            continue;
        }
        let sidecar = |one: &&Value| one.str_at(&["restartPolicy"]) == Some("Always");
        let list = |field| pod.list_at(&["spec", field]).iter();
        let mut sum = 0;
        for one in list("containers").chain(list("initContainers").filter(sidecar)) {
            let of = one.text_at(&["name"]);
            if container.is_some_and(|only| only != of) {
                continue;
            }
            let requested = one.at(&["resources", "requests", resource]).and_then(quantity);
            let missing = || format!("missing request for {resource} in container {of} of Pod {name}");
            sum += requested.ok_or_else(missing)?;
        }
        all.insert(name.to_owned(), sum);
    }
    Ok(all)
}

/// Parses a quantity into milli-units.
pub(super) fn quantity(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => number.checked_mul(1000),
        other => other.as_str()?.parse::<Quantity>().ok().map(Quantity::milli_value),
    }
}

/// Whether the sample reflects the pod's start and must be ignored.
fn misleads(pod: &Value, sample: Sample, config: &Config, now: Time) -> bool {
    let time = |text: Option<&str>| text.and_then(|text| Time::parse(text).ok());
    let start = time(pod.str_at(&["status", "startTime"]));
    let (Some(start), Some(ready)) = (start, condition::find(pod, "Ready")) else { return true };
    let since = time(ready.str_at(&["lastTransitionTime"])).unwrap_or(start);
    let is_unready = ready.str_at(&["status"]) == Some("False");
    if start.plus(config.cpu_initialization) > now {
        return is_unready || sample.at.is_some_and(|at| at < since.plus(sample.window));
    }
    is_unready && start.plus(config.initial_readiness) > since
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn pod_level_requests_take_precedence_unless_one_container_is_measured() {
        let check = |spec: Value, container: Option<&str>, expect: Result<i64, &str>| {
            let pod = value!({"metadata": {"name": "p"}, "spec": spec});
            let found = requests(&[&pod], "cpu", container).map(|all| all["p"]);
            assert_eq!(found, expect.map_err(str::to_owned), "{pod:?}");
        };
        let cpu = |amount: &str| value!({"requests": {"cpu": amount}});
        let containers = value!([{"name": "a", "resources": (cpu("250m"))}, {"name": "b"}]);
        let spec = |pod_level: Value| value!({"containers": (containers.clone()), "resources": pod_level});
        check(spec(cpu("2")), None, Ok(2000));
        check(spec(cpu("2")), Some("a"), Ok(250));
        check(spec(value!({"limits": {"cpu": "2"}})), None, Err("missing request for cpu in container b of Pod p"));
        let memory = value!({"requests": {"memory": "1Gi"}});
        let alone = value!({"containers": [{"name": "b"}], "resources": memory});
        check(alone, None, Err("missing pod-level request for cpu in Pod p"));
    }
}

//! `KubeSchedulerConfiguration` of `kubescheduler.config.k8s.io/v1`: strict decoding and upstream's validation.

mod arguments;
mod plugins;
mod types;

use std::collections::BTreeMap;
use std::time::Duration;

use apimachinery::field::{self, Error as Finding};
use apimachinery::{At, Errors, Path, Str, Value, conform, yaml};

use arguments::Arguments;

use crate::extender::{self, AnyChange, Extender};
use crate::profile::{EnabledPlugin, Profile};
use crate::queue::Options;

/// A decoded and validated `KubeSchedulerConfiguration`.
pub struct Configuration {
    pub profiles: Vec<Profile>,
    pub extenders: Vec<Extender>,
    /// Back-off durations of the scheduling queue.
    pub queue: Options,
    /// Number of nodes that upstream evaluates in parallel. Here a multiple of it limits the concurrent API requests.
    pub parallelism: u32,
    pub client: ClientConnection,
    pub election: LeaderElection,
}

/// The `clientConnection` field: how the scheduler connects to the API server.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientConnection {
    /// Path of the kubeconfig file; empty if not set.
    pub kubeconfig: String,
    /// Requests per second.
    pub qps: f64,
    /// Requests that may exceed the rate.
    pub burst: u32,
}

/// The `leaderElection` field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElection {
    pub enabled: bool,
    /// Non-leaders wait this long after the last renewal before they take over the lease.
    pub lease_duration: Duration,
    /// A leader that cannot renew its lease for this long stops leading.
    pub renew_deadline: Duration,
    /// Interval between attempts to acquire or renew the lease.
    pub retry_period: Duration,
    pub namespace: String,
    pub name: String,
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the configuration is not valid YAML")]
    Yaml(#[source] yaml::Error),
    /// The apiVersion or kind is not `KubeSchedulerConfiguration` of v1.
    #[error("no kind {kind:?} is registered for version {version:?}")]
    Kind {
        kind: String,
        /// The value of `apiVersion`.
        version: String,
    },
    /// A field has a value of the wrong type.
    #[error("the configuration cannot be decoded")]
    Decode(#[source] conform::Error),
    /// The configuration has unknown or duplicate fields.
    #[error("strict decoding error: {0}")]
    Strict(String),
    /// Validation failed; the message lists all errors.
    #[error("{0}")]
    Invalid(String),
    /// A plugin does not exist or does not implement the extension point.
    #[error("{0}")]
    Plugin(String),
}

const GROUP: &str = "kubescheduler.config.k8s.io";
const KIND: &str = "KubeSchedulerConfiguration";

impl Default for Configuration {
    fn default() -> Self {
        Self {
            profiles: vec![Profile::default()],
            extenders: Vec::new(),
            queue: Options::default(),
            parallelism: 16,
            client: ClientConnection { kubeconfig: String::new(), qps: 50.0, burst: 100 },
            election: LeaderElection {
                enabled: true,
                lease_duration: Duration::from_secs(15),
                renew_deadline: Duration::from_secs(10),
                retry_period: Duration::from_secs(2),
                namespace: "kube-system".to_owned(),
                name: "kube-scheduler".to_owned(),
            },
        }
    }
}

impl Configuration {
    /// Decodes and validates a configuration file in YAML or JSON.
    pub fn read(text: &str) -> Result<Self, Error> {
        let (mut tree, repeated) = yaml::parse_strict(text).map_err(Error::Yaml)?;
        let part = |field: &str| tree.text_at(&[field]).to_owned();
        let (kind, version) = (part("kind"), part("apiVersion"));
        if kind != KIND || version != format!("{GROUP}/v1") {
            return Err(Error::Kind { kind, version });
        }
        let unknown = types::conform_to(&mut tree, KIND).map_err(Error::Decode)?;
        strict(&unknown, repeated)?;
        let mut findings = Errors::new();
        let made = Self::of(&At::root(&tree), &mut findings);
        match field::aggregate(&findings) {
            Some(text) => Err(Error::Invalid(text)),
            None => made,
        }
    }

    fn of(root: &At<'_>, findings: &mut Errors) -> Result<Self, Error> {
        let defaults = Self::default();
        let client = client(&root.get("clientConnection"), &defaults.client, findings);
        let election = election(&root.get("leaderElection"), defaults.election, findings);
        let parallelism = number(&root.get("parallelism"), i64::from(defaults.parallelism));
        if parallelism <= 0 {
            let detail = "should be an integer value greater than zero";
            findings.push(Finding::invalid(&Path::of("parallelism"), parallelism, detail));
        }
        let percentage = percentage(&root.get("percentageOfNodesToScore"), findings);
        let initial = number(&root.get("podInitialBackoffSeconds"), 1);
        let most = number(&root.get("podMaxBackoffSeconds"), 10);
        if initial <= 0 {
            findings.push(Finding::invalid(&Path::of("podInitialBackoffSeconds"), initial, "must be greater than 0"));
        }
        if most < initial {
            let detail = "must be greater than or equal to PodInitialBackoffSeconds";
            findings.push(Finding::invalid(&Path::of("podMaxBackoffSeconds"), most, detail));
        }
        let extenders = extender::read(&root.get("extenders"), findings);
        let millis = |seconds: i64| u64::try_from(seconds).unwrap_or(0).saturating_mul(1000);
        Ok(Self {
            profiles: profiles(&root.get("profiles"), percentage.unwrap_or(0), &extenders, findings)?,
            extenders,
            queue: Options { backoff_initial: millis(initial), backoff_max: millis(most), ..defaults.queue },
            parallelism: parallelism.try_into().unwrap_or(defaults.parallelism),
            client,
            election,
        })
    }
}

/// Fails if there are unknown or duplicate fields.
fn strict(unknown: &[String], repeated: Vec<String>) -> Result<(), Error> {
    let unknown = unknown.iter().map(|path| format!("unknown field \"{path}\""));
    let all: Vec<_> = repeated.into_iter().chain(unknown).collect();
    if all.is_empty() { Ok(()) } else { Err(Error::Strict(all.join(", "))) }
}

fn profiles(
    list: &At<'_>,
    percentage_of_all: i64,
    extenders: &[Extender],
    findings: &mut Errors,
) -> Result<Vec<Profile>, Error> {
    let uncounted: Vec<_> = extenders.iter().flat_map(|it| it.uncounted.iter().cloned()).collect();
    let absent = Value::Array(vec![Value::object()]);
    let list = if list.is_empty() { At::new(&absent, Path::of("profiles")) } else { *list };
    let (alone, mut seen) = (list.len() == 1, BTreeMap::new());
    let mut profiles = Vec::new();
    for (index, item) in list.items().enumerate() {
        let name = item.get("schedulerName");
        let scheduler_name = match name.str() {
            "" if alone => Str::from("default-scheduler"),
            given => given.into(),
        };
        if scheduler_name.is_empty() {
            findings.push(name.required(""));
        }
        if let Some(before) = seen.insert(scheduler_name.clone(), index) {
            findings.push(Finding::duplicate(name.path(), format!("profiles[{before}].schedulerName")));
        }
        let percentage = percentage(&item.get("percentageOfNodesToScore"), findings);
        let mut arguments = Arguments::read(&item.get("pluginConfig"), findings)?;
        arguments.uncounted.clone_from(&uncounted);
        let chosen = plugins::chosen(&scheduler_name, &item.get("plugins"))?;
        let preempts = chosen.iter().any(|it| it.name == "DefaultPreemption" && it.post_filters);
        let mut plugins: Vec<_> = chosen.iter().filter_map(|chosen| arguments.enabled(chosen)).collect();
        if !extenders.is_empty() {
            plugins.push(EnabledPlugin {
                plugin: Box::new(AnyChange),
                gates: false,
                pre_filters: false,
                filters: false,
                weight: 0,
            });
        }
        profiles.push(Profile {
            scheduler_name,
            plugins,
            percentage_of_nodes_to_score: percentage.unwrap_or(percentage_of_all),
            preemption: preempts.then(|| arguments.preemption()),
            timeouts: arguments.timeouts(),
        });
    }
    Ok(profiles)
}

fn client(at: &At<'_>, absent: &ClientConnection, findings: &mut Errors) -> ClientConnection {
    let burst = number(&at.get("burst"), i64::from(absent.burst));
    if burst < 0 {
        findings.push(at.get("burst").invalid("must be non-negative"));
    }
    ClientConnection {
        kubeconfig: at.get("kubeconfig").str().to_owned(),
        qps: at.get("qps").value().as_float().unwrap_or(absent.qps),
        burst: burst.try_into().unwrap_or(absent.burst),
    }
}

fn election(at: &At<'_>, absent: LeaderElection, findings: &mut Errors) -> LeaderElection {
    let mut span = |field: &str, absent: Duration| {
        let at = at.get(field);
        match at.str() {
            "" => absent,
            text => duration(text).unwrap_or_else(|| {
                findings.push(at.invalid("must be a duration"));
                absent
            }),
        }
    };
    let text = |field: &str, absent: String| match at.get(field).str() {
        "" => absent,
        given => given.to_owned(),
    };
    let made = LeaderElection {
        enabled: at.get("leaderElect").value().as_bool().unwrap_or(absent.enabled),
        lease_duration: span("leaseDuration", absent.lease_duration),
        renew_deadline: span("renewDeadline", absent.renew_deadline),
        retry_period: span("retryPeriod", absent.retry_period),
        namespace: text("resourceNamespace", absent.namespace),
        name: text("resourceName", absent.name),
    };
    if made.enabled {
        validate_election(at, &made, findings);
    }
    made
}

fn validate_election(at: &At<'_>, made: &LeaderElection, findings: &mut Errors) {
    let path = at.path();
    let mut positive = |field: &str, span: Duration| {
        if span.is_zero() {
            findings.push(Finding::invalid(&path.field(field), "0s", "must be greater than zero"));
        }
    };
    positive("leaseDuration", made.lease_duration);
    positive("renewDeadline", made.renew_deadline);
    positive("retryPeriod", made.retry_period);
    if made.lease_duration <= made.renew_deadline {
        let detail = "LeaseDuration must be greater than RenewDeadline";
        findings.push(at.get("leaseDuration").invalid(detail));
    }
    let lock = at.get("resourceLock");
    if lock.is_present() && lock.str() != "leases" {
        findings.push(lock.invalid("resourceLock value must be \"leases\""));
    }
}

fn percentage(at: &At<'_>, findings: &mut Errors) -> Option<i64> {
    let given = at.value().as_int()?;
    if !(0..=100).contains(&given) {
        findings.push(at.invalid("not in valid range [0-100]"));
    }
    Some(given)
}

fn number(at: &At<'_>, absent: i64) -> i64 {
    at.value().as_int().unwrap_or(absent)
}

pub(crate) fn duration(text: &str) -> Option<Duration> {
    let nanos = text.parse::<apimachinery::time::Duration>().ok()?.nanos();
    u64::try_from(nanos).ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests;

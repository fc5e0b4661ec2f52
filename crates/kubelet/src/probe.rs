//! Container probes: run periodically; a result counts once it has occurred a configured number of times in a row.

mod grpc;

use std::sync::Arc;
use std::time::Duration;

use apimachinery::Value;
use controller::EventType;
use tokio::sync::mpsc;

use crate::counters::ProbeCounters;
use crate::events::EventSink;
use crate::http_client;
use crate::pod::Container;
use crate::runtime::Runtime;

/// The kind of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Delays the other probes until it succeeds.
    Startup,
    /// Failure kills the container.
    Liveness,
    /// Determines whether the container receives traffic.
    Readiness,
}

/// A changed result of a probe, after its threshold of equal results was reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeResult {
    /// ID of the container.
    pub id: String,
    pub kind: Kind,
    pub success: bool,
}

/// The timing and thresholds of a probe.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    initial_delay: Duration,
    period: Duration,
    timeout: Duration,
    success_threshold: u32,
    failure_threshold: u32,
}

/// An unsuccessful probe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The container failed the probe or did not respond in time.
    #[error("failed: {0}")]
    Failed(String),
    /// The probe could not be run, so the state of the container is unknown.
    #[error("errored and resulted in unknown state: {0}")]
    NotRun(String),
}

/// Counts equal results in a row.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResultRun {
    last: Option<bool>,
    count: u32,
    verdict: Option<bool>,
}

impl Kind {
    /// All kinds, in order of precedence.
    pub const ALL: [Self; 3] = [Self::Startup, Self::Liveness, Self::Readiness];

    /// Returns the container field of the probe.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Startup => "startupProbe",
            Self::Liveness => "livenessProbe",
            Self::Readiness => "readinessProbe",
        }
    }

    /// Returns the name for messages.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }
}

impl Settings {
    /// Reads a probe with the API's defaults.
    pub(crate) fn read(probe: &Value) -> Self {
        let number = |field: &str, default: u32, min: u32| {
            probe[field].as_int().and_then(|number| u32::try_from(number).ok()).unwrap_or(default).max(min)
        };
        let seconds = |field, default, min| Duration::from_secs(number(field, default, min).into());
        Self {
            initial_delay: seconds("initialDelaySeconds", 0, 0),
            period: seconds("periodSeconds", 10, 1),
            timeout: seconds("timeoutSeconds", 1, 1),
            success_threshold: number("successThreshold", 1, 1),
            failure_threshold: number("failureThreshold", 3, 1),
        }
    }
}

impl ResultRun {
    /// Adds a result. Returns it if it reaches its threshold and differs from the last returned one. A probe that could
    /// not be run does not count.
    pub(crate) fn push(&mut self, problem: Option<&Problem>, settings: &Settings) -> Option<bool> {
        let success = match problem {
            None => true,
            Some(Problem::Failed(_)) => false,
            Some(Problem::NotRun(_)) => return None,
        };
        self.count = if self.last == Some(success) { self.count.saturating_add(1) } else { 1 };
        self.last = Some(success);
        let enough = if success { settings.success_threshold } else { settings.failure_threshold };
        if self.count < enough || self.verdict == Some(success) {
            return None;
        }
        self.verdict = Some(success);
        self.verdict
    }
}

/// A probe of a running container.
pub(crate) struct Prober {
    pub kind: Kind,
    /// ID of the container.
    pub id: String,
    /// The container's spec.
    pub spec: Value,
    pub role: crate::pod::Role,
    /// Time since the start of the container.
    pub age: Duration,
    pub pod_ip: String,
    /// Runs exec probes.
    pub runtime: Runtime,
    pub results: Arc<ProbeCounters>,
    /// Records failure events.
    pub event_sink: EventSink,
    pub verdicts: mpsc::Sender<ProbeResult>,
}

impl Prober {
    /// Probes until the future is dropped; a startup probe stops after its success.
    pub(crate) async fn run(self) {
        let probe = self.spec[self.kind.field()].clone();
        let settings = Settings::read(&probe);
        let mut counts = ResultRun::default();
        // The initial delay counts from the start of the container, not of this task.
        tokio::time::sleep(settings.initial_delay.saturating_sub(self.age)).await;
        let mut period = tokio::time::interval(settings.period);
        period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            period.tick().await;
            let outcome = self.run_probe(&probe, settings.timeout).await;
            let problem = outcome.as_ref().err();
            self.results.count(problem);
            if let Some(problem) = problem {
                let message = format!("{} probe {problem}", self.kind.word());
                self.event_sink.container(self.container(), EventType::Warning, "Unhealthy", &message);
            }
            let Some(success) = counts.push(problem, &settings) else { continue };
            let verdict = ProbeResult { id: self.id.clone(), kind: self.kind, success };
            if self.verdicts.send(verdict).await.is_err() || self.kind == Kind::Startup && success {
                return;
            }
        }
    }

    fn container(&self) -> Container<'_> {
        Container { spec: &self.spec, role: self.role }
    }

    async fn run_probe(&self, probe: &Value, timeout: Duration) -> Result<(), Problem> {
        let unasked = |cause: &str| Problem::NotRun(cause.to_owned());
        if let Some(exec) = probe.get("exec") {
            let args = exec["command"].as_array().unwrap_or_default();
            let command = args.iter().filter_map(|word| word.as_str().map(str::to_owned)).collect();
            return executed(self.runtime.exec(&self.id, command, timeout).await);
        }
        if let Some(action) = probe.get("httpGet") {
            let get = http_client::Get::read(action, self.container(), &self.pod_ip, "kube-probe/1.36");
            let get = get.map_err(|error| unasked(&error.to_string()))?;
            let response = http_client::get(&get, timeout).await;
            let (status, _) = response.map_err(|error| Problem::Failed(error.to_string()))?;
            if (200..400).contains(&status.as_u16()) {
                return Ok(());
            }
            return Err(Problem::Failed(format!("HTTP probe failed with statuscode: {}", status.as_u16())));
        }
        if let Some(action) = probe.get("tcpSocket") {
            let host = action.str_at(&["host"]).filter(|host| !host.is_empty()).unwrap_or(&self.pod_ip);
            let port =
                http_client::port(&action["port"], self.container()).ok_or_else(|| unasked("the port is unknown"))?;
            return http_client::connect(host, port, timeout).await.map_err(|error| Problem::Failed(error.to_string()));
        }
        if let Some(action) = probe.get("grpc") {
            let port = action["port"].as_int().and_then(|port| u16::try_from(port).ok());
            let port = port.ok_or_else(|| unasked("the port is unknown"))?;
            let service = action.str_at(&["service"]).unwrap_or_default();
            return grpc::check(&self.pod_ip, port, service, timeout).await.map_err(Problem::Failed);
        }
        Ok(())
    }
}

/// Converts the outcome of an exec probe. If the runtime could not run the command, the result is unknown.
fn executed(outcome: Result<(i32, Vec<u8>), tonic::Status>) -> Result<(), Problem> {
    match outcome {
        Ok((0, _)) => Ok(()),
        Ok((_, output)) => Err(Problem::Failed(String::from_utf8_lossy(&output).into_owned())),
        Err(status) if status.code() == tonic::Code::DeadlineExceeded => {
            Err(Problem::Failed(format!("command timed out: {}", status.message())))
        }
        Err(status) => Err(Problem::NotRun(status.message().to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn probe_result_changes_after_threshold_consecutive_results() {
        let settings = Settings::read(&value!({"successThreshold": 2, "failureThreshold": 3}));
        let mut counts = ResultRun::default();
        let (failed, unasked) = (Problem::Failed(String::new()), Problem::NotRun(String::new()));
        let signs = "++-++-?-?-+---++";
        let problem = |sign: char| match sign {
            '-' => Some(&failed),
            '?' => Some(&unasked),
            _ => None,
        };
        let verdicts: String = signs
            .chars()
            .map(|sign| match counts.push(problem(sign), &settings) {
                Some(true) => 'Y',
                Some(false) => 'N',
                None => '.',
            })
            .collect();
        assert_eq!(verdicts, ".Y.......N.....Y");
    }
    #[test]
    fn exec_probe_that_could_not_run_has_unknown_result() {
        let check = |outcome: Result<(i32, Vec<u8>), tonic::Status>, expect: &str| {
            let message = executed(outcome).err().map(|problem| problem.to_string());
            assert_eq!(message.unwrap_or_default(), expect);
        };
        check(Ok((0, b"fine".to_vec())), "");
        check(Ok((1, b"broken".to_vec())), "failed: broken");
        check(Err(tonic::Status::deadline_exceeded("1s")), "failed: command timed out: 1s");
        check(Err(tonic::Status::unavailable("gone")), "errored and resulted in unknown state: gone");
    }
}

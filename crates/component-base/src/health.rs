//! `/healthz`, `/livez` and `/readyz` of every component: named checks that can be requested alone, excluded or listed.
//!
//! ```text
//! HealthRequest::parse ─> the component runs the selected checks ─> Slis::respond (text, and counts for /metrics/slis)
//! ```
//!
//! Each check tests a real part of its component. The names of failed checks are public. The reasons are only returned
//! to clients that may request the single check, and logged.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The path of the health check metrics.
pub const SLIS_PATH: &str = "/metrics/slis";

/// Time for which log output may be blocked before the check `log` fails.
const LOG_BLOCKED_MAX: Duration = Duration::from_secs(120);
/// Interval of the log check.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A health endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Endpoint {
    /// The deprecated endpoint that combines the other two.
    Healthz,
    /// Fails if the process must be restarted.
    Livez,
    /// Fails if no requests should be sent to the process.
    Readyz,
}

/// A request to a health endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthRequest<'a> {
    pub endpoint: Endpoint,
    only: Option<&'a str>,
    excluded: Vec<Cow<'a, str>>,
    verbose: bool,
}

/// The result of a check, with the reason of a failure. `None` if the request does not select the check.
pub type Outcome = Option<Result<(), String>>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthResponse {
    /// 200 or 500.
    pub code: u16,
    pub text: String,
}

/// Counts of check results, from which service level indicators are computed.
#[derive(Debug)]
pub struct Slis {
    results: Mutex<BTreeMap<(String, Endpoint), Results>>,
    started: SystemTime,
}

#[derive(Clone, Copy, Debug, Default)]
struct Results {
    successes: u64,
    errors: u64,
    passes: bool,
}

impl Endpoint {
    pub const ALL: [Self; 3] = [Self::Healthz, Self::Livez, Self::Readyz];

    const fn name(self) -> &'static str {
        match self {
            Self::Healthz => "healthz",
            Self::Livez => "livez",
            Self::Readyz => "readyz",
        }
    }
}

impl<'a> HealthRequest<'a> {
    /// Parses a path and query. Returns `None` for other paths.
    pub fn parse(path: &'a str, query: &'a str) -> Option<Self> {
        let path = path.trim_matches('/');
        let (endpoint, only) = path.split_once('/').map_or((path, None), |(endpoint, only)| (endpoint, Some(only)));
        let endpoint = Endpoint::ALL.into_iter().find(|one| one.name() == endpoint)?;
        let mut request = Self { endpoint, only, excluded: Vec::new(), verbose: false };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "exclude" => request.excluded.push(value),
                "verbose" => request.verbose = true,
                _ => {}
            }
        }
        Some(request)
    }

    /// Whether a check is to be run.
    pub fn selects(&self, check: &str) -> bool {
        match self.only {
            Some(only) => only == check,
            None => !self.excludes(check),
        }
    }

    fn excludes(&self, check: &str) -> bool {
        self.excluded.iter().any(|excluded| excluded == check)
    }
}

impl Default for Slis {
    fn default() -> Self {
        Self { results: Mutex::default(), started: SystemTime::now() }
    }
}

impl Slis {
    /// Returns the response, given all checks of the endpoint in order; `None` if the requested check does not exist.
    pub fn respond<N: AsRef<str>>(
        &self,
        request: &HealthRequest<'_>,
        checks: &[(N, Outcome)],
    ) -> Option<HealthResponse> {
        if let Some(only) = request.only {
            let (_, outcome) = checks.iter().find(|(name, _)| name.as_ref() == only)?;
            return Some(match outcome {
                Some(Err(error)) => HealthResponse { code: 500, text: format!("internal server error: {error}\n") },
                _ => HealthResponse { code: 200, text: "ok".to_owned() },
            });
        }
        let endpoint = request.endpoint.name();
        let (mut lines, mut failed) = (String::new(), false);
        for (name, outcome) in checks {
            let name = name.as_ref();
            let _ = match outcome {
                None => writeln!(lines, "[+]{name} excluded: ok"),
                Some(Ok(())) => writeln!(lines, "[+]{name} ok"),
                Some(Err(error)) => {
                    failed = true;
                    tracing::debug!(endpoint, check = name, %error, "a health check failed");
                    writeln!(lines, "[-]{name} failed: reason withheld")
                }
            };
            if let Some(outcome) = outcome {
                self.count(name, request.endpoint, outcome.is_ok());
            }
        }
        lines.push_str(&unknown(request, checks));
        Some(if failed {
            HealthResponse { code: 500, text: format!("{lines}{endpoint} check failed\n") }
        } else if request.verbose {
            HealthResponse { code: 200, text: format!("{lines}{endpoint} check passed\n") }
        } else {
            HealthResponse { code: 200, text: "ok".to_owned() }
        })
    }

    fn count(&self, name: &str, endpoint: Endpoint, passes: bool) {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = results.entry((name.to_owned(), endpoint)).or_default();
        counted.passes = passes;
        *(if passes { &mut counted.successes } else { &mut counted.errors }) += 1;
    }

    /// Returns the metrics of `/metrics/slis`.
    pub fn text(&self) -> String {
        let results = self.results.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut out = String::from(
            "# HELP kubernetes_healthcheck The last result of a health check: 1 if it passed.\n# TYPE kubernetes_healthcheck gauge\n",
        );
        for ((name, endpoint), counted) in &results {
            let (endpoint, passes) = (endpoint.name(), u8::from(counted.passes));
            let _ = writeln!(out, "kubernetes_healthcheck{{name={name:?},type={endpoint:?}}} {passes}");
        }
        out.push_str(
            "# HELP kubernetes_healthchecks_total Results of health checks.\n# TYPE kubernetes_healthchecks_total counter\n",
        );
        for ((name, endpoint), counted) in &results {
            for (status, count) in [("error", counted.errors), ("success", counted.successes)] {
                if count > 0 {
                    let endpoint = endpoint.name();
                    let labels = format!("name={name:?},status={status:?},type={endpoint:?}");
                    let _ = writeln!(out, "kubernetes_healthchecks_total{{{labels}}} {count}");
                }
            }
        }
        let started = self.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let _ = writeln!(
            out,
            "# HELP process_start_time_seconds Start time of the process in seconds since the Unix epoch.\n# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {started}"
        );
        out
    }
}

fn unknown<N: AsRef<str>>(request: &HealthRequest<'_>, checks: &[(N, Outcome)]) -> String {
    let is_known = |excluded: &str| checks.iter().any(|(name, _)| name.as_ref() == excluded);
    let mut unknown: Vec<String> =
        request.excluded.iter().filter(|excluded| !is_known(excluded)).map(|name| format!("{name:?}")).collect();
    if unknown.is_empty() {
        return String::new();
    }
    unknown.sort();
    unknown.dedup();
    format!("warn: some health checks cannot be excluded: no matches for {}\n", unknown.join(","))
}

/// The check `log`: detects that standard error is blocked because its reader has stopped.
#[derive(Clone, Debug)]
pub struct LogProbe(Arc<Mutex<FlushState>>);

#[derive(Debug)]
struct FlushState {
    last: Instant,
    probing: bool,
}

impl Default for LogProbe {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(FlushState { last: Instant::now(), probing: false })))
    }
}

impl LogProbe {
    /// Fails if standard error has been blocked for two minutes. At most one thread at a time tests it.
    pub fn check(&self) -> Result<(), String> {
        self.check_by(|| drop(std::io::stderr().lock()))
    }

    fn check_by(&self, flush: impl FnOnce() + Send + 'static) -> Result<(), String> {
        let mut flushed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = flushed.last.elapsed();
        if since >= LOG_INTERVAL && !flushed.probing {
            flushed.probing = true;
            let probe = Arc::clone(&self.0);
            std::thread::spawn(move || {
                flush();
                *probe.lock().unwrap_or_else(PoisonError::into_inner) =
                    FlushState { last: Instant::now(), probing: false };
            });
        }
        if since < LOG_BLOCKED_MAX { Ok(()) } else { Err("logging blocked".to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WELL: [(&str, Option<&str>); 2] = [("ping", None), ("etcd", None)];
    const ILL: [(&str, Option<&str>); 2] = [("ping", None), ("etcd", Some("no leader"))];

    fn respond(slis: &Slis, path: &str, query: &str, checks: &[(&'static str, Option<&str>)]) -> Option<(u16, String)> {
        let request = HealthRequest::parse(path, query)?;
        let run = |(name, failure): &(&'static str, Option<&str>)| {
            let outcome = failure.map_or(Ok(()), |error| Err(error.to_owned()));
            (*name, request.selects(name).then_some(outcome))
        };
        let checks: Vec<_> = checks.iter().map(run).collect();
        slis.respond(&request, &checks).map(|response| (response.code, response.text))
    }

    #[test]
    fn checks_are_listed_excluded_and_requested_alone() {
        let check = |path: &str, query: &str, checks: &[(&'static str, Option<&str>)], expect: Option<(u16, &str)>| {
            let found = respond(&Slis::default(), path, query, checks);
            assert_eq!(found.as_ref().map(|(code, text)| (*code, text.as_str())), expect, "{path}?{query}");
        };
        check("/readyz", "", &WELL, Some((200, "ok")));
        check("/readyz", "verbose", &WELL, Some((200, "[+]ping ok\n[+]etcd ok\nreadyz check passed\n")));
        let warned = "[+]ping ok\n[+]etcd excluded: ok\n\
            warn: some health checks cannot be excluded: no matches for \"x\"\nlivez check passed\n";
        check("/livez/", "verbose=1&exclude=etcd&exclude=x", &WELL, Some((200, warned)));
        let failed = "[+]ping ok\n[-]etcd failed: reason withheld\nhealthz check failed\n";
        check("/healthz", "", &ILL, Some((500, failed)));
        check("/healthz", "exclude=etcd", &ILL, Some((200, "ok")));
        check("/healthz/etcd", "", &ILL, Some((500, "internal server error: no leader\n")));
        check("/healthz/ping", "", &ILL, Some((200, "ok")));
        check("/healthz/absent", "", &ILL, None);
        check("/metrics", "", &ILL, None);
        check("/healthzz", "", &ILL, None);
    }

    #[test]
    fn results_are_counted_by_check_and_endpoint() {
        let slis = Slis::default();
        respond(&slis, "/healthz", "", &WELL);
        respond(&slis, "/healthz", "", &ILL);
        respond(&slis, "/readyz", "exclude=ping", &WELL);
        respond(&slis, "/readyz/ping", "", &WELL);
        let text = slis.text();
        let samples: Vec<&str> = text.lines().filter(|line| line.starts_with("kubernetes_")).collect();
        assert_eq!(
            samples,
            [
                r#"kubernetes_healthcheck{name="etcd",type="healthz"} 0"#,
                r#"kubernetes_healthcheck{name="etcd",type="readyz"} 1"#,
                r#"kubernetes_healthcheck{name="ping",type="healthz"} 1"#,
                r#"kubernetes_healthchecks_total{name="etcd",status="error",type="healthz"} 1"#,
                r#"kubernetes_healthchecks_total{name="etcd",status="success",type="healthz"} 1"#,
                r#"kubernetes_healthchecks_total{name="etcd",status="success",type="readyz"} 1"#,
                r#"kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 2"#,
            ]
        );
    }

    #[test]
    fn blocked_log_fails_its_check_until_it_recovers() {
        let probe = LogProbe::default();
        assert_eq!(probe.check_by(|| panic!("it is not time yet")), Ok(()));
        let long_ago = Instant::now().checked_sub(LOG_BLOCKED_MAX).expect("the host has been up for longer");
        probe.0.lock().unwrap().last = long_ago;
        let (flow, blocked) = std::sync::mpsc::channel::<()>();
        let (done, flushed) = std::sync::mpsc::channel();
        let flush = move || {
            let _ = blocked.recv();
            done.send(()).unwrap();
        };
        assert!(probe.check_by(flush).is_err());
        assert!(probe.check_by(|| panic!("one thread is enough")).is_err());
        flow.send(()).unwrap();
        flushed.recv().unwrap();
        while probe.0.lock().unwrap().probing {
            std::thread::yield_now();
        }
        assert_eq!(probe.check(), Ok(()));
    }
}

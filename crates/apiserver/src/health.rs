//! `/healthz`, `/livez` and `/readyz` of the API server: upstream's checks, each bound to the part of this server that does the
//! same.
//!
//! Upstream's checks of what does not exist here are absent: repair loops of service addresses and ports (claims are part of a
//! service's own transaction), leases of server identities, the tracking of legacy tokens, and the reload of the proxy's client
//! certificate (files are read again when they are used).

use std::time::{Duration, Instant};

use serving::health::{Endpoint, HealthRequest, LogProbe, Outcome, Slis};
use tokio::sync::Mutex;

use crate::answer::{self, Answer};
use crate::startup::Step;
use crate::state::State;

/// How long the store may take to answer: upstream's time.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// For how long its answer counts, so that anonymous requests do not become as many requests to the store.
const STORE_ANSWER_LIFE: Duration = Duration::from_millis(500);

/// What the checks remember.
#[derive(Default)]
pub struct Health {
    slis: Slis,
    log: LogProbe,
    store: Mutex<Option<(Instant, Result<(), String>)>>,
}

struct Check {
    name: &'static str,
    of: Of,
}

/// What a check observes.
#[derive(Clone, Copy)]
enum Of {
    /// That the server answers.
    Answers,
    /// That log lines get out.
    Log,
    /// That the store serves linearizable reads.
    Store,
    /// The same, for readiness only.
    StoreForReadiness,
    /// That the watch cache has everything and learns of every change.
    Cache,
    /// The same, for readiness only.
    CacheForReadiness,
    /// That something was done once.
    Step(Step),
    /// That the server is not shutting down; for readiness only.
    NotShuttingDown,
}

const CHECKS: &[Check] = &[
    check("ping", Of::Answers),
    check("log", Of::Log),
    check("etcd", Of::Store),
    check("etcd-readiness", Of::StoreForReadiness),
    check("informer-sync", Of::CacheForReadiness),
    check("poststarthook/start-apiserver-admission-initializer", Of::Cache),
    check("poststarthook/generic-apiserver-start-informers", Of::Cache),
    check("poststarthook/priority-and-fairness-config-consumer", Of::Step(Step::FlowControl)),
    check("poststarthook/priority-and-fairness-filter", Of::Step(Step::FlowControl)),
    check("poststarthook/storage-object-count-tracker-hook", Of::Cache),
    check("poststarthook/start-apiextensions-informers", Of::Cache),
    check("poststarthook/start-apiextensions-controllers", Of::Step(Step::CustomResources)),
    check("poststarthook/crd-informer-synced", Of::Step(Step::CustomResources)),
    check("poststarthook/start-system-namespaces-controller", Of::Step(Step::Namespaces)),
    check("poststarthook/start-cluster-authentication-info-controller", Of::Step(Step::AuthenticationInfo)),
    check("poststarthook/rbac/bootstrap-roles", Of::Step(Step::Roles)),
    check("poststarthook/scheduling/bootstrap-system-priority-classes", Of::Step(Step::PriorityClasses)),
    check("poststarthook/priority-and-fairness-config-producer", Of::Step(Step::FlowControlObjects)),
    check("poststarthook/bootstrap-controller", Of::Step(Step::OwnService)),
    check("poststarthook/start-kubernetes-service-cidr-controller", Of::Step(Step::ServiceCidr)),
    check("poststarthook/start-kube-aggregator-informers", Of::Cache),
    check("poststarthook/apiservice-status-local-available-controller", Of::Step(Step::ApiServices)),
    check("poststarthook/apiservice-status-remote-available-controller", Of::Step(Step::ApiServices)),
    check("poststarthook/apiservice-registration-controller", Of::Step(Step::ApiServices)),
    check("poststarthook/apiservice-discovery-controller", Of::Step(Step::ApiServices)),
    check("poststarthook/kube-apiserver-autoregistration", Of::Step(Step::ApiServices)),
    check("autoregister-completion", Of::Step(Step::ApiServices)),
    check("poststarthook/apiservice-openapi-controller", Of::Step(Step::ApiServices)),
    check("poststarthook/apiservice-openapiv3-controller", Of::Step(Step::ApiServices)),
    check("shutdown", Of::NotShuttingDown),
];

const fn check(name: &'static str, of: Of) -> Check {
    Check { name, of }
}

impl Of {
    const fn belongs_to(self, endpoint: Endpoint) -> bool {
        match self {
            Self::StoreForReadiness | Self::CacheForReadiness | Self::NotShuttingDown => {
                matches!(endpoint, Endpoint::Readyz)
            }
            Self::Answers | Self::Log | Self::Store | Self::Cache | Self::Step(_) => true,
        }
    }

    async fn run(self, state: &State) -> Result<(), String> {
        let (is_well, why) = match self {
            Self::Answers => return Ok(()),
            Self::Log => return state.health.log.check(),
            Self::Store | Self::StoreForReadiness => return store(state).await,
            Self::Cache | Self::CacheForReadiness => (state.cache.is_fed(), "the watch cache is not up to date"),
            Self::Step(step) => (state.startup.has(step), "not finished"),
            Self::NotShuttingDown => (!*state.ending.borrow(), "process is shutting down"),
        };
        if is_well { Ok(()) } else { Err(why.to_owned()) }
    }
}

/// Whether the store serves linearizable reads, which it does only with a quorum.
async fn store(state: &State) -> Result<(), String> {
    let mut last = state.health.store.lock().await;
    if let Some((_, answer)) = last.as_ref().filter(|(at, _)| at.elapsed() < STORE_ANSWER_LIFE) {
        return answer.clone();
    }
    let answer = match tokio::time::timeout(STORE_TIMEOUT, state.store.revision()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("the store is not available: {error}")),
        Err(_) => Err(format!("the store did not answer within {STORE_TIMEOUT:?}")),
    };
    *last = Some((Instant::now(), answer.clone()));
    answer
}

/// The response to a path; `None` if it is none of these.
pub async fn serve(state: &State, path: &str, query: &str) -> Option<Answer> {
    let request = HealthRequest::parse(path, query)?;
    let mut checks: Vec<(&str, Outcome)> = Vec::with_capacity(CHECKS.len());
    for check in CHECKS.iter().filter(|check| check.of.belongs_to(request.endpoint)) {
        let outcome = if request.selects(check.name) { Some(check.of.run(state).await) } else { None };
        checks.push((check.name, outcome));
    }
    let response = state.health.slis.respond(&request, &checks)?;
    Some(answer::text(response.code, response.text))
}

/// `/metrics/slis`.
pub fn slis(state: &State) -> String {
    state.health.slis.text()
}

//! `/healthz`, `/livez` and `/readyz` of the API server: upstream's checks, each mapped to the equivalent part of this
//! server.
//!
//! Upstream's checks without an equivalent are absent: repair loops of service IPs and node ports (allocations are part
//! of the Service's transaction), leases of server identities, legacy token tracking, and the reload of the proxy
//! client certificate (files are read again when they are used).

use std::time::{Duration, Instant};

use component_base::health::{Endpoint, HealthRequest, LogProbe, Outcome, Slis};
use tokio::sync::Mutex;

use crate::response::{self, HttpResponse};
use crate::startup::Step;
use crate::state::State;

/// Timeout of the store check; upstream's value.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for which a store check is cached, so that anonymous health requests do not become requests to the store.
const STORE_CHECK_TTL: Duration = Duration::from_millis(500);

/// The state of the health checks.
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

/// The condition that a health check tests.
#[derive(Clone, Copy)]
enum Of {
    /// The server responds; always succeeds.
    Answers,
    /// Log lines can be written.
    Log,
    /// The store serves linearizable reads.
    Store,
    /// Like [`Self::Store`], for readiness only.
    StoreForReadiness,
    /// The watch cache is filled and receives every change.
    Cache,
    /// Like [`Self::Cache`], for readiness only.
    CacheForReadiness,
    /// A startup step has completed.
    Step(Step),
    /// The server is not shutting down; for readiness only.
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
        let (is_well, message) = match self {
            Self::Answers => return Ok(()),
            Self::Log => return state.health.log.check(),
            Self::Store | Self::StoreForReadiness => return store(state).await,
            Self::Cache | Self::CacheForReadiness => (state.cache.is_fed(), "the watch cache is not up to date"),
            Self::Step(step) => (state.startup.has(step), "not finished"),
            Self::NotShuttingDown => (!*state.ending.borrow(), "process is shutting down"),
        };
        if is_well { Ok(()) } else { Err(message.to_owned()) }
    }
}

/// Checks that the store serves linearizable reads, which require a quorum.
async fn store(state: &State) -> Result<(), String> {
    let mut last = state.health.store.lock().await;
    if let Some((_, result)) = last.as_ref().filter(|(at, _)| at.elapsed() < STORE_CHECK_TTL) {
        return result.clone();
    }
    let result = match tokio::time::timeout(STORE_TIMEOUT, state.store.revision()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("the store is not available: {error}")),
        Err(_) => Err(format!("the store did not answer within {STORE_TIMEOUT:?}")),
    };
    *last = Some((Instant::now(), result.clone()));
    result
}

/// Serves a health path. Returns `None` for other paths.
pub async fn serve(state: &State, path: &str, query: &str) -> Option<HttpResponse> {
    let request = HealthRequest::parse(path, query)?;
    let mut checks: Vec<(&str, Outcome)> = Vec::with_capacity(CHECKS.len());
    for check in CHECKS.iter().filter(|check| check.of.belongs_to(request.endpoint)) {
        let outcome = if request.selects(check.name) { Some(check.of.run(state).await) } else { None };
        checks.push((check.name, outcome));
    }
    let response = state.health.slis.respond(&request, &checks)?;
    Some(response::text(response.code, response.text))
}

/// Returns the metrics of `/metrics/slis`.
pub fn slis(state: &State) -> String {
    state.health.slis.text()
}

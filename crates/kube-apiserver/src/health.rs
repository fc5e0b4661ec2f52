//! `/healthz`, `/livez` and `/readyz` of the API server: upstream's checks, each mapped to the equivalent part of this
//! server.
//!
//! Addresses and node ports of Services need no repair loop, because their allocation is part of the Service's
//! transaction. The check of upstream's repair controllers succeeds when the address range exists from which they are
//! allocated.
//!
//! Upstream's checks without an equivalent are absent: leases of server identities, legacy token tracking, and the
//! reload of the proxy client certificate (files are read again when they are used).

use std::sync::Arc;
use std::time::{Duration, Instant};

use component_base::health::{Endpoint, HealthRequest, LogProbe, Outcome, Slis};
use tokio::sync::{Mutex, watch};

use crate::response::{self, HttpResponse};
use crate::startup::{Startup, Step};
use crate::storage::Storage;

/// Timeout of the store check; upstream's value.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for which a store check is cached, so that anonymous health requests do not become requests to the store.
const STORE_CHECK_TTL: Duration = Duration::from_millis(500);

/// The health checks of a server.
pub struct Health {
    storage: Arc<Storage>,
    startup: Arc<Startup>,
    ending: watch::Receiver<bool>,
    slis: Slis,
    log: LogProbe,
    /// The last store check.
    checked: Mutex<Option<(Instant, Result<(), String>)>>,
}

struct Check {
    name: &'static str,
    of: CheckTarget,
}

/// The condition that a health check tests.
#[derive(Clone, Copy)]
enum CheckTarget {
    /// The server responds; always succeeds.
    Ping,
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
    check("ping", CheckTarget::Ping),
    check("log", CheckTarget::Log),
    check("etcd", CheckTarget::Store),
    check("etcd-readiness", CheckTarget::StoreForReadiness),
    check("informer-sync", CheckTarget::CacheForReadiness),
    check("poststarthook/start-apiserver-admission-initializer", CheckTarget::Cache),
    check("poststarthook/storage-readiness", CheckTarget::Cache),
    check("poststarthook/generic-apiserver-start-informers", CheckTarget::Cache),
    check("poststarthook/priority-and-fairness-config-consumer", CheckTarget::Step(Step::FlowControl)),
    check("poststarthook/priority-and-fairness-filter", CheckTarget::Step(Step::FlowControl)),
    check("poststarthook/storage-object-count-tracker-hook", CheckTarget::Cache),
    check("poststarthook/start-apiextensions-informers", CheckTarget::Cache),
    check("poststarthook/start-apiextensions-controllers", CheckTarget::Step(Step::CustomResources)),
    check("poststarthook/crd-informer-synced", CheckTarget::Step(Step::CustomResources)),
    check("poststarthook/start-system-namespaces-controller", CheckTarget::Step(Step::Namespaces)),
    check("poststarthook/start-cluster-authentication-info-controller", CheckTarget::Step(Step::AuthenticationInfo)),
    check("poststarthook/rbac/bootstrap-roles", CheckTarget::Step(Step::Roles)),
    check("poststarthook/scheduling/bootstrap-system-priority-classes", CheckTarget::Step(Step::PriorityClasses)),
    check("poststarthook/priority-and-fairness-config-producer", CheckTarget::Step(Step::FlowControlObjects)),
    check("poststarthook/bootstrap-controller", CheckTarget::Step(Step::OwnService)),
    check("poststarthook/start-kubernetes-service-cidr-controller", CheckTarget::Step(Step::ServiceCidr)),
    check("poststarthook/start-service-ip-repair-controllers", CheckTarget::Step(Step::ServiceCidr)),
    check("poststarthook/start-kube-aggregator-informers", CheckTarget::Cache),
    check("poststarthook/apiservice-status-local-available-controller", CheckTarget::Step(Step::ApiServices)),
    check("poststarthook/apiservice-status-remote-available-controller", CheckTarget::Step(Step::ApiServices)),
    check("poststarthook/apiservice-registration-controller", CheckTarget::Step(Step::ApiServices)),
    check("poststarthook/apiservice-discovery-controller", CheckTarget::Step(Step::ApiServices)),
    check("poststarthook/kube-apiserver-autoregistration", CheckTarget::Step(Step::ApiServices)),
    check("autoregister-completion", CheckTarget::Step(Step::ApiServices)),
    check("poststarthook/apiservice-openapi-controller", CheckTarget::Step(Step::ApiServices)),
    check("poststarthook/apiservice-openapiv3-controller", CheckTarget::Step(Step::ApiServices)),
    check("shutdown", CheckTarget::NotShuttingDown),
];

const fn check(name: &'static str, of: CheckTarget) -> Check {
    Check { name, of }
}

impl CheckTarget {
    const fn belongs_to(self, endpoint: Endpoint) -> bool {
        match self {
            Self::StoreForReadiness | Self::CacheForReadiness | Self::NotShuttingDown => {
                matches!(endpoint, Endpoint::Readyz)
            }
            Self::Ping | Self::Log | Self::Store | Self::Cache | Self::Step(_) => true,
        }
    }
}

impl Health {
    pub fn new(storage: Arc<Storage>, startup: Arc<Startup>, ending: watch::Receiver<bool>) -> Self {
        Self { storage, startup, ending, slis: Slis::default(), log: LogProbe::default(), checked: Mutex::default() }
    }

    /// Serves a health path. Returns `None` for other paths.
    pub async fn serve(&self, path: &str, query: &str) -> Option<HttpResponse> {
        let request = HealthRequest::parse(path, query)?;
        let mut checks: Vec<(&str, Outcome)> = Vec::with_capacity(CHECKS.len());
        for check in CHECKS.iter().filter(|check| check.of.belongs_to(request.endpoint)) {
            let outcome = if request.selects(check.name) { Some(self.check(check.of).await) } else { None };
            checks.push((check.name, outcome));
        }
        let response = self.slis.respond(&request, &checks)?;
        Some(response::text(response.code, response.text))
    }

    /// Returns the metrics of `/metrics/slis`.
    pub fn slis(&self) -> String {
        self.slis.text()
    }

    async fn check(&self, target: CheckTarget) -> Result<(), String> {
        let (is_well, message) = match target {
            CheckTarget::Ping => return Ok(()),
            CheckTarget::Log => return self.log.check(),
            CheckTarget::Store | CheckTarget::StoreForReadiness => return self.check_store().await,
            CheckTarget::Cache | CheckTarget::CacheForReadiness => {
                (self.storage.cache.is_fed(), "the watch cache is not up to date")
            }
            CheckTarget::Step(step) => (self.startup.has(step), "not finished"),
            CheckTarget::NotShuttingDown => (!*self.ending.borrow(), "process is shutting down"),
        };
        if is_well { Ok(()) } else { Err(message.to_owned()) }
    }

    /// Checks that the store serves linearizable reads, which require a quorum.
    async fn check_store(&self) -> Result<(), String> {
        let mut last = self.checked.lock().await;
        if let Some((_, result)) = last.as_ref().filter(|(at, _)| at.elapsed() < STORE_CHECK_TTL) {
            return result.clone();
        }
        let result = match tokio::time::timeout(STORE_TIMEOUT, self.storage.store.revision()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(format!("the store is not available: {error}")),
            Err(_) => Err(format!("the store did not respond within {STORE_TIMEOUT:?}")),
        };
        *last = Some((Instant::now(), result.clone()));
        result
    }
}

//! The control loop: watches objects, plans, and replaces the table that the proxy serves.
//!
//! ```text
//! caches ──change of an object that the table depends on──> plan ──> proxy
//!                                                             └──> reporter (leader only): statuses, Events
//! ```

mod caches;
mod report;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::Client;
use client::cache::ClosedError;
use component_base::{clock, election};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::acme::{self, Issuer};
use crate::plan::{self, Plan};
use crate::proxy::{BindError, Proxy};
use crate::routing::{Certificate, ListenAddress, RoutingTable};
use caches::{Caches, PlanDependencies};

/// Time between plans, as a multiple of the time that a plan takes: planning uses at most a fifth of a CPU.
const REST_FACTOR: u32 = 4;
/// Interval between attempts to listen on a port that another process uses.
const RETRY: Duration = Duration::from_secs(5);
/// Names of the self-signed default certificate.
const DEFAULT_NAME: &str = "ingress.local";

/// The parameters of the controller.
#[derive(Clone, Debug)]
pub struct Config {
    /// Without a default certificate, [`run`] makes a self-signed one when the first Ingress exists.
    pub plan: plan::Settings,
    /// The lease of the instance that writes statuses and Events; `None` if there is only one instance.
    pub election: Option<election::Settings>,
    /// The ACME server for Ingresses that request certificates. Only the instance that writes statuses places orders.
    pub acme: Option<acme::Settings>,
}

/// The controller stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the watches of the ingress controller stopped")]
    Ended(#[from] ClosedError),
    #[error("failed to make the default certificate")]
    Certificate(#[from] rcgen::Error),
}

/// The table that the proxy serves, and the listeners of it that could not be opened.
#[derive(Default)]
struct ServedTable {
    table: RoutingTable,
    unavailable: BTreeMap<ListenAddress, String>,
}

/// Runs the controller for as long as the future is polled, and replaces the table that the proxy serves.
pub async fn run(client: Client, mut config: Config, proxy: &Proxy) -> Result<(), Error> {
    let mut caches = Caches::new(client.clone());
    let (reports, unsent) = watch::channel(Arc::new(report::Report::default()));
    let mut reporting = JoinSet::new();
    let issuer = config.acme.clone().map(|settings| Issuer::new(client.clone(), settings, caches.wake()));
    let (issuer, orders) = issuer.unzip();
    reporting.spawn(report::send(client, config.election.clone(), unsent, caches.wake(), issuer).in_current_span());
    let (mut served, mut used) = (ServedTable::default(), PlanDependencies::default());
    loop {
        caches.start_needed().await;
        let start = Instant::now();
        let (mut is_settled, mut wake_at) = (true, None);
        if caches.is_complete() && caches.has_work() {
            if config.plan.default_certificate.is_none() && caches.has_ingress() {
                config.plan.default_certificate = Some(Arc::new(self_signed()?));
            }
            let progress = orders.as_ref().map(acme::Handle::progress).unwrap_or_default();
            let objects = caches.observe(served.unavailable.clone(), progress.clone());
            let plan = plan::plan(&config.plan, &objects, clock::now());
            is_settled = !served.replace(proxy, &plan).await;
            if let Some(orders) = &orders {
                orders.follow(&plan.orders, &progress);
            }
            wake_at = plan.wake_at;
            used = PlanDependencies::from(&plan);
            reports.send_replace(Arc::new(report::Report { statuses: plan.statuses, events: plan.events }));
        }
        if !is_settled {
            // Statuses report the listeners that cannot be opened.
            continue;
        }
        tokio::time::sleep(start.elapsed().saturating_mul(REST_FACTOR)).await;
        let retry = async {
            match served.unavailable.is_empty() {
                true => std::future::pending().await,
                false => tokio::time::sleep(RETRY).await,
            }
        };
        let due = async {
            match wake_at {
                Some(time) => tokio::time::sleep_until(clock::instant(time)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = caches.changed(&used) => {}
            () = due => {}
            // The proxy tries to listen again when the table is replaced.
            () = retry => served.table = RoutingTable::default(),
        }
    }
}

impl ServedTable {
    /// Serves the table of a plan if it has changed. Returns whether the set of listeners that cannot be opened
    /// changed.
    async fn replace(&mut self, proxy: &Proxy, plan: &Plan) -> bool {
        if self.table == plan.table {
            return false;
        }
        let failures = proxy.replace(plan.table.clone()).await;
        self.table = plan.table.clone();
        let hosts: usize = plan.table.listeners.values().map(|listener| listener.hosts.len()).sum();
        tracing::info!(listeners = plan.table.listeners.len(), hosts, "replaced the routing table");
        for BindError { address, error } in &failures {
            tracing::warn!(port = address.port, %error, "failed to listen; retrying in {RETRY:?}");
        }
        let unavailable = failures.into_iter().map(|failure| (failure.address, failure.error.to_string())).collect();
        let before = std::mem::replace(&mut self.unavailable, unavailable);
        before != self.unavailable
    }
}

/// Makes the certificate for hosts without one. Clients do not trust it.
fn self_signed() -> Result<Certificate, rcgen::Error> {
    let made = rcgen::generate_simple_self_signed([DEFAULT_NAME.to_owned()])?;
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    Ok(Certificate { chain_pem: chain.into_bytes(), key_pem: key.into_bytes() })
}

//! The control loop: watches objects, plans, and replaces the table that the proxy serves.
//!
//! ```text
//! Ingresses, IngressClasses ──first claimed Ingress──> also Services, EndpointSlices, Secrets
//!                                                          │ change of an object that the table depends on
//!                                                          v
//!                                                        plan ──> proxy
//!                                                          └──> reporter (leader only): statuses, Events
//! ```

mod report;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apimachinery::collection::IndexBy;
use apimachinery::{Key, Resource, Value};
use client::Client;
use client::cache::{self, ChangeQueue, ChangedKeys, ClosedError, Reader, Source};
use component_base::election;
use controller::kinds;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::plan::objects::{Ingress, IngressClass, Service, Slice, TlsSecret};
use crate::plan::{self, Finding, Objects, Plan};
use crate::proxy::{BindError, Proxy};
use crate::routing::{Certificate, RoutingTable};

/// Maximum pending change notices; beyond that everything is evaluated.
const NOTICES_MAX: usize = 10_000;
/// Time between plans, as a multiple of the time that a plan takes: planning uses at most a fifth of a CPU.
const REST_FACTOR: u32 = 4;
/// Interval between attempts to listen on a port that another process uses.
const RETRY: Duration = Duration::from_secs(5);
/// Names of the self-signed default certificate.
const DEFAULT_NAME: &str = "ingress.local";

static INGRESSES: Resource = Resource::namespaced("networking.k8s.io", "v1", "ingresses", "Ingress");
static CLASSES: Resource = Resource::cluster("networking.k8s.io", "v1", "ingressclasses", "IngressClass");

/// The parameters of the controller.
#[derive(Clone, Debug)]
pub struct Config {
    /// Without a default certificate, [`run`] makes a self-signed one when the first Ingress exists.
    pub plan: plan::Settings,
    /// The lease of the instance that writes statuses and Events; `None` if there is only one instance.
    pub election: Option<election::Settings>,
}

/// The controller stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the watches of the ingress controller stopped")]
    Ended(#[from] ClosedError),
    #[error("failed to make the default certificate")]
    Certificate(#[from] rcgen::Error),
}

/// A cache and the keys of its changes.
struct Watched<T> {
    reader: Reader<T>,
    notices: ChangeQueue,
}

/// The caches that exist only if there is an Ingress.
struct Details {
    services: Watched<Service>,
    slices: Watched<Slice>,
    secrets: Watched<TlsSecret>,
}

/// Runs the controller for as long as the future is polled, and replaces the table that the proxy serves.
pub async fn run(client: Client, mut config: Config, proxy: &Proxy) -> Result<(), Error> {
    let mut watches = JoinSet::new();
    let ingresses = follow(&client, &INGRESSES, "", Vec::new(), Ingress::read, &mut watches);
    let classes = follow(&client, &CLASSES, "", Vec::new(), IngressClass::read, &mut watches);
    ingresses.reader.synced().await?;
    classes.reader.synced().await?;
    // Nothing else runs until the first Ingress of this controller exists.
    while !any_claimed(&ingresses, &classes) {
        tokio::select! {
            _ = ingresses.notices.take() => {}
            _ = classes.notices.take() => {}
        }
    }
    let details = Details::follow(&client, &mut watches);
    details.synced().await?;
    if config.plan.default_certificate.is_none() {
        config.plan.default_certificate = Some(Arc::new(self_signed()?));
    }
    let (reports, unsent) = watch::channel(Arc::new(report::Report::default()));
    watches.spawn(report::send(client, config.election.clone(), unsent).in_current_span());
    let (mut served, mut failures) = (RoutingTable::default(), Vec::new());
    loop {
        let start = Instant::now();
        let mut plan = plan::plan(&config.plan, &details.observe(&ingresses, &classes));
        if served != plan.table {
            failures = replace(proxy, &plan).await;
            served = plan.table.clone();
        }
        report_failures(&failures, &mut plan);
        let (services, secrets) = (std::mem::take(&mut plan.services), std::mem::take(&mut plan.secrets));
        reports.send_replace(Arc::new(report::Report { statuses: plan.statuses, events: plan.events }));
        tokio::time::sleep(start.elapsed().saturating_mul(REST_FACTOR)).await;
        let retry = async {
            match failures.is_empty() {
                true => std::future::pending().await,
                false => tokio::time::sleep(RETRY).await,
            }
        };
        tokio::select! {
            () = changed(&ingresses, &classes, &details, &services, &secrets) => {}
            // The proxy tries to listen again when the table is replaced.
            () = retry => served = RoutingTable::default(),
        }
    }
}

/// Replaces the served table.
async fn replace(proxy: &Proxy, plan: &Plan) -> Vec<BindError> {
    let failures = proxy.replace(plan.table.clone()).await;
    let hosts = plan.table.listeners.values().map(|listener| listener.hosts.len()).max().unwrap_or_default();
    tracing::info!(ingresses = plan.claimed.len(), hosts, "replaced the routing table");
    for failure in &failures {
        tracing::warn!(port = failure.port, error = %failure.error, "failed to listen; retrying in {RETRY:?}");
    }
    failures
}

/// Adds an Event to every Ingress for each port that the proxy cannot listen on.
fn report_failures(failures: &[BindError], plan: &mut Plan) {
    for failure in failures {
        let message = format!("the ingress controller cannot listen on port {}: {}", failure.port, failure.error);
        let finding = |subject: &plan::Subject| Finding {
            subject: subject.clone(),
            reason: "ListenFailed",
            message: message.clone(),
        };
        plan.events.extend(plan.claimed.iter().take(report::RECORDED_MAX).map(finding));
    }
}

/// Waits for a change that may change the plan.
async fn changed(
    ingresses: &Watched<Ingress>,
    classes: &Watched<IngressClass>,
    details: &Details,
    services: &BTreeSet<Key>,
    secrets: &BTreeSet<Key>,
) {
    let concerns = |changed: &ChangedKeys, used: &BTreeSet<Key>| match changed {
        ChangedKeys::Keys(keys) => keys.iter().any(|key| used.contains(key)),
        ChangedKeys::All => true,
    };
    loop {
        tokio::select! {
            _ = ingresses.notices.take() => return,
            _ = classes.notices.take() => return,
            changed = details.services.notices.take() => if concerns(&changed, services) { return },
            changed = details.slices.notices.take() => if concerns(&changed, services) { return },
            changed = details.secrets.notices.take() => if concerns(&changed, secrets) { return },
        }
    }
}

fn any_claimed(ingresses: &Watched<Ingress>, classes: &Watched<IngressClass>) -> bool {
    let classes = classes.reader.snapshot().objects;
    ingresses.reader.snapshot().objects.iter().any(|entry| plan::is_claimed(&entry.value, &classes))
}

impl Details {
    fn follow(client: &Client, watches: &mut JoinSet<()>) -> Self {
        let tls = "type=kubernetes.io/tls";
        let slices = follow(client, &kinds::ENDPOINT_SLICES, "", plan::slices_by_service(), Slice::read, watches);
        // Changes of slices are changes of their Service.
        let notices = ChangeQueue::new(NOTICES_MAX);
        slices.reader.subscribe(&notices, |change, keys| {
            keys.extend([change.old, change.new].into_iter().flatten().map(|slice| slice.service.clone()));
        });
        Self {
            services: follow(client, &kinds::SERVICES, "", Vec::new(), Service::read, watches),
            slices: Watched { reader: slices.reader, notices },
            secrets: follow(client, &kinds::SECRETS, tls, Vec::new(), TlsSecret::read, watches),
        }
    }

    async fn synced(&self) -> Result<(), ClosedError> {
        self.services.reader.synced().await?;
        self.slices.reader.synced().await?;
        self.secrets.reader.synced().await
    }

    fn observe(&self, ingresses: &Watched<Ingress>, classes: &Watched<IngressClass>) -> Objects {
        Objects {
            ingresses: ingresses.reader.snapshot().objects,
            classes: classes.reader.snapshot().objects,
            services: self.services.reader.snapshot().objects,
            slices: self.slices.reader.snapshot().objects,
            secrets: self.secrets.reader.snapshot().objects,
        }
    }
}

/// Starts to watch a kind. A change that does not change what `read` returns is not noticed.
fn follow<T: PartialEq + Send + Sync + 'static>(
    client: &Client,
    resource: &Resource,
    field_selector: &str,
    index_by: Vec<IndexBy<T>>,
    read: fn(&Value) -> T,
    watches: &mut JoinSet<()>,
) -> Watched<T> {
    let source = Source { field_selector: field_selector.to_owned(), ..Source::all(client.clone(), resource.clone()) };
    let (reflector, reader) = cache::digest(source, cache::Settings::default(), index_by, read);
    let notices = ChangeQueue::new(NOTICES_MAX);
    reader.subscribe(&notices, |change, keys| {
        if change.old != change.new {
            keys.push(change.key.clone());
        }
    });
    watches.spawn(reflector.run().in_current_span());
    Watched { reader, notices }
}

/// Makes the certificate for hosts without one. Clients do not trust it.
fn self_signed() -> Result<Certificate, rcgen::Error> {
    let made = rcgen::generate_simple_self_signed([DEFAULT_NAME.to_owned()])?;
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    Ok(Certificate { chain_pem: chain.into_bytes(), key_pem: key.into_bytes() })
}

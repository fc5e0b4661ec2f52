//! APIService controller: registers local APIServices, runs discovery against extension API servers, and sets the
//! Available condition.
//!
//! The controller is one task. It wakes when an APIService, a Service or an EndpointSlice changes, when a discovery
//! request completes, and when the next check of a server is due.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::kind::Kind;
use api_registry::aggregation::{Availability, AvailabilityCheck, Registration, Remote, own, register};
use api_registry::strategy;
use apimachinery::status::Status;
use apimachinery::{Value, json};
use bytes::BytesMut;
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use mvcc::Revision;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::Instrument;

use super::{Aggregation, ExtensionServers, ExtensionVersion, own_headers, reached, target, trust};
use crate::backend::Directory;
use crate::own_objects::create_missing;
use crate::proxy::{Target, nothing};
use crate::startup::{Startup, Step};
use crate::storage::Storage;
use crate::transaction::ObjectKey;
use crate::watch_cache::{Entry, KindCache};
use client::clock::now;

/// Timeout of one discovery request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Discovery attempts before a server counts as unavailable: its Service may have several endpoints.
const ATTEMPTS: usize = 5;
/// Interval between availability checks. Network changes between this server and the extension server cannot be
/// watched.
const AGAIN: Duration = Duration::from_secs(30);
/// Initial retry delay after a failed check. The delay doubles up to [`AGAIN`].
const SOON: Duration = Duration::from_secs(1);
/// Maximum size of a document fetched from an extension API server.
const DOCUMENT_BYTES_MAX: usize = 8 << 20;
/// Field manager of the objects that this server writes.
const MANAGER: &str = "kube-apiserver";

/// The discovery documents of an extension API server.
#[derive(Clone, Debug, Default)]
struct DiscoveryDocuments {
    resources: Option<Value>,
    openapi: Option<Value>,
    swagger: Option<Arc<(String, Value)>>,
}

/// The discovery state of one extension API server.
struct DiscoveryState {
    /// Resource versions and spec fingerprint of the last check. A difference triggers a new check.
    about: Vec<Revision>,
    /// The last result; absent before the first check completes.
    result: Option<Result<DiscoveryDocuments, String>>,
    running: bool,
    failures: u32,
    /// Time of the next check.
    due: Instant,
}

struct Follower {
    aggregation: Arc<Aggregation>,
    storage: Arc<Storage>,
    kind: Arc<Kind>,
    kind_caches: [Arc<KindCache>; 3],
    checks: BTreeMap<String, DiscoveryState>,
    questions: JoinSet<(String, Result<DiscoveryDocuments, String>)>,
    /// The kind table from which the local APIServices were last generated.
    registered: Option<Arc<crate::kind_table::Table>>,
}

/// Runs the APIService controller until the process exits.
pub async fn run(aggregation: Arc<Aggregation>, storage: Arc<Storage>, startup: Arc<Startup>) {
    let Some(mut follower) = Follower::new(aggregation, storage.clone()) else {
        return [Step::AuthenticationInfo, Step::ApiServices].into_iter().for_each(|step| startup.complete(step));
    };
    let mut reached = follower.storage.cache.follow();
    for kind_cache in &follower.kind_caches {
        kind_cache.filled().await;
    }
    let processed = follower.storage.followers.add(&follower.kind);
    let mut seen = None;
    loop {
        let revision = *reached.borrow_and_update();
        if !startup.has(Step::AuthenticationInfo) && trust::publish(&follower.aggregation, &storage).await {
            startup.complete(Step::AuthenticationInfo);
        }
        let now = Instant::now();
        // Services and EndpointSlices are only watched if a remote APIService exists.
        let watched = if follower.aggregation.served().is_empty() { 1 } else { follower.kind_caches.len() };
        let versions: Vec<Revision> =
            follower.kind_caches[..watched].iter().map(|kind_cache| kind_cache.revision()).collect();
        let due = follower.checks.values().any(|check| !check.running && check.due <= now);
        if seen.as_ref() != Some(&versions) || due || !follower.is_registered() {
            seen = Some(versions);
            follower.reconcile(now).await;
            if follower.is_registered() {
                startup.complete(Step::ApiServices);
            }
        }
        processed.send_replace(revision);
        let next = follower.checks.values().filter(|check| !check.running).map(|check| check.due).min();
        tokio::select! {
            changed = reached.changed() => if changed.is_err() { return },
            () = async { sleep_until(next.unwrap_or(now)).await }, if next.is_some() => {}
            Some(Ok((name, result))) = follower.questions.join_next(), if !follower.questions.is_empty() => {
                follower.heard(&name, result);
                seen = None;
            }
        }
    }
}

impl Follower {
    fn new(aggregation: Arc<Aggregation>, storage: Arc<Storage>) -> Option<Self> {
        let table = storage.table();
        let kind_cache =
            |group: &str, plural: &str| table.kind(group, plural).map(|kind| storage.cache.kind_cache(kind));
        let kind = table.kind("apiregistration.k8s.io", "apiservices")?.clone();
        let kind_caches = [
            storage.cache.kind_cache(&kind),
            kind_cache("", "services")?,
            kind_cache("discovery.k8s.io", "endpointslices")?,
        ];
        Some(Self {
            aggregation,
            storage,
            kind,
            kind_caches,
            checks: BTreeMap::new(),
            questions: JoinSet::new(),
            registered: None,
        })
    }

    fn is_registered(&self) -> bool {
        self.registered.as_ref().is_some_and(|table| Arc::ptr_eq(table, &self.storage.table()))
    }

    /// Registers local APIServices, starts the checks that are due, and updates the conditions.
    async fn reconcile(&mut self, at: Instant) {
        if let Err(status) = self.register().await {
            tracing::debug!(message = %status.message, "failed to register the local APIServices");
        }
        let entries = self.kind_caches[0].list("", |_| true);
        let (mut served, mut updates) = (ExtensionServers::new(), Vec::new());
        for entry in &entries {
            let object = entry.object();
            let remote = Remote::of(&object);
            let availability = match &remote {
                None => Some(Availability::local()),
                Some(remote) => self.check_availability(remote, entry, at),
            };
            if let Some(mut remote) = remote {
                remote.available = availability.as_ref().map_or(remote.available, Availability::is_available);
                let key = (remote.group.clone(), remote.version.clone());
                served.insert(key, Arc::new(self.extension(remote)));
            }
            updates.extend(availability.map(|availability| (entry, object, availability)));
        }
        self.checks.retain(|name, _| entries.iter().any(|entry| entry.name() == name));
        // The routing table is updated before the conditions report the result.
        *self.aggregation.served.write().expect("no holder panics") = Arc::new(served);
        for (entry, object, availability) in updates {
            if let Err(status) = self.write_condition(entry, &object, &availability).await {
                tracing::debug!(
                    name = entry.name(), message = %status.message,
                    "failed to update the status of an APIService"
                );
            }
        }
    }

    /// Combines an APIService spec with the last discovery result of its server.
    fn extension(&self, remote: Remote) -> ExtensionVersion {
        let last_result = self.checks.get(&remote.name).and_then(|check| check.result.as_ref());
        let DiscoveryDocuments { resources, openapi, swagger } =
            last_result.and_then(|result| result.clone().ok()).unwrap_or_default();
        ExtensionVersion { remote, resources, openapi, swagger }
    }

    /// Returns the availability of a server if it is known. Starts a check if one is due.
    fn check_availability(&mut self, remote: &Remote, entry: &Entry, at: Instant) -> Option<Availability> {
        let service = self.storage.service(&remote.namespace, &remote.service);
        let slices = self.storage.slices(&remote.namespace, &remote.service);
        if let AvailabilityCheck::Known(availability) = remote.check_service(service.as_ref(), &slices) {
            self.checks.remove(entry.name());
            return Some(availability);
        }
        // Only the spec is fingerprinted: a condition written by this task must not trigger a check.
        let generation = spec_fingerprint(remote);
        let versions =
            service.iter().chain(&slices).map(|object| apimachinery::meta::Meta::of(object).resource_version());
        let about: Vec<Revision> = versions.map(|version| version.parse().unwrap_or(0)).chain([generation]).collect();
        let fresh = || DiscoveryState { about: Vec::new(), result: None, running: false, failures: 0, due: at };
        let check = self.checks.entry(entry.name().to_owned()).or_insert_with(fresh);
        if check.about != about {
            check.about = about;
            check.due = at;
        }
        if !check.running && check.due <= at {
            check.running = true;
            let (aggregation, storage, remote) = (self.aggregation.clone(), self.storage.clone(), remote.clone());
            let task = async move {
                let result = discover(&aggregation, &storage, &remote).await;
                (remote.name, result)
            };
            self.questions.spawn(task.in_current_span());
        }
        check
            .result
            .as_ref()
            .map(|result| Availability::from_discovery(&result.as_ref().map(drop).map_err(Clone::clone)))
    }

    /// Records the result of a check and schedules the next one.
    fn heard(&mut self, name: &str, result: Result<DiscoveryDocuments, String>) {
        let Some(check) = self.checks.get_mut(name) else { return };
        check.running = false;
        check.failures = if result.is_ok() { 0 } else { check.failures.saturating_add(1) };
        let wait = match check.failures {
            0 => AGAIN,
            failures => AGAIN.min(SOON * 2_u32.saturating_pow(failures - 1).min(64)),
        };
        check.due = Instant::now() + wait;
        check.result = Some(result);
    }

    /// Creates, updates and deletes the APIServices of the group versions that this server serves.
    async fn register(&mut self) -> Result<(), Status> {
        let table = self.storage.table();
        if self.registered.as_ref().is_some_and(|registered| Arc::ptr_eq(registered, &table)) {
            return Ok(());
        }
        self.storage.see_own_writes().await?;
        let have: Vec<Value> = self.kind_caches[0].list("", |_| true).iter().map(|entry| entry.object()).collect();
        for step in register(&own(&table.kinds), &have, self.registered.is_none()) {
            match step {
                Registration::Create(object) => create_missing(&self.storage, object).await?,
                Registration::Replace(object) => self.replace(&object, "").await?,
                Registration::Delete(name) => self.remove(&name).await?,
            }
        }
        self.registered = Some(table);
        Ok(())
    }

    /// Writes the Available condition to an APIService if it changed.
    async fn write_condition(&self, entry: &Entry, object: &Value, availability: &Availability) -> Result<(), Status> {
        let Some(next) = availability.with_condition(object, now()) else { return Ok(()) };
        tracing::info!(name = entry.name(), availability = ?availability, "the availability of an APIService changed");
        self.replace(&next, "status").await
    }

    /// Writes an APIService that was read before. A conflict is ignored: the concurrent write wakes this task again.
    async fn replace(&self, next: &Value, subresource: &str) -> Result<(), Status> {
        let name = apimachinery::meta::Meta::of(next).name().to_owned();
        let Some(entry) = self.kind_caches[0].get(&name) else { return Ok(()) };
        let version = &self.kind.versions[0];
        let target =
            strategy::Target { kind: &self.kind, version, namespace: "", name: &name, subresource, manager: MANAGER };
        let owned = strategy::own(&target, Some(&entry.object()), next.clone(), now());
        let revision = apimachinery::meta::Meta::of(next).resource_version().parse().unwrap_or(entry.revision);
        ObjectKey::new(&self.storage, &self.kind, "", &name).replace(&owned, revision).submit().await.map(drop)
    }

    async fn remove(&self, name: &str) -> Result<(), Status> {
        let Some(entry) = self.kind_caches[0].get(name) else { return Ok(()) };
        let key = ObjectKey::new(&self.storage, &self.kind, "", name);
        key.remove(&entry.object(), entry.revision).submit().await.map(drop)
    }
}

/// Returns a hash of the fields of an APIService that select the server and its trust settings.
fn spec_fingerprint(remote: &Remote) -> Revision {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (&remote.namespace, &remote.service, remote.port, &remote.bundle, remote.insecure).hash(&mut hasher);
    i64::from_ne_bytes(hasher.finish().to_ne_bytes())
}

/// Runs discovery against a server with up to [`ATTEMPTS`] attempts.
async fn discover(aggregation: &Aggregation, storage: &Storage, remote: &Remote) -> Result<DiscoveryDocuments, String> {
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        // TLS verification is skipped as upstream does: an attacker who can fake the availability already controls the
        // network.
        let tls = client::config::Tls { insecure_skip_verify: true, ..aggregation.client_tls() };
        let target = target(storage, remote, tls, remote.path()).map_err(|unresolved| unresolved.to_string())?;
        let url = format!("https://{}{}", target.route.dial, target.path);
        match timeout(TIMEOUT, get(&target)).await {
            Ok(Ok(resources)) => {
                let index = document(&target, "/openapi/v3").await;
                let path = remote.path();
                let openapi = index.and_then(|index| index.at(&["paths", path.trim_start_matches('/')]).cloned());
                let swagger = document(&target, "/openapi/v2").await;
                let swagger = swagger.map(|swagger| Arc::new((openapi::etag(&json::to_vec(&swagger)), swagger)));
                return Ok(DiscoveryDocuments { resources, openapi, swagger });
            }
            Ok(Err(error)) => last = format!("failing or missing response from {url}: {error}"),
            Err(_) => last = format!("timed out waiting for {url}"),
        }
    }
    Err(last)
}

/// Fetches an optional document of a server.
async fn document(target: &Target, path: &str) -> Option<Value> {
    let target = Target { path: path.to_owned(), ..target.clone() };
    timeout(TIMEOUT, get(&target)).await.ok()?.ok()?
}

/// Performs a GET and returns the body if it is JSON.
async fn get(target: &Target) -> Result<Option<Value>, String> {
    let url = format!("https://{}{}", target.route.dial, target.path);
    let request = target.request(Method::GET, own_headers(), nothing()).map_err(|error| error.to_string())?;
    let response = target.send(request).await.map_err(|error| format!("Get \"{url}\": {}", reached(&error)))?;
    if !response.status().is_success() {
        return Err(format!("bad status from {url}: {}", response.status().as_u16()));
    }
    Ok(read(response.into_body()).await.and_then(|bytes| json::parse(&bytes).ok()))
}

async fn read(mut body: Incoming) -> Option<BytesMut> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.ok()?.into_data() else { continue };
        if whole.len() + data.len() > DOCUMENT_BYTES_MAX {
            return None;
        }
        whole.extend_from_slice(&data);
    }
    Some(whole)
}

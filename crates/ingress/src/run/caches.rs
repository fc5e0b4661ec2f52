//! The caches of the controller. Kinds are watched only when they are needed.
//!
//! ```text
//! always: Ingress, IngressClass, the CRD of GatewayClass
//!   └── CRD established: GatewayClass, Gateway
//!         └── a Gateway of this controller: routes, grants, policies, ConfigMaps, namespaces
//! an Ingress or a Gateway of this controller: Service, EndpointSlice, Secret
//! ```

use std::collections::{BTreeMap, BTreeSet};

use apimachinery::collection::{Collection, IndexBy};
use apimachinery::meta::Meta;
use apimachinery::{Key, Resource, Value};
use client::Client;
use client::cache::{self, Change, ChangeQueue, ChangedKeys, Reader, Source};
use client::discovery::{self, ServerResources};
use controller::kinds as core;
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::crds::VERSION_ANNOTATION;
use crate::kinds;
use crate::plan::acme::Progress;
use crate::plan::gateway::objects::{BackendTlsPolicy, CaBundle, Gateway, GatewayClass, Namespace, ReferenceGrant};
use crate::plan::gateway::routes::Route;
use crate::plan::gateway::{self, CONTROLLER};
use crate::plan::objects::{Ingress, IngressClass, Service, Slice, TlsSecret};
use crate::plan::{self, Objects, Plan};
use crate::routing::ListenAddress;

/// Maximum pending change notices; beyond that all objects are evaluated.
const NOTICES_MAX: usize = 10_000;
/// The CRD whose presence means that the Gateway API is installed.
const CRD: &str = "metadata.name=gatewayclasses.gateway.networking.k8s.io";

/// The objects that a plan depends on. A change of any other Service, Secret or ConfigMap does not change the plan.
#[derive(Default)]
pub(super) struct PlanDependencies {
    services: BTreeSet<Key>,
    secrets: BTreeSet<Key>,
    config_maps: BTreeSet<Key>,
}

pub(super) struct Caches {
    watcher: Watcher,
    ingresses: Reader<Ingress>,
    classes: Reader<IngressClass>,
    crds: Reader<Release>,
    gateways: Option<GatewayCaches>,
    routes: Option<RouteCaches>,
    details: Option<Details>,
}

/// The release of an established CRD.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Release(Option<String>);

struct GatewayCaches {
    classes: Reader<GatewayClass>,
    gateways: Reader<Gateway>,
}

/// The caches that exist only if there is a Gateway. Kinds that the server does not have are absent.
struct RouteCaches {
    http_routes: Option<Reader<Route>>,
    grpc_routes: Option<Reader<Route>>,
    grants: Option<Reader<ReferenceGrant>>,
    policies: Option<Reader<BackendTlsPolicy>>,
    ca_bundles: Reader<CaBundle>,
    namespaces: Reader<Namespace>,
}

/// The caches that exist only if there is an Ingress or a Gateway.
struct Details {
    services: Reader<Service>,
    slices: Reader<Slice>,
    secrets: Reader<TlsSecret>,
}

/// Starts watches. They end when it is dropped.
struct Watcher {
    client: Client,
    watches: JoinSet<()>,
    /// Changes that always affect the plan, and completed caches.
    wake: ChangeQueue,
    /// Changes of Services and their EndpointSlices, by Service.
    services: ChangeQueue,
    secrets: ChangeQueue,
    config_maps: ChangeQueue,
    /// Whether each started cache is complete.
    pending: Vec<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl From<&Plan> for PlanDependencies {
    fn from(plan: &Plan) -> Self {
        Self { services: plan.services.clone(), secrets: plan.secrets.clone(), config_maps: plan.config_maps.clone() }
    }
}

impl Release {
    fn read(object: &Value) -> Self {
        let conditions = object.at(&["status", "conditions"]).and_then(Value::as_array).unwrap_or_default();
        let is_established = conditions.iter().any(|condition| {
            condition.str_at(&["type"]) == Some("Established") && condition.str_at(&["status"]) == Some("True")
        });
        Self(is_established.then(|| Meta::of(object).annotation(VERSION_ANNOTATION).unwrap_or("unknown").to_owned()))
    }
}

impl Caches {
    pub(super) fn new(client: Client) -> Self {
        let mut watcher = Watcher::new(client);
        let wake = watcher.wake.clone();
        Self {
            ingresses: watcher.follow(&kinds::INGRESSES, "", Ingress::read, &wake),
            classes: watcher.follow(&kinds::INGRESS_CLASSES, "", IngressClass::read, &wake),
            // The controller also runs without the permission to read CRDs, so it does not wait for this cache.
            crds: watcher.follow_optional(&core::CUSTOM_RESOURCE_DEFINITIONS, CRD, Release::read, &wake),
            gateways: None,
            routes: None,
            details: None,
            watcher,
        }
    }

    /// Starts the watches that the observed objects need.
    pub(super) async fn start_needed(&mut self) {
        if self.gateways.is_none() && self.version().is_some() {
            self.gateways = Some(GatewayCaches::follow(&mut self.watcher));
        }
        if !self.is_complete() {
            return;
        }
        let has_gateway = self.has_gateway();
        if self.routes.is_none() && has_gateway {
            self.routes = Some(RouteCaches::follow(&mut self.watcher).await);
        }
        if self.details.is_none() && (has_gateway || self.has_ingress()) {
            self.details = Some(Details::follow(&mut self.watcher));
        }
    }

    /// Whether every watched kind is complete.
    pub(super) fn is_complete(&self) -> bool {
        self.watcher.pending.iter().all(|is_synced| is_synced())
    }

    /// Whether an Ingress or Gateway of this controller exists.
    pub(super) fn has_work(&self) -> bool {
        let has_class = self.gateways.as_ref().is_some_and(|gateways| {
            gateways.classes.snapshot().objects.iter().any(|class| class.value.controller == CONTROLLER)
        });
        has_class || self.details.is_some()
    }

    pub(super) fn has_ingress(&self) -> bool {
        let classes = self.classes.snapshot().objects;
        self.ingresses.snapshot().objects.iter().any(|entry| plan::is_claimed(&entry.value, &classes))
    }

    fn has_gateway(&self) -> bool {
        let Some(caches) = &self.gateways else { return false };
        let classes = caches.classes.snapshot().objects;
        caches.gateways.snapshot().objects.iter().any(|entry| gateway::is_claimed(&entry.value, &classes))
    }

    /// Returns the release of the Gateway API; `None` if it is not installed.
    fn version(&self) -> Option<String> {
        self.crds.snapshot().objects.iter().find_map(|entry| entry.value.0.clone())
    }

    pub(super) fn observe(&self, unavailable: BTreeMap<ListenAddress, String>, acme: Progress) -> Objects {
        let mut objects = Objects {
            ingresses: self.ingresses.snapshot().objects,
            classes: self.classes.snapshot().objects,
            services: Collection::new(Vec::new()),
            slices: Collection::new(plan::slices_by_service()),
            secrets: Collection::new(Vec::new()),
            gateway: gateway::Objects { version: self.version(), ..gateway::Objects::default() },
            unavailable,
            acme,
        };
        if let Some(details) = &self.details {
            objects.services = details.services.snapshot().objects;
            objects.slices = details.slices.snapshot().objects;
            objects.secrets = details.secrets.snapshot().objects;
        }
        if let Some(gateways) = &self.gateways {
            objects.gateway.classes = gateways.classes.snapshot().objects;
            objects.gateway.gateways = gateways.gateways.snapshot().objects;
        }
        if let Some(routes) = &self.routes {
            routes.observe(&mut objects.gateway);
        }
        objects
    }

    /// Waits for a change that may change the plan, or for a cache to become complete.
    pub(super) async fn changed(&self, used: &PlanDependencies) {
        let concerns = |changed: &ChangedKeys, used: &BTreeSet<Key>| match changed {
            ChangedKeys::Keys(keys) => keys.iter().any(|key| used.contains(key)),
            ChangedKeys::All => true,
        };
        loop {
            tokio::select! {
                _ = self.watcher.wake.take() => return,
                changed = self.watcher.services.take() => if concerns(&changed, &used.services) { return },
                changed = self.watcher.secrets.take() => if concerns(&changed, &used.secrets) { return },
                changed = self.watcher.config_maps.take() => if concerns(&changed, &used.config_maps) { return },
            }
        }
    }

    /// Returns a queue that makes [`Caches::changed`] return.
    pub(super) fn wake(&self) -> ChangeQueue {
        self.watcher.wake.clone()
    }
}

impl GatewayCaches {
    fn follow(watcher: &mut Watcher) -> Self {
        let wake = watcher.wake.clone();
        Self {
            classes: watcher.follow(&kinds::GATEWAY_CLASSES, "", GatewayClass::read, &wake),
            gateways: watcher.follow(&kinds::GATEWAYS, "", Gateway::read, &wake),
        }
    }
}

impl RouteCaches {
    async fn follow(watcher: &mut Watcher) -> Self {
        let served = discovery::discover(&watcher.client).await;
        if let Err(error) = &served {
            tracing::warn!(%error, "discovery failed; expecting all kinds of the Gateway API");
        }
        // An error means that the kind may exist.
        let has = |resource: &Resource| served.as_ref().map_or(true, |served| serves(served, resource));
        let (wake, config_maps) = (watcher.wake.clone(), watcher.config_maps.clone());
        let http_routes =
            has(&kinds::HTTP_ROUTES).then(|| watcher.follow(&kinds::HTTP_ROUTES, "", Route::read_http, &wake));
        let grpc_routes =
            has(&kinds::GRPC_ROUTES).then(|| watcher.follow(&kinds::GRPC_ROUTES, "", Route::read_grpc, &wake));
        let grants = has(&kinds::REFERENCE_GRANTS)
            .then(|| watcher.follow(&kinds::REFERENCE_GRANTS, "", ReferenceGrant::read, &wake));
        let policies = has(&kinds::BACKEND_TLS_POLICIES)
            .then(|| watcher.follow(&kinds::BACKEND_TLS_POLICIES, "", BackendTlsPolicy::read, &wake));
        Self {
            http_routes,
            grpc_routes,
            grants,
            policies,
            ca_bundles: watcher.follow(&core::CONFIG_MAPS, "", CaBundle::read, &config_maps),
            namespaces: watcher.follow(&core::NAMESPACES, "", Namespace::read, &wake),
        }
    }

    fn observe(&self, objects: &mut gateway::Objects) {
        if let Some(routes) = &self.http_routes {
            objects.http_routes = routes.snapshot().objects;
        }
        if let Some(routes) = &self.grpc_routes {
            objects.grpc_routes = routes.snapshot().objects;
        }
        if let Some(grants) = &self.grants {
            objects.grants = grants.snapshot().objects;
        }
        if let Some(policies) = &self.policies {
            objects.policies = policies.snapshot().objects;
        }
        objects.ca_bundles = self.ca_bundles.snapshot().objects;
        objects.namespaces = self.namespaces.snapshot().objects;
    }
}

impl Details {
    fn follow(watcher: &mut Watcher) -> Self {
        let (services, secrets) = (watcher.services.clone(), watcher.secrets.clone());
        // Changes of slices are changes of their Service.
        let by_service = |change: &Change<'_, Slice>, keys: &mut Vec<Key>| {
            if change.old != change.new {
                keys.extend([change.old, change.new].into_iter().flatten().map(|slice| slice.service.clone()));
            }
        };
        let slices = watcher.start(&core::ENDPOINT_SLICES, "", plan::slices_by_service(), Slice::read);
        slices.subscribe(&services, by_service);
        Self {
            services: watcher.follow(&core::SERVICES, "", Service::read, &services),
            slices: watcher.require(slices),
            secrets: watcher.follow(&core::SECRETS, "type=kubernetes.io/tls", TlsSecret::read, &secrets),
        }
    }
}

impl Watcher {
    fn new(client: Client) -> Self {
        let queue = || ChangeQueue::new(NOTICES_MAX);
        Self {
            client,
            watches: JoinSet::new(),
            wake: queue(),
            services: queue(),
            secrets: queue(),
            config_maps: queue(),
            pending: Vec::new(),
        }
    }

    /// Starts to watch a kind. The plan waits until it is complete.
    fn follow<T: PartialEq + Send + Sync + 'static>(
        &mut self,
        resource: &Resource,
        field_selector: &str,
        read: fn(&Value) -> T,
        notices: &ChangeQueue,
    ) -> Reader<T> {
        let reader = self.follow_optional(resource, field_selector, read, notices);
        self.require(reader)
    }

    /// Starts to watch a kind. A change that does not change the result of `read` is not noticed.
    fn follow_optional<T: PartialEq + Send + Sync + 'static>(
        &mut self,
        resource: &Resource,
        field_selector: &str,
        read: fn(&Value) -> T,
        notices: &ChangeQueue,
    ) -> Reader<T> {
        let reader = self.start(resource, field_selector, Vec::new(), read);
        reader.subscribe(notices, |change, keys| {
            if change.old != change.new {
                keys.push(change.key.clone());
            }
        });
        reader
    }

    fn start<T: Send + Sync + 'static>(
        &mut self,
        resource: &Resource,
        field_selector: &str,
        index_by: Vec<IndexBy<T>>,
        read: fn(&Value) -> T,
    ) -> Reader<T> {
        let field_selector = field_selector.to_owned();
        let source = Source { field_selector, ..Source::all(self.client.clone(), resource.clone()) };
        let (reflector, reader) = cache::digest(source, cache::Settings::default(), index_by, read);
        self.watches.spawn(reflector.run().in_current_span());
        reader
    }

    /// Makes the plan wait until the cache is complete.
    fn require<T: Send + Sync + 'static>(&mut self, reader: Reader<T>) -> Reader<T> {
        let (checked, awaited, wake) = (reader.clone(), reader.clone(), self.wake.clone());
        self.pending.push(Box::new(move || checked.progress().synced));
        self.watches.spawn(async move {
            if awaited.synced().await.is_ok() {
                wake.add([Key::default()]);
            }
        });
        reader
    }
}

fn serves(served: &ServerResources, resource: &Resource) -> bool {
    served.served.iter().any(|one| one.resource == *resource)
}

//! API aggregation: APIServices served by extension API servers.
//!
//! ```text
//! APIServices, Services, EndpointSlices ──> follow ──> discovery requests ──> conditions in the APIServices
//!                                              │
//! requests ──> remote(path) <── served ────────┘ ──> proxied with the user's identity in request headers
//! ```

mod controller;
mod identity;
mod trust;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};

use api_registry::aggregation::Remote;
use api_registry::request_info::{Info, Resource};
use apimachinery::Value;
use auth::{User, request_header};
use client::config::{Pem, Tls};
use http::header::{HeaderMap, LOCATION};
use openapi::merged::Foreign;

pub use controller::run;

use crate::backend::{Backend, ResolveError};
use crate::proxy::{ProxyError, Stream, Target, headers};
use crate::request_info::RequestInfo;
use crate::response::{self, HttpResponse};
use crate::storage::Storage;

/// Client identity and CAs of the aggregation layer, from flags.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// `--proxy-client-cert-file` and `--proxy-client-key-file`.
    pub client: Option<(PathBuf, PathBuf)>,
    /// `--client-ca-file`: the CA of client certificates.
    pub client_ca: Option<PathBuf>,
    /// `--requestheader-client-ca-file`: the CA of front proxies.
    pub proxy_ca: Option<PathBuf>,
}

/// The registered API group versions that extension API servers serve.
pub struct Aggregation {
    config: Config,
    /// The trusted front proxies, published for extension API servers.
    request_header: Option<request_header::Config>,
    served: RwLock<Arc<ExtensionServers>>,
}

/// Extension API servers by API group and version.
type ExtensionServers = BTreeMap<(String, String), Arc<ExtensionVersion>>;

/// A group version that an extension API server serves, with its discovery documents.
#[derive(Clone, Debug)]
pub struct ExtensionVersion {
    /// The spec of the APIService.
    pub remote: Remote,
    /// The APIResourceList; absent until the first successful discovery request.
    pub resources: Option<Value>,
    /// The OpenAPI v3 entry point, if the server has one.
    pub openapi: Option<Value>,
    /// The OpenAPI v2 document and its hash, if the server has one.
    pub swagger: Option<Arc<(String, Value)>>,
}

impl ExtensionVersion {
    /// Whether the extension API server reports the resource as namespaced. `None` if the resource is not listed, or is
    /// listed with both scopes.
    pub fn is_namespaced(&self, resource: &Resource) -> Option<bool> {
        let listed = self.resources.as_ref()?.get("resources")?.as_array()?;
        let subresource_name = format!("{}/{}", resource.plural, resource.subresource);
        let mut scopes = listed
            .iter()
            .filter(|one| one.str_at(&["name"]).is_some_and(|name| name == resource.plural || name == subresource_name))
            .map(|one| one.get("namespaced").and_then(Value::as_bool) == Some(true));
        let first = scopes.next()?;
        scopes.all(|scope| scope == first).then_some(first)
    }
}

impl Aggregation {
    pub fn new(config: Config, request_header: Option<request_header::Config>) -> Self {
        Self { config, request_header, served: RwLock::default() }
    }

    /// Returns the extension API server for a request, or `None` if this server serves the request itself.
    pub fn remote(&self, info: &Info) -> Option<Arc<ExtensionVersion>> {
        let served = self.served();
        if served.is_empty() {
            return None;
        }
        let key = match &info.resource {
            Some(resource) => (resource.group.clone(), resource.version.clone()),
            None => {
                let path = info.path.strip_prefix("/openapi/v3").unwrap_or(&info.path);
                let (group, version) = path.strip_prefix("/apis/")?.trim_end_matches('/').split_once('/')?;
                (group.to_owned(), version.to_owned())
            }
        };
        served.get(&key).cloned()
    }

    /// Passes the group versions of extension API servers to `make`, for discovery and OpenAPI documents.
    pub fn with_foreign<R>(&self, make: impl FnOnce(&[Foreign<'_>]) -> R) -> R {
        let served = self.served();
        let foreign: Vec<Foreign<'_>> = served
            .values()
            .map(|extension| Foreign {
                group: &extension.remote.group,
                version: &extension.remote.version,
                group_priority: extension.remote.group_priority,
                version_priority: extension.remote.version_priority,
                resources: extension.resources.as_ref(),
                openapi: extension.openapi.as_ref(),
                swagger: extension.swagger.as_ref().map(|swagger| (swagger.0.as_str(), &swagger.1)),
                available: extension.remote.available,
            })
            .collect();
        make(&foreign)
    }

    /// Proxies a request to the extension API server that serves it.
    pub async fn serve(
        &self,
        storage: &Storage,
        extension: &ExtensionVersion,
        request: &RequestInfo,
        user: &User,
        stream: Stream,
    ) -> HttpResponse {
        if !extension.remote.available {
            return unavailable();
        }
        let tls = self.tls(&extension.remote);
        let path = request.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let Ok(target) = target(storage, &extension.remote, tls, path) else { return unavailable() };
        match pass(&target, request, user, stream).await {
            Ok(response) => response,
            Err(error) => response::text(503, format!("error trying to reach service: {}\n", reached(&error))),
        }
    }

    fn served(&self) -> Arc<ExtensionServers> {
        self.served.read().expect("no holder panics").clone()
    }

    /// Returns the TLS configuration for an extension API server: its CA bundle and this server's client certificate.
    fn tls(&self, remote: &Remote) -> Tls {
        let bundle = (!remote.bundle.is_empty()).then(|| Pem::Inline(remote.bundle.clone().into()));
        Tls { certificate_authority: bundle, insecure_skip_verify: remote.insecure, ..self.client_tls() }
    }

    /// Returns a TLS configuration with only this server's proxy client certificate.
    fn client_tls(&self) -> Tls {
        let client = self.config.client.clone().map(|(certificate, key)| (Pem::File(certificate), Pem::File(key)));
        Tls { client, ..Tls::default() }
    }
}

async fn pass(
    target: &Target,
    incoming: &RequestInfo,
    user: &User,
    mut stream: Stream,
) -> Result<HttpResponse, ProxyError> {
    let mut passed = headers::forwarded(&incoming.headers, incoming.from);
    identity::show(&mut passed, user)?;
    let client = stream.upgrade.take().filter(|_| headers::is_upgrade(&incoming.headers));
    let request = target.request(incoming.method.clone(), passed, stream.body)?;
    let response = match client {
        Some(client) => target.switch(request, client).await?,
        None => target.pass(request).await?,
    };
    // Following a redirect would make clients send their credentials to another server.
    if response.status().is_redirection() && response.headers().contains_key(LOCATION) {
        let message = "the backend attempted to redirect this request, which is not permitted";
        return Ok(response::text(502, message));
    }
    Ok(response)
}

/// Resolves the connection target of an extension API server.
fn target(storage: &Storage, remote: &Remote, tls: Tls, path: String) -> Result<Target, ResolveError> {
    let backend = Backend::Service {
        namespace: remote.namespace.clone(),
        name: remote.service.clone(),
        port: remote.port,
        path: String::new(),
    };
    Ok(Target { route: storage.backends.route(&backend, storage)?, tls, path })
}

fn unavailable() -> HttpResponse {
    response::text(503, "service unavailable\n")
}

fn reached(error: &ProxyError) -> String {
    match error {
        ProxyError::Dial { text, .. } => text.clone(),
        other => other.to_string(),
    }
}

/// Returns the headers of requests that this server sends on its own behalf.
fn own_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    let own = User { groups: vec![auth::user::MASTERS.into()], ..User::default() };
    identity::show(&mut headers, &User { name: "system:kube-aggregator".into(), ..own })
        .expect("the server's own name fits into a header");
    headers.insert(http::header::ACCEPT, http::HeaderValue::from_static("application/json"));
    headers
}

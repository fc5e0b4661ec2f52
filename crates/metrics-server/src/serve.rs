//! HTTPS server of the metrics API: authentication, authorization and responses.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use apimachinery::status::Status;
use apimachinery::table::IncludeObject;
use apimachinery::{Value, json, value};
use auth::User;
use auth::attributes::{Attributes, Resource, Target as About};
use bytes::Bytes;
use client::cache::{self, Reader, Source};
use client::{Client, ListOptions, Target};
use component_base::clock;
use component_base::connection::{self, Body};
use component_base::reviews::Reviews;
use controller::kinds;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::objects::{self, GROUP, Kind, VERSION};
use crate::scrape::Scraper;
use crate::trust::{self, Peer, Trust};

/// Timeout of the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Maximum number of concurrent connections; further ones wait.
const CONNECTIONS_MAX: usize = 256;
/// Group that is authorized without a SubjectAccessReview.
const MASTERS: &str = "system:masters";

/// The server could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("{0} contains no usable PEM")]
    Pem(PathBuf, #[source] rustls::pki_types::pem::Error),
    #[error("failed to generate a certificate")]
    Generate(#[from] rcgen::Error),
    /// Certificate and key do not match.
    #[error("the certificate is unusable")]
    Tls(#[from] rustls::Error),
}

/// The serving certificate.
#[derive(Debug)]
pub enum Certificate {
    /// Certificate and key files, read for each connection: they are renewed, and connections are few.
    Files(PathBuf, PathBuf),
    /// A certificate generated for this run.
    SelfSigned(CertificateDer<'static>, PrivatePkcs8KeyDer<'static>),
}

/// The server of the metrics API.
pub struct Server {
    /// Client for the metadata of nodes and pods.
    objects: Client,
    reviews: Reviews,
    scraper: Scraper,
    certificate: Certificate,
    trust: Reader<Trust>,
}

/// The resource in a request path.
#[derive(Debug, PartialEq, Eq)]
enum RequestTarget {
    Groups,
    Group,
    Resources,
    Metrics { kind: Kind, namespace: String, name: String },
    NotFound,
}

impl Certificate {
    /// Generates a self-signed certificate.
    pub fn make() -> Result<Self, ServeError> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        Ok(Self::SelfSigned(made.cert.der().clone(), key))
    }

    fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), ServeError> {
        match self {
            Self::SelfSigned(certificate, key) => Ok((vec![certificate.clone()], key.clone_key().into())),
            Self::Files(certificate, key) => {
                let pem = |file: &PathBuf| {
                    let file = file.clone();
                    move |error| ServeError::Pem(file, error)
                };
                let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
                Ok((chain.map_err(pem(certificate))?, PrivateKeyDer::from_pem_file(key).map_err(pem(key))?))
            }
        }
    }
}

impl Server {
    /// Creates a server that uses `client`. The returned future follows the trusted CAs while it is polled.
    pub fn new(
        client: Client,
        scraper: Scraper,
        certificate: Certificate,
    ) -> Result<(Arc<Self>, impl Future<Output = ()> + Send), ServeError> {
        certificate.read()?;
        let source = Source {
            namespace: trust::NAMESPACE.into(),
            field_selector: format!("metadata.name={}", trust::NAME),
            ..Source::all(client.clone(), kinds::CONFIG_MAPS.clone())
        };
        let (reflector, trust) = cache::new(source, cache::Settings::default(), Vec::new(), |map| Trust::read(&map));
        let (objects, reviews) = (client.metadata_only(), Reviews::new(client));
        Ok((Arc::new(Self { objects, reviews, scraper, certificate, trust }), reflector.run()))
    }

    /// Serves until dropped.
    pub async fn serve(self: Arc<Self>, listener: TcpListener) {
        component_base::accept(listener, CONNECTIONS_MAX, std::future::pending(), |stream, _, slot| {
            let server = Arc::clone(&self);
            async move {
                server.connection(stream).await;
                drop(slot);
            }
        })
        .await;
    }

    async fn connection(self: Arc<Self>, stream: TcpStream) {
        let snapshot = self.trust.snapshot();
        let trust = snapshot.objects.iter().next().map(|entry| entry.value.clone()).unwrap_or_default();
        let tls = match self.tls(&trust) {
            Ok(tls) => TlsAcceptor::from(Arc::new(tls)),
            Err(error) => return tracing::error!(%error, "failed to build the TLS configuration"),
        };
        let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await else { return };
        let peer = Arc::new(trust.peer(stream.get_ref().1.peer_certificates()));
        component_base::serve_connection(stream, move |request| {
            let (server, peer) = (Arc::clone(&self), Arc::clone(&peer));
            async move { server.respond(&request, &peer).await }
        })
        .await;
    }

    fn tls(&self, trust: &Trust) -> Result<ServerConfig, ServeError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let (chain, key) = self.certificate.read()?;
        let mut config = match trust.verifier() {
            Some(verifier) => builder.with_client_cert_verifier(verifier).with_single_cert(chain, key)?,
            None => builder.with_no_client_auth().with_single_cert(chain, key)?,
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    async fn respond(&self, request: &Request<Incoming>, peer: &Peer) -> Response<Body> {
        let path = request.uri().path();
        if matches!(path, "/healthz" | "/livez" | "/readyz") {
            return plain(StatusCode::OK, "text/plain; charset=utf-8", Bytes::from_static(b"ok"));
        }
        let parsed = parse_path(path);
        let outcome = match self.admit(request, peer, &parsed).await {
            Ok(()) => self.find(&parsed, request).await,
            Err(status) => Err(status),
        };
        match outcome {
            Ok(value) => {
                plain(StatusCode::OK, "application/json", json::to_vec(&to_preferred_format(value, request)).into())
            }
            Err(status) => {
                let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                plain(code, "application/json", json::to_vec(&status.to_value()).into())
            }
        }
    }

    /// Authenticates and authorizes a request.
    async fn admit(&self, request: &Request<Incoming>, peer: &Peer, parsed: &RequestTarget) -> Result<(), Status> {
        let user = match peer.user(request.headers()) {
            Some(user) => user,
            None => self.by_token(request.headers()).await?,
        };
        if user.is_in(MASTERS) {
            return Ok(());
        }
        let failed = |error: client::Error| Status::internal_error(error);
        let (verb, path) = (request.method().as_str().to_ascii_lowercase(), request.uri().path());
        let RequestTarget::Metrics { kind, namespace, name } = parsed else {
            let target = About::Path(path);
            let allowed = self.reviews.may_access_path(&user, &verb, path).await.map_err(failed)?;
            return if allowed { Ok(()) } else { Err(Attributes { user: &user, verb: &verb, target }.forbidden("")) };
        };
        let verb = match request.method() {
            &Method::GET | &Method::HEAD if name.is_empty() => "list",
            &Method::GET | &Method::HEAD => "get",
            _ => verb.as_str(),
        };
        let resource = Resource {
            group: GROUP,
            version: VERSION,
            resource: kind.plural(),
            namespace,
            name,
            ..Resource::default()
        };
        let about = value!({"verb": verb, "group": GROUP, "version": VERSION, "resource": (kind.plural()),
            "namespace": (namespace.as_str()), "name": (name.as_str())});
        if self.reviews.may_use(&user, about).await.map_err(failed)? {
            return Ok(());
        }
        Err(Attributes { user: &user, verb, target: About::Resource(resource) }.forbidden(""))
    }

    async fn by_token(&self, headers: &HeaderMap) -> Result<User, Status> {
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        match given.and_then(|text| text.strip_prefix("Bearer ")) {
            Some(token) => self.reviews.who(token).await.ok_or_else(|| Status::unauthorized("Unauthorized")),
            None => Ok(User::anonymous()),
        }
    }

    async fn find(&self, parsed: &RequestTarget, request: &Request<Incoming>) -> Result<Value, Status> {
        let (kind, namespace, name) = match parsed {
            RequestTarget::Groups => return Ok(objects::groups()),
            RequestTarget::Group => return Ok(objects::group()),
            RequestTarget::Resources => return Ok(objects::resources()),
            RequestTarget::Metrics { kind, namespace, name } => (*kind, namespace.as_str(), name.as_str()),
            RequestTarget::NotFound => return Err(nothing_there()),
        };
        let query = query(request.uri().query().unwrap_or_default());
        if request.method() != Method::GET || matches!(parameter(&query, "watch"), "1" | "true") {
            let resource = apimachinery::status::GroupName::new(GROUP, kind.plural());
            let action = if request.method() == Method::GET { "watch" } else { request.method().as_str() };
            return Err(Status::method_not_supported(resource, action));
        }
        let resource = match kind {
            Kind::Node => &kinds::NODES,
            Kind::Pod => &kinds::PODS,
        };
        let of = self.objects_of(kind, Target::named(resource, namespace, name), &query).await?;
        self.scraper.refresh().await;
        let mut metrics = self.metrics(kind, &of);
        if metrics.len() < of.len() {
            self.scraper.complete().await;
            metrics = self.metrics(kind, &of);
        }
        if name.is_empty() {
            return Ok(objects::list(kind, metrics));
        }
        metrics.pop().ok_or_else(|| kind.not_found(namespace, name))
    }

    /// Returns the requested nodes or pods.
    async fn objects_of(
        &self,
        kind: Kind,
        target: Target<'_>,
        query: &[(String, String)],
    ) -> Result<Vec<Value>, Status> {
        if target.name.is_empty() {
            let running = (kind == Kind::Pod).then_some("status.phase=Running");
            let fields =
                running.into_iter().chain(Some(parameter(query, "fieldSelector")).filter(|given| !given.is_empty()));
            let options = ListOptions {
                label_selector: parameter(query, "labelSelector").to_owned(),
                field_selector: fields.collect::<Vec<_>>().join(","),
                // The API server's watch cache is recent enough.
                resource_version: "0".to_owned(),
                ..ListOptions::default()
            };
            return Ok(self.objects.list(&target, &options).await.map_err(as_status)?.items);
        }
        match self.objects.get(&target).await {
            Ok(object) => Ok(vec![object]),
            Err(error) if error.is_not_found() => Err(kind.not_found(&target.namespace, &target.name)),
            Err(error) => Err(as_status(error)),
        }
    }

    /// Returns the metrics of the objects for which they are known.
    fn metrics(&self, kind: Kind, of: &[Value]) -> Vec<Value> {
        let now = clock::now();
        let one = |object: &Value| {
            let text = |field: &str| object.text_at(&["metadata", field]);
            match kind {
                Kind::Node => self.scraper.node(text("name")).map(|used| objects::node(object, used, now)),
                Kind::Pod => self
                    .scraper
                    .pod(text("namespace"), text("name"), |containers| objects::pod(object, containers, now))
                    .flatten(),
            }
        };
        of.iter().filter_map(one).collect()
    }
}

fn parse_path(path: &str) -> RequestTarget {
    let parts: Vec<String> = path
        .split('/')
        .filter(|part| !part.is_empty())
        .map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned())
        .collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let metrics = |kind, namespace: &str, name: &str| {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        RequestTarget::Metrics { kind, namespace, name }
    };
    match parts.as_slice() {
        ["apis"] => RequestTarget::Groups,
        ["apis", GROUP] => RequestTarget::Group,
        ["apis", GROUP, VERSION] => RequestTarget::Resources,
        ["apis", GROUP, VERSION, "nodes"] => metrics(Kind::Node, "", ""),
        ["apis", GROUP, VERSION, "nodes", name] => metrics(Kind::Node, "", name),
        ["apis", GROUP, VERSION, "pods"] => metrics(Kind::Pod, "", ""),
        ["apis", GROUP, VERSION, "namespaces", namespace, "pods"] => metrics(Kind::Pod, namespace, ""),
        ["apis", GROUP, VERSION, "namespaces", namespace, "pods", name] => metrics(Kind::Pod, namespace, name),
        _ => RequestTarget::NotFound,
    }
}

/// Converts metrics to a Table if the client prefers one.
fn to_preferred_format(value: Value, request: &Request<Incoming>) -> Value {
    let is_metrics = value.str_at(&["kind"]).is_some_and(|kind| kind.contains("Metrics"));
    let accept = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let wants_table = accept.split(',').next().is_some_and(|first| first.contains("as=Table"));
    if !is_metrics || !wants_table {
        return value;
    }
    let query = query(request.uri().query().unwrap_or_default());
    let include = match parameter(&query, "includeObject") {
        "None" => IncludeObject::None,
        "Object" => IncludeObject::Object,
        _ => IncludeObject::Metadata,
    };
    objects::as_table(&value, include, clock::now())
}

fn query(text: &str) -> Vec<(String, String)> {
    form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}

/// Returns the first value of a query parameter, empty if absent.
fn parameter<'a>(query: &'a [(String, String)], name: &str) -> &'a str {
    query.iter().find(|(have, _)| have == name).map_or("", |(_, value)| value)
}

fn nothing_there() -> Status {
    Status::failure(apimachinery::status::Reason::NotFound, "the server could not find the requested resource")
}

fn as_status(error: client::Error) -> Status {
    match error {
        client::Error::Status(status) => *status,
        other => Status::internal_error(other),
    }
}

fn plain(status: StatusCode, kind: &'static str, bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(connection::full(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_parsed_to_resources() {
        let metrics = |kind, namespace: &str, name: &str| RequestTarget::Metrics {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let check = |path: &str, expect: RequestTarget| assert_eq!(parse_path(path), expect, "{path}");
        check("/apis/metrics.k8s.io/v1beta1/nodes", metrics(Kind::Node, "", ""));
        check("/apis/metrics.k8s.io/v1beta1/nodes/a", metrics(Kind::Node, "", "a"));
        check("/apis/metrics.k8s.io/v1beta1/pods", metrics(Kind::Pod, "", ""));
        check("/apis/metrics.k8s.io/v1beta1/namespaces/n/pods/p", metrics(Kind::Pod, "n", "p"));
        check("/apis/metrics.k8s.io/v1/pods", RequestTarget::NotFound);
        check("/", RequestTarget::NotFound);
    }
}

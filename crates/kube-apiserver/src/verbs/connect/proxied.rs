//! The `proxy` subresource of pods, services and nodes.

use admission::Operation;
use api_registry::connect::{self, Name, Scheme, endpoint, endpoints, is_proxyable, pod_port};
use apimachinery::status::Status;
use apimachinery::{Value, value};
use bytes::BytesMut;
use client::config::Tls;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION};
use http::{Method, Response, StatusCode, Uri};
use http_body_util::BodyExt;

use super::{Call, failed, kubelet_of, reached, switch, taken};
use crate::backend::{Directory, Route};
use crate::ids::generate_ids;
use crate::proxy::{CertificateVerification, Target, headers};
use crate::response::{Body, HttpResponse};
use crate::verbs::subresource;

/// Maximum size of an HTML page whose links are rewritten.
const PAGE_BYTES_MAX: usize = 4 << 20;
const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");

/// Forwards a request to a port of a pod, a service or a node.
pub(super) async fn serve(call: &Call<'_>) -> Result<HttpResponse, Status> {
    let subresource =
        call.kind.subresource(&call.resource.version, "proxy").and_then(|subresource| subresource.kind.as_ref());
    let path = path_of(call);
    let mut connect_options = value!({
        "apiVersion": "v1",
        "kind": (subresource.map(|kind| kind.kind.clone()).unwrap_or_default()),
        "path": (path.unwrap_or_default()),
    });
    subresource::admit(call, &call.kind, &call.resource.name, "proxy", &mut connect_options, Operation::Connect)
        .await?;
    let mut target = match call.resource.plural.as_str() {
        "nodes" => node(call).await?,
        "services" => service(call).await?,
        _ => pod(call).await?,
    };
    let is_upgrade = headers::is_upgrade(&call.request.headers);
    let Some(path) = path else {
        if !is_upgrade && matches!(call.request.method, Method::GET | Method::HEAD) {
            return Ok(to_root(&call.request.uri));
        }
        target.path = with_query(&call.request.uri, "/");
        return pass(call, &target, is_upgrade).await;
    };
    target.path = with_query(&call.request.uri, path);
    pass(call, &target, is_upgrade).await
}

async fn pass(call: &Call<'_>, target: &Target, is_upgrade: bool) -> Result<HttpResponse, Status> {
    if is_upgrade {
        return switch(call, target).await;
    }
    let request_path = call.request.uri.path();
    let mut passed = headers::forwarded(&call.request.headers, call.request.from);
    if let Ok(uri) = HeaderValue::from_str(request_path) {
        passed.insert(FORWARDED_URI, uri);
    }
    let host = host_of(call);
    if let Ok(host) = HeaderValue::from_str(&host) {
        passed.insert(http::header::HOST, host);
    }
    let stream = taken(call)?;
    let request = target.request(call.request.method.clone(), passed, stream.body).map_err(|error| failed(&error))?;
    let mut response = target
        .pass(request)
        .await
        .map_err(|error| Status::service_unavailable(format!("error trying to reach service: {}", reached(&error))))?;
    let path = path_of(call).unwrap_or_default();
    let back = Back {
        prefix: request_path.strip_suffix(path).unwrap_or(request_path),
        backend: &target.route.dial,
        host: &host,
    };
    headers::strip_cors(response.headers_mut());
    back.lead(response).await.map_err(|error| {
        Status::service_unavailable(format!(
            "error trying to reach service: {}",
            apimachinery::go::quote(&error.to_string())
        ))
    })
}

/// Rewrites URLs of the backend so that they pass through the proxy.
struct Back<'a> {
    /// The URL path before the proxied path.
    prefix: &'a str,
    backend: &'a str,
    /// The host of the client's request.
    host: &'a str,
}

impl Back<'_> {
    fn link(&self, target: &str) -> String {
        connect::location(target, self.prefix, self.backend, self.host)
    }

    /// Rewrites the `Location` header, or the links of an HTML page.
    // DEVIATION: the proxy of pods, services and nodes does not rewrite links in pages that are compressed or longer
    // than 4 MiB.
    async fn lead(&self, mut response: HttpResponse) -> Result<HttpResponse, hyper::Error> {
        let header = |name: &HeaderName| response.headers().get(name).and_then(|value| value.to_str().ok());
        if let Some(target) = header(&LOCATION) {
            if let Ok(value) = HeaderValue::from_str(&self.link(target)) {
                response.headers_mut().insert(LOCATION, value);
            }
            return Ok(response);
        }
        let media = header(&CONTENT_TYPE).unwrap_or_default().split(';').next().unwrap_or_default().trim();
        let length = http_body::Body::size_hint(response.body()).exact();
        if media != "text/html"
            || response.headers().contains_key(CONTENT_ENCODING)
            || length.is_some_and(|length| length > PAGE_BYTES_MAX as u64)
        {
            return Ok(response);
        }
        let (mut head, mut body) = response.into_parts();
        let mut page = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            page.extend_from_slice(&data);
            if page.len() > PAGE_BYTES_MAX {
                return Ok(Response::from_parts(head, Body::Started(Some(page.freeze()), Box::new(body))));
            }
        }
        head.headers.remove(CONTENT_LENGTH);
        let page = connect::rewrite_links(&page, |link| self.link(link));
        Ok(Response::from_parts(head, Body::Full(page.into())))
    }
}

/// Returns the target for a port of a pod.
async fn pod(call: &Call<'_>) -> Result<Target, Status> {
    let name = Name::parse(&call.resource.name, "pod")?;
    let pod = call.current(name.name).await?.ok_or_else(|| call.not_found(name.name))?.object;
    target(name.scheme, pod_port(&pod, &name)?)
}

/// Returns the target for one of the endpoints of a service.
async fn service(call: &Call<'_>) -> Result<Target, Status> {
    let name = Name::parse(&call.resource.name, "service")?;
    let service = call.current(name.name).await?.ok_or_else(|| call.not_found(name.name))?.object;
    call.state.storage.catch_up().await?;
    let namespace = call.namespace();
    let slices: Vec<Value> = call.state.storage.slices(namespace, name.name);
    let found = endpoints(&service, &slices, &name)?;
    let pick = generate_ids().uid.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let own =
        |of: &str, pod: &str| if of == namespace { call.state.storage.stored("", "pods", of, pod).pop() } else { None };
    target(name.scheme, endpoint(&found, &name, pick, own)?)
}

/// Returns the target for a node's kubelet, or for another port of the node.
async fn node(call: &Call<'_>) -> Result<Target, Status> {
    let name = Name::parse(&call.resource.name, "node")?;
    let kubelet = kubelet_of(call, name.name).await?;
    if name.port.is_empty() || name.port == kubelet.port.to_string() {
        return call
            .state
            .kubelets
            .target(&kubelet, String::new(), CertificateVerification::Configured)
            .map_err(|error| failed(&error));
    }
    let found = tokio::net::lookup_host((kubelet.host.as_str(), 0)).await;
    let mut found = found.map_err(|error| Status::bad_request(error.to_string()))?.peekable();
    if found.peek().is_none() {
        return Err(Status::bad_request("No addresses for hostname"));
    }
    if !found.all(|address| is_proxyable(&address.ip().to_string())) {
        return Err(Status::bad_request("address not allowed"));
    }
    let host = &kubelet.host;
    let port = name.port;
    target(name.scheme, if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

/// Returns a target without certificate verification: pods have no certificates that this server could verify.
fn target(scheme: Scheme, dial: String) -> Result<Target, Status> {
    let url = Uri::try_from(format!("{}://{dial}/", scheme.name()));
    let url = url.map_err(|_| Status::bad_request(format!("{dial:?} is not an address")))?;
    let server_name = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let tls = Tls { insecure_skip_verify: true, ..Tls::default() };
    Ok(Target { route: Route { url, dial, server_name }, tls, path: String::new() })
}

/// Returns the path after `proxy`, unchanged.
fn path_of<'c>(call: &'c Call<'_>) -> Option<&'c str> {
    // `api/v1/nodes/n/proxy`, or with `namespaces/ns` in the middle.
    let segments = if call.resource.namespace.is_empty() { 5 } else { 7 };
    connect::proxied_path(call.request.uri.path(), segments)
}

fn with_query(uri: &Uri, path: &str) -> String {
    match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    }
}

/// Redirects to the URL with a trailing slash, so that relative links work.
fn to_root(uri: &Uri) -> HttpResponse {
    let mut response = Response::new(Body::Full(bytes::Bytes::new()));
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(value) = HeaderValue::from_str(&with_query(uri, &format!("{}/", uri.path()))) {
        response.headers_mut().insert(LOCATION, value);
    }
    response
}

/// Returns the host of the client's request.
fn host_of(call: &Call<'_>) -> String {
    let header = call.request.headers.get(http::header::HOST).and_then(|value| value.to_str().ok());
    let authority = call.request.uri.authority().map(http::uri::Authority::as_str);
    header.or(authority).unwrap_or_default().to_owned()
}

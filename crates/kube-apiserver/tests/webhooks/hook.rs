//! Test webhook: a small TLS server with a configurable JSON handler.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use apimachinery::{Value, json};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// The response of a webhook: code and body, a redirect, or none at all.
pub(crate) enum HookResponse {
    Json(u16, Value),
    /// A 307 to this location.
    Redirect(String),
    NoResponse,
}

/// A running webhook; it stops when dropped.
pub(crate) struct Hook {
    address: SocketAddr,
    certificate: String,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
    connections: Arc<Mutex<usize>>,
    _tasks: JoinSet<()>,
}

impl Hook {
    /// Listens with a certificate for these names. `respond` handles requests by path and body.
    pub(crate) async fn start(
        names: &[&str],
        respond: impl Fn(&str, &Value) -> HookResponse + Send + Sync + 'static,
    ) -> Self {
        let made = rcgen::generate_simple_self_signed(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let made = made.unwrap();
        let chain = vec![CertificateDer::from(made.cert.der().to_vec())];
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut config = config.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], listener.local_addr().unwrap().port()));
        let (requests, connections) = (Arc::default(), Arc::default());
        let mut tasks = JoinSet::new();
        let serving =
            accept(listener, TlsAcceptor::from(Arc::new(config)), Arc::new(respond), Arc::clone(&requests), {
                Arc::clone(&connections)
            });
        tasks.spawn(serving);
        Self { address, certificate: made.cert.pem(), requests, connections, _tasks: tasks }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    /// Writes a kubeconfig for a path of the webhook.
    pub(crate) fn kubeconfig(&self, dir: &Path, path: &str) -> PathBuf {
        let file = dir.join(format!("{}.yaml", path.trim_start_matches('/')));
        let (server, bundle) = (self.url(path), self.bundle());
        let text = format!(
            "clusters: [{{name: c, cluster: {{server: '{server}', certificate-authority-data: {bundle}}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c}}}}]\ncurrent-context: c\n"
        );
        std::fs::write(&file, text).unwrap();
        file
    }

    /// Returns the base64-encoded CA bundle.
    pub(crate) fn bundle(&self) -> String {
        BASE64.encode(&self.certificate)
    }

    /// Returns all requests so far: path with query, and body.
    pub(crate) fn requests(&self) -> Vec<(String, Value)> {
        self.requests.lock().unwrap().clone()
    }

    /// Returns the number of connections accepted.
    pub(crate) fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }
}

type HookHandler = Arc<dyn Fn(&str, &Value) -> HookResponse + Send + Sync>;

async fn accept(
    listener: TcpListener,
    tls: TlsAcceptor,
    respond: HookHandler,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
    connections: Arc<Mutex<usize>>,
) {
    let mut open = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (tls, respond, requests) = (tls.clone(), Arc::clone(&respond), Arc::clone(&requests));
        let connections = Arc::clone(&connections);
        open.spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            *connections.lock().unwrap() += 1;
            let service = service_fn(move |request: Request<Incoming>| {
                let (respond, requests) = (Arc::clone(&respond), Arc::clone(&requests));
                async move { Ok::<_, Infallible>(serve(request, &respond, &requests).await) }
            });
            let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn serve(
    request: Request<Incoming>,
    respond: &HookHandler,
    requests: &Mutex<Vec<(String, Value)>>,
) -> Response<Full<Bytes>> {
    let path = request.uri().path_and_query().unwrap().to_string();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let body = json::parse(&body).unwrap();
    requests.lock().unwrap().push((path.clone(), body.clone()));
    match respond(&path, &body) {
        HookResponse::Json(code, value) => {
            Response::builder().status(code).body(Full::new(Bytes::from(json::to_vec(&value)))).unwrap()
        }
        HookResponse::Redirect(to) => {
            Response::builder().status(307).header("location", to).body(Full::default()).unwrap()
        }
        HookResponse::NoResponse => std::future::pending().await,
    }
}

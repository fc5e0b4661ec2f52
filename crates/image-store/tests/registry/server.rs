//! A test registry that serves the content of a store.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use futures_util::{StreamExt, stream};
use image_store::Digest;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The behavior of the registry.
#[derive(Clone, Default)]
pub(crate) struct Manners {
    /// Requires this password from all clients.
    pub password: Option<&'static str>,
    /// Whether the tag refers to an index.
    pub index: bool,
    /// Number of bytes after which the first download of each layer is interrupted.
    pub break_after: Option<usize>,
    /// Whether content is modified.
    pub corrupt: bool,
    /// Whether layers never arrive.
    pub stall: bool,
    /// Whether the password gives a token, which all other requests need.
    pub token: bool,
    /// Status of the response to every request.
    pub fails: Option<u16>,
    /// URL to which requests for blobs are redirected.
    pub blobs_at: Option<String>,
    /// Certificate, key and policy of a server that uses TLS.
    pub tls: Option<Arc<rustls::ServerConfig>>,
}

pub(crate) struct Server {
    pub address: String,
    content: Arc<Content>,
    task: JoinHandle<()>,
}

struct Content {
    root: PathBuf,
    manifest: String,
    manners: Manners,
    ranges: AtomicUsize,
    transfers: AtomicUsize,
    seen: Mutex<Vec<String>>,
}

impl Server {
    pub(crate) async fn start(store: &Path, manifest: String, manners: Manners) -> Server {
        let content = Content {
            root: store.join("blobs/sha256"),
            manifest,
            manners,
            ranges: AtomicUsize::new(0),
            transfers: AtomicUsize::new(0),
            seen: Mutex::default(),
        };
        let content = Arc::new(content);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let app = Router::new().fallback(serve).with_state(Arc::clone(&content));
        let tls = content.manners.tls.clone();
        let task = tokio::spawn(async move {
            match tls {
                None => axum::serve(listener, app).await.unwrap(),
                Some(config) => axum::serve(TlsListener(listener, config.into()), app).await.unwrap(),
            }
        });
        Server { address, content, task }
    }

    /// Returns the number of range requests.
    pub(crate) fn ranges(&self) -> usize {
        self.content.ranges.load(Ordering::SeqCst)
    }

    /// Returns the requests: path and query, with the headers that have secrets.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.content.seen.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Accepts connections that complete the TLS handshake.
struct TlsListener(TcpListener, TlsAcceptor);

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.0.accept().await.unwrap();
            if let Ok(stream) = self.1.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

async fn serve(State(content): State<Arc<Content>>, request: Request) -> Response {
    if request.method() == "POST" {
        let body = axum::body::to_bytes(request.into_body(), 9999).await.unwrap();
        let form = String::from_utf8(body.to_vec()).unwrap();
        let is_valid = form.contains("grant_type=refresh_token") && form.contains("refresh_token=refresh");
        let status = if is_valid { 200 } else { 401 };
        return response_builder(status).body(Body::from(r#"{"access_token": "granted"}"#)).unwrap();
    }
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let secrets: Vec<String> =
        ["authorization", "x-key"].iter().filter_map(|name| header(name)).map(str::to_owned).collect();
    let line = format!("{} {}", request.uri().path_and_query().unwrap(), secrets.join(" "));
    content.seen.lock().unwrap().push(line.trim_end().to_owned());
    if let Some(status) = content.manners.fails {
        return response_builder(status).body(error("UNAVAILABLE")).unwrap();
    }
    let is_token_request = request.uri().path() == "/token";
    if content.manners.token && !is_token_request && header("authorization") != Some("Bearer granted") {
        let scheme = if content.manners.tls.is_some() { "https" } else { "http" };
        let realm = format!("{scheme}://{}/token", header("host").unwrap_or_default());
        let challenge = format!("Bearer realm=\"{realm}\",service=\"test\"");
        return response_builder(401).header("www-authenticate", challenge).body(error("UNAUTHORIZED")).unwrap();
    }
    if let Some(password) = content.manners.password.filter(|_| is_token_request || !content.manners.token) {
        // `me:<password>` in base64, for the only password that the tests use.
        assert_eq!(password, "secret");
        if header("authorization") != Some("Basic bWU6c2VjcmV0") {
            return response_builder(401)
                .header("www-authenticate", "Basic realm=\"test\"")
                .body(error("UNAUTHORIZED"))
                .unwrap();
        }
    }
    let path = request.uri().path().to_owned();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["token"] => response_builder(200).body(Body::from(r#"{"token": "granted"}"#)).unwrap(),
        ["v2", "test", "tool", "blobs", digest] if content.manners.blobs_at.is_some() => {
            let target = content.manners.blobs_at.clone().unwrap_or_default();
            response_builder(307)
                .header("location", format!("{target}/v2/test/tool/blobs/{digest}"))
                .body(Body::empty())
                .unwrap()
        }
        ["v2"] => response_builder(200).body(Body::empty()).unwrap(),
        ["v2", "test", "tool", "manifests", reference] => content.manifest(reference),
        ["v2", "test", "tool", "blobs", digest] => {
            let offset =
                header("range").and_then(|range| range.strip_prefix("bytes=")?.split('-').next()?.parse().ok());
            content.blob(digest, offset)
        }
        _ => response_builder(404).body(error("NAME_UNKNOWN")).unwrap(),
    }
}

impl Content {
    fn read(&self, digest: &str) -> Option<Vec<u8>> {
        std::fs::read(self.root.join(digest.strip_prefix("sha256:")?)).ok()
    }

    fn manifest(&self, reference: &str) -> Response {
        let index = json!({"schemaVersion": 2, "manifests": [
            {"mediaType": "x", "digest": format!("sha256:{}", "0".repeat(64)), "size": 1, "platform": {"os": "plan9", "architecture": "amd64"}},
            {"mediaType": "x", "digest": self.manifest, "size": 1,
             "platform": {"os": "linux", "architecture": image_store::Platform::host().architecture}},
        ]});
        let bytes = match reference {
            "1" if self.manners.index => index.to_string().into_bytes(),
            "1" => self.read(&self.manifest).unwrap(),
            digest => match self.read(digest) {
                Some(bytes) => bytes,
                None => return response_builder(404).body(error("MANIFEST_UNKNOWN")).unwrap(),
            },
        };
        response_builder(200)
            .header("docker-content-digest", Digest::of(&bytes).as_str())
            .body(Body::from(bytes))
            .unwrap()
    }

    fn blob(&self, digest: &str, offset: Option<usize>) -> Response {
        let Some(mut bytes) = self.read(digest) else {
            return response_builder(404).body(error("BLOB_UNKNOWN")).unwrap();
        };
        if self.manners.corrupt {
            bytes[0] ^= 1;
        }
        if self.manners.stall && bytes.len() > 10_000 {
            let start = Bytes::from(bytes[..100].to_vec());
            let body = stream::once(async { Ok::<_, std::io::Error>(start) }).chain(stream::pending());
            return response_builder(200).header("content-length", bytes.len()).body(Body::from_stream(body)).unwrap();
        }
        if let Some(offset) = offset {
            self.ranges.fetch_add(1, Ordering::SeqCst);
            return response_builder(206).body(Body::from(bytes.split_off(offset))).unwrap();
        }
        if let Some(limit) = self.manners.break_after
            && bytes.len() > limit
            && self.transfers.fetch_add(1, Ordering::SeqCst) == 0
        {
            let start = Bytes::from(bytes[..limit].to_vec());
            // The server flushes its buffer whenever the body is pending.
            let end = stream::once(async {
                tokio::task::yield_now().await;
                Err(std::io::Error::other("torn"))
            });
            let torn = stream::once(async { Ok(start) }).chain(end);
            return response_builder(200).header("content-length", bytes.len()).body(Body::from_stream(torn)).unwrap();
        }
        response_builder(200).body(Body::from(bytes)).unwrap()
    }
}

fn response_builder(status: u16) -> axum::http::response::Builder {
    Response::builder().status(status)
}

fn error(code: &str) -> Body {
    Body::from(json!({"errors": [{"code": code, "message": code}]}).to_string())
}

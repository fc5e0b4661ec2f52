//! Carries requests over HTTP/2 or HTTP/1.1, over TLS, with connections that are reused and credentials that are fresh.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderValue, USER_AGENT};
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::connect::Connector;
use super::credentials::{Credentials, Shown};
use super::exec::ExecCredential;
use super::tls::{ClientCertificate, Stamp, client_config};
use super::{Answer, Body, LongLived, Transport, TransportError, body};
use crate::config::{Config, Pem};

/// Idle connections are closed after this long.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// A connection on which nothing comes is asked for a sign of life, as often as upstream's client does it.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// Streams that do not end on one connection. Servers allow a hundred or more at once, and requests that end need some of them.
const STREAMS_MAX: usize = 80;
/// What a server may send ahead of a reader, on one stream and on all of a connection.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;

type Pool = Client<Connector, Full<Bytes>>;

/// A server over the network.
pub struct Https {
    config: Config,
    credentials: Credentials,
    connections: Mutex<Option<Connections>>,
}

/// The connections made with one state of certificates and keys.
struct Connections {
    stamp: Stamp,
    exec: Option<Arc<ExecCredential>>,
    tls: rustls::ClientConfig,
    short: Pool,
    long: Vec<(Pool, Arc<AtomicUsize>)>,
}

impl Https {
    /// Checks the configuration; connects only when there is something to send.
    pub fn new(config: Config) -> Result<Self, TransportError> {
        let credentials = Credentials::new(&config)?;
        // With a plug-in certificates come later; without one whatever is wrong is said now.
        let connections = match credentials {
            Credentials::Exec(_) => None,
            _ => Some(Connections::new(&config, None)?),
        };
        Ok(Self { config, credentials, connections: Mutex::new(connections) })
    }

    /// The pool to send with, made again if certificates or keys are others than before. What still runs on the old connections
    /// ends there.
    fn pool(&self, shown: &Shown, long: bool) -> Result<(Pool, Option<Permit>), TransportError> {
        let mut current = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = Stamp::of(self.config.tls.sources());
        let fresh = current.as_ref().is_some_and(|have| have.stamp == stamp && same(&have.exec, &shown.exec));
        if !fresh {
            match Connections::new(&self.config, shown.exec.clone()) {
                Ok(connections) => *current = Some(connections),
                // A certificate is there before its key, or the reverse: the next request looks again.
                Err(error) if current.is_some() => {
                    tracing::warn!(error = %error, "changed certificates cannot be used, keeping the old ones");
                }
                Err(error) => return Err(error),
            }
        }
        let connections = current.as_mut().expect("made above, or an error returned");
        if !long {
            return Ok((connections.short.clone(), None));
        }
        let (pool, permit) = connections.long(&self.config);
        Ok((pool, Some(permit)))
    }

    async fn carry(&self, mut request: Request<Bytes>) -> Result<Response<Body>, TransportError> {
        let shown = self.credentials.show().await?;
        if let Some(authorization) = &shown.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        request
            .headers_mut()
            .entry(USER_AGENT)
            .or_insert(const { HeaderValue::from_static(concat!("knarr/", env!("CARGO_PKG_VERSION"))) });
        *request.uri_mut() = absolute(&self.config.server, request.uri())?;
        let long = request.extensions().get::<LongLived>().is_some();
        let (pool, permit) = self.pool(&shown, long)?;
        let response = pool.request(request.map(Full::new)).await.map_err(|error| self.failure(error))?;
        if response.status() == StatusCode::UNAUTHORIZED {
            self.credentials.refused(&shown).await;
        }
        Ok(response.map(|incoming| body(Held { incoming, _permit: permit })))
    }

    fn failure(&self, error: hyper_util::client::legacy::Error) -> TransportError {
        if error.is_connect() {
            TransportError::Connect { server: self.config.server.to_string(), source: error.into() }
        } else {
            TransportError::Broken(error.into())
        }
    }
}

impl Transport for Https {
    fn send(&self, request: Request<Bytes>) -> Answer<'_> {
        Box::pin(self.carry(request))
    }
}

impl Connections {
    fn new(config: &Config, exec: Option<Arc<ExecCredential>>) -> Result<Self, TransportError> {
        let stamp = Stamp::of(config.tls.sources());
        let of = |(certificate, key): &'_ (Pem, Pem)| (certificate.clone(), key.clone());
        // As upstream has it, certificates that are configured come before those of a plug-in.
        let plugged = exec.as_ref().and_then(|exec| exec.certificate.as_ref());
        let pair = config.tls.client.as_ref().or(plugged).map(of);
        let client = pair.as_ref().map(|(certificate, key)| ClientCertificate { certificate, key });
        let tls = client_config(&config.tls, client)?;
        let short = pool(config, tls.clone());
        Ok(Self { stamp, exec, tls, short, long: Vec::new() })
    }

    /// A pool with room for one more stream that does not end. They share connections, but not with requests that end: a server's
    /// limit of streams on a connection would make those wait for ever.
    fn long(&mut self, config: &Config) -> (Pool, Permit) {
        let free = self.long.iter().find(|(_, streams)| streams.load(Ordering::Relaxed) < STREAMS_MAX);
        let (pool, streams) = match free {
            Some((pool, streams)) => (pool.clone(), Arc::clone(streams)),
            None => {
                let added = (pool(config, self.tls.clone()), Arc::default());
                self.long.push(added.clone());
                added
            }
        };
        streams.fetch_add(1, Ordering::Relaxed);
        (pool, Permit(streams))
    }
}

/// A place among the streams of a connection, given back when dropped.
struct Permit(Arc<AtomicUsize>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of an answer with the place that its stream takes.
struct Held {
    incoming: Incoming,
    _permit: Option<Permit>,
}

impl http_body::Body for Held {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.incoming).poll_frame(task)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.incoming.size_hint()
    }
}

fn pool(config: &Config, tls: rustls::ClientConfig) -> Pool {
    let connector = Connector::new(tls, config.tls.server_name.clone(), config.proxy.clone());
    Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .build(connector)
}

fn same(a: &Option<Arc<ExecCredential>>, b: &Option<Arc<ExecCredential>>) -> bool {
    // Two runs of a plug-in that differ only in their token do not differ for TLS.
    let certificate = |exec: &Option<Arc<ExecCredential>>| exec.as_ref().and_then(|exec| exec.certificate.clone());
    certificate(a) == certificate(b)
}

/// The server's address, with the path below the one that the server may have.
fn absolute(server: &Uri, path: &Uri) -> Result<Uri, http::Error> {
    let asked = path.path_and_query().map_or("/", PathAndQuery::as_str);
    let mut parts = server.clone().into_parts();
    parts.path_and_query = Some(format!("{}{asked}", server.path().trim_end_matches('/')).parse()?);
    Ok(Uri::from_parts(parts)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_below_a_path_is_asked_below_it() {
        let check = |server: &str, path: &str, expect: &str| {
            assert_eq!(absolute(&server.parse().unwrap(), &path.parse().unwrap()).unwrap().to_string(), expect);
        };
        check("https://a:6443", "/api/v1?x=1", "https://a:6443/api/v1?x=1");
        check("https://a/k8s/c/", "/api", "https://a/k8s/c/api");
        check("http://[::1]:80/", "/", "http://[::1]:80/");
    }
}

//! HTTPS transport: HTTP/2 or HTTP/1.1 over TLS, with pooled connections and reloaded credentials.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST, HeaderValue, USER_AGENT};
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tower_service::Service;

use super::connect::Connector;
use super::credentials::{Credentials, RequestCredentials};
use super::exec::ExecCredential;
use super::tls::{ClientCertificate, Stamp, client_config};
use super::{Body, LongLived, ResponseFuture, Switching, Transport, TransportError, UpgradeResponse, body};
use crate::config::{Config, Pem};

/// Idle connections are closed after this duration.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Interval and timeout of HTTP/2 pings on a silent connection, equal to client-go's.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum long-lived streams per connection. Servers allow a hundred or more, and short requests need some of them.
const STREAMS_MAX: usize = 80;
/// HTTP/2 flow control windows of a stream and of a connection.
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
    /// Validates the configuration. Connections are made on demand.
    pub fn new(config: Config) -> Result<Self, TransportError> {
        let credentials = Credentials::new(&config)?;
        // A plugin provides certificates later. Without a plugin, errors are reported now.
        let connections = match credentials {
            Credentials::Exec(_) => None,
            _ => Some(Connections::new(&config, None)?),
        };
        Ok(Self { config, credentials, connections: Mutex::new(connections) })
    }

    /// Returns the pool to use.
    fn pool(
        &self,
        request_credentials: &RequestCredentials,
        long: bool,
    ) -> Result<(Pool, Option<Permit>), TransportError> {
        self.with_connections(request_credentials, |connections| {
            if !long {
                return (connections.short.clone(), None);
            }
            let (pool, permit) = connections.long(&self.config);
            (pool, Some(permit))
        })
    }

    /// Calls a function with the current connections. Changed certificates or keys create new ones; running requests
    /// finish on the old connections.
    fn with_connections<T>(
        &self,
        request_credentials: &RequestCredentials,
        call: impl FnOnce(&mut Connections) -> T,
    ) -> Result<T, TransportError> {
        let mut current = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = Stamp::of(self.config.tls.sources());
        let fresh =
            current.as_ref().is_some_and(|have| have.stamp == stamp && same(&have.exec, &request_credentials.exec));
        if !fresh {
            match Connections::new(&self.config, request_credentials.exec.clone()) {
                Ok(connections) => *current = Some(connections),
                // Certificate and key are replaced one after the other. The next request retries.
                Err(error) if current.is_some() => {
                    tracing::warn!(error = %error, "failed to load the changed certificates; keeping the old ones");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(call(current.as_mut().expect("the connection was created above")))
    }

    /// Adds the credentials, the user agent and the address of the server to a request.
    async fn prepare(&self, request: &mut Request<Bytes>) -> Result<RequestCredentials, TransportError> {
        let request_credentials = self.credentials.show().await?;
        if let Some(authorization) = &request_credentials.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        request
            .headers_mut()
            .entry(USER_AGENT)
            .or_insert(const { HeaderValue::from_static(concat!("knarr/", env!("CARGO_PKG_VERSION"))) });
        *request.uri_mut() = absolute(&self.config.server, request.uri())?;
        Ok(request_credentials)
    }

    async fn carry(&self, mut request: Request<Bytes>) -> Result<Response<Body>, TransportError> {
        let request_credentials = self.prepare(&mut request).await?;
        let long = request.extensions().get::<LongLived>().is_some();
        let (pool, permit) = self.pool(&request_credentials, long)?;
        let response = pool.request(request.map(Full::new)).await.map_err(|error| self.failure(error))?;
        if response.status() == StatusCode::UNAUTHORIZED {
            self.credentials.handle_unauthorized(&request_credentials).await;
        }
        Ok(response.map(|incoming| body(BodyWithPermit { incoming, _permit: permit })))
    }

    /// Sends a request over a dedicated HTTP/1.1 connection, which belongs to the caller if the server switches
    /// protocols.
    async fn switch(&self, mut request: Request<Bytes>) -> Result<UpgradeResponse, TransportError> {
        let request_credentials = self.prepare(&mut request).await?;
        let mut tls = self.with_connections(&request_credentials, |connections| connections.tls.clone())?;
        // HTTP/2 has no Upgrade.
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let mut connector = Connector::new(tls, self.config.tls.server_name.clone(), self.config.proxy.clone());
        let unreachable = |source| TransportError::Connect { server: self.config.server.to_string(), source };
        let wire = connector.call(request.uri().clone()).await.map_err(unreachable)?;
        let broken = |error: hyper::Error| TransportError::Broken(error.into());
        let (mut sender, connection) = http1::handshake(wire).await.map_err(broken)?;
        tokio::spawn(connection.with_upgrades());
        to_origin_form(&mut request)?;
        let mut response = sender.send_request(request.map(Full::new)).await.map_err(broken)?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            if response.status() == StatusCode::UNAUTHORIZED {
                self.credentials.handle_unauthorized(&request_credentials).await;
            }
            return Ok(UpgradeResponse::NotSwitched(response.map(body)));
        }
        let connection = hyper::upgrade::on(&mut response).await.map_err(broken)?;
        Ok(UpgradeResponse::Switched { head: response.map(drop), connection: TokioIo::new(connection) })
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
    fn send(&self, request: Request<Bytes>) -> ResponseFuture<'_> {
        Box::pin(self.carry(request))
    }

    fn switch(&self, request: Request<Bytes>) -> Switching<'_> {
        Box::pin(self.switch(request))
    }
}

impl Connections {
    fn new(config: &Config, exec: Option<Arc<ExecCredential>>) -> Result<Self, TransportError> {
        let stamp = Stamp::of(config.tls.sources());
        let of = |(certificate, key): &'_ (Pem, Pem)| (certificate.clone(), key.clone());
        // As upstream, configured certificates take precedence over those of a plugin.
        let plugged = exec.as_ref().and_then(|exec| exec.certificate.as_ref());
        let pair = config.tls.client.as_ref().or(plugged).map(of);
        let client = pair.as_ref().map(|(certificate, key)| ClientCertificate { certificate, key });
        let tls = client_config(&config.tls, client)?;
        let short = pool(config, tls.clone());
        Ok(Self { stamp, exec, tls, short, long: Vec::new() })
    }

    /// Returns a pool with room for one more long-lived stream. Long-lived streams do not share connections with short
    /// requests, which would otherwise wait for the server's stream limit.
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

/// A stream slot of a connection, released on drop.
struct Permit(Arc<AtomicUsize>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A response body that holds its stream slot.
struct BodyWithPermit {
    incoming: Incoming,
    _permit: Option<Permit>,
}

impl http_body::Body for BodyWithPermit {
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
    // Plugin credentials that differ only in their token are equal for TLS.
    let certificate = |exec: &Option<Arc<ExecCredential>>| exec.as_ref().and_then(|exec| exec.certificate.clone());
    certificate(a) == certificate(b)
}

/// Replaces an absolute URL by the Host header and the path, as HTTP/1.1 expects.
fn to_origin_form(request: &mut Request<Bytes>) -> Result<(), http::Error> {
    let authority = request.uri().authority().map(http::uri::Authority::as_str).unwrap_or_default();
    let host = HeaderValue::from_str(authority.rsplit('@').next().unwrap_or_default())?;
    request.headers_mut().insert(HOST, host);
    let path = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    Ok(())
}

/// Returns the server's URL with the request's path appended to the server's path.
fn absolute(server: &Uri, path: &Uri) -> Result<Uri, http::Error> {
    let path_and_query = path.path_and_query().map_or("/", PathAndQuery::as_str);
    let mut parts = server.clone().into_parts();
    parts.path_and_query = Some(format!("{}{path_and_query}", server.path().trim_end_matches('/')).parse()?);
    Ok(Uri::from_parts(parts)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_the_server_is_prepended() {
        let check = |server: &str, path: &str, expect: &str| {
            assert_eq!(absolute(&server.parse().unwrap(), &path.parse().unwrap()).unwrap().to_string(), expect);
        };
        check("https://a:6443", "/api/v1?x=1", "https://a:6443/api/v1?x=1");
        check("https://a/k8s/c/", "/api", "https://a/k8s/c/api");
        check("http://[::1]:80/", "/", "http://[::1]:80/");
    }
}

//! HTTP requests of probes and lifecycle hooks: without certificate verification and with a bounded response.

use std::sync::Arc;
use std::time::Duration;

use apimachinery::Value;
use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::pod::Container;

/// Maximum bytes read from a response body.
const BODY_BYTES_MAX: usize = 10 << 10;
/// Maximum number of redirects to the same host.
const REDIRECTS_MAX: usize = 10;

/// An HTTP GET request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Get {
    pub host: String,
    pub port: u16,
    pub https: bool,
    /// Path and query.
    pub path: String,
    pub headers: Vec<(String, String)>,
}

/// A request failed. The message is part of events.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct WebError(String);

impl Get {
    /// Reads an `httpGet` action; its default host is the pod's address.
    pub(crate) fn read(action: &Value, container: Container<'_>, pod_ip: &str, agent: &str) -> Result<Self, WebError> {
        let text = |field: &str| action.str_at(&[field]).unwrap_or_default();
        let host = Some(text("host")).filter(|host| !host.is_empty()).unwrap_or(pod_ip);
        let port = port(&action["port"], container).ok_or_else(|| WebError("the port is unknown".to_owned()))?;
        let list = action["httpHeaders"].as_array().unwrap_or_default();
        let pair = |header: &Value| {
            (
                header.str_at(&["name"]).unwrap_or_default().to_owned(),
                header.str_at(&["value"]).unwrap_or_default().to_owned(),
            )
        };
        let mut headers: Vec<(String, String)> = list.iter().map(pair).collect();
        let has =
            |headers: &[(String, String)], name: &str| headers.iter().any(|(have, _)| have.eq_ignore_ascii_case(name));
        for (name, value) in [("User-Agent", agent), ("Accept", "*/*")] {
            if !has(&headers, name) {
                headers.push((name.to_owned(), value.to_owned()));
            }
        }
        let path = text("path");
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { host: host.to_owned(), port, https: text("scheme").eq_ignore_ascii_case("https"), path, headers })
    }

    fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Returns the URL for messages.
    pub(crate) fn url(&self) -> String {
        format!("{}://{}{}", if self.https { "https" } else { "http" }, self.address(), self.path)
    }
}

/// Resolves a port given by number or by the name of a container port.
pub(crate) fn port(value: &Value, container: Container<'_>) -> Option<u16> {
    if let Some(number) = value.as_int() {
        return u16::try_from(number).ok();
    }
    let name = value.as_str()?;
    let ports = container.spec["ports"].as_array().unwrap_or_default();
    let named = ports.iter().find(|port| port.str_at(&["name"]) == Some(name));
    match named {
        Some(port) => port["containerPort"].as_int().and_then(|number| u16::try_from(number).ok()),
        None => name.parse().ok(),
    }
}

/// Sends a request and follows redirects to the same host.
pub(crate) async fn get(get: &Get, timeout: Duration) -> Result<(StatusCode, String), WebError> {
    let url = get.url();
    let result = tokio::time::timeout(timeout, follow(get.clone())).await;
    result.map_err(|_| {
        WebError(format!("Get \"{url}\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)"))
    })?
}

/// Opens and closes a TCP connection.
pub(crate) async fn connect(host: &str, port: u16, timeout: Duration) -> Result<(), WebError> {
    let address = format!("{host}:{port}");
    match tokio::time::timeout(timeout, TcpStream::connect((host, port))).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(WebError(format!("dial tcp {address}: connect: {}", plain(&error)))),
        Err(_) => Err(WebError(format!("dial tcp {address}: i/o timeout"))),
    }
}

async fn follow(mut get: Get) -> Result<(StatusCode, String), WebError> {
    for _ in 0..REDIRECTS_MAX {
        let (status, location, body) = once(&get).await?;
        let Some(location) = location.filter(|_| status.is_redirection()) else { return Ok((status, body)) };
        let Ok(uri) = location.parse::<Uri>() else { return Ok((status, body)) };
        match uri.host() {
            Some(host) if host != get.host => {
                // As upstream, a redirect to another host counts as success.
                return Ok((StatusCode::OK, "Probe terminated redirects".to_owned()));
            }
            Some(_) => {
                get.https = uri.scheme_str() == Some("https");
                get.port = uri.port_u16().unwrap_or(if get.https { 443 } else { 80 });
            }
            None => {}
        }
        get.path = uri.path_and_query().map_or("/".to_owned(), ToString::to_string);
    }
    Err(WebError(format!("Get \"{}\": stopped after {REDIRECTS_MAX} redirects", get.url())))
}

async fn once(get: &Get) -> Result<(StatusCode, Option<String>, String), WebError> {
    let failed = |cause: &str| WebError(format!("Get \"{}\": {cause}", get.url()));
    let connecting = TcpStream::connect((get.host.as_str(), get.port)).await;
    let tcp = connecting.map_err(|error| failed(&format!("dial tcp {}: connect: {}", get.address(), plain(&error))))?;
    if !get.https {
        return exchange(get, tcp).await;
    }
    let name = ServerName::try_from(get.host.clone()).map_err(|_| failed("not a name for a server"))?;
    let connector = tokio_rustls::TlsConnector::from(trusting());
    let tls = connector.connect(name, tcp).await.map_err(|error| failed(&error.to_string()))?;
    exchange(get, tls).await
}

async fn exchange(
    get: &Get,
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<(StatusCode, Option<String>, String), WebError> {
    let failed = |cause: String| WebError(format!("Get \"{}\": {cause}", get.url()));
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(io)).await.map_err(|error| failed(error.to_string()))?;
    let driving = tokio::spawn(connection);
    let mut request = Request::get(&get.path).header(header::CONNECTION, "close");
    if !get.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        request = request.header(header::HOST, get.address());
    }
    for (name, value) in &get.headers {
        request = request.header(name, value);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| failed(error.to_string()))?;
    let response = sender.send_request(request).await.map_err(|error| failed(error.to_string()))?;
    let status = response.status();
    let location = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let mut body = response.into_body();
    let mut text = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        if let Ok(data) = frame.into_data() {
            text.extend_from_slice(&data[..data.len().min(BODY_BYTES_MAX - text.len())]);
        }
        if text.len() >= BODY_BYTES_MAX {
            break;
        }
    }
    driving.abort();
    Ok((status, location, String::from_utf8_lossy(&text).into_owned()))
}

/// Returns the kernel's error message without Rust's error number.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_ascii_lowercase()
}

/// Returns a TLS configuration that accepts every certificate, since those of containers have no known CA.
fn trusting() -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions");
    let verifier = Arc::new(TrustAll(provider));
    Arc::new(config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

#[derive(Debug)]
struct TrustAll(Arc<rustls::crypto::CryptoProvider>);

impl ServerCertVerifier for TrustAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

//! Connections to endpoints: TCP, TLS if the backend requires it, and the HTTP handshake.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use component_base::{TlsError, TlsSettings};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tracing::Instrument;

use super::body::Body;
use super::certificate_names::AlternativeNameVerifier;
use super::http1;
use crate::routing::BackendTls;

/// Interval of HTTP/2 pings to endpoints.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// The HTTP version spoken to an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    Http1,
    Http2,
}

/// An open connection to an endpoint.
pub(super) enum Connection {
    Http1(http1::Stream),
    Http2(http2::SendRequest<Body>),
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("failed to connect to {0}")]
    Tcp(SocketAddr, #[source] io::Error),
    #[error("{0} did not accept the connection in time")]
    Timeout(SocketAddr),
    #[error("the TLS handshake with {0} failed")]
    Tls(SocketAddr, #[source] io::Error),
    #[error("the TLS settings of the backend cannot be used")]
    TlsSettings,
    #[error("the HTTP handshake with {0} failed")]
    Http(SocketAddr, #[source] hyper::Error),
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ClientTlsError {
    #[error("the server name is not a DNS name")]
    ServerName(#[from] InvalidDnsNameError),
    #[error("the CA certificates are not valid PEM")]
    Pem(#[from] rustls::pki_types::pem::Error),
    #[error("the CA certificates cannot be used")]
    Roots(#[from] rustls::client::VerifierBuilderError),
    #[error("the TLS client cannot be configured")]
    Rustls(#[from] rustls::Error),
    #[error("the TLS settings cannot be used")]
    Settings(#[from] TlsError),
}

/// TLS towards the endpoints of a backend.
#[derive(Debug)]
pub(super) struct ClientTls {
    name: ServerName<'static>,
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
}

/// Accepts every certificate, for a backend without CAs.
#[derive(Debug)]
struct TrustAll(Arc<CryptoProvider>);

impl ClientTls {
    pub(super) fn build(settings: &BackendTls) -> Result<ClientTls, ClientTlsError> {
        let name = ServerName::try_from(settings.server_name.clone())?;
        let provider = TlsSettings::default().provider()?;
        let verifier: Arc<dyn ServerCertVerifier> = match &settings.ca_pem {
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                for certificate in CertificateDer::pem_slice_iter(pem) {
                    roots.add(certificate?)?;
                }
                let roots = Arc::new(roots);
                let builder = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
                match settings.alternative_names.as_slice() {
                    [] => builder.build()?,
                    names => {
                        Arc::new(AlternativeNameVerifier { inner: builder.build()?, roots, names: names.to_vec() })
                    }
                }
            }
            None => Arc::new(TrustAll(Arc::clone(&provider))),
        };
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut http1 = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        let mut http2 = http1.clone();
        http1.alpn_protocols = vec![b"http/1.1".to_vec()];
        http2.alpn_protocols = vec![b"h2".to_vec()];
        Ok(ClientTls { name, http1: Arc::new(http1), http2: Arc::new(http2) })
    }
}

/// Connects to an endpoint. Nothing of a request is sent.
pub(super) async fn connect(
    address: SocketAddr,
    tls: Option<&ClientTls>,
    wire: Wire,
) -> Result<Connection, ConnectError> {
    let stream = TcpStream::connect(address).await.map_err(|error| ConnectError::Tcp(address, error))?;
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else { return handshake(address, stream, wire).await };
    let config = match wire {
        Wire::Http1 => &tls.http1,
        Wire::Http2 => &tls.http2,
    };
    let connecting = TlsConnector::from(Arc::clone(config)).connect(tls.name.clone(), stream);
    let stream = connecting.await.map_err(|error| ConnectError::Tls(address, error))?;
    handshake(address, stream, wire).await
}

async fn handshake<S>(address: SocketAddr, stream: S, wire: Wire) -> Result<Connection, ConnectError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let failed = |error| ConnectError::Http(address, error);
    let log = move |error: hyper::Error| tracing::debug!(%address, %error, "a connection to an endpoint failed");
    match wire {
        Wire::Http1 => Ok(Connection::Http1(http1::Stream::new(stream))),
        Wire::Http2 => {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.timer(TokioTimer::new()).keep_alive_interval(PING_INTERVAL);
            let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(failed)?;
            let serving = async move { connection.await.unwrap_or_else(log) };
            tokio::spawn(serving.in_current_span());
            Ok(Connection::Http2(sender))
        }
    }
}

impl ServerCertVerifier for TrustAll {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

//! Certificates by ACME.

use apimachinery::meta::Meta;
use controller::kinds::SECRETS;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};

use super::acme_server::{AcmeServer, Fault};
use super::*;

fn wants_certificate(name: &str, host: &str) -> Value {
    let mut ingress = ingress(name, host);
    let metadata = ingress.get_mut("metadata").and_then(Value::as_object_mut).unwrap();
    metadata.insert("annotations", value!({"knarr.io/acme": "true"}));
    let spec = ingress.get_mut("spec").and_then(Value::as_object_mut).unwrap();
    spec.insert("tls", value!([{"hosts": [host], "secretName": name}]));
    ingress
}

async fn start(fault: Fault) -> (Stand, AcmeServer) {
    // The server needs the address of the proxy, and the controller that of the server.
    let reserved = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let http = reserved.local_addr().unwrap();
    let server = AcmeServer::start(http, fault).await;
    drop(reserved);
    let settings = issuer::Settings { directory: server.directory.clone(), email: None, ca_pem: None };
    (Stand::start_on(http.port(), Some(settings)).await, server)
}

/// Returns the chain of a Secret when it exists.
async fn chain(stand: &Stand, name: &str) -> Option<(Vec<u8>, Value)> {
    let secret = stand.cluster.admin().get(&client::Target::named(&SECRETS, "default", name)).await.ok()?;
    let text = secret.str_at(&["data", "tls.crt"])?;
    Some((base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text).unwrap(), secret))
}

/// Returns the certificate that the proxy presents for a host.
async fn presented(address: SocketAddr, host: &str) -> Option<CertificateDer<'static>> {
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate))
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.ok()?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = connector.connect(ServerName::try_from(host.to_owned()).unwrap(), stream).await.ok()?;
    stream.get_ref().1.peer_certificates()?.first().cloned().map(CertificateDer::into_owned)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn annotated_ingress_gets_a_certificate() {
    let (stand, server) = start(Fault::None).await;
    stand.cluster.create(&INGRESSES, &wants_certificate("shop", "shop.test")).await;
    let (pem, secret) = eventually("the Secret is written", || chain(&stand, "shop")).await;
    assert_eq!(secret.str_at(&["type"]), Some("kubernetes.io/tls"));
    assert_eq!(Meta::of(&secret).label("app.kubernetes.io/managed-by"), Some("knarr-acme"));
    let der = CertificateDer::from_pem_slice(&pem).unwrap();
    let served = async || presented(stand.address(1), "shop.test").await.filter(|served| *served == der);
    eventually("the certificate is served", served).await;
    // The challenge is answered no more, and HTTP redirects.
    let gone = async || {
        let response = get(stand.address(0), "shop.test", "/.well-known/acme-challenge/token-0-0").await;
        response.filter(|response| response.contains(" 308 "))
    };
    eventually("the challenge is removed", gone).await;
    assert_eq!(server.state.orders(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secret_of_another_client_is_kept() {
    let (stand, server) = start(Fault::None).await;
    let own = rcgen::generate_simple_self_signed(["own.test".to_owned()]).unwrap();
    let encode = |text: String| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
    let secret = value!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "own"}, "type": "kubernetes.io/tls",
        "data": {"tls.crt": (encode(own.cert.pem())), "tls.key": (encode(own.signing_key.serialize_pem()))},
    });
    stand.cluster.create(&SECRETS, &secret).await;
    stand.cluster.create(&INGRESSES, &wants_certificate("own", "own.test")).await;
    // A second Ingress is served after the first one was planned.
    stand.cluster.create(&INGRESSES, &wants_certificate("other", "other.test")).await;
    eventually("the other Secret is written", || chain(&stand, "other")).await;
    assert_eq!(chain(&stand, "own").await.unwrap().0, own.cert.pem().into_bytes());
    assert_eq!(server.state.orders(), 1);
}

static EVENTS: Resource = Resource::namespaced("", "v1", "events", "Event");

/// Returns the message of the Event about a certificate that was not issued.
async fn failure(stand: &Stand) -> Option<String> {
    let target = client::Target::within(&EVENTS, "default");
    let events = stand.cluster.admin().list(&target, &client::ListOptions::default()).await.ok()?;
    let event = events.items.iter().find(|event| event.str_at(&["reason"]) == Some("CertificateNotIssued"))?;
    Some(event.str_at(&["message"])?.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_server_is_reported_and_gets_no_request() {
    for (fault, expect) in [
        (Fault::PlainUrl, "a URL that is not https: http://acme.test/nonce"),
        (Fault::Endless, "length limit exceeded"),
        (Fault::OtherHost, "a host that was not ordered, or one of several times: other.test"),
    ] {
        let (stand, server) = start(fault).await;
        stand.cluster.create(&INGRESSES, &wants_certificate("shop", "shop.test")).await;
        let failure = eventually("the failure is reported", || failure(&stand)).await;
        assert!(failure.contains(expect), "{failure}");
        assert!(chain(&stand, "shop").await.is_none());
        assert_eq!(server.state.orders(), usize::from(fault == Fault::OtherHost));
    }
}

#[derive(Debug)]
struct AnyCertificate;

impl rustls::client::danger::ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

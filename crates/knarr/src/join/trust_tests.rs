//! Tests of the trust of a joining node: only the CA that its token pins is trusted.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use super::*;

const TOKEN: &str = "abcdef.0123456789abcdef";

/// Creates a CA. Returns its certificate as PEM, and its key.
fn new_ca() -> (String, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let certificate = ca_params().self_signed(&key).unwrap();
    (certificate.pem(), key)
}

fn ca_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

/// Returns cluster-info as a server publishes it, signed with a token's secret.
fn info(ca: &str, secret: &str) -> Value {
    let mut info = cluster_info("https://here:6443", ca.as_bytes());
    let content = info.str_at(&["data", "kubeconfig"]).unwrap().to_owned();
    let signature = auth::bootstrap_token::signature(&content, "abcdef", secret);
    info.get_mut("data").and_then(Value::as_object_mut).unwrap().insert(signature_key("abcdef"), signature);
    info
}

fn token_for(ca: &str) -> JoinToken {
    JoinToken { token: TOKEN.to_owned(), pin: pin(ca).unwrap(), key: None }
}

/// Returns a PEM that some parsers read as the genuine CA only, and others as both CAs.
fn with_hidden_ca(genuine: &str, hidden: &str) -> String {
    // A lone carriage return is a line break for rustls, but not for other parsers.
    format!("{genuine}{}\n", hidden.trim().replace('\n', "\r"))
}

#[test]
fn only_the_pinned_ca_of_signed_cluster_info_is_trusted() {
    let (genuine, other) = (new_ca().0, new_ca().0);
    let token = token_for(&genuine);
    let error = |info: &Value| format!("{:#}", trusted_ca(info, &token).unwrap_err());
    assert_eq!(trusted_ca(&info(&genuine, "0123456789abcdef"), &token).unwrap(), genuine.replace('\r', ""));
    assert!(error(&info(&other, "0123456789abcdef")).contains("another CA"));
    assert!(error(&info(&genuine, "fedcba9876543210")).contains("not signed by a holder"));
    assert!(error(&cluster_info("https://here", genuine.as_bytes())).contains("not signed with token abcdef"));
    for both in [with_hidden_ca(&genuine, &other), format!("{genuine}{other}"), format!("# CA\n{genuine}")] {
        assert!(error(&info(&both, "0123456789abcdef")).contains("not exactly one certificate"));
        assert!(pin(&both).is_err());
    }
    assert!(pin("").is_err());
}

/// A man-in-the-middle server: presents a certificate of another CA, responds to every request with `info`, and reports
/// each request's head.
async fn man_in_the_middle(ca: (&str, KeyPair), info: Value) -> (String, mpsc::UnboundedReceiver<String>) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &Issuer::from_params(&ca_params(), ca.1)).unwrap();
    let chain = vec![certificate.der().clone(), CertificateDer::from_pem_slice(ca.0.as_bytes()).unwrap()];
    let secret = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config.with_no_client_auth().with_single_cert(chain, secret).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("https://{}", listener.local_addr().unwrap());
    let (heads, seen) = mpsc::unbounded_channel();
    let body = json::to_string(&info);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let (mut head, mut byte) = (Vec::new(), [0; 1]);
            while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).await.is_ok() {
                head.push(byte[0]);
            }
            let _ = heads.send(String::from_utf8_lossy(&head).into_owned());
            let length = body.len();
            let response = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
            let _ = stream.write_all(response.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    (address, seen)
}

#[tokio::test]
async fn second_ca_under_a_genuine_pin_does_not_receive_the_token() {
    let (genuine, (evil, evil_key)) = (new_ca().0, new_ca());
    let token = token_for(&genuine);
    let info = info(&with_hidden_ca(&genuine, &evil), "0123456789abcdef");
    let (server, mut seen) = man_in_the_middle((&evil, evil_key), info).await;
    let error = format!("{:#}", fetch_cluster(&server, &token).await.unwrap_err());
    assert!(error.contains("not exactly one certificate"), "{error}");
    let mut heads = Vec::new();
    while let Ok(head) = seen.try_recv() {
        heads.push(head);
    }
    assert!(!heads.is_empty(), "the server received a request");
    assert!(heads.iter().all(|head| !head.to_ascii_lowercase().contains("authorization")), "{heads:#?}");
}

//! TLS termination: certificates by SNI name, reload, and misdirected requests.

use std::net::SocketAddr;
use std::sync::Arc;

use ingress::routing::{BackendProtocol, BackendTls, Certificate, HostPattern, RoutingTable, TlsTermination};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::support::*;

fn certificate(name: &str) -> Arc<Certificate> {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    Arc::new(Certificate {
        chain_pem: made.cert.pem().into_bytes(),
        key_pem: made.signing_key.serialize_pem().into_bytes(),
    })
}

async fn secured(certificates: &[(&str, &Arc<Certificate>)], backend: SocketAddr) -> RoutingTable {
    let host = |name: &str| (exact(name), vec![forward("/", endpoints("a", &[backend]))]);
    let mut listener = listener(certificates.iter().map(|(name, _)| host(name)).collect());
    let certificates = certificates.iter().map(|(name, one)| (exact(name), Arc::clone(one))).collect();
    listener.tls = Some(TlsTermination { certificates, ..TlsTermination::default() });
    table(listener)
}

/// Sends a GET request over TLS to a server that must present `trusted`. Fails if the handshake fails.
async fn get_tls(address: SocketAddr, sni: &str, host: &str, trusted: &Certificate) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&trusted.chain_pem).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let connector = TlsConnector::from(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()));
    let stream = TcpStream::connect(address).await?;
    let mut stream = connector.connect(ServerName::try_from(sni.to_owned()).unwrap(), stream).await?;
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_string(&mut response)).await.expect("a response");
    Ok(response)
}

#[tokio::test]
async fn sni_name_selects_the_certificate_and_limits_the_hosts() {
    let (a, b) = (certificate("a.test"), certificate("b.test"));
    let table = secured(&[("a.test", &a), ("b.test", &b)], echo("a").await).await;
    let (_proxy, address) = start(settings(), table).await;
    let response = get_tls(address, "a.test", "a.test", &a).await.unwrap();
    assert!(status(&response) == "200" && response.contains("x-forwarded-proto: https"), "{response}");
    assert_eq!(status(&get_tls(address, "b.test", "b.test", &b).await.unwrap()), "200");
    assert_eq!(status(&get_tls(address, "a.test", "b.test", &a).await.unwrap()), "421");
    assert!(get_tls(address, "c.test", "c.test", &a).await.is_err());
}

#[tokio::test]
async fn isolated_listeners_with_one_certificate_do_not_serve_each_others_hosts() {
    let names = ["a.test".to_owned(), "b.a.test".to_owned(), "c.a.test".to_owned(), "other.test".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let (chain_pem, key_pem) = (made.cert.pem().into_bytes(), made.signing_key.serialize_pem().into_bytes());
    let shared = Arc::new(Certificate { chain_pem, key_pem });
    let wildcard = HostPattern::Wildcard { suffix: "a.test".to_owned(), many_labels: true };
    let patterns = [exact("a.test"), exact("b.a.test"), wildcard, HostPattern::Any];
    let backend = echo("a").await;
    let hosts = patterns.clone().map(|pattern| (pattern, vec![forward("/", endpoints("a", &[backend]))]));
    let mut listener = listener(hosts.into());
    listener.tls = Some(TlsTermination {
        default: Some(Arc::clone(&shared)),
        isolated: patterns.into(),
        ..TlsTermination::default()
    });
    let (_proxy, address) = start(settings(), table(listener)).await;
    for (sni, host, expect) in [
        ("a.test", "a.test", "200"),
        ("a.test", "b.a.test", "421"),
        ("a.test", "other.test", "421"),
        ("c.a.test", "d.a.test", "200"),
        ("c.a.test", "b.a.test", "421"),
        ("b.a.test", "c.a.test", "421"),
        ("other.test", "another.test", "200"),
        ("other.test", "a.test", "421"),
    ] {
        let response = get_tls(address, sni, host, &shared).await.unwrap();
        assert_eq!(status(&response), expect, "{sni} {host}");
    }
}

#[tokio::test]
async fn new_handshakes_use_the_replaced_certificate() {
    let (old, new, backend) = (certificate("a.test"), certificate("a.test"), echo("a").await);
    let (proxy, address) = start(settings(), secured(&[("a.test", &old)], backend).await).await;
    assert_eq!(status(&get_tls(address, "a.test", "a.test", &old).await.unwrap()), "200");
    assert!(proxy.replace(secured(&[("a.test", &new)], backend).await).await.is_empty());
    assert_eq!(status(&get_tls(address, "a.test", "a.test", &new).await.unwrap()), "200");
    assert!(get_tls(address, "a.test", "a.test", &old).await.is_err());
}

#[tokio::test]
async fn unusable_certificate_does_not_affect_the_others() {
    let good = certificate("a.test");
    let broken = Arc::new(Certificate { chain_pem: b"nonsense".to_vec(), key_pem: Vec::new() });
    let table = secured(&[("a.test", &good), ("b.test", &broken)], echo("a").await).await;
    let (_proxy, address) = start(settings(), table).await;
    assert_eq!(status(&get_tls(address, "a.test", "a.test", &good).await.unwrap()), "200");
    assert!(get_tls(address, "b.test", "b.test", &good).await.is_err());
}

/// A TLS backend that answers every connection with one response.
async fn tls_backend(certificate: &Certificate) -> SocketAddr {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let chain = vec![CertificateDer::from_pem_slice(&certificate.chain_pem).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(&certificate.key_pem).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(builder.with_no_client_auth().with_single_cert(chain, key).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
            let _ = stream.shutdown().await;
        }
    });
    address
}

#[tokio::test]
async fn certificates_of_backends_are_verified_if_a_ca_is_given() {
    let (own, other) = (certificate("backend.test"), certificate("backend.test"));
    let backend = tls_backend(&own).await;
    for (ca, name, expect) in [
        (Some(&own), "backend.test", "200"),
        (Some(&other), "backend.test", "502"),
        (Some(&own), "wrong.test", "502"),
        (None, "wrong.test", "200"),
    ] {
        let ca_pem = ca.map(|ca| Arc::new(ca.chain_pem.clone()));
        let protocol =
            BackendProtocol::Https(BackendTls { server_name: name.to_owned(), ca_pem, alternative_names: Vec::new() });
        let routes = vec![forward("/", speaking("tls", &[backend], protocol))];
        let (_proxy, address) = start(settings(), table(listener(vec![(HostPattern::Any, routes)]))).await;
        assert_eq!(status(&get(address, "a.test", "/").await), expect, "{name}");
    }
}

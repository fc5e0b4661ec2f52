use std::sync::Arc;

use rcgen::{CertificateParams, DnType, SanType};
use rustls::RootCertStore;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use x509_parser::prelude::GeneralName;

use super::*;
use crate::{CertificateAuthority, Pki};

/// Returns a node's certificate request with names.
fn request() -> Vec<u8> {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["node.example".to_owned(), "10.0.0.7".to_owned()]).unwrap();
    params.subject_alt_names.push(SanType::Rfc822Name("a@example.org".try_into().unwrap()));
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, "system:node:n");
    params.serialize_request(&key).unwrap().der().to_vec()
}

fn usages(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn now() -> Time {
    Time::from_unix(UnixTime::now().as_secs().try_into().unwrap(), 0)
}

fn read(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

#[test]
fn signed_certificate_is_trusted_and_matches_its_request() {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::open(dir.path()).unwrap();
    let pair = pki.ca_pair(CertificateAuthority::Cluster);
    let request = request();
    let signing_request =
        |usages| SigningRequest { request: &request, usages, life: Duration::from_seconds(24 * 3600) };
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&pair.certificate).unwrap()).unwrap();
    let roots = Arc::new(roots);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let unix = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now().unix_seconds().unsigned_abs()));

    let (of_client, of_server) = (
        usages(&["digital signature", "client auth"]),
        usages(&["key encipherment", "digital signature", "server auth"]),
    );
    let client = read(&sign(&pair, &signing_request(&of_client), now()).unwrap());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider)).build();
    verifier.unwrap().verify_client_cert(&client, &[], unix).unwrap();

    let server = read(&sign(&pair, &signing_request(&of_server), now()).unwrap());
    let verifier = rustls::client::WebPkiServerVerifier::builder_with_provider(roots, provider).build().unwrap();
    let check = |name: &str| {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        rustls::client::danger::ServerCertVerifier::verify_server_cert(&*verifier, &server, &[], &name, &[], unix)
    };
    check("node.example").unwrap();
    check("10.0.0.7").unwrap();
    check("other.example").unwrap_err();

    let (_, seen) = X509Certificate::from_der(&server).unwrap();
    assert_eq!(seen.subject().to_string(), "CN=system:node:n, O=system:nodes");
    assert!(!seen.is_ca());
    assert_eq!(seen.validity().not_before.timestamp(), now().unix_seconds() - 300);
    let life = seen.validity().not_after.timestamp() - seen.validity().not_before.timestamp();
    assert_eq!(life, 24 * 3600, "the time before the change is counted");
    let names = seen.subject_alternative_name().unwrap().unwrap().value;
    assert!(names.general_names.contains(&GeneralName::RFC822Name("a@example.org")));
}

#[test]
fn certificate_expires_with_its_ca_and_a_short_one_keeps_its_full_lifetime() {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::open(dir.path()).unwrap();
    let pair = pki.ca_pair(CertificateAuthority::Cluster);
    let request = request();
    let usages = usages(&["client auth"]);
    let ends = |life: i64| {
        let signing_request = SigningRequest { request: &request, usages: &usages, life: Duration::from_seconds(life) };
        let der = read(&sign(&pair, &signing_request, now()).unwrap());
        X509Certificate::from_der(&der).unwrap().1.validity().not_after.timestamp()
    };
    let ca = CertificateDer::from_pem_file(&pair.certificate).unwrap();
    let ca = X509Certificate::from_der(&ca).unwrap().1.validity().not_after.timestamp();
    assert_eq!(ends(100 * 365 * 24 * 3600), ca);
    assert!((ends(600) - now().unix_seconds() - 600).abs() <= 1);
    let signing_request = SigningRequest { request: &request, usages: &usages, life: Duration::from_seconds(600) };
    let late = Time::from_unix(ca + 1, 0);
    assert!(matches!(sign(&pair, &signing_request, late), Err(SignError::Expired(_))));
}

#[test]
fn forged_and_invalid_requests_are_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::open(dir.path()).unwrap();
    let pair = pki.ca_pair(CertificateAuthority::Cluster);
    let check = |request: &[u8], names: &[&str], expect: &str| {
        let signing_request = SigningRequest { request, usages: &usages(names), life: Duration::from_seconds(600) };
        assert_eq!(sign(&pair, &signing_request, now()).unwrap_err().to_string(), expect);
    };
    let good = request();
    let mut forged = good.clone();
    let at = forged.windows(6).position(|window| window == b"node:n").unwrap();
    forged[at + 5] = b'm';
    check(&forged, &["client auth"], "the certificate request is not signed by the key it contains");
    check(b"nonsense", &["client auth"], "the certificate request cannot be parsed");
    check(&[good.as_slice(), &[0]].concat(), &["client auth"], "the certificate request cannot be parsed");
    check(&good, &["time travel"], "unrecognized usage values: \"time travel\"");
}

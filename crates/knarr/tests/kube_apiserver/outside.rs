//! Small TLS servers outside the cluster, and the CA that signs their certificates.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A test CA.
pub(crate) struct TestCa(CertifiedIssuer<'static, KeyPair>);

impl TestCa {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Issues a certificate. Returns the certificate and its key as PEM.
    pub(crate) fn certify(&self, name: &str, organization: &str, hosts: &[&str]) -> (String, String) {
        let mut params = CertificateParams::new(hosts.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        if !organization.is_empty() {
            params.distinguished_name.push(DnType::OrganizationName, organization);
        }
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }
}

/// A server that handles one request per connection, for as long as the test runs.
pub(crate) struct Outside {
    pub url: String,
    pub ca: TestCa,
}

impl Outside {
    /// Starts a server. `respond` returns the response body for the server's URL, the head and the body of a request.
    pub(crate) fn start(respond: impl Fn(&str, &str, &str) -> String + Send + 'static) -> Self {
        let ca = TestCa::new("outside");
        let (certificate, key) = ca.certify("outside", "", &["127.0.0.1"]);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
        let secret = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let config = Arc::new(builder.with_no_client_auth().with_single_cert(chain, secret).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let own = url.clone();
        std::thread::spawn(move || {
            while let Ok((socket, _)) = listener.accept() {
                let mut stream = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), socket);
                let (head, body) = receive(&mut stream);
                let response = respond(&own, &head, &body);
                let length = response.len();
                let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
                let _ = stream.write_all(format!("{head}{response}").as_bytes());
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        });
        Self { url, ca }
    }
}

/// Reads the head of a request, and as much of a body as it announces.
fn receive(stream: &mut StreamOwned<ServerConnection, TcpStream>) -> (String, String) {
    let (mut received, mut bytes) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&received).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let announced = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
            });
            if body.len() >= announced.unwrap_or(0) {
                return (head.to_owned(), body.to_owned());
            }
        }
        match stream.read(&mut bytes) {
            Ok(count) if count > 0 => received.extend_from_slice(&bytes[..count]),
            _ => return (text, String::new()),
        }
    }
}

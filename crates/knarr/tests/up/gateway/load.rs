//! Clients that send requests constantly, from inside a network namespace, and count failures.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::super::DEADLINE;

/// Clients per host.
const CLIENTS: usize = 3;
/// Requests per connection.
const REQUESTS: usize = 20;
/// Failures that are kept.
const FAILURES_MAX: usize = 20;

#[derive(Clone)]
pub(super) struct Certificate {
    pub chain: String,
    pub key: String,
}

/// Clients that run until they are stopped.
pub(super) struct Load {
    shared: Arc<Shared>,
    clients: JoinHandle<()>,
}

struct Shared {
    /// IP address and port of the proxy.
    address: (String, u16),
    state: Mutex<State>,
    /// Notified of every request.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Trusted certificates by host.
    trusted: BTreeMap<String, Vec<CertificateDer<'static>>>,
    /// The certificate of the last connection by host.
    served: BTreeMap<String, CertificateDer<'static>>,
    requests: u64,
    failures: Vec<String>,
    stopped: bool,
}

impl Certificate {
    pub(super) fn new(name: &str) -> Self {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        Self { chain: made.cert.pem(), key: made.signing_key.serialize_pem() }
    }

    fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.chain.as_bytes()).unwrap()
    }
}

impl Load {
    pub(super) fn start(namespace: &str, address: (&str, u16), hosts: &[(&str, Certificate)]) -> Self {
        let trusted = hosts.iter().map(|(host, certificate)| ((*host).to_owned(), vec![certificate.der()])).collect();
        let state = Mutex::new(State { trusted, ..State::default() });
        let shared = Arc::new(Shared { address: (address.0.to_owned(), address.1), state, changed: Condvar::new() });
        let hosts: Vec<String> = hosts.iter().map(|(host, _)| (*host).to_owned()).collect();
        let (running, namespace) = (Arc::clone(&shared), Path::new("/run/netns").join(namespace));
        let clients = std::thread::spawn(move || {
            netlink::namespace::within(&namespace, || block_on(run(&running, &hosts))).unwrap();
        });
        Self { shared, clients }
    }

    /// Waits for more requests.
    pub(super) fn wait_for_requests(&self, count: u64) {
        let target = self.shared.state.lock().unwrap().requests + count;
        self.wait_until("requests are answered", |state| state.requests >= target);
    }

    /// Lets clients of a host also trust this certificate.
    pub(super) fn trust(&self, host: &str, certificate: &Certificate) {
        self.shared.state.lock().unwrap().trusted.get_mut(host).unwrap().push(certificate.der());
    }

    /// Waits until new connections get this certificate.
    pub(super) fn wait_for_certificate(&self, host: &str, certificate: &Certificate) {
        let der = certificate.der();
        self.wait_until("the certificate is served", |state| state.served.get(host) == Some(&der));
    }

    /// Stops the clients and checks that no request failed.
    pub(super) fn check(self, when: &str) {
        self.shared.state.lock().unwrap().stopped = true;
        self.clients.join().unwrap();
        let state = self.shared.state.lock().unwrap();
        assert!(
            state.failures.is_empty(),
            "requests failed {when}, {} succeeded: {:#?}",
            state.requests,
            state.failures
        );
        println!("{} requests {when}, none failed", state.requests);
    }

    fn wait_until(&self, expected: &str, condition: impl Fn(&State) -> bool) {
        let state = self.shared.state.lock().unwrap();
        let waited = self.shared.changed.wait_timeout_while(state, DEADLINE, |state| !condition(state)).unwrap();
        assert!(!waited.1.timed_out(), "waited until {expected}: {:#?}", waited.0.failures);
    }
}

impl Shared {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }
}

/// Runs a future on a runtime of this thread.
pub(super) fn block_on<R>(future: impl Future<Output = R>) -> R {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

pub(super) async fn connect(address: &str, port: u16) -> std::io::Result<TcpStream> {
    TcpStream::connect((address.parse::<std::net::IpAddr>().unwrap(), port)).await
}

async fn run(shared: &Arc<Shared>, hosts: &[String]) {
    let mut clients = tokio::task::JoinSet::new();
    for host in hosts.iter().flat_map(|host| std::iter::repeat_n(host, CLIENTS)) {
        let (shared, host) = (Arc::clone(shared), host.clone());
        clients.spawn(async move {
            while !shared.state.lock().unwrap().stopped {
                if let Err(error) = requests(&shared, &host).await {
                    shared.change(|state| {
                        if state.failures.len() < FAILURES_MAX {
                            state.failures.push(format!("{host}: {error}"));
                        }
                    });
                }
            }
        });
    }
    clients.join_all().await;
}

/// Opens a connection and sends requests over it.
async fn requests(shared: &Shared, host: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut roots = rustls::RootCertStore::empty();
    let trusted = shared.state.lock().unwrap().trusted[host].clone();
    for certificate in trusted {
        roots.add(certificate)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let connector = TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()));
    let stream = connect(&shared.address.0, shared.address.1).await?;
    let stream = connector.connect(ServerName::try_from(host.to_owned())?, stream).await?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).cloned();
    let certificate = certificate.ok_or("there is no certificate")?.into_owned();
    shared.change(|state| drop(state.served.insert(host.to_owned(), certificate)));
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    for number in 0..REQUESTS {
        if sender.ready().await.is_err() {
            break;
        }
        let request = hyper::Request::get("/").header("host", host).body(Empty::<bytes::Bytes>::new())?;
        let response = match sender.send_request(request).await {
            // The proxy closed the idle connection at the same time. HTTP clients send such a request again.
            Err(error) if number > 0 && (error.is_incomplete_message() || error.is_canceled()) => break,
            response => response?,
        };
        let (status, body) = (response.status(), response.into_body().collect().await?.to_bytes());
        if status != 200 {
            return Err(format!("{status}: {}", String::from_utf8_lossy(&body).trim()).into());
        }
        shared.change(|state| state.requests += 1);
    }
    drop(sender);
    // An error of an idle connection concerns no request.
    let _ = connection.await;
    Ok(())
}

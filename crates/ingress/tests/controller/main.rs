//! The controller beside an API server: how fast changes are live, and certificates by ACME.
#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod acme;
mod acme_server;
mod changes;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use apimachinery::{Resource, Value, value};
use ingress::plan::{CLASS, CONTROLLER};
use ingress::proxy::{Proxy, Settings};
use ingress::run::Config;
use ingress::{acme as issuer, plan};
use testkit::Cluster;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A deadline for everything that a test waits for.
const PATIENCE: Duration = Duration::from_secs(60);

static CLASSES: Resource = Resource::cluster("networking.k8s.io", "v1", "ingressclasses", "IngressClass");
static INGRESSES: Resource = Resource::namespaced("networking.k8s.io", "v1", "ingresses", "Ingress");

/// An API server, and a controller with its proxy. Stopped on drop.
struct Stand {
    cluster: Cluster,
    ports: [u16; 2],
    running: JoinHandle<()>,
}

impl Stand {
    async fn start() -> Stand {
        Stand::start_on(free_port().await, None).await
    }

    async fn start_on(http_port: u16, acme: Option<issuer::Settings>) -> Stand {
        let cluster = Cluster::start(&[]).await;
        let class = value!({
            "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
            "metadata": {"name": CLASS}, "spec": {"controller": CONTROLLER},
        });
        let target = client::Target::all(&CLASSES);
        cluster.admin().create(&target, &class, &client::WriteOptions::default()).await.unwrap();
        let proxy = Proxy::new(Settings { bind: vec![Ipv4Addr::LOCALHOST.into()], ..Settings::default() });
        let ports = [http_port, free_port().await];
        let settings = plan::Settings {
            http_port: ports[0],
            https_port: ports[1],
            addresses: Vec::new(),
            gateway_addresses: Vec::new(),
            default_certificate: None,
            acme: acme.is_some(),
            proxy_protocol: false,
        };
        let (client, config) = (cluster.admin(), Config { plan: settings, election: None, acme });
        let running = tokio::spawn(async move { ingress::run::run(client, config, &proxy).await.unwrap() });
        Stand { cluster, ports, running }
    }

    fn address(&self, port: usize) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.ports[port]).into()
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// Returns a port that is free now. The key of a listener is its port, so that 0 stands for one listener only.
async fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

/// An Ingress that sends a host to a Service that does not exist: its requests are answered with 503.
fn ingress(name: &str, host: &str) -> Value {
    value!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": name},
        "spec": {"ingressClassName": CLASS, "rules": [{"host": host, "http": {"paths": [
            {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "none", "port": {"number": 80}}}},
        ]}}]},
    })
}

/// Sends a GET request on a connection of its own; `None` if nothing listens.
async fn get(address: SocketAddr, host: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await.ok()?;
    Some(response)
}

/// Calls a function until it returns something.
async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut attempt: impl FnMut() -> F) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = attempt().await {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "{what} did not happen");
        tokio::task::yield_now().await;
    }
}

//! Overhead of a Service between two pods, compared with a direct connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use apimachinery::{Key, value};
use kube_proxy::config::Mode;
use kube_proxy::dataplane::Engine;
use kube_proxy::settings::Settings;
use kube_proxy::{Node, Rules};
use netlink::Cidr;
use pod_network::RoutedNetwork;
use pod_network::routed::Config;

use crate::spaces::Space;

const PODS: &str = "10.244.1.0/24";
const SPAN: Duration = Duration::from_secs(3);
const CLIENTS: usize = 4;
const SERVICE: &str = "10.96.0.1:80";

pub(crate) fn measure() -> Result<()> {
    println!(
        "\n| from pod to pod on one node, {} s each | connections/s, {CLIENTS} clients | throughput, one connection |",
        SPAN.as_secs()
    );
    println!("|---|---|---|");
    for (name, mode) in [
        ("directly", None),
        ("ClusterIP, nftables", Some(Mode::Nftables)),
        ("ClusterIP, iptables", Some(Mode::Iptables)),
        ("ClusterIP, userspace", Some(Mode::Userspace)),
    ] {
        let (connections, bytes) = one(mode)?;
        println!("| {name} | {connections:.0} | {:.2} Gbit/s |", bytes * 8.0 / 1e9);
    }
    Ok(())
}

fn one(mode: Option<Mode>) -> Result<(f64, f64)> {
    let (node, client, server) = (Space::new("node")?, Space::new("client")?, Space::new("server")?);
    let state = tempfile::tempdir()?;
    let network = RoutedNetwork::new(Config { pod_cidrs: Cidr::parse_list(PODS)?, ..Config::new(state.path()) });
    let mut ips = Vec::new();
    for (id, pod) in [("client", &client), ("server", &server)] {
        let lease = node.enter(|| network.add(&pod.path(), id, "eth0", &[]))??;
        ips.push(*lease.ips.first().context("a pod has an address")?);
    }
    let direct = SocketAddr::new(ips[1], 8080);
    let target = if mode.is_some() { SERVICE.parse()? } else { direct };
    let stop = AtomicBool::new(false);
    let serving = server.enter(|| TcpListener::bind(("0.0.0.0", 8080)))??;
    std::thread::spawn(move || serve(&serving));
    std::thread::scope(|scope| {
        let proxying = mode.map(|mode| {
            let (ready_sender, ready) = std::sync::mpsc::channel();
            let (node, stop) = (&node, &stop);
            (scope.spawn(move || node.enter(|| proxy(mode, direct, stop, &ready_sender))?), ready)
        });
        if let Some((_, ready)) = &proxying {
            ready.recv().context("the proxy did not start")?;
        }
        let done = client.enter(|| Ok((connections(target)?, throughput(target)?)))?;
        stop.store(true, Ordering::Relaxed);
        if let Some((task, _)) = proxying {
            task.join().ok().context("the proxy failed")??;
        }
        done
    })
}

/// Proxies one Service until `stop` is set.
fn proxy(mode: Mode, to: SocketAddr, stop: &AtomicBool, ready_sender: &std::sync::mpsc::Sender<()>) -> Result<()> {
    let mut rules = Rules::new(Node { name: "a".into(), zone: String::new() }, false);
    let service = value!({"spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "p", "port": 80}]}});
    rules.set_service(&Key::new("x", "web"), Some(&service));
    let slice = value!({"metadata": {"namespace": "x", "labels": {"kubernetes.io/service-name": "web"}},
        "endpoints": [{"addresses": [(to.ip().to_string())], "nodeName": "a"}],
        "ports": [{"name": "p", "port": (i64::from(to.port()))}]});
    rules.set_slice(&Key::new("x", "web"), Some(&slice));
    rules.changes();
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    executor.block_on(async {
        let settings = Settings { pods: Cidr::parse_list(PODS)?, mark: 0x4000, ..Settings::default() };
        let mut engine = Engine::new(mode);
        engine.everything(settings, rules.everything()).await?;
        ready_sender.send(())?;
        while !stop.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    })
}

/// Echoes one byte, and discards whatever follows.
fn serve(listener: &TcpListener) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { continue };
        std::thread::spawn(move || {
            let mut buffer = vec![0; 256 << 10];
            if stream.read(&mut buffer[..1]).unwrap_or(0) == 1 && stream.write_all(b"!").is_ok() {
                while stream.read(&mut buffer).unwrap_or(0) > 0 {}
            }
        });
    }
}

fn open(target: SocketAddr) -> Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&target, Duration::from_secs(5))?;
    stream.write_all(b"?")?;
    stream.read_exact(&mut [0])?;
    Ok(stream)
}

/// Returns the number of connections per second, each with one request.
fn connections(target: SocketAddr) -> Result<f64> {
    let count = AtomicU64::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let work = || {
            while start.elapsed() < SPAN {
                let stream = open(target)?;
                // The port can be reused immediately.
                rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
                count.fetch_add(1, Ordering::Relaxed);
            }
            anyhow::Ok(())
        };
        // Threads inherit the network namespace of the thread that starts them.
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(work)).collect();
        clients.into_iter().try_for_each(|client| client.join().ok().context("a client failed")?)
    })?;
    Ok(count.into_inner() as f64 / start.elapsed().as_secs_f64())
}

/// Returns bytes per second through one connection.
fn throughput(target: SocketAddr) -> Result<f64> {
    let mut stream = open(target)?;
    let buffer = vec![7; 256 << 10];
    let start = Instant::now();
    let mut bytes = 0;
    while start.elapsed() < SPAN {
        stream.write_all(&buffer)?;
        bytes += buffer.len();
    }
    Ok(bytes as f64 / start.elapsed().as_secs_f64())
}

//! Preflight checks: conditions of a successful start, and advice if they are not met.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use diagnostics::checkup::capabilities_lacking;

use super::Options;
use super::plan::METRICS;
use crate::capabilities;

/// Minimum free disk space for a start.
const FREE_BYTES_MIN: u64 = 256 << 20;

/// Runs all checks except that of the disk, which runs before the first file is written.
pub(crate) fn check(options: &Options) -> Result<()> {
    options.offer.check()?;
    options.node_reach.check()?;
    options.server_reach.check(&options.service_cidr)?;
    let is_on = |part: &str| !options.disable.iter().any(|disabled| disabled == part);
    if is_on("kubelet") {
        may_run_pods(", or run without a node with --disable kubelet,proxy,dns")?;
    }
    let at = |port| SocketAddr::new(options.bind_address, port);
    // An API server in a static pod keeps running while this process restarts.
    if !options.static_pods {
        free(at(options.secure_port), "the API server", Some("--secure-port"))?;
    }
    if is_on("kubelet") {
        free(at(options.kubelet_port), "the kubelet", Some("--kubelet-port"))?;
    }
    if is_on(METRICS) {
        free(at(options.metrics_port), "the metrics server", Some("--metrics-port"))?;
    }
    if is_on("dns") {
        dns(&options.node_ip, options.dns_port)?;
    }
    Ok(())
}

/// Runs the checks for a node without a server.
pub(crate) fn node(options: &Options) -> Result<()> {
    options.offer.check()?;
    options.node_reach.check()?;
    let is_on = |part: &str| !options.disable.iter().any(|disabled| disabled == part);
    may_run_pods("")?;
    free(SocketAddr::from(([0, 0, 0, 0], options.kubelet_port)), "the kubelet", Some("--kubelet-port"))?;
    if is_on("dns") {
        dns(&options.node_ip, options.dns_port)?;
    }
    Ok(())
}

/// Runs the checks for a store member.
pub(crate) fn member(ports: [u16; 2]) -> Result<()> {
    ports.into_iter().try_for_each(|port| free(SocketAddr::from(([0, 0, 0, 0], port)), "the store's member", None))
}

/// Fails if the disk has less than [`FREE_BYTES_MIN`] free. The directory need not exist yet.
pub(crate) fn check_free_space(dir: &Path) -> Result<()> {
    let there = dir.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("/"));
    let disk = rustix::fs::statvfs(there).context("failed to read the free disk space")?;
    let free_bytes = disk.f_bavail * disk.f_frsize;
    if free_bytes < FREE_BYTES_MIN {
        let dir = dir.display();
        bail!(
            "the disk of {dir} is full ({} MiB left); free some space, or choose another directory with --data-dir",
            free_bytes >> 20
        );
    }
    Ok(())
}

fn may_run_pods(or_else: &str) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "running pods needs root; use sudo{or_else}");
    let lacking = capabilities_lacking(capabilities::effective());
    ensure!(
        lacking.is_empty(),
        "running pods needs {}, which this process does not have; add the capability (in a container: --privileged){or_else}",
        lacking.join(", ")
    );
    Ok(())
}

/// Fails if the DNS port is in use on the node's own addresses. Other addresses do not matter.
fn dns(addresses: &[IpAddr], port: u16) -> Result<()> {
    let given = addresses.iter().copied();
    // Without `--node-ip` the host's own addresses are used.
    let found = [false, true].into_iter().filter(|_| addresses.is_empty()).filter_map(own_address);
    for address in given.chain(found).filter(|address| !address.is_loopback()) {
        let address = SocketAddr::new(address, port);
        free(address, "the DNS server", Some("--dns-port"))?;
        bound(UdpSocket::bind(address), address, "the DNS server", Some("--dns-port"))?;
    }
    Ok(())
}

fn free(address: SocketAddr, who: &str, flag: Option<&str>) -> Result<()> {
    bound(TcpListener::bind(address), address, who, flag)
}

fn bound<T>(tried: io::Result<T>, address: SocketAddr, who: &str, flag: Option<&str>) -> Result<()> {
    match tried.map_err(|error| (error.kind(), error)) {
        Ok(_) => Ok(()),
        Err((io::ErrorKind::AddrInUse, _)) => {
            let do_what =
                flag.map_or_else(|| "stop that process".to_owned(), |flag| format!("choose another port with {flag}"));
            bail!("port {} is in use by another process, but {who} needs it: {do_what}", address.port())
        }
        Err((io::ErrorKind::AddrNotAvailable, _)) => {
            bail!("{} is not an address of this host, but {who} must listen on it; see `ip address`", address.ip())
        }
        Err((_, error)) => Err(error).with_context(|| format!("{who} failed to listen on {address}")),
    }
}

/// Returns `given`, or the addresses at which other hosts reach this one: one per IP family of the service CIDRs.
pub(crate) fn addresses_or(given: &[IpAddr], service_cidr: &str) -> Result<Vec<IpAddr>> {
    if !given.is_empty() {
        return Ok(given.to_vec());
    }
    let found: Vec<IpAddr> = service_cidr.split(',').filter_map(|cidr| own_address(cidr.contains(':'))).collect();
    ensure!(
        !found.is_empty(),
        "this host has no address in the IP family of {service_cidr} that pods can reach: connect it to a network, \
         set its address with --node-ip, or choose other families with --pod-cidr and --service-cidr"
    );
    Ok(found)
}

/// Returns the source address of the default route. Connecting a UDP socket sends no packet.
fn own_address(six: bool) -> Option<IpAddr> {
    let (any, far) = if six { ("[::]:0", "[2001:db8::1]:9") } else { ("0.0.0.0:0", "192.0.2.1:9") };
    let socket = UdpSocket::bind(any).ok()?;
    let found = socket.connect(far).and_then(|()| socket.local_addr()).ok()?.ip();
    (!found.is_loopback()).then_some(found)
}

/// Returns the host name as a valid node name.
pub(crate) fn host_name() -> String {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy().to_lowercase();
    let letters =
        name.chars().map(|letter| if letter.is_ascii_alphanumeric() || ".-".contains(letter) { letter } else { '-' });
    letters.collect()
}

/// Whether `name` is a valid node name.
pub(crate) fn is_node_name(name: &str) -> bool {
    let is_inner = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || b".-".contains(&letter);
    let is_outer = |letter: Option<u8>| letter.is_some_and(|it| it.is_ascii_lowercase() || it.is_ascii_digit());
    name.len() <= 63 && name.bytes().all(is_inner) && is_outer(name.bytes().next()) && is_outer(name.bytes().last())
}

//! What must hold before anything is started, and what to do if it does not.

use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::Options;
use super::plan::METRICS;

/// Less room than this on the disk is not worth starting with.
const FREE_BYTES_MIN: u64 = 256 << 20;

/// Looks at everything that a start would fail on later.
pub fn check(options: &Options) -> Result<()> {
    let runs_pods = !options.disable.iter().any(|part| part == "kubelet");
    if runs_pods && !rustix::process::geteuid().is_root() {
        bail!("running pods needs root; use sudo, or leave the node out with --disable kubelet,proxy,dns");
    }
    let server = SocketAddr::new(options.bind_address, options.secure_port);
    // An API server in a pod goes on while this process is started anew.
    if !options.static_pods {
        free(server, "the API server", "--secure-port")?;
    }
    if runs_pods {
        free(SocketAddr::new(options.bind_address, options.kubelet_port), "the kubelet", "--kubelet-port")?;
    }
    if !options.disable.iter().any(|part| part == METRICS) {
        free(SocketAddr::new(options.bind_address, options.metrics_port), "the metrics server", "--metrics-port")?;
    }
    room(&options.data_dir)
}

/// The same for a node whose servers are elsewhere.
pub fn node(kubelet_port: u16, data_dir: &Path) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("running pods needs root; use sudo");
    }
    free(SocketAddr::from(([0, 0, 0, 0], kubelet_port)), "the kubelet", "--kubelet-port")?;
    room(data_dir)
}

fn room(folder: &Path) -> Result<()> {
    let disk = rustix::fs::statvfs(folder).context("the size of the disk cannot be read")?;
    let free_bytes = disk.f_bavail * disk.f_frsize;
    if free_bytes < FREE_BYTES_MIN {
        let folder = folder.display();
        bail!(
            "the disk of {folder} is full ({} MiB left); make room, or choose another with --data-dir",
            free_bytes >> 20
        );
    }
    Ok(())
}

fn free(address: SocketAddr, who: &str, flag: &str) -> Result<()> {
    match TcpListener::bind(address) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            bail!("port {} is taken by another program; {who} needs one: choose it with {flag}", address.port())
        }
        Err(error) => Err(error).with_context(|| format!("{who} cannot listen on {address}")),
    }
}

/// The address that others reach this machine at, if it is not given.
pub fn address_or(given: Option<IpAddr>) -> Result<IpAddr> {
    if let Some(address) = given {
        return Ok(address);
    }
    // Nothing is sent: the kernel only says which address it would send from.
    let socket = UdpSocket::bind("0.0.0.0:0").context("this machine has no network")?;
    let found = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr()).map(|address| address.ip());
    let found = found.ok().filter(|address| !address.is_loopback());
    found.context(
        "this machine has no address that pods could reach: connect it to a network, or say which with --node-ip",
    )
}

/// This machine's name, as a node may be called.
pub fn host_name() -> String {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy().to_lowercase();
    let letters =
        name.chars().map(|letter| if letter.is_ascii_alphanumeric() || ".-".contains(letter) { letter } else { '-' });
    letters.collect()
}

/// Whether a node may be called so.
pub fn is_node_name(name: &str) -> bool {
    let is_inner = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || b".-".contains(&letter);
    let is_outer = |letter: Option<u8>| letter.is_some_and(|it| it.is_ascii_lowercase() || it.is_ascii_digit());
    name.len() <= 63 && name.bytes().all(is_inner) && is_outer(name.bytes().next()) && is_outer(name.bytes().last())
}

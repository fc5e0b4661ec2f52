//! The Ethernet segment between VMs: a hub of datagram sockets in this process.
//!
//! qemu sends every frame as one datagram to the hub's socket for that VM, and the hub forwards it to all other VMs.
//! This needs neither privileges nor ports, and a VM can be disconnected.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use anyhow::Context;

/// Buffer size, larger than any frame.
const FRAME_BYTES_MAX: usize = 65_536;

/// The sockets of one VM.
#[derive(Clone)]
pub(super) struct Port {
    /// Socket of qemu, on which it receives frames.
    pub machine: PathBuf,
    /// Socket of the hub, to which qemu sends frames.
    pub hub: PathBuf,
}

/// Opens a hub with `count` ports below `dir`. Its threads live as long as this process.
pub(super) fn open_hub(dir: &Path, count: usize) -> anyhow::Result<Vec<Port>> {
    let port = |index: usize| Port {
        machine: dir.join(format!("net-{index}-machine")),
        hub: dir.join(format!("net-{index}-hub")),
    };
    let ports: Vec<Port> = (0..count).map(port).collect();
    let sender = Arc::new(UnixDatagram::unbound().context("cannot create a socket")?);
    // A VM that is off or busy loses frames, as on a wire.
    sender.set_nonblocking(true)?;
    for (index, own) in ports.iter().enumerate() {
        let socket = UnixDatagram::bind(&own.hub).with_context(|| format!("cannot bind {}", own.hub.display()))?;
        let others: Vec<PathBuf> = ports
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != index)
            .map(|(_, port)| port.machine.clone())
            .collect();
        let sender = Arc::clone(&sender);
        thread::spawn(move || {
            let mut frame = vec![0; FRAME_BYTES_MAX];
            while let Ok(length) = socket.recv(&mut frame) {
                for other in &others {
                    sender.send_to(&frame[..length], other).ok();
                }
            }
        });
    }
    Ok(ports)
}

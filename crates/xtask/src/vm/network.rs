//! The Ethernet segment between machines: a hub of datagram sockets in this process.
//!
//! qemu sends every frame as one datagram to the hub's socket for that machine; the hub passes it on to all other machines. That needs
//! neither privileges nor ports, and a cable can be pulled.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use anyhow::Context;

/// More than a frame of any machine.
const FRAME_BYTES_MAX: usize = 65_536;

/// The sockets of one machine.
#[derive(Clone)]
pub struct Port {
    /// qemu binds it and receives frames there.
    pub machine: PathBuf,
    /// qemu sends frames there.
    pub hub: PathBuf,
}

/// Opens a hub with as many ports below `dir`. Its threads live as long as this process.
pub fn open_hub(dir: &Path, count: usize) -> anyhow::Result<Vec<Port>> {
    let port = |index: usize| Port {
        machine: dir.join(format!("net-{index}-machine")),
        hub: dir.join(format!("net-{index}-hub")),
    };
    let ports: Vec<Port> = (0..count).map(port).collect();
    let sender = Arc::new(UnixDatagram::unbound().context("cannot make a socket")?);
    // A machine that is off or busy loses frames, as on a wire.
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

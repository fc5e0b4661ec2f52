//! Local listeners of port-forward.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

use super::ports::{ForwardedPort, ListenAddress};

/// Connections that wait to be accepted, as Go's listeners allow.
const BACKLOG: u32 = 1024;

/// A listener of one port on one address.
pub struct Listener {
    pub socket: TcpListener,
    pub port: ForwardedPort,
}

/// The result of listening on all ports.
pub struct Listeners {
    pub all: Vec<Listener>,
    /// `Forwarding from …` for each listener.
    pub lines: Vec<String>,
    /// One line for each port without a listener.
    pub failures: Vec<String>,
}

/// Listens on all ports and addresses. A failed port does not affect others; an error if all ports failed.
pub fn listen(ports: &[ForwardedPort], addresses: &[ListenAddress]) -> (Listeners, Result<(), String>) {
    let mut found = Listeners { all: Vec::new(), lines: Vec::new(), failures: Vec::new() };
    let mut final_ports = Vec::with_capacity(ports.len());
    let mut any = false;
    for port in ports {
        let mut port = *port;
        match listen_on(&mut port, addresses, &mut found) {
            Ok(()) => any = true,
            Err(why) => found.failures.push(format!("Unable to listen on port {}: {why}", port.local)),
        }
        final_ports.push(format!("{{{} {}}}", port.local, port.remote));
    }
    let outcome = if any {
        Ok(())
    } else {
        Err(format!("unable to listen on any of the requested ports: [{}]", final_ports.join(" ")))
    };
    (found, outcome)
}

fn listen_on(port: &mut ForwardedPort, addresses: &[ListenAddress], found: &mut Listeners) -> Result<(), String> {
    let mut errors = Vec::new();
    let (mut required_failed, mut optional_failed, mut optional_listens) = (false, false, false);
    for address in addresses {
        match bind(SocketAddr::new(address.address, port.local)) {
            Ok(socket) => {
                // All addresses share the port that the first one was given.
                port.local = socket.local_addr().map_or(port.local, |local| local.port());
                found.lines.push(format!("Forwarding from {} -> {}", join(&address.text, port.local), port.remote));
                found.all.push(Listener { socket, port: *port });
                optional_listens |= !address.required;
            }
            Err(error) => {
                let family = if address.address.is_ipv4() { "tcp4" } else { "tcp6" };
                errors.push(format!(
                    "unable to create listener: Error listen {family} {}: bind: {}",
                    join(&address.text, port.local),
                    reason(&error)
                ));
                required_failed |= address.required;
                optional_failed |= !address.required;
            }
        }
    }
    if required_failed || (optional_failed && !optional_listens) {
        return Err(format!("Listeners failed to create with the following errors: [{}]", errors.join(" ")));
    }
    Ok(())
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address.ip() {
        IpAddr::V4(_) => TcpSocket::new_v4()?,
        IpAddr::V6(_) => {
            let socket = TcpSocket::new_v6()?;
            rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
            socket
        }
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn join(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Returns the message of the operating system as Go writes it.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error ").next().unwrap_or_default().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::super::ports::parse_addresses;
    use super::*;

    #[tokio::test]
    async fn free_port_is_chosen_and_used_ports_are_reported() {
        let addresses = parse_addresses(&["127.0.0.1".to_owned()]).unwrap();
        let (first, outcome) = listen(&[ForwardedPort { local: 0, remote: 80 }], &addresses);
        outcome.unwrap();
        let local = first.all[0].port.local;
        assert_eq!(first.lines, [format!("Forwarding from 127.0.0.1:{local} -> 80")]);
        let (second, outcome) = listen(&[ForwardedPort { local, remote: 80 }], &addresses);
        assert_eq!(
            second.failures,
            [format!(
                "Unable to listen on port {local}: Listeners failed to create with the following errors: [unable to \
                 create listener: Error listen tcp4 127.0.0.1:{local}: bind: address already in use]"
            )]
        );
        let expect = format!("unable to listen on any of the requested ports: [{{{local} 80}}]");
        assert_eq!(outcome.unwrap_err(), expect);
    }

    #[test]
    fn addresses_of_version_six_are_in_brackets() {
        assert_eq!((join("::1", 80), join("127.0.0.1", 80)), ("[::1]:80".to_owned(), "127.0.0.1:80".to_owned()));
    }
}

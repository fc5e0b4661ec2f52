//! Peer transport: checksummed frames over TCP, optionally with mutual TLS.
//!
//! A member dials every other one and sends on that connection; it receives on the connections it accepted. A stream
//! starts with a greeting that contains sender, receiver and purpose. The receiver responds with one byte:
//!
//! | purpose | then |
//! |---|---|
//! | messages | frames of `Frame`, in one direction |
//! | snapshot | the state in chunks, the final message, one byte in response |
//! | members | a frame with the cluster and its membership in response |

mod frame;
pub(crate) mod fuzz;
mod incoming;
mod links;
mod tls;
mod traffic;

use std::net::SocketAddr;

pub(crate) use frame::{Frame, LeaseReply};
pub(crate) use incoming::{Inbound, Listener, listen};
pub use links::{DialError, members_of};
pub(crate) use links::{Identity, Links, Stream, stream_snapshot};
pub use tls::{Tls, TlsError};
pub(crate) use traffic::{Heartbeats, Traffic};
pub use traffic::{PeerTraffic, ROUND_TRIP_BUCKETS_MICROS};

/// A peer's address, from its URL.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Address {
    /// DNS name or IP address.
    pub host: String,
    pub port: u16,
    /// Whether the scheme is https.
    pub secure: bool,
}

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0:?} is not a peer URL: use http://host:port or https://host:port")]
pub struct AddressError(pub String);

impl Address {
    /// Parses `http://host:port` or `https://host:port`.
    pub fn parse(url: &str) -> Result<Self, AddressError> {
        let error = || AddressError(url.to_owned());
        let (secure, rest) = match url.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            _ => return Err(error()),
        };
        let (host, port) = rest.trim_end_matches('/').rsplit_once(':').ok_or_else(error)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = port.parse().map_err(|_| error())?;
        if host.is_empty() { Err(error()) } else { Ok(Self { host, port, secure }) }
    }

    /// Returns host and port in URL notation.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    async fn resolve(&self) -> std::io::Result<SocketAddr> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await?.next();
        found.ok_or_else(|| std::io::Error::other("the name has no address"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, expect: Option<(&str, u16, bool)>) {
        let expect = expect.map(|(host, port, secure)| Address { host: host.into(), port, secure });
        assert_eq!(Address::parse(url).ok(), expect, "{url}");
    }

    #[test]
    fn peer_urls_have_scheme_host_and_port() {
        check("http://127.0.0.1:2380", Some(("127.0.0.1", 2380, false)));
        check("https://m1.example:2380/", Some(("m1.example", 2380, true)));
        check("https://[::1]:2380", Some(("::1", 2380, true)));
        check("127.0.0.1:2380", None);
        check("http://:2380", None);
        check("http://host", None);
        check("http://host:99999", None);
    }
}

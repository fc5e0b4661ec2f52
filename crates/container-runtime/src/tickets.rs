//! Tickets: single-use URLs with unguessable tokens for CRI streams.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use node_api::cri::v1;

use crate::error::Error;
use crate::ids::new_id;

/// Validity of an unused ticket.
const LIFETIME: Duration = Duration::from_secs(60);
/// Maximum number of unused tickets.
const TICKETS_MAX: usize = 1000;

/// The request that a ticket allows.
#[derive(Clone, Debug)]
pub(crate) enum Ticket {
    Exec(v1::ExecRequest),
    Attach(v1::AttachRequest),
    PortForward(v1::PortForwardRequest),
}

/// The issued tickets.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    address: OnceLock<SocketAddr>,
    valid: Mutex<BTreeMap<String, (Instant, Ticket)>>,
}

impl Tickets {
    /// Sets the address of the streaming server.
    pub(crate) fn set_address(&self, address: SocketAddr) {
        // The address is set once, before the first request.
        let _ = self.address.set(address);
    }

    /// Issues a ticket and returns its URL.
    pub(crate) fn issue(&self, path: &str, ticket: Ticket) -> Result<String, Error> {
        let address = self.address.get().ok_or_else(|| Error::State("streams are not served".to_owned()))?;
        let mut valid = self.valid.lock().expect("no holder of the tickets panics");
        let now = Instant::now();
        valid.retain(|_, (issued, _)| now - *issued < LIFETIME);
        if valid.len() >= TICKETS_MAX {
            return Err(Error::State("too many requested streams have not been opened".to_owned()));
        }
        let token = new_id();
        valid.insert(token.clone(), (now, ticket));
        Ok(format!("http://{address}/{path}/{token}"))
    }

    /// Redeems a ticket, which is valid once.
    pub(crate) fn take(&self, token: &str) -> Option<Ticket> {
        let (issued, ticket) = self.valid.lock().expect("no holder of the tickets panics").remove(token)?;
        (issued.elapsed() < LIFETIME).then_some(ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticket_is_valid_once() {
        let tickets = Tickets::default();
        let ticket = || Ticket::PortForward(v1::PortForwardRequest::default());
        assert!(tickets.issue("portforward", ticket()).is_err());
        tickets.set_address("127.0.0.1:80".parse().unwrap());
        let url = tickets.issue("portforward", ticket()).unwrap();
        let token = url.rsplit('/').next().unwrap();
        assert!(tickets.take(token).is_some());
        assert!(tickets.take(token).is_none());
    }
}

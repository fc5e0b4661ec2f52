//! Exec, attach and port-forward: long streams over HTTP, for whoever holds a ticket.
//!
//! CRI's calls answer with a URL that is good once and for a minute. The URL leads here, and the connection is upgraded to
//! WebSocket or SPDY, whichever the client asks for; what then flows is the same.

mod server;
mod tickets;

pub use server::start;
pub use tickets::{Ticket, Tickets};

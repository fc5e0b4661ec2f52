//! Exec, attach and port-forward: long streams over HTTP, for whoever holds a ticket.
//!
//! CRI's calls answer with a URL that is good once and for a minute. The URL leads here, and the connection is upgraded to
//! WebSocket or SPDY, whichever the client asks for; what then flows is the same.
//!
//! ```text
//! WebSocket channels ─┐                        ┌─> exec, attach: a process's streams
//! SPDY streams ───────┴─> Wire: stdin, resize, ┤
//!                         stdout, stderr, end  └─> (port-forward: pairs of streams and sockets)
//! ```

mod fd;
mod forward;
mod process;
mod server;
mod spdy_wire;
mod tickets;
mod websocket;
mod wire;

pub use server::start;
pub use tickets::{Ticket, Tickets};

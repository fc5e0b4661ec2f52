//! CRI streaming: exec, attach and port-forward over HTTP, authorized by tickets.
//!
//! CRI calls return a URL that is valid once and for a minute. A connection to that URL is upgraded to WebSocket or
//! SPDY, as the client requests; both carry the same streams.
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
mod websocket;
mod wire;

pub(crate) use server::start;

//! Streams to where an object runs: which of them may be had, and where they lead.
//!
//! ```text
//! request ─options─> (pod) ─container─> (node) ─address─> Location ─> the proxy
//! ```

mod container;
mod html;
mod location;
mod log;
mod node;
mod rewrite;
mod stream;

pub use container::choose;
pub use html::rewrite as rewrite_links;
pub use location::{Endpoint, Name, Scheme, endpoint, endpoints, is_proxyable, pod_port};
pub use log::{LogOptions, node_of};
pub use node::{Node, UnknownAddress};
pub use rewrite::{join_paths, location, proxied_path};
pub use stream::{ForwardOptions, ProcessOptions};

use machinery::status::{Reason, Status};

/// An error of the way to a node or a pod, which upstream passes on as it is: no reason, only words.
pub fn broken(message: impl Into<String>) -> Status {
    Status { reason: Reason::Unknown, ..Status::failure(Reason::InternalError, message) }
}

/// A name or value as it stands in a query.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            b' ' => out.push('+'),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

/// Pairs as a query, in the order of their names as Go writes them.
fn encode(mut pairs: Vec<(&str, String)>) -> String {
    pairs.sort_by_key(|(name, _)| *name);
    let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{}={}", escape(name), escape(value))).collect();
    pairs.join("&")
}

//! Connect subresources: options, and the location of the backend.
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

use apimachinery::status::{Reason, Status};

/// Returns an error of the connection to a node or pod without a reason, as upstream does.
pub fn broken(message: impl Into<String>) -> Status {
    Status { reason: Reason::Unknown, ..Status::failure(Reason::InternalError, message) }
}

/// Escapes a name or value for a query.
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

/// Encodes a query sorted by name, as Go does.
fn encode(mut pairs: Vec<(&str, String)>) -> String {
    pairs.sort_by_key(|(name, _)| *name);
    let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{}={}", escape(name), escape(value))).collect();
    pairs.join("&")
}

//! Connect subresources (exec, attach, portforward, log, proxy): their options, and the address of the backend.
//!
//! ```text
//! request ─parse options─> pod ─choose container─> node ─choose address─> URL of the kubelet or backend
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

/// Returns the 500 for a failed connection to a node or pod. As in upstream, its `reason` is empty.
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

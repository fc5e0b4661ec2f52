//! Tracing spans: the component, request, pod or controller key that log lines belong to.
//!
//! A span follows its future, not its thread: a task that is spawned inside a span inherits it by `in_current_span`.
//! Spans have level ERROR, because every line needs its context, whatever the level of its component is. Only the span
//! of a request has level INFO: it is created for each request, and `--log kube-apiserver=warn` saves its cost.
//! Values that clients control are recorded as strings, which the log escapes.

use tracing::field::Empty;
use tracing::{Span, error_span, info_span};

/// Longest value of a field that a client controls, in bytes.
const VALUE_MAX: usize = 256;

/// Attributes of an API request. Empty ones are left out.
pub struct Request<'a> {
    pub audit_id: &'a str,
    pub verb: &'a str,
    /// The plural name of the resource, or the path of a request without a resource.
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}

/// Returns the span of a component such as the kubelet. It has no parent.
pub fn component(name: &str) -> Span {
    error_span!(parent: None, "component", name)
}

/// Returns the span of a request to a server whose span is `parent`. The user follows by [`authenticated`].
///
/// A request of a client in the same process does not inherit the client's span.
pub fn request(parent: &Span, request: &Request<'_>) -> Span {
    info_span!(
        target: "kube_apiserver",
        parent: parent,
        "request",
        audit_id = bounded(request.audit_id),
        verb = request.verb,
        resource = bounded(request.resource),
        subresource = bounded(request.subresource),
        namespace = bounded(request.namespace),
        name = bounded(request.name),
        user = Empty,
    )
}

/// Adds the user to the span of a request.
pub fn authenticated(request: &Span, user: &str) {
    request.record("user", bounded(user));
}

/// Returns the span of a pod on its node.
pub fn pod(namespace: &str, name: &str, uid: &str) -> Span {
    error_span!("pod", namespace, name, uid)
}

/// Returns the span of a key that a controller reconciles.
pub fn controller_key(controller: &str, key: &dyn std::fmt::Display) -> Span {
    error_span!("reconcile", controller, %key)
}

/// Returns the start of a value, or `None` if it is empty.
fn bounded(value: &str) -> Option<&str> {
    Some(&value[..value.floor_char_boundary(VALUE_MAX)]).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests;

//! The parsed head of a request.

use std::net::IpAddr;

use api_registry::negotiate::is_pretty;
use api_registry::query::Query;
use api_registry::request_info::{Info, Resource};
use auth::Target;
use client::shared_objects::WantShared;
use http::header::{AsHeaderName, CONTENT_TYPE, HeaderName, USER_AGENT};
use http::{HeaderMap, Method, Request, Uri};

/// A request without its body.
pub struct RequestInfo {
    pub method: Method,
    /// The URL, as the client wrote it.
    pub uri: Uri,
    pub headers: HeaderMap,
    pub query: Query,
    /// The parsed URL: verb, resource or path.
    pub info: Info,
    /// The client's IP address, if the request came over the network.
    pub from: Option<IpAddr>,
    /// Set if the client is in this process and can receive decoded objects.
    pub want_shared: Option<WantShared>,
}

impl RequestInfo {
    /// Splits a request into its parsed head and its body.
    pub fn of<B>(request: Request<B>) -> (Self, B) {
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let info = Info::of(parts.method.as_str(), parts.uri.path(), &query);
        let want_shared = parts.extensions.get().copied();
        (
            Self { method: parts.method, uri: parts.uri, headers: parts.headers, query, info, from: None, want_shared },
            body,
        )
    }

    /// Removes the headers for which `owned` returns true: they were consumed here and must not be forwarded.
    pub fn remove_headers(&mut self, owned: impl Fn(&str) -> bool) {
        let names: Vec<HeaderName> = self.headers.keys().filter(|name| owned(name.as_str())).cloned().collect();
        for name in names {
            self.headers.remove(name);
        }
    }

    /// Returns the text of a header, empty if absent.
    pub fn header(&self, name: impl AsHeaderName) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    pub fn content_type(&self) -> &str {
        self.header(CONTENT_TYPE)
    }

    pub fn user_agent(&self) -> &str {
        self.header(USER_AGENT)
    }

    /// Whether JSON is to be indented.
    pub fn is_pretty(&self) -> bool {
        is_pretty(&self.query, self.user_agent())
    }

    pub fn resource(&self) -> Option<&Resource> {
        self.info.resource.as_ref()
    }
}

/// Returns the authorization target of a resource request.
pub fn target<'a>(
    resource: &'a Resource,
    field_selector: &'a [apimachinery::fields::Requirement],
    label_selector: &'a [apimachinery::labels::Requirement],
) -> Target<'a> {
    Target::Resource(auth::Resource {
        group: &resource.group,
        version: &resource.version,
        resource: &resource.plural,
        subresource: &resource.subresource,
        namespace: &resource.namespace,
        name: &resource.name,
        field_selector,
        label_selector,
    })
}

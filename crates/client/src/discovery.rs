//! Aggregated discovery: all kinds of the server in two requests.

use std::collections::BTreeSet;

use apimachinery::meta::Scope;
use apimachinery::{Resource, Str, Value, json};
use bytes::Bytes;
use http::header::{ACCEPT, HeaderValue};
use http::{Method, Request};
use http_body_util::BodyExt;

use crate::error::{Error, ResponseError};
use crate::transport::TransportError;
use crate::{Body, Client};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// Maximum response size, enough for more than ten thousand kinds.
const BYTES_MAX: usize = 64 << 20;

/// One version of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedResource {
    pub resource: Resource,
    pub verbs: Vec<Str>,
    /// Whether this is the preferred version of the kind.
    pub preferred: bool,
}

/// The result of discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerResources {
    /// Every version of every kind.
    pub served: Vec<ServedResource>,
    /// Group versions whose aggregated server does not respond, so that their kinds are unknown.
    pub stale: Vec<String>,
}

/// Requests the kinds of the server.
pub async fn discover(client: &Client) -> Result<ServerResources, Error> {
    let mut discovered = ServerResources::default();
    for path in ["/api", "/apis"] {
        let mut request = Request::builder().method(Method::GET).uri(path).body(Bytes::new())?;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(AGGREGATED));
        let response = client.raw(request).await?;
        if !response.status().is_success() {
            return Err(ResponseError::Unexpected(format!("discovery failed with status {}", response.status())).into());
        }
        let document = json::parse(&collect(response.into_body()).await?).map_err(ResponseError::from)?;
        if document.str_at(&["kind"]) != Some("APIGroupDiscoveryList") {
            return Err(ResponseError::Unexpected("the server does not support aggregated discovery".to_owned()).into());
        }
        discovered.read(&document);
    }
    Ok(discovered)
}

impl ServerResources {
    fn read(&mut self, document: &Value) {
        for group in document.list_at(&["items"]) {
            let name = group.text_at(&["metadata", "name"]);
            let mut known = BTreeSet::new();
            for version in group.list_at(&["versions"]) {
                let number = version.text_at(&["version"]);
                if version.str_at(&["freshness"]) == Some("Stale") {
                    self.stale.push(format!("{name}/{number}"));
                }
                for resource in version.list_at(&["resources"]) {
                    let plural = resource.text_at(&["resource"]);
                    let text = |keys: &[&str]| Str::from(resource.text_at(keys));
                    let namespaced = resource.str_at(&["scope"]) == Some("Namespaced");
                    self.served.push(ServedResource {
                        resource: Resource {
                            group: name.into(),
                            version: number.into(),
                            plural: plural.into(),
                            kind: text(&["responseKind", "kind"]),
                            scope: if namespaced { Scope::Namespaced } else { Scope::Cluster },
                        },
                        verbs: resource.list_at(&["verbs"]).iter().filter_map(Value::as_str).map(Str::from).collect(),
                        preferred: known.insert(plural),
                    });
                }
            }
        }
    }
}

async fn collect(mut body: Body) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await.transpose().map_err(TransportError::Broken)? {
        if let Ok(data) = frame.into_data() {
            bytes.extend_from_slice(&data);
        }
        if bytes.len() > BYTES_MAX {
            return Err(ResponseError::TooLarge(BYTES_MAX).into());
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn first_version_with_a_kind_is_preferred() {
        let resource = |plural: &str, kind: &str| {
            value!({"resource": plural, "scope": "Namespaced", "responseKind": {"kind": kind}, "verbs": ["list"],
                "subresources": [{"subresource": "status"}]})
        };
        let document = value!({"items": [{"metadata": {"name": "example.com"}, "versions": [
            {"version": "v1", "freshness": "Current", "resources": [(resource("as", "A"))]},
            {"version": "v1beta1", "freshness": "Stale", "resources": [(resource("as", "A")), (resource("bs", "B"))]},
        ]}]});
        let mut discovered = ServerResources::default();
        discovered.read(&document);
        let found: Vec<(String, bool)> = discovered
            .served
            .iter()
            .map(|it| (format!("{}/{}", it.resource.version, it.resource), it.preferred))
            .collect();
        let expect = [("v1/as.example.com", true), ("v1beta1/as.example.com", false), ("v1beta1/bs.example.com", true)];
        assert_eq!(found, expect.map(|(name, preferred)| (name.to_owned(), preferred)));
        assert_eq!(discovered.stale, ["example.com/v1beta1"]);
    }
}

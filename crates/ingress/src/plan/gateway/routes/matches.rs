//! The matches of rules. An error names the value that is not supported.

use apimachinery::Value;
use http::{HeaderName, Method};

use super::super::super::objects::{list, normalized_prefix};
use super::super::objects::text;
use crate::routing::{PathMatch, RequestMatch, ValueMatch};

pub(super) fn read_http(value: &Value) -> Result<RequestMatch, String> {
    let path = value.str_at(&["path", "value"]).unwrap_or("/");
    let path = match value.str_at(&["path", "type"]) {
        Some("Exact") => PathMatch::Exact(path.to_owned()),
        Some("PathPrefix") | None => PathMatch::Prefix(normalized_prefix(path)),
        Some(other) => return Err(format!("path match of type {other}")),
    };
    let method = value.str_at(&["method"]).map(|name| Method::try_from(name).map_err(|_| format!("method {name}")));
    let query = list(value.get("queryParams")).iter().map(|one| Ok((text(one.get("name")), exact(one)?)));
    Ok(RequestMatch { path, method: method.transpose()?, headers: headers(value)?, query: unique(query)? })
}

pub(super) fn read_grpc(value: &Value) -> Result<RequestMatch, String> {
    let name = |field: &str| value.str_at(&["method", field]).filter(|name| !name.is_empty());
    if let Some(other) = value.str_at(&["method", "type"]).filter(|kind| *kind != "Exact") {
        return Err(format!("method match of type {other}"));
    }
    let path = match (name("service"), name("method")) {
        (Some(service), Some(method)) => PathMatch::Exact(format!("/{service}/{method}")),
        (Some(service), None) => PathMatch::Prefix(format!("/{service}")),
        (None, Some(method)) => PathMatch::GrpcMethod(method.to_owned()),
        (None, None) => PathMatch::default(),
    };
    Ok(RequestMatch { path, headers: headers(value)?, ..RequestMatch::default() })
}

fn headers(value: &Value) -> Result<Vec<(HeaderName, ValueMatch)>, String> {
    let header = |one: &Value| {
        let name = text(one.get("name"));
        Ok((HeaderName::try_from(&name).map_err(|_| format!("header name {name}"))?, exact(one)?))
    };
    unique(list(value.get("headers")).iter().map(header))
}

fn exact(value: &Value) -> Result<ValueMatch, String> {
    match value.str_at(&["type"]) {
        Some("Exact") | None => Ok(ValueMatch::Exact(text(value.get("value")))),
        Some(other) => Err(format!("header or query match of type {other}")),
    }
}

/// Keeps the first of several conditions with the same name, as the Gateway API requires.
fn unique<N: PartialEq>(
    conditions: impl Iterator<Item = Result<(N, ValueMatch), String>>,
) -> Result<Vec<(N, ValueMatch)>, String> {
    let mut kept: Vec<(N, ValueMatch)> = Vec::new();
    for condition in conditions {
        let condition = condition?;
        if !kept.iter().any(|(name, _)| *name == condition.0) {
            kept.push(condition);
        }
    }
    Ok(kept)
}

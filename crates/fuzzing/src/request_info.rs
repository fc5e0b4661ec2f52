//! URL to RequestInfo: a URL gives exactly one verb and scope, and equivalent URLs give the same attributes.
//!
//! The input is a method and a URL, one per line.

use api_registry::query::Query;
use api_registry::request_info::{Form, Info, Resource};

/// Parses a URL and checks the properties that hold for any input.
pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (method, url) = text.split_once('\n').unwrap_or(("GET", &text));
    let url = url.trim_end_matches('\n');
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let query = Query::parse(query);
    let info = Info::of(method, path, &query);
    let Some(resource) = &info.resource else { return };
    let [as_namespaced, as_cluster_scoped] = [true, false].map(|namespaced| info.check(Some(namespaced)).is_ok());
    if !as_namespaced && !as_cluster_scoped {
        return;
    }
    check_verb(&info, method, resource);
    if resource.in_url {
        assert!(as_namespaced != as_cluster_scoped, "an object is in one scope: {info:?}");
        assert!(!as_namespaced || !resource.namespace.is_empty(), "a namespaced object has a namespace: {info:?}");
    }
    if as_cluster_scoped && !resource.namespace.is_empty() {
        assert!(resource.plural == "namespaces" && resource.namespace == resource.name, "{info:?}");
    }
    let again = Info::of(method, &canonical(&info, resource), &query);
    assert_eq!(again.resource.as_ref(), Some(resource));
    assert_eq!(again.verb, info.verb);
}

/// Checks that the verb corresponds to the method, and that only reads have a prefix.
fn check_verb(info: &Info, method: &str, resource: &Resource) {
    let expected: &[&str] = match method {
        "GET" | "HEAD" if info.is_prefixed => &["watch"],
        "GET" | "HEAD" if resource.in_url => &["get"],
        "GET" | "HEAD" => &["list", "watch"],
        "POST" => &["create"],
        "PUT" => &["update"],
        "PATCH" => &["patch"],
        "DELETE" if resource.in_url => &["delete"],
        "DELETE" => &["deletecollection"],
        _ => &["options", "connect", "trace", "unknown"],
    };
    assert!(expected.contains(&info.verb), "{method}: {info:?}");
}

/// Returns the URL of a resource with every segment escaped.
fn canonical(info: &Info, resource: &Resource) -> String {
    let mut segments = match resource.group.as_str() {
        "" => vec!["api"],
        group => vec!["apis", group],
    };
    segments.push(&resource.version);
    if info.is_prefixed {
        segments.push("watch");
    }
    if resource.form == Form::Namespaced {
        segments.extend(["namespaces", resource.namespace.as_str()]);
    }
    segments.push(&resource.plural);
    if resource.in_url {
        segments.push(&resource.name);
    }
    if !resource.subresource.is_empty() {
        segments.push(&resource.subresource);
        segments.extend(resource.rest.split('/').filter(|_| !resource.rest.is_empty()));
    }
    let escape = |segment: &&str| segment.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    segments.iter().map(|segment| format!("/{}", escape(segment))).collect()
}

//! What a request is about, by its method and URL alone.

use machinery::fields;

use crate::query::{Query, percent_decode};

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// The path, unescaped.
    pub path: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, `proxy`; for what is no
    /// resource the method in lower case.
    pub verb: &'static str,
    /// The resource, if it is one.
    pub resource: Option<Resource>,
}

/// The resource that a URL names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    /// The group, empty for core.
    pub group: String,
    /// The version.
    pub version: String,
    /// The namespace, empty if none is named.
    pub namespace: String,
    /// The plural name.
    pub plural: String,
    /// The name, empty if none is named. Also the name that a field selector asks for, see [`Resource::in_url`].
    pub name: String,
    /// Whether the name stands in the URL.
    pub in_url: bool,
    /// The subresource, empty if none is named.
    pub subresource: String,
    /// What comes after the subresource: the path of a proxied request.
    pub rest: String,
}

impl Info {
    /// Reads method, path and query. The rules are those of Kubernetes' own resolver, so that authorization sees what
    /// it would see there.
    pub fn of(method: &str, path: &str, query: &Query) -> Self {
        let decoded = percent_decode(path).unwrap_or_else(|| path.to_owned());
        let verb = verb_of(method);
        let parts: Vec<&str> = decoded.trim_matches('/').split('/').collect();
        let plain = Self { path: decoded.clone(), verb: method_name(method), resource: None };
        let (group, parts) = match parts.as_slice() {
            ["api", rest @ ..] if rest.len() >= 2 => ("", rest),
            ["apis", group, rest @ ..] if rest.len() >= 2 => (*group, rest),
            _ => return plain,
        };
        let (version, mut parts) = (parts[0], &parts[1..]);
        let mut verb = verb;
        if let [special @ ("watch" | "proxy"), rest @ ..] = parts
            && !rest.is_empty()
        {
            verb = if *special == "watch" { "watch" } else { "proxy" };
            parts = rest;
        }
        let mut resource = Resource { group: group.to_owned(), version: version.to_owned(), ..Resource::default() };
        if let ["namespaces", namespace, rest @ ..] = parts {
            resource.namespace = (*namespace).to_owned();
            if !matches!(rest, [] | ["status" | "finalize", ..]) {
                parts = rest;
            }
        }
        resource.read(parts);
        let verb = resource.narrow(verb, query);
        Self { path: decoded, verb, resource: Some(resource) }
    }

    /// Whether this request stays open: not bounded by the usual deadline, nor counted as in flight.
    pub fn is_long_running(&self) -> bool {
        let connects = |resource: &Resource| {
            matches!(resource.subresource.as_str(), "attach" | "exec" | "proxy" | "log" | "portforward")
        };
        matches!(self.verb, "watch" | "proxy") || self.resource.as_ref().is_some_and(connects)
    }
}

impl Resource {
    fn read(&mut self, parts: &[&str]) {
        let text = |at: usize| parts.get(at).map(|part| (*part).to_owned()).unwrap_or_default();
        self.plural = text(0);
        self.name = text(1);
        self.subresource = text(2);
        self.rest = parts.get(3..).map(|rest| rest.join("/")).unwrap_or_default();
        self.in_url = !self.name.is_empty();
    }

    /// A read of a collection is a list or a watch, a delete of one a `deletecollection`.
    fn narrow(&mut self, verb: &'static str, query: &Query) -> &'static str {
        if self.in_url {
            return verb;
        }
        let verb = match verb {
            "get" if query.flag("watch") => "watch",
            "get" => "list",
            "delete" => return "deletecollection",
            other => other,
        };
        if matches!(verb, "list" | "watch")
            && let Ok(selector) = fields::Selector::parse(query.text("fieldSelector"))
            && let Some(name) = selector.exact_value("metadata.name")
        {
            self.name = name.to_owned();
        }
        verb
    }
}

fn verb_of(method: &str) -> &'static str {
    match method {
        "POST" => "create",
        "GET" | "HEAD" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        other => method_name(other),
    }
}

fn method_name(method: &str) -> &'static str {
    match method {
        "GET" => "get",
        "HEAD" => "head",
        "POST" => "post",
        "PUT" => "put",
        "PATCH" => "patch",
        "DELETE" => "delete",
        "OPTIONS" => "options",
        "CONNECT" => "connect",
        "TRACE" => "trace",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &str, url: &str, expect: &str) {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let info = Info::of(method, path, &Query::parse(query));
        let found = match &info.resource {
            None => format!("{} {}", info.verb, info.path),
            Some(Resource { group, version, namespace, plural, name, subresource, rest, .. }) => {
                format!("{} {group}|{version}|{namespace}|{plural}|{name}|{subresource}|{rest}", info.verb)
            }
        };
        assert_eq!(found, expect, "{method} {url}");
    }

    #[test]
    fn urls_say_what_a_request_is_about() {
        check("GET", "/api", "get /api");
        check("GET", "/api/v1", "get /api/v1");
        check("GET", "/apis/apps/v1", "get /apis/apps/v1");
        check("GET", "/healthz/ping", "get /healthz/ping");
        check("GET", "/api/v1/pods", "list |v1||pods|||");
        check("GET", "/api/v1/namespaces", "list |v1||namespaces|||");
        check("GET", "/api/v1/namespaces/a", "get |v1|a|namespaces|a||");
        check("PUT", "/api/v1/namespaces/a/finalize", "update |v1|a|namespaces|a|finalize|");
        check("GET", "/api/v1/namespaces/a/pods", "list |v1|a|pods|||");
        check("GET", "/api/v1/namespaces/a/pods?watch=true", "watch |v1|a|pods|||");
        check("GET", "/api/v1/watch/namespaces/a/pods", "watch |v1|a|pods|||");
        check("GET", "/api/v1/watch/namespaces/a/pods/p", "watch |v1|a|pods|p||");
        check("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dx", "list |v1||pods|x||");
        check("DELETE", "/apis/apps/v1/namespaces/a/deployments", "deletecollection apps|v1|a|deployments|||");
        check("PATCH", "/apis/apps/v1/namespaces/a/deployments/d/scale", "patch apps|v1|a|deployments|d|scale|");
        check("GET", "/api/v1/namespaces/a/services/s:80/proxy/x/y", "get |v1|a|services|s:80|proxy|x/y");
        check("POST", "/api/v1/namespaces/a/pods/p/exec?command=ls", "create |v1|a|pods|p|exec|");
    }
}

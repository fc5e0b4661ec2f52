//! RequestInfo: the verb and resource of a method and URL. Authorizers and handlers both use it, and no other code
//! interprets the URL.

use apimachinery::fields;

use crate::query::{Query, percent_decode};

/// The verb and resource of a request (upstream's RequestInfo).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// The path, unescaped.
    pub path: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, `proxy`; for a non-resource
    /// path the method in lower case.
    pub verb: &'static str,
    /// The resource; `None` for a non-resource path.
    pub resource: Option<Resource>,
    /// Whether the verb comes from a `/watch/` or `/proxy/` prefix of the path instead of the method.
    pub is_prefixed: bool,
    /// Whether the method is GET or HEAD.
    is_read: bool,
}

/// The scope of a resource in the URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// `/nodes/n`, `/pods`, and `/namespaces/n` itself.
    #[default]
    Cluster,
    /// `/namespaces/n/pods`.
    Namespaced,
}

/// Reasons why a URL has no handler, regardless of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// 404: the URL does not exist.
    NotFound,
    /// 405: the URL exists for other methods.
    Method,
}

/// The resource in a URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    /// The group, empty for core.
    pub group: String,
    pub version: String,
    /// The namespace, empty if there is none. For `/namespaces/n` it is `n`, as authorizers expect.
    pub namespace: String,
    /// Whether the resource is below a namespace in the URL.
    pub form: Form,
    pub plural: String,
    /// The name; empty if there is none. For a collection it is the name that the field selector requires; then
    /// [`Resource::in_url`] is false.
    pub name: String,
    /// Whether the name is in the URL path.
    pub in_url: bool,
    /// The subresource, may be empty.
    pub subresource: String,
    /// The path after the subresource, for proxied requests.
    pub rest: String,
}

impl Info {
    /// Parses method, path and query. The rules are those of upstream's RequestInfoFactory, so that authorizers see the
    /// same attributes.
    pub fn of(method: &str, path: &str, query: &Query) -> Self {
        let decoded = percent_decode(path).unwrap_or_else(|| path.to_owned());
        let verb = verb_of(method);
        let parts: Vec<&str> = decoded.trim_matches('/').split('/').collect();
        let is_read = matches!(method, "GET" | "HEAD");
        let plain =
            Self { path: decoded.clone(), verb: method_name(method), resource: None, is_prefixed: false, is_read };
        let (group, parts) = match parts.as_slice() {
            ["api", rest @ ..] if rest.len() >= 2 => ("", rest),
            ["apis", group, rest @ ..] if rest.len() >= 2 && !group.is_empty() => (*group, rest),
            _ => return plain,
        };
        let (version, mut parts) = (parts[0], &parts[1..]);
        let (mut verb, mut is_prefixed) = (verb, false);
        if let [special @ ("watch" | "proxy"), rest @ ..] = parts
            && !rest.is_empty()
        {
            verb = if *special == "watch" { "watch" } else { "proxy" };
            (parts, is_prefixed) = (rest, true);
        }
        let mut resource = Resource { group: group.to_owned(), version: version.to_owned(), ..Resource::default() };
        if let ["namespaces", namespace, rest @ ..] = parts {
            resource.namespace = (*namespace).to_owned();
            if !matches!(rest, [] | ["status" | "finalize", ..]) {
                parts = rest;
                resource.form = Form::Namespaced;
            }
        }
        resource.read(parts);
        let verb = resource.narrow(verb, query);
        Self { path: decoded, verb, resource: Some(resource), is_prefixed, is_read }
    }

    /// Checks that the URL exists for the method and, if `namespaced` is the known scope of the kind, that the URL has
    /// that scope. The check runs before authorization: authorizers decide by the namespace in the URL, so a
    /// cluster-scoped object must not be reachable through one, nor a namespaced object without one.
    pub fn check(&self, namespaced: Option<bool>) -> Result<(), Mismatch> {
        let Some(resource) = &self.resource else { return Ok(()) };
        if self.is_prefixed && !self.is_read {
            return Err(Mismatch::Method);
        }
        // Upstream has no routes below /proxy/, and none for subresources below /watch/.
        let is_routed = !self.is_prefixed || (self.verb == "watch" && resource.subresource.is_empty());
        if is_routed && resource.is_complete() && namespaced.is_none_or(|namespaced| resource.fits(namespaced)) {
            Ok(())
        } else {
            Err(Mismatch::NotFound)
        }
    }

    /// Whether selectors are part of the authorization attributes. As in upstream, selectors of `/watch/` and `/proxy/`
    /// URLs are not.
    pub fn has_selectors(&self) -> bool {
        !self.is_prefixed
    }

    /// Whether the request is long-running: without the usual deadline, and not counted as in flight.
    pub fn is_long_running(&self) -> bool {
        let connects = |resource: &Resource| {
            matches!(resource.subresource.as_str(), "attach" | "exec" | "proxy" | "log" | "portforward")
        };
        matches!(self.verb, "watch" | "proxy") || self.resource.as_ref().is_some_and(connects)
    }
}

impl Resource {
    /// Whether no segment before the last one is empty.
    fn is_complete(&self) -> bool {
        let has_namespace = self.form == Form::Cluster || !self.namespace.is_empty();
        let has_name = self.in_url || self.subresource.is_empty();
        let has_subresource = !self.subresource.is_empty() || self.rest.is_empty();
        has_namespace && !self.plural.is_empty() && has_name && has_subresource
    }

    /// Whether the URL has the scope of the kind. Collections of a namespaced kind can also be read cluster-wide.
    fn fits(&self, namespaced: bool) -> bool {
        match self.form {
            Form::Namespaced => namespaced,
            Form::Cluster => !namespaced || !self.in_url,
        }
    }

    fn read(&mut self, parts: &[&str]) {
        let text = |at: usize| parts.get(at).map(|segment| (*segment).to_owned()).unwrap_or_default();
        self.plural = text(0);
        self.name = text(1);
        self.subresource = text(2);
        self.rest = parts.get(3..).map(|rest| rest.join("/")).unwrap_or_default();
        self.in_url = !self.name.is_empty();
    }

    /// Returns the final verb. On a collection a read is `list` or `watch`, and a delete is `deletecollection`. A read
    /// of a collection takes its name from the field selector.
    fn narrow(&mut self, verb: &'static str, query: &Query) -> &'static str {
        if self.in_url {
            return verb;
        }
        match verb {
            "get" => {}
            "delete" => return "deletecollection",
            other => return other,
        }
        if let Ok(selector) = fields::Selector::parse(query.text("fieldSelector"))
            && let Some(name) = selector.exact_value("metadata.name")
            && is_path_segment(name)
        {
            self.name = name.to_owned();
        }
        if query.flag("watch") { "watch" } else { "list" }
    }
}

/// Whether a name is valid as a path segment.
fn is_path_segment(name: &str) -> bool {
    !matches!(name, "." | "..") && !name.contains(['/', '%'])
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
    fn urls_are_parsed_to_verb_and_resource() {
        check("GET", "/api", "get /api");
        check("GET", "/api/v1", "get /api/v1");
        check("GET", "/apis/apps/v1", "get /apis/apps/v1");
        check("GET", "/apis//v1/nodes", "get /apis//v1/nodes");
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
        check("GET", "/api/v1/watch/pods?fieldSelector=metadata.name%3Dx", "watch |v1||pods|||");
        check("GET", "/api/v1/pods?fieldSelector=metadata.name%3D..", "list |v1||pods|||");
    }

    #[test]
    fn url_exists_only_in_the_scope_of_its_kind_and_for_its_methods() {
        let check = |method: &str, path: &str, expect: [Result<(), Mismatch>; 2]| {
            let info = Info::of(method, path, &Query::default());
            assert_eq!([Some(true), Some(false)].map(|namespaced| info.check(namespaced)), expect, "{method} {path}");
        };
        const ANY: [Result<(), Mismatch>; 2] = [Ok(()), Ok(())];
        const NAMESPACED: [Result<(), Mismatch>; 2] = [Ok(()), Err(Mismatch::NotFound)];
        const CLUSTER: [Result<(), Mismatch>; 2] = [Err(Mismatch::NotFound), Ok(())];
        const NOWHERE: [Result<(), Mismatch>; 2] = [Err(Mismatch::NotFound), Err(Mismatch::NotFound)];
        const METHOD: [Result<(), Mismatch>; 2] = [Err(Mismatch::Method), Err(Mismatch::Method)];
        check("GET", "/healthz", ANY);
        check("GET", "/api/v1/things", ANY);
        check("GET", "/api/v1/things/x", CLUSTER);
        check("GET", "/api/v1/things/x/status", CLUSTER);
        check("GET", "/api/v1/namespaces/a", CLUSTER);
        check("PUT", "/api/v1/namespaces/a/finalize", CLUSTER);
        check("GET", "/api/v1/namespaces/a/namespaces/b", NAMESPACED);
        check("GET", "/api/v1/namespaces/a/things", NAMESPACED);
        check("POST", "/apis/g/v1/namespaces/a/things/x/proxy/run", NAMESPACED);
        check("GET", "/api/v1/watch/things/x", CLUSTER);
        check("HEAD", "/api/v1/watch/namespaces/a/things/x", NAMESPACED);
        check("GET", "/api/v1/namespaces//things", NOWHERE);
        check("GET", "/api/v1/namespaces/a/things//status", NOWHERE);
        check("GET", "/api/v1/namespaces/a/things/x//log", NOWHERE);
        check("GET", "/api/v1/watch/namespaces/a/things/x/log", NOWHERE);
        check("GET", "/api/v1/proxy/namespaces/a/things", NOWHERE);
        for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            check(method, "/api/v1/watch/namespaces/a/things/x", METHOD);
            check(method, "/apis/g/v1/proxy/things", METHOD);
        }
    }
}

//! WebhookClientConfig: a webhook is reached by URL or through a Service.

use apimachinery::field::Error;
use apimachinery::{At, Errors, names};

const FORM: &str = "; desired format: https://host[/path]";

/// Requires exactly one of `url` and `service`, and validates it.
pub fn validate(config: &At<'_>, errors: &mut Errors) {
    let (url, service) = (config.get("url"), config.get("service"));
    match (url.is_present(), service.is_present()) {
        (true, false) => validate_url(&url, errors),
        (false, true) => validate_service(&service, errors),
        _ => errors.push(config.required("exactly one of url or service is required")),
    }
}

pub fn validate_url(at: &At<'_>, errors: &mut Errors) {
    let parts = match Parts::of(at.str()) {
        Ok(parts) => parts,
        Err(message) => {
            errors.push(at.required(format!("url must be a valid URL: {message}{FORM}")));
            return;
        }
    };
    let mut blame = |value: &str, detail: String| errors.push(Error::invalid(at.path(), value, detail));
    if parts.scheme != "https" {
        blame(&parts.scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if parts.host.is_empty() {
        blame("", format!("host must be specified{FORM}"));
    }
    for (part, what) in
        [(parts.user, "user information is"), (parts.fragment, "fragments are"), (parts.query, "query parameters are")]
    {
        if !part.is_empty() {
            blame(part, format!("{what} not permitted in the URL"));
        }
    }
}

pub fn validate_service(service: &At<'_>, errors: &mut Errors) {
    // Upstream swaps the two field paths in its errors.
    for (missing, blamed) in [("namespace", "name"), ("name", "namespace")] {
        if service.get(missing).is_empty() {
            errors.push(service.get(blamed).required(""));
        }
    }
    let port = service.get("port");
    let wrong = names::port_number(port.int());
    if !wrong.is_empty() {
        let detail = format!("port is not valid: {}", wrong.join(", "));
        errors.push(Error::invalid(port.path(), port.int(), detail));
    }
    validate_path(&service.get("path"), errors);
}

fn validate_path(at: &At<'_>, errors: &mut Errors) {
    let path = at.str();
    if path.is_empty() || path == "/" {
        return;
    }
    if path == "//" {
        errors.push(at.invalid("segment[0] may not be empty"));
        return;
    }
    if !path.starts_with('/') {
        errors.push(at.invalid("must start with a '/'"));
    }
    // The first character is skipped even if it is not a slash, as upstream does.
    let inner = path.char_indices().nth(1).map_or("", |(second, _)| &path[second..]);
    for (index, segment) in inner.strip_suffix('/').unwrap_or(inner).split('/').enumerate() {
        if segment.is_empty() {
            errors.push(at.invalid(format!("segment[{index}] may not be empty")));
            continue;
        }
        let wrong = names::dns1123_subdomain(segment);
        errors.extend(wrong.into_iter().map(|wrong| at.invalid(format!("segment[{index}]: {wrong}"))));
    }
}

/// The URL components that validation needs.
struct Parts<'a> {
    scheme: String,
    user: &'a str,
    host: &'a str,
    query: &'a str,
    fragment: &'a str,
}

impl<'a> Parts<'a> {
    /// Splits a URL like Go's `url.Parse` and fails with Go's error message.
    fn of(url: &'a str) -> Result<Self, String> {
        let parse_error = |message: &str| Err(format!("parse {}: {message}", apimachinery::go::quote(url)));
        if url.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return parse_error("net/url: invalid control character in URL");
        }
        let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
        let (scheme, rest) = match rest.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c))) {
            Some(0) if rest.starts_with(':') => return parse_error("missing protocol scheme"),
            Some(at) if rest[at..].starts_with(':') && rest.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                (rest[..at].to_lowercase(), &rest[at + 1..])
            }
            _ => (String::new(), rest),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        if scheme.is_empty()
            && !rest.starts_with('/')
            && rest.split('/').next().is_some_and(|first| first.contains(':'))
        {
            return parse_error("first path segment in URL cannot contain colon");
        }
        let authority = rest.strip_prefix("//").map_or("", |rest| rest.split('/').next().unwrap_or_default());
        let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        if let Some(bad) = host.chars().find(|c| " <>\"{}|\\^`".contains(*c)) {
            return parse_error(&format!(
                "invalid character {} in host name",
                apimachinery::go::quote(&bad.to_string())
            ));
        }
        Ok(Self { scheme, user, host, query, fragment })
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    fn check(config: &apimachinery::Value, expect: &[&str]) {
        let mut errors = Errors::new();
        validate(&At::root(config), &mut errors);
        let messages: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(messages, expect);
    }

    #[test]
    fn webhook_url_requires_scheme_and_host_and_forbids_query() {
        check(&value!({"url": "https://a.example:8443/x"}), &[]);
        check(
            &value!({"url": "http://u@a/x?q#f"}),
            &[
                "url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
                "url: Invalid value: \"u\": user information is not permitted in the URL",
                "url: Invalid value: \"f\": fragments are not permitted in the URL",
                "url: Invalid value: \"q\": query parameters are not permitted in the URL",
            ],
        );
        check(
            &value!({"url": ":x"}),
            &[
                "url: Required value: url must be a valid URL: parse \":x\": missing protocol scheme; desired format: https://host[/path]",
            ],
        );
    }

    #[test]
    fn service_path_segments_are_dns_names() {
        check(&value!({"service": {"name": "n", "namespace": "s", "port": 443, "path": "/a/b/"}}), &[]);
        check(
            &value!({"service": {"name": "n", "port": 0, "path": "a//"}}),
            &[
                "service.name: Required value",
                "service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive",
                "service.path: Invalid value: \"a//\": must start with a '/'",
                "service.path: Invalid value: \"a//\": segment[0] may not be empty",
                "service.path: Invalid value: \"a//\": segment[1] may not be empty",
            ],
        );
        check(&value!({}), &["<nil>: Required value: exactly one of url or service is required"]);
    }
}

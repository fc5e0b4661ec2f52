//! Issuer URL validation.

use apimachinery::field::{Error, Errors};
use apimachinery::{Path, Str, go};

/// Returns all validation errors of an issuer URL.
pub(super) fn validate(url: &str, disallowed: &[Str], path: &Path<'_>) -> Errors {
    let mut errors = Errors::new();
    let mut wrong = |detail: String| errors.push(Error::invalid(path, url, detail));
    if disallowed.iter().any(|issuer| issuer == url) {
        let mut list: Vec<&str> = disallowed.iter().map(Str::as_str).collect();
        list.sort_unstable();
        list.dedup();
        wrong(format!("URL must not overlap with disallowed issuers: [{}]", list.join(" ")));
    }
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    if let Some(reason) = unreadable(rest) {
        wrong(format!("parse {}: {reason}", go::quote(url)));
        return errors;
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once("://").unwrap_or(("", rest));
    let authority = rest.split('/').next().unwrap_or_default();
    if !scheme.eq_ignore_ascii_case("https") {
        wrong("URL scheme must be https".to_owned());
    }
    if authority.contains('@') && !scheme.is_empty() {
        wrong("URL must not contain a username or password".to_owned());
    }
    if !query.is_empty() {
        wrong("URL must not contain a query".to_owned());
    }
    if !fragment.is_empty() {
        wrong("URL must not contain a fragment".to_owned());
    }
    errors
}

/// Returns Go's parse error of a URL.
fn unreadable(url: &str) -> Option<String> {
    if url.bytes().any(|c| c < b' ' || c == 0x7f) {
        return Some("net/url: invalid control character in URL".to_owned());
    }
    if url.starts_with(':') {
        return Some("missing protocol scheme".to_owned());
    }
    let host = url.split_once("://")?.1.split(['/', '?']).next().unwrap_or_default();
    let bad = host.chars().find(|c| matches!(c, ' ' | '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}'))?;
    Some(format!("invalid character {} in host name", go::quote(bad.encode_utf8(&mut [0; 4]))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issuer_is_an_https_url_without_query_and_fragment() {
        let check = |url: &str, expect: &[&str]| {
            let messages: Vec<_> = validate(url, &["https://own".into()], &Path::of("url"))
                .into_iter()
                .map(|error| error.detail)
                .collect();
            assert_eq!(messages, expect, "{url}");
        };
        check("https://issuer.example/path", &[]);
        check("http://issuer.example", &["URL scheme must be https"]);
        check("issuer.example", &["URL scheme must be https"]);
        check("https://user:pass@issuer.example", &["URL must not contain a username or password"]);
        check("https://issuer.example?a=b#c", &["URL must not contain a query", "URL must not contain a fragment"]);
        check("https://own", &["URL must not overlap with disallowed issuers: [https://own]"]);
        check("https://a b", &["parse \"https://a b\": invalid character \" \" in host name"]);
        check(":x", &["parse \":x\": missing protocol scheme"]);
    }
}

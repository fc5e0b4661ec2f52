//! Keys of a user's extra fields: a domain-prefixed path, which avoids collisions.

use apimachinery::field::{Error, Errors};
use apimachinery::{Path, names};

/// Returns all validation errors of a key.
pub(crate) fn validate(key: &str, path: &Path<'_>) -> Errors {
    if key.is_empty() {
        return vec![Error::required(path, "")];
    }
    let Some((host, rest)) = key.split_once('/').filter(|(host, rest)| !host.is_empty() && !rest.is_empty()) else {
        let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        return vec![Error::invalid(path, key, detail)];
    };
    let mut errors: Errors =
        names::dns1123_subdomain(host).into_iter().map(|wrong| Error::invalid(path, host, wrong)).collect();
    errors.extend(names::http_path(rest).into_iter().map(|wrong| Error::invalid(path, rest, wrong)));
    errors
}

/// Whether the key has a domain reserved for Kubernetes.
pub(crate) fn is_reserved(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    ["kubernetes.io", "k8s.io"]
        .iter()
        .any(|reserved| domain.strip_suffix(reserved).is_some_and(|before| before.is_empty() || before.ends_with('.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_keys_are_domain_prefixed_paths() {
        let check = |key: &str, expect: &str| {
            let messages: Vec<_> =
                validate(key, &Path::of("key")).iter().map(|error| error.body().to_string()).collect();
            assert!(
                messages.join("; ").starts_with(expect) && messages.is_empty() == expect.is_empty(),
                "{key}: {messages:?}"
            );
        };
        check("acme.io/foo", "");
        check("acme.io/a/b_c", "");
        check("", "Required value");
        check("foo", "Invalid value: \"foo\": must be a domain-prefixed path (such as \"acme.io/foo\")");
        check("acme.io/", "Invalid value: \"acme.io/\": must be a domain-prefixed path");
        check("Acme.io/a", "Invalid value: \"Acme.io\": a lowercase RFC 1123 subdomain");
        check("acme.io/a b", "Invalid value: \"a b\": Invalid path");
    }

    #[test]
    fn kubernetes_domains_are_reserved() {
        for (key, expect) in
            [("k8s.io/a", true), ("a.kubernetes.io/b", true), ("notk8s.io/a", false), ("k8s.io", false)]
        {
            assert_eq!(is_reserved(key), expect, "{key}");
        }
    }
}

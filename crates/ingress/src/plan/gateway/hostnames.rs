//! Host names of listeners and routes: the intersection of two patterns, and their specificity.

use crate::routing::HostPattern;

/// Parses a host name of the Gateway API, where a wildcard matches one or more labels. An empty name is any host.
pub(super) fn host_pattern(host: &str) -> HostPattern {
    let host = host.to_ascii_lowercase();
    match host.strip_prefix("*.") {
        Some(suffix) => HostPattern::Wildcard { suffix: suffix.to_owned(), many_labels: true },
        None if host.is_empty() => HostPattern::Any,
        None => HostPattern::Exact(host),
    }
}

/// Whether `pattern` includes every name of `other`.
pub(in crate::plan) fn covers(pattern: &HostPattern, other: &HostPattern) -> bool {
    match (pattern, other) {
        (HostPattern::Any, _) => true,
        (HostPattern::Wildcard { suffix, .. }, HostPattern::Exact(name)) => is_below(name, suffix),
        (HostPattern::Wildcard { suffix, .. }, HostPattern::Wildcard { suffix: other, .. }) => {
            suffix == other || is_below(other, suffix)
        }
        _ => pattern == other,
    }
}

/// Returns the names that both patterns include; `None` if there are none.
pub(super) fn intersection<'a>(one: &'a HostPattern, other: &'a HostPattern) -> Option<&'a HostPattern> {
    match () {
        () if covers(one, other) => Some(other),
        () if covers(other, one) => Some(one),
        () => None,
    }
}

/// Returns all patterns that include every name of `pattern`, the most specific first: itself, wildcards, any host.
pub(super) fn covering(pattern: &HostPattern) -> impl Iterator<Item = HostPattern> + use<'_> {
    let name = match pattern {
        HostPattern::Exact(name) | HostPattern::Wildcard { suffix: name, .. } => name.as_str(),
        HostPattern::Any => "",
    };
    let wildcards = name
        .match_indices('.')
        .map(|(at, _)| HostPattern::Wildcard { suffix: name[at + 1..].to_owned(), many_labels: true });
    let any = (*pattern != HostPattern::Any).then_some(HostPattern::Any);
    std::iter::once(pattern.clone()).chain(wildcards).chain(any)
}

fn is_below(name: &str, suffix: &str) -> bool {
    name.strip_suffix(suffix).is_some_and(|labels| labels.len() > 1 && labels.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_intersect_in_the_more_specific_one() {
        let check = |one: &str, other: &str, expect: Option<&str>| {
            let (one, other) = (host_pattern(one), host_pattern(other));
            let expect = expect.map(host_pattern);
            assert_eq!(intersection(&one, &other), expect.as_ref(), "{one:?} {other:?}");
            assert_eq!(intersection(&other, &one), expect.as_ref(), "{other:?} {one:?}");
        };
        check("", "", Some(""));
        check("", "a.test", Some("a.test"));
        check("", "*.a.test", Some("*.a.test"));
        check("a.test", "A.test", Some("a.test"));
        check("a.test", "b.test", None);
        check("*.test", "a.test", Some("a.test"));
        check("*.test", "b.a.test", Some("b.a.test"));
        check("*.test", "test", None);
        check("*.test", "a.atest", None);
        check("*.test", "*.a.test", Some("*.a.test"));
        check("*.a.test", "*.b.test", None);
        check("*.a.test", "a.test", None);
    }

    #[test]
    fn more_specific_patterns_precede_those_that_cover_them() {
        let check = |pattern: &str, expect: &[&str]| {
            let pattern = host_pattern(pattern);
            let found: Vec<_> = covering(&pattern).collect();
            assert_eq!(found, expect.iter().map(|one| host_pattern(one)).collect::<Vec<_>>());
            assert!(found.iter().all(|one| covers(one, &pattern)));
        };
        check("a.b.test", &["a.b.test", "*.b.test", "*.test", ""]);
        check("*.b.test", &["*.b.test", "*.test", ""]);
        check("test", &["test", ""]);
        check("", &[""]);
    }
}

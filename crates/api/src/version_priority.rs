//! Kubernetes version priority: the order of preference of API versions.

use std::cmp::Reverse;

use apimachinery::Str;

/// Returns a sort key that is greater for a preferred version: GA over beta over alpha over other versions, and newer
/// over older. Other versions are preferred in the order of their names.
pub fn version_priority(version: &str) -> (u8, u64, u64, Reverse<Str>) {
    let other = || (0, 0, 0, Reverse(version.into()));
    let Some((major, rest)) = version.strip_prefix('v').and_then(number) else { return other() };
    let (class, minor) = match rest {
        "" => (3, Some((0, ""))),
        _ => match rest.strip_prefix("beta") {
            Some(rest) => (2, number(rest)),
            None => (1, rest.strip_prefix("alpha").and_then(number)),
        },
    };
    match minor {
        Some((minor, "")) => (class, major, minor, Reverse(Str::default())),
        _ => other(),
    }
}

/// Splits off the leading number, which must not start with a zero.
fn number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if digits.starts_with('0') { None } else { Some((digits.parse().ok()?, rest)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_stability_and_number() {
        let mut versions =
            ["v1", "foo1", "v2beta1", "v10", "v1alpha2", "v11alpha2", "foo10", "v3beta1", "v12alpha1", "v2"];
        versions.sort_by_key(|version| Reverse(version_priority(version)));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v3beta1", "v2beta1", "v12alpha1", "v11alpha2", "v1alpha2", "foo1", "foo10"]
        );
    }
}

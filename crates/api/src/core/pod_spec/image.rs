//! Default image pull policy, derived from the tag of the image reference.

/// Maximum length of the image name without tag and digest.
const NAME_MAX: usize = 255;
/// Maximum length of a tag.
const TAG_MAX: usize = 128;
/// Minimum number of hexadecimal digits of a digest.
const DIGEST_MIN: usize = 32;

/// Returns `Always` for the tag `latest`, otherwise `IfNotPresent`.
pub(crate) fn default_pull_policy(image: &str) -> &'static str {
    if is_latest(image) { "Always" } else { "IfNotPresent" }
}

/// Whether the tag is `latest`, explicitly or because tag and digest are absent. A malformed name has no tag.
fn is_latest(image: &str) -> bool {
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    let (name, tag) = match rest.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (rest, None),
    };
    let well_formed = is_name(name) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest);
    well_formed && (tag == Some("latest") || tag.is_none() && digest.is_none())
}

fn is_name(name: &str) -> bool {
    let is_identifier = name.len() == 64 && name.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    if name.is_empty() || name.len() > NAME_MAX || is_identifier {
        return false;
    }
    let path = match name.split_once('/') {
        Some((domain, path)) if is_domain_like(domain) => {
            if !is_domain(domain) {
                return false;
            }
            path
        }
        _ => name,
    };
    path.split('/').all(is_component)
}

/// Whether the text before the first slash is a registry host.
fn is_domain_like(text: &str) -> bool {
    text.contains(['.', ':']) || text == "localhost" || text.to_lowercase() != text
}

fn is_domain(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_label = |label: &str| {
        let inner = label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
        !label.is_empty() && inner && !label.starts_with('-') && !label.ends_with('-')
    };
    let is_v6 = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .is_some_and(|inner| !inner.is_empty() && inner.bytes().all(|c| c.is_ascii_hexdigit() || c == b':'));
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|c| c.is_ascii_digit());
    (is_v6 || host.split('.').all(is_label)) && port.is_none_or(is_port)
}

/// Whether the text is a path component: lower case letters and digits, with `.`, `_`, `__` or any number of `-`
/// between them.
fn is_component(text: &str) -> bool {
    let is_word = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = text.as_bytes();
    if !bytes.first().is_some_and(|c| is_word(*c)) || !bytes.last().is_some_and(|c| is_word(*c)) {
        return false;
    }
    let separators = text.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit()).filter(|run| !run.is_empty());
    separators.into_iter().all(|run| matches!(run, "." | "_" | "__") || run.bytes().all(|c| c == b'-'))
}

fn is_tag(text: &str) -> bool {
    let is_word = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
    let bytes = text.as_bytes();
    let rest = bytes.iter().all(|c| is_word(*c) || matches!(c, b'.' | b'-'));
    bytes.len() <= TAG_MAX && bytes.first().is_some_and(|c| is_word(*c)) && rest
}

fn is_digest(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else { return false };
    let is_component = |component: &str| {
        component.bytes().next().is_some_and(|c| c.is_ascii_alphabetic())
            && component.bytes().all(|c| c.is_ascii_alphanumeric())
    };
    let is_hex = hex.len() >= DIGEST_MIN && hex.bytes().all(|c| c.is_ascii_hexdigit());
    algorithm.split(['-', '_', '+', '.']).all(is_component) && is_hex
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_with_latest_tag_is_always_pulled() {
        let check = |image: &str, policy: &str| assert_eq!(default_pull_policy(image), policy, "{image}");
        check("busybox", "Always");
        check("busybox:latest", "Always");
        check("busybox:1.36", "IfNotPresent");
        check("registry.example:5000/app", "Always");
        check("registry.example:5000/team/app:v1", "IfNotPresent");
        check("localhost/app_x", "Always");
        check("[fe80::1]:5000/app", "Always");
        check(&format!("busybox@sha256:{}", "a".repeat(64)), "IfNotPresent");
        check(&format!("busybox:latest@sha256:{}", "a".repeat(64)), "Always");
    }

    #[test]
    fn malformed_image_name_has_no_tag() {
        for image in [
            "",
            "Not Valid!",
            "Busybox",
            "a//b",
            "-a",
            "a..b",
            "a:latest:",
            "a@sha256:1",
            &"a".repeat(64),
            &"a".repeat(256),
        ] {
            assert_eq!(default_pull_policy(image), "IfNotPresent", "{image}");
        }
    }
}

//! Validation of names, label keys and values, and other strings of the Kubernetes API.
//!
//! Each function returns all errors of a text with upstream's messages; none if the text is valid. The regular
//! expressions appear only in messages: the checks walk the bytes once.

mod address;

pub use address::{cidr, ip, ipv4, ipv6, parse_cidr, parse_ip};

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

const LABEL_MAX: usize = 63;
const SUBDOMAIN_MAX: usize = 253;

/// Validates an RFC 1123 DNS label: a namespace, most names that become host names.
pub fn dns1123_label(value: &str) -> Vec<String> {
    let mut wrong = too_long(value, LABEL_MAX, "characters");
    if !is_label(value) {
        wrong.push(if is_subdomain(value) {
            "must not contain dots".to_owned()
        } else {
            mismatch(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                LABEL,
                &["my-name", "123-abc"],
            )
        });
    }
    wrong
}

/// Validates an RFC 1123 DNS subdomain: the name of most objects.
pub fn dns1123_subdomain(value: &str) -> Vec<String> {
    subdomain_in(value, "characters")
}

/// Validates an RFC 1035 DNS label, which starts with a letter: the name of a Service.
pub fn dns1035_label(value: &str) -> Vec<String> {
    let mut wrong = too_long(value, LABEL_MAX, "characters");
    if !(is_label(value) && value.as_bytes()[0].is_ascii_lowercase()) {
        wrong.push(mismatch(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    wrong
}

/// Validates `*.` and a DNS subdomain: the host of an Ingress rule.
pub fn wildcard_dns1123_subdomain(value: &str) -> Vec<String> {
    let mut wrong = too_long(value, SUBDOMAIN_MAX, "characters");
    if !value.strip_prefix("*.").is_some_and(is_subdomain) {
        wrong.push(mismatch(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            &format!(r"\*\.{SUBDOMAIN}"),
            &["*.example.com"],
        ));
    }
    wrong
}

/// Validates a DNS subdomain whose labels may contain and begin with `_`.
pub fn dns1123_subdomain_with_underscore(value: &str) -> Vec<String> {
    const COMPONENT: &str = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
    let is_part = |part: &str| {
        let part = part.strip_prefix('_').unwrap_or(part);
        is_framed(part, |c| c.is_ascii_lowercase() || c.is_ascii_digit(), b"-_")
    };
    let mut wrong = too_long(value, SUBDOMAIN_MAX, "characters");
    if !value.split('.').all(is_part) {
        wrong.push(mismatch(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character",
            &format!(r"{COMPONENT}(\.{COMPONENT})*"),
            &["example.com"],
        ));
    }
    wrong
}

/// Validates a label or annotation key, a finalizer or a condition type: a name with an optional subdomain before a
/// slash.
pub fn qualified_name(value: &str) -> Vec<String> {
    const RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
    let rule = || mismatch(RULE, QUALIFIED, &["MyName", "my.name", "123-abc"]);
    let mut wrong = Vec::new();
    let name = match value.split_once('/') {
        None => value,
        Some((_, name)) if name.contains('/') => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                rule()
            )];
        }
        Some(("", name)) => {
            wrong.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) => {
            wrong.extend(subdomain_in(prefix, "bytes").into_iter().map(|message| format!("prefix part {message}")));
            name
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    }
    wrong.extend(too_long(name, LABEL_MAX, "bytes").into_iter().map(|message| format!("name part {message}")));
    if !is_qualified(name) {
        wrong.push(format!("name part {}", rule()));
    }
    wrong
}

pub fn label_value(value: &str) -> Vec<String> {
    let mut wrong = too_long(value, LABEL_MAX, "bytes");
    if !value.is_empty() && !is_qualified(value) {
        wrong.push(mismatch(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            &format!("({QUALIFIED})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    wrong
}

/// Validates a URL path segment, the only requirement for names of RBAC objects.
pub fn path_segment(value: &str) -> Vec<String> {
    match value {
        "." | ".." => vec![format!("may not be '{value}'")],
        _ => path_segment_prefix(value),
    }
}

/// Validates the prefix of a URL path segment.
pub fn path_segment_prefix(value: &str) -> Vec<String> {
    ["/", "%"].iter().filter(|bad| value.contains(**bad)).map(|bad| format!("may not contain '{bad}'")).collect()
}

pub fn port_number(port: i64) -> Vec<String> {
    in_range(port, 1, 65535)
}

/// Validates a Unix UID or GID.
pub fn user_id(id: i64) -> Vec<String> {
    in_range(id, 0, u32::MAX.into())
}

/// Validates that `low <= value <= high`.
pub fn in_range(value: i64, low: i64, high: i64) -> Vec<String> {
    if (low..=high).contains(&value) {
        Vec::new()
    } else {
        vec![format!("must be between {low} and {high}, inclusive")]
    }
}

/// Validates a port name such as `http`.
pub fn port_name(value: &str) -> Vec<String> {
    let mut wrong = too_long(value, 15, "characters");
    let is_part = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    if value.is_empty() || !value.bytes().all(is_part) {
        wrong.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !value.bytes().any(|c| c.is_ascii_lowercase()) {
        wrong.push("must contain at least one letter (a-z)".to_owned());
    }
    if value.contains("--") {
        wrong.push("must not contain consecutive hyphens".to_owned());
    }
    if value.starts_with('-') || value.ends_with('-') {
        wrong.push("must not begin or end with a hyphen".to_owned());
    }
    wrong
}

/// Validates a percentage such as `93%`.
pub fn percent(value: &str) -> Vec<String> {
    let number = value.strip_suffix('%');
    if number.is_some_and(|number| !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit())) {
        return Vec::new();
    }
    vec![mismatch(
        "a valid percent string must be a numeric string followed by an ending '%'",
        "[0-9]+%",
        &["1%", "93%"],
    )]
}

pub fn http_header_name(value: &str) -> Vec<String> {
    if !value.is_empty() && value.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-') {
        return Vec::new();
    }
    vec![mismatch(
        "a valid HTTP header must consist of alphanumeric characters or '-'",
        "[-A-Za-z0-9]+",
        &["X-Header-Name"],
    )]
}

/// Validates the characters of a URL path.
pub fn http_path(value: &str) -> Vec<String> {
    let is_part = |c: u8| c.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&c);
    if !value.is_empty() && value.bytes().all(is_part) {
        return Vec::new();
    }
    vec![mismatch("Invalid path", r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", &[])]
}

/// Validates an environment variable name by the strict rule.
pub fn env_var_name(value: &str) -> Vec<String> {
    let is_part = |c: u8| c.is_ascii_alphanumeric() || b"-._".contains(&c);
    let mut wrong = Vec::new();
    if value.is_empty() || value.as_bytes()[0].is_ascii_digit() || !value.bytes().all(is_part) {
        wrong.push(mismatch(
            "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not start with a digit",
            "[-._a-zA-Z][-._a-zA-Z0-9]*",
            &["my.env-name", "MY_ENV.NAME", "MyEnvName1"],
        ));
    }
    wrong.extend(parent_directory(value));
    wrong
}

/// Validates an environment variable name by the relaxed rule for containers, in effect since 1.34.
pub fn relaxed_env_var_name(value: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if value.is_empty() {
        wrong.push("environment variable name must be non-empty".to_owned());
    }
    if !value.bytes().all(|c| matches!(c, b' '..=b'~') && c != b'=') {
        wrong.push(
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
                .to_owned(),
        );
    }
    wrong
}

/// Validates a key of a ConfigMap or Secret, which becomes a file name.
pub fn config_map_key(value: &str) -> Vec<String> {
    let mut wrong = too_long(value, SUBDOMAIN_MAX, "characters");
    if value.is_empty() || !value.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._".contains(&c)) {
        wrong.push(mismatch(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    wrong.extend(parent_directory(value));
    wrong
}

pub fn c_identifier(value: &str) -> Vec<String> {
    let is_start = |c: u8| c.is_ascii_alphabetic() || c == b'_';
    let mut bytes = value.bytes();
    if bytes.next().is_some_and(is_start) && bytes.all(|c| is_start(c) || c.is_ascii_digit()) {
        return Vec::new();
    }
    vec![mismatch(
        "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'",
        "[A-Za-z_][A-Za-z0-9_]*",
        &["my_name", "MY_NAME", "MyName"],
    )]
}

/// Returns the message for a text that does not match a regular expression.
pub fn mismatch(rule: &str, regex: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{rule} (regex used for validation is '{regex}')");
    }
    let examples: Vec<_> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{rule} (e.g. {}regex used for validation is '{regex}')", examples.join(" or "))
}

fn too_long(value: &str, max: usize, unit: &str) -> Vec<String> {
    if value.len() > max { vec![format!("must be no more than {max} {unit}")] } else { Vec::new() }
}

fn subdomain_in(value: &str, unit: &str) -> Vec<String> {
    let mut wrong = too_long(value, SUBDOMAIN_MAX, unit);
    if !is_subdomain(value) {
        wrong.push(mismatch(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
            SUBDOMAIN,
            &["example.com"],
        ));
    }
    wrong
}

fn parent_directory(value: &str) -> Option<String> {
    match value {
        "." | ".." => Some(format!("must not be '{value}'")),
        _ => value.starts_with("..").then(|| "must not start with '..'".to_owned()),
    }
}

fn is_label(value: &str) -> bool {
    is_framed(value, |c| c.is_ascii_lowercase() || c.is_ascii_digit(), b"-")
}

fn is_subdomain(value: &str) -> bool {
    value.split('.').all(is_label)
}

fn is_qualified(value: &str) -> bool {
    is_framed(value, |c| c.is_ascii_alphanumeric(), b"-_.")
}

/// Whether the first and the last byte are `outer` and those between are `outer` or one of `inner`.
fn is_framed(value: &str, outer: impl Fn(u8) -> bool, inner: &[u8]) -> bool {
    let bytes = value.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            outer(*first) && outer(*last) && bytes.iter().all(|byte| outer(*byte) || inner.contains(byte))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;

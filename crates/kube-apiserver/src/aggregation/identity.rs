//! Request-header identity: X-Remote-* headers that extension API servers trust because of the proxy client
//! certificate.

use auth::User;
use http::header::{HeaderMap, HeaderName, HeaderValue};

const USER: HeaderName = HeaderName::from_static("x-remote-user");
const UID: HeaderName = HeaderName::from_static("x-remote-uid");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const EXTRA_PREFIX: &str = "x-remote-extra-";

/// Adds the X-Remote-* headers of `user`. The headers must not contain any of them yet.
///
/// # Errors
/// A name contains characters that are invalid in a header. Omitting the name would change the identity of the request.
pub(super) fn show(headers: &mut HeaderMap, user: &User) -> Result<(), http::Error> {
    add(headers, &USER, &user.name)?;
    if !user.uid.is_empty() {
        add(headers, &UID, &user.uid)?;
    }
    for group in &user.groups {
        add(headers, &GROUP, group)?;
    }
    for (key, values) in &user.extra {
        let name = HeaderName::try_from(format!("{EXTRA_PREFIX}{}", escape(key)))?;
        for value in values {
            add(headers, &name, value)?;
        }
    }
    Ok(())
}

fn add(headers: &mut HeaderMap, name: &HeaderName, value: &str) -> Result<(), http::Error> {
    headers.append(name, HeaderValue::from_str(value)?);
    Ok(())
}

/// Percent-encodes the characters of an extra key that are invalid in a header name.
fn escape(key: &str) -> String {
    let mut out = String::with_capacity(key.len());
    for byte in key.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'A'..=b'Z' => out.push(char::from(byte)),
            b'!' | b'#' | b'$' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~' => {
                out.push(char::from(byte));
            }
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_name_uid_groups_and_extra_are_sent_as_headers() {
        let mut user =
            User { name: "ann".into(), uid: "7".into(), groups: vec!["a".into(), "b".into()], ..User::default() };
        user.extra.insert("example.com/scope".into(), vec!["x".into(), "y".into()]);
        let mut headers = HeaderMap::new();
        show(&mut headers, &user).unwrap();
        let mut actual: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        actual.sort();
        assert_eq!(
            actual,
            [
                "x-remote-extra-example.com%2fscope: x",
                "x-remote-extra-example.com%2fscope: y",
                "x-remote-group: a",
                "x-remote-group: b",
                "x-remote-uid: 7",
                "x-remote-user: ann",
            ]
        );
    }

    #[test]
    fn user_name_that_is_not_a_valid_header_value_is_an_error() {
        let user = User { name: "ann\nx-remote-group: system:masters".into(), ..User::default() };
        assert!(show(&mut HeaderMap::new(), &user).is_err());
        let named = User { name: "jörg".into(), ..User::default() };
        let mut headers = HeaderMap::new();
        show(&mut headers, &named).unwrap();
        assert_eq!(headers["x-remote-user"].as_bytes(), "jörg".as_bytes());
    }
}

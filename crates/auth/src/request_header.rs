//! Request header authentication: a front proxy with a client certificate passes the user in headers.

use apimachinery::Str;

use crate::User;
use crate::escape::unescape;

/// The trusted proxies and their headers (`--requestheader-*`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Allowed common names of the proxy's certificate; empty for any certificate of the proxy CA.
    pub allowed_names: Vec<Str>,
    /// Headers with the user name. The first non-empty one is used.
    pub username_headers: Vec<Str>,
    /// Headers with the UID. The first non-empty one is used.
    pub uid_headers: Vec<Str>,
    /// Headers with the groups.
    pub group_headers: Vec<Str>,
    /// Prefixes of headers with extra fields. The rest of the header name is the key.
    pub extra_header_prefixes: Vec<Str>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The common name is not allowed.
    #[error("x509: subject with cn={0} is not in the allowed list")]
    Name(Str),
    #[error("empty header {0:?}")]
    EmptyHeader(Str),
}

impl Config {
    /// Trims the header names and rejects empty ones, which would match every header.
    pub fn normalize(mut self) -> Result<Self, Error> {
        let lists = [
            &mut self.username_headers,
            &mut self.uid_headers,
            &mut self.group_headers,
            &mut self.extra_header_prefixes,
        ];
        for name in lists.into_iter().flatten() {
            let trimmed = Str::from(name.trim());
            if trimmed.is_empty() {
                return Err(Error::EmptyHeader(name.clone()));
            }
            *name = trimmed;
        }
        Ok(self)
    }

    /// Returns the user in the headers; `None` if no header has a user name. The proxy's certificate with this common
    /// name must already be verified against the proxy CA.
    pub fn authenticate(&self, common_name: &str, headers: &[(&str, &str)]) -> Result<Option<User>, Error> {
        if !self.allowed_names.is_empty() && !self.allowed_names.iter().any(|allowed| allowed == common_name) {
            return Err(Error::Name(common_name.into()));
        }
        let Some(name) = first(headers, &self.username_headers) else { return Ok(None) };
        let groups = self.group_headers.iter().flat_map(|header| values(headers, header)).map(Str::from);
        let mut user = User {
            uid: first(headers, &self.uid_headers).unwrap_or_default().into(),
            ..User::authenticated(name, groups)
        };
        for prefix in &self.extra_header_prefixes {
            for (name, value) in headers {
                if let Some(key) = strip_prefix(name, prefix) {
                    user = user.with_extra(&unescape(&key.to_ascii_lowercase()), *value);
                }
            }
        }
        Ok(Some(user))
    }

    /// Whether a header is an identity header, which must be removed before the request is forwarded.
    pub fn owns(&self, header: &str) -> bool {
        let named = [&self.username_headers, &self.uid_headers, &self.group_headers];
        named.into_iter().flatten().any(|name| name.eq_ignore_ascii_case(header))
            || self.extra_header_prefixes.iter().any(|prefix| strip_prefix(header, prefix).is_some())
    }
}

/// Returns the first non-empty value of the named headers, in the order of `names`.
fn first<'h>(headers: &[(&str, &'h str)], names: &[Str]) -> Option<&'h str> {
    let of_header =
        |name: &Str| headers.iter().find(|(have, _)| name.eq_ignore_ascii_case(have)).map(|(_, value)| *value);
    names.iter().filter_map(of_header).find(|value| !value.is_empty())
}

fn values<'h>(headers: &'h [(&str, &str)], name: &str) -> impl Iterator<Item = &'h str> {
    let name = name.to_owned();
    headers
        .iter()
        .filter(move |(have, value)| name.eq_ignore_ascii_case(have) && !value.is_empty())
        .map(|(_, value)| *value)
}

/// Strips a prefix case-insensitively.
pub(crate) fn strip_prefix<'a>(name: &'a str, prefix: &str) -> Option<&'a str> {
    let (head, rest) = name.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let config = Config {
            allowed_names: vec!["front-proxy-client".into()],
            username_headers: vec!["X-Remote-User".into(), " X-Other ".into()],
            uid_headers: vec!["X-Remote-Uid".into()],
            group_headers: vec!["X-Remote-Group".into()],
            extra_header_prefixes: vec!["X-Remote-Extra-".into()],
        };
        config.normalize().unwrap()
    }

    #[test]
    fn proxy_authenticates_the_user_in_its_headers() {
        let headers = [
            ("x-remote-user", ""),
            ("x-other", "eve"),
            ("X-Remote-Uid", "u1"),
            ("X-Remote-Group", "a"),
            ("x-remote-group", ""),
            ("x-remote-group", "b"),
            ("X-Remote-Extra-Acme.com%2FProject", "p1"),
            ("x-remote-extra-acme.com%2fproject", "p2"),
            ("Accept", "*/*"),
        ];
        let user = config().authenticate("front-proxy-client", &headers).unwrap().unwrap();
        let expect = User { uid: "u1".into(), ..User::authenticated("eve", ["a".into(), "b".into()]) }
            .with_extra("acme.com/project", "p1")
            .with_extra("acme.com/project", "p2");
        assert_eq!(user, expect);
        let owned: Vec<_> = headers.iter().filter(|(name, _)| config().owns(name)).collect();
        assert_eq!(owned.len(), headers.len() - 1);
    }

    #[test]
    fn proxy_without_a_user_header_authenticates_no_user() {
        assert_eq!(config().authenticate("front-proxy-client", &[("X-Remote-Group", "system:masters")]), Ok(None));
    }

    #[test]
    fn other_common_names_are_not_trusted() {
        let message = config().authenticate("eve", &[("X-Remote-User", "root")]).unwrap_err().to_string();
        assert_eq!(message, "x509: subject with cn=eve is not in the allowed list");
        let any = Config { allowed_names: Vec::new(), ..config() };
        assert!(any.authenticate("whoever", &[("X-Remote-User", "root")]).unwrap().is_some());
        let empty = Config { group_headers: vec![" ".into()], ..config() };
        assert_eq!(empty.normalize(), Err(Error::EmptyHeader(" ".into())));
    }
}

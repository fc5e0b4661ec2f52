//! What auditing needs to know of a request.

use std::collections::BTreeMap;
use std::net::IpAddr;

use machinery::Str;

/// The header in which a client names its request, and in which the answer tells the name.
pub const AUDIT_ID_HEADER: &str = "Audit-ID";

/// A request as an audit policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// Who asks.
    pub user: &'a User,
    /// The API verb, or the HTTP method in lower case for a path.
    pub verb: &'a str,
    /// What it is about.
    pub target: Target<'a>,
}

/// What a request is about; empty strings are the core group, no subresource, no namespace, no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// An API resource.
    Resource {
        /// Its API group.
        group: &'a str,
        /// The version of the group.
        version: &'a str,
        /// Its plural name.
        resource: &'a str,
        /// The part of it that is meant.
        subresource: &'a str,
        /// The namespace.
        namespace: &'a str,
        /// The one object that is meant.
        name: &'a str,
    },
    /// A path that is no resource, such as `/healthz`.
    Path(&'a str),
}

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub username: Str,
    /// A mark that outlives a change of name.
    pub uid: Str,
    /// The groups.
    pub groups: Vec<Str>,
    /// What else the authenticator knows.
    pub extra: BTreeMap<Str, Vec<Str>>,
}

/// Where a request came from: what proxies say in `X-Forwarded-For` and `X-Real-Ip`, which anybody can claim, and last who
/// is connected.
pub fn source_ips(forwarded_for: &str, real_ip: &str, connected: Option<IpAddr>) -> Vec<Str> {
    let parse = |text: &str| text.parse::<IpAddr>().ok();
    let mut ips: Vec<IpAddr> = forwarded_for.split(',').filter_map(|part| parse(part.trim())).collect();
    ips.extend(parse(real_ip).filter(|ip| !ips.contains(ip)));
    ips.extend(connected.filter(|ip| ips.last() != Some(ip)));
    ips.iter().map(|ip| Str::from(ip.to_canonical().to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_come_before_who_is_connected() {
        let check = |forwarded_for: &str, real_ip: &str, connected: Option<&str>, expect: &[&str]| {
            let connected = connected.map(|ip| ip.parse().unwrap());
            assert_eq!(source_ips(forwarded_for, real_ip, connected), expect);
        };
        check("", "", Some("10.0.0.1"), &["10.0.0.1"]);
        check("1.1.1.1, 2.2.2.2,junk", "", Some("10.0.0.1"), &["1.1.1.1", "2.2.2.2", "10.0.0.1"]);
        check("1.1.1.1", "2.2.2.2", Some("2.2.2.2"), &["1.1.1.1", "2.2.2.2"]);
        check("1.1.1.1,2.2.2.2", "1.1.1.1", None, &["1.1.1.1", "2.2.2.2"]);
        check("", "::ffff:1.2.3.4", Some("fe80::1"), &["1.2.3.4", "fe80::1"]);
    }
}

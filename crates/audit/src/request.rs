//! Request attributes for auditing.

use std::collections::BTreeMap;
use std::net::IpAddr;

use apimachinery::Str;

/// The header with a client-supplied audit ID, which is also set in the response.
pub const AUDIT_ID_HEADER: &str = "Audit-ID";

/// A request as an audit policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    pub user: &'a User,
    /// The API verb, or the HTTP method in lower case for a non-resource path.
    pub verb: &'a str,
    pub target: Target<'a>,
}

/// The target of a request. Empty strings mean the core group, no subresource, no namespace or no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// An API resource.
    Resource {
        group: &'a str,
        version: &'a str,
        /// The plural name.
        resource: &'a str,
        subresource: &'a str,
        namespace: &'a str,
        name: &'a str,
    },
    /// A non-resource path, such as `/healthz`.
    Path(&'a str),
}

/// A user as recorded in events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub username: Str,
    pub uid: Str,
    pub groups: Vec<Str>,
    /// Additional attributes from the authenticator.
    pub extra: BTreeMap<Str, Vec<Str>>,
}

/// Returns the source addresses of a request: `X-Forwarded-For` and `X-Real-Ip`, which any client can forge, then the
/// connection's remote address.
pub fn source_ips(forwarded_for: &str, real_ip: &str, connected: Option<IpAddr>) -> Vec<Str> {
    let parse = |text: &str| text.parse::<IpAddr>().ok();
    let mut ips: Vec<IpAddr> = forwarded_for.split(',').filter_map(|address| parse(address.trim())).collect();
    ips.extend(parse(real_ip).filter(|ip| !ips.contains(ip)));
    ips.extend(connected.filter(|ip| ips.last() != Some(ip)));
    ips.iter().map(|ip| Str::from(ip.to_canonical().to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_addresses_precede_the_remote_address() {
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

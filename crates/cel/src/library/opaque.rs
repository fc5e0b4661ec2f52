//! Values of library types.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use apimachinery::quantity::Quantity;

use super::authorizer::{Check, Decision, Principal};
use super::cidr::Cidr;
use super::format::NamedFormat;
use super::semver::Semver;
use super::url::Url;

/// A value of a library type.
#[derive(Clone, Debug)]
pub enum Opaque {
    Ip(IpAddr),
    Cidr(Cidr),
    Url(Arc<Url>),
    Quantity(Arc<Quantity>),
    Semver(Arc<Semver>),
    Format(&'static NamedFormat),
    /// The subject of authorization checks.
    Authorizer(Arc<Principal>),
    /// A pending check for a non-resource path.
    PathCheck(Arc<Check>),
    /// A pending check for an API group.
    GroupCheck(Arc<Check>),
    /// A pending check for a resource.
    ResourceCheck(Arc<Check>),
    /// The result of a check.
    Decision(Arc<Decision>),
}

const SHORT: [(&str, &str); 11] = [
    ("IP", "net.IP"),
    ("CIDR", "net.CIDR"),
    ("URL", "kubernetes.URL"),
    ("Quantity", "kubernetes.Quantity"),
    ("Semver", "kubernetes.Semver"),
    ("Format", "kubernetes.NamedFormat"),
    ("Authorizer", "kubernetes.authorization.Authorizer"),
    ("PathCheck", "kubernetes.authorization.PathCheck"),
    ("GroupCheck", "kubernetes.authorization.GroupCheck"),
    ("ResourceCheck", "kubernetes.authorization.ResourceCheck"),
    ("Decision", "kubernetes.authorization.Decision"),
];

/// The full names of the library types.
pub const NAMES: [&str; 11] = {
    let mut names = [""; 11];
    let mut at = 0;
    while at < names.len() {
        names[at] = SHORT[at].1;
        at += 1;
    }
    names
};

/// Returns the full name of a type that signatures abbreviate.
pub fn short(name: &str) -> Option<&'static str> {
    SHORT.iter().find(|(short, _)| *short == name).map(|(_, full)| *full)
}

impl Opaque {
    /// Returns the full name of the value's type.
    pub const fn type_name(&self) -> &'static str {
        NAMES[match self {
            Self::Ip(_) => 0,
            Self::Cidr(_) => 1,
            Self::Url(_) => 2,
            Self::Quantity(_) => 3,
            Self::Semver(_) => 4,
            Self::Format(_) => 5,
            Self::Authorizer(_) => 6,
            Self::PathCheck(_) => 7,
            Self::GroupCheck(_) => 8,
            Self::ResourceCheck(_) => 9,
            Self::Decision(_) => 10,
        }]
    }

    /// Returns the number of bytes of an address, on which the cost of comparing addresses depends.
    pub const fn size(&self) -> Option<usize> {
        match self {
            Self::Ip(address) | Self::Cidr(Cidr { address, .. }) => Some(if address.is_ipv4() { 4 } else { 16 }),
            _ => None,
        }
    }
}

impl PartialEq for Opaque {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ip(a), Self::Ip(b)) => a == b,
            (Self::Cidr(a), Self::Cidr(b)) => a == b,
            (Self::Url(a), Self::Url(b)) => a == b,
            (Self::Quantity(a), Self::Quantity(b)) => a == b,
            (Self::Semver(a), Self::Semver(b)) => a == b,
            (Self::Format(a), Self::Format(b)) => a.name == b.name,
            (Self::Authorizer(a), Self::Authorizer(b)) => Arc::ptr_eq(a, b),
            (Self::PathCheck(a), Self::PathCheck(b))
            | (Self::GroupCheck(a), Self::GroupCheck(b))
            | (Self::ResourceCheck(a), Self::ResourceCheck(b)) => Arc::ptr_eq(a, b),
            (Self::Decision(a), Self::Decision(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl fmt::Display for Opaque {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => write!(out, "ip(\"{address}\")"),
            Self::Cidr(cidr) => write!(out, "cidr(\"{cidr}\")"),
            Self::Url(url) => write!(out, "url(\"{url}\")"),
            Self::Quantity(quantity) => write!(out, "quantity(\"{quantity}\")"),
            Self::Semver(semver) => write!(out, "semver(\"{semver}\")"),
            Self::Format(format) => write!(out, "format({:?})", format.name),
            other => out.write_str(other.type_name()),
        }
    }
}

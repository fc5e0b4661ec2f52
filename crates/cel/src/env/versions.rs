//! Which library came with which version of Kubernetes.

use super::{Env, Strictness};
use crate::library::Library;

/// A version of Kubernetes, `1.36` being 36.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u16);

/// The environments of one host: expressions being written may use what the previous version of the server knows as
/// well, so that a roll back finds nothing it cannot read; stored ones may use everything.
#[derive(Clone, Debug)]
pub struct EnvSet {
    /// For expressions that are being written.
    pub new: Env,
    /// For expressions that were written before.
    pub stored: Env,
}

/// The first version each library is in. Those that are not here belong to a host, or to none of Kubernetes'.
const SINCE: [(Library, Version); 18] = [
    (Library::Standard, Version(0)),
    (Library::Strings, Version(0)),
    (Library::Url, Version(0)),
    (Library::Regex, Version(0)),
    (Library::Lists, Version(0)),
    (Library::Authorizer, Version(27)),
    (Library::CrossTypeNumeric, Version(28)),
    (Library::Optional, Version(28)),
    (Library::Quantity, Version(28)),
    (Library::StringsFormat, Version(29)),
    (Library::Sets, Version(29)),
    (Library::Ip, Version(30)),
    (Library::Cidr, Version(30)),
    (Library::Format, Version(31)),
    (Library::AuthorizerSelectors, Version(31)),
    (Library::TwoVariables, Version(32)),
    (Library::Semver, Version(33)),
    (Library::ListsExtended, Version(34)),
];

impl Version {
    /// What this server is.
    pub const CURRENT: Self = Self(36);
    /// What a roll back may lead to.
    pub const COMPATIBLE: Self = Self(35);
}

impl EnvSet {
    /// The environments of a server that is compatible with `version`.
    pub fn base(version: Version) -> Self {
        let with = |latest: Version| {
            let known = SINCE.iter().filter(|(_, since)| *since <= latest);
            known.fold(Env::new(Strictness::Kubernetes), |env, (library, _)| env.with_library(*library))
        };
        Self { new: with(version), stored: with(Version(u16::MAX)) }
    }

    /// Extends both.
    #[must_use]
    pub fn map(self, extend: impl Fn(Env) -> Env) -> Self {
        Self { new: extend(self.new), stored: extend(self.stored) }
    }
}

impl Default for EnvSet {
    fn default() -> Self {
        Self::base(Version::COMPATIBLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_uses_only_what_the_version_has() {
        let check = |version: u16, expression: &str, new: bool| {
            let set = EnvSet::base(Version(version));
            assert_eq!(set.new.compile(expression).is_ok(), new, "{expression} at 1.{version}");
            assert!(set.stored.compile(expression).is_ok(), "stored {expression}");
        };
        check(28, "'a'.format([])", false);
        check(29, "'a'.format([])", true);
        check(27, "optional.none()", false);
        check(28, "optional.none()", true);
        check(29, "isIP('::1')", false);
        check(30, "isIP('::1')", true);
        check(33, "[2, 1].sort()", false);
        check(34, "[2, 1].sort()", true);
        check(31, "[1].all(i, v, v > i)", false);
        check(32, "[1].all(i, v, v > i)", true);
        check(27, "1 < 2.0", false);
        check(28, "1 < 2.0", true);
    }

    #[test]
    fn what_no_server_has_is_refused() {
        for expression in [
            "math.ceil(1.0)",
            "base64.encode(b'a')",
            "cel.bind(x, 1, x)",
            "'abc'.reverse()",
            "jsonpatch.escapeKey('a/b')",
        ] {
            assert!(EnvSet::default().stored.compile(expression).is_err(), "{expression}");
        }
    }
}

//! The Kubernetes version that introduced each CEL library.

use super::{Env, Strictness};
use crate::library::Library;

/// A minor version of Kubernetes: 36 is `1.36`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u16);

/// The environments of one expression context. New expressions may use only what the previous server version also
/// supports, so that a rollback finds no expression it cannot compile. Stored expressions may use everything.
#[derive(Clone, Debug)]
pub struct EnvSet {
    /// For new expressions.
    pub new: Env,
    /// For stored expressions.
    pub stored: Env,
}

/// The first version of each library. Libraries that are not listed are specific to one expression context, or not used
/// by Kubernetes.
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
    /// The version of this server.
    pub const CURRENT: Self = Self(36);
    /// The version to which a rollback is supported.
    pub const COMPATIBLE: Self = Self(35);
}

impl EnvSet {
    /// Returns the environments of a server that is compatible with `version`.
    pub fn base(version: Version) -> Self {
        let with = |latest: Version| {
            let known = SINCE.iter().filter(|(_, since)| *since <= latest);
            known.fold(Env::new(Strictness::Kubernetes), |env, (library, _)| env.with_library(*library))
        };
        Self { new: with(version), stored: with(Version(u16::MAX)) }
    }

    /// Extends both environments.
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
    fn new_expressions_use_only_libraries_of_the_compatible_version() {
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
    fn unsupported_libraries_are_rejected() {
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

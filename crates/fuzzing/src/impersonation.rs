//! Impersonation headers: such a request never runs with its sender's own permissions, nor without an authorization.
//!
//! The input is one header per line, `name: value`.

use auth::impersonation::{Gate, Trial, owns, target_user};
use auth::{Attributes, Decision, Target, User, headers};

/// Parses headers and checks the properties that hold for any input.
pub fn check(input: &[u8]) {
    let lines = input.split(|byte| *byte == b'\n').filter_map(|line| {
        let at = line.iter().position(|byte| *byte == b':')?;
        let name = std::str::from_utf8(&line[..at]).ok()?;
        Some((name, line[at + 1..].trim_ascii()))
    });
    let lines: Vec<(&str, &[u8])> = lines.collect();
    let unreadable = lines.iter().any(|(name, value)| owns(name) && std::str::from_utf8(value).is_err());
    assert_eq!(headers::check(lines.iter().copied(), owns).is_err(), unreadable);
    if unreadable {
        return;
    }
    let pairs = headers::pairs(lines.iter().copied());
    let impersonates = pairs.iter().any(|(name, value)| owns(name) && !value.is_empty());
    let Ok(found) = target_user(&pairs) else {
        assert!(pairs.iter().any(|(name, _)| owns(name)), "no impersonation was requested: {pairs:?}");
        return;
    };
    let Some(user) = found else {
        let first = pairs.iter().find(|(name, _)| name.eq_ignore_ascii_case("impersonate-user"));
        assert!(
            !impersonates || first.is_some_and(|(_, value)| value.is_empty()),
            "the sender's own permissions are used: {pairs:?}"
        );
        return;
    };
    assert!(pairs.iter().any(|(name, value)| name.eq_ignore_ascii_case("impersonate-user") && user.name == *value));
    let left: Vec<_> = pairs.iter().filter(|(name, _)| !owns(name)).copied().collect();
    assert_eq!(target_user(&left).ok().flatten(), None, "impersonation headers remain after they were read");
    let sender = User::authenticated("sender", []);
    let attributes = Attributes { user: &sender, verb: "get", target: Target::Path("/version") };
    let result = Trial::new(&user, &attributes, Gate::default()).run(|_| Decision::NoOpinion(String::new()));
    assert!(result.is_err(), "no authorizer allowed it: {user:?}");
    if let Ok(acted) = Trial::new(&user, &attributes, Gate::default()).run(|_| Decision::Allow(String::new())) {
        assert_eq!(acted.user.name, user.name);
    }
}

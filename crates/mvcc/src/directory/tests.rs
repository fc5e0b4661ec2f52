//! Table tests of users and roles.

use super::*;

/// Parses a change: `user+ NAME [PASSWORD]`, `user- NAME`, `passwd NAME PASSWORD`, `grant USER ROLE`, `revoke USER
/// ROLE`, `role+ NAME`, `role- NAME`, `allow ROLE r|w|rw KEY END`, `forbid ROLE KEY END`, `enable`, `disable`. `_` is
/// empty, `0` is a zero byte.
fn change(tokens: &str) -> DirectoryChange {
    let tokens: Vec<String> = tokens.split(' ').map(|word| word.replace('_', "").replace('0', "\0")).collect();
    let word = |at: usize| tokens.get(at).cloned().unwrap_or_default();
    let hash = |at: usize| tokens.get(at).cloned().map(PasswordHash::new);
    let span = |at: usize| Span::from_wire(word(at).into(), word(at + 1).into());
    match &*word(0) {
        "enable" => DirectoryChange::Enable,
        "disable" => DirectoryChange::Disable,
        "user+" => DirectoryChange::AddUser { name: word(1), password: hash(2) },
        "user-" => DirectoryChange::DeleteUser { name: word(1) },
        "passwd" => DirectoryChange::SetPassword { name: word(1), password: hash(2).expect("a password") },
        "grant" => DirectoryChange::GrantRole { user: word(1), role: word(2) },
        "revoke" => DirectoryChange::RevokeRole { user: word(1), role: word(2) },
        "role+" => DirectoryChange::AddRole { name: word(1) },
        "role-" => DirectoryChange::DeleteRole { name: word(1) },
        "allow" => {
            let access = match &*word(2) {
                "r" => Access::Read,
                "w" => Access::Write,
                _ => Access::ReadWrite,
            };
            DirectoryChange::GrantPermission { role: word(1), permission: Permission { access, span: span(3) } }
        }
        _ => DirectoryChange::RevokePermission { role: word(1), span: span(2) },
    }
}

fn directory(changes: &[&str]) -> Directory {
    let mut directory = Directory::default();
    for text in changes {
        assert_eq!(directory.apply(&change(text)), Ok(()), "{text}");
    }
    directory
}

/// Formats everything on one line: `user:role,role` and `role=r[key,end)`.
fn format_directory(directory: &Directory) -> String {
    let users = directory.users.iter().map(|(name, user)| {
        let roles: Vec<_> = user.roles.iter().map(String::as_str).collect();
        format!("{name}:{}", roles.join(","))
    });
    let roles = directory.roles.iter().map(|(name, granted)| {
        let granted = granted.iter().map(|Permission { access, span }| {
            let end = span.wire_end();
            let access = ["r", "w", "rw"][usize::from(access.number())];
            format!("{access}[{},{})", String::from_utf8_lossy(&span.start), String::from_utf8_lossy(&end))
        });
        format!("{name}={}", granted.collect::<Vec<_>>().join("+"))
    });
    users.chain(roles).collect::<Vec<_>>().join(" ").replace('\0', "0")
}

#[test]
fn changes_take_effect_and_increment_the_revision() {
    #[track_caller]
    fn check(changes: &[&str], expect: &str, revision: u64) {
        let directory = directory(changes);
        assert_eq!((format_directory(&directory).as_str(), directory.revision()), (expect, revision));
    }
    check(&[], "", 1);
    check(&["user+ b x", "user+ a"], "a: b:", 3);
    check(&["user+ a x", "user- a"], "", 3);
    check(&["user+ a x", "passwd a y"], "a:", 3);
    check(&["role+ s", "role+ r", "user+ a x", "grant a s", "grant a r"], "a:r,s r= s=", 6);
    check(&["role+ r", "user+ a x", "grant a r", "grant a r"], "a:r r=", 4);
    check(&["user+ a x", "grant a root"], "a:root", 3);
    check(&["role+ r", "user+ a x", "grant a r", "revoke a r"], "a: r=", 5);
    check(&["role+ r", "user+ a x", "user+ b x", "grant a r", "grant b r", "role- r"], "a: b:", 7);
    check(&["role+ r", "allow r r b _", "allow r w a c"], "r=w[a,c)+r[b,)", 4);
    check(&["role+ r", "allow r r a b", "allow r rw a b"], "r=rw[a,b)", 4);
    check(&["role+ r", "allow r r a _", "allow r w a b", "allow r rw a b"], "r=r[a,)+rw[a,b)", 5);
    check(&["role+ r", "allow r r a 0", "allow r w 0 0"], "r=w[0,0)+r[a,0)", 4);
    check(&["role+ r", "allow r r a _", "allow r r a b", "forbid r a b"], "r=r[a,)", 5);
}

#[test]
fn invalid_changes_are_rejected_without_effect() {
    #[track_caller]
    fn check(text: &str, expect: DirectoryError) {
        let mut directory = directory(&["user+ a x", "role+ r", "allow r r k _"]);
        let before = directory.clone();
        assert_eq!((directory.apply(&change(text)), directory), (Err(expect), before), "{text}");
    }
    check("user+ _ x", DirectoryError::UserEmpty);
    check("user+ a x", DirectoryError::UserExists);
    check("user- b", DirectoryError::UserNotFound);
    check("passwd b x", DirectoryError::UserNotFound);
    check("grant b s", DirectoryError::UserNotFound);
    check("grant a s", DirectoryError::RoleNotFound);
    check("revoke b r", DirectoryError::UserNotFound);
    check("revoke a r", DirectoryError::RoleNotGranted);
    check("revoke a s", DirectoryError::RoleNotGranted);
    check("role+ _", DirectoryError::RoleEmpty);
    check("role+ r", DirectoryError::RoleExists);
    check("role- s", DirectoryError::RoleNotFound);
    check("allow s r k _", DirectoryError::RoleNotFound);
    check("allow s r _ _", DirectoryError::InvalidManagement);
    check("allow r r _ 0", DirectoryError::InvalidManagement);
    check("allow r r b b", DirectoryError::InvalidManagement);
    check("allow r r b a", DirectoryError::InvalidManagement);
    check("forbid s k _", DirectoryError::RoleNotFound);
    check("forbid r k l", DirectoryError::PermissionNotGranted);
}

#[test]
fn root_role_allows_everything_and_the_root_user_must_have_it() {
    let mut directory = Directory::default();
    let mut check = |text: &str, expect: Result<(), DirectoryError>| {
        directory.apply(&change(text)).expect("the change is valid");
        assert_eq!(directory.check_root(), expect, "{text}");
    };
    check("user+ other x", Err(DirectoryError::RootUserNotFound));
    check("user+ root x", Err(DirectoryError::RootRoleNotGranted));
    check("grant root root", Ok(()));
    check("role+ root", Ok(()));
    check("allow root r a _", Ok(()));
    check("role- root", Err(DirectoryError::RootRoleNotGranted));
    check("role+ root", Err(DirectoryError::RootRoleNotGranted));
    let everything = Permission { access: Access::ReadWrite, span: Span::all() };
    assert_eq!(directory.permissions("root"), Ok(vec![everything]));
    assert_eq!(directory.permissions("other"), Err(DirectoryError::RoleNotFound));
}

#[test]
fn authentication_needs_the_root_user_and_protects_it() {
    let mut directory = Directory::default();
    let mut check = |text: &str, expect: Result<bool, DirectoryError>, revision: u64| {
        let enabled = directory.apply(&change(text)).map(|()| directory.is_enabled());
        assert_eq!((enabled, directory.revision()), (expect, revision), "{text}");
    };
    check("enable", Err(DirectoryError::RootUserNotFound), 1);
    check("user+ root x", Ok(false), 2);
    check("enable", Err(DirectoryError::RootRoleNotGranted), 2);
    check("role+ root", Ok(false), 3);
    check("grant root root", Ok(false), 4);
    check("disable", Ok(false), 4);
    check("enable", Ok(true), 4);
    check("enable", Ok(true), 4);
    check("user- root", Err(DirectoryError::InvalidManagement), 4);
    check("role- root", Err(DirectoryError::InvalidManagement), 4);
    check("revoke root root", Err(DirectoryError::InvalidManagement), 4);
    check("passwd root y", Ok(true), 5);
    check("disable", Ok(false), 6);
    check("role- root", Ok(false), 7);
    check("user- root", Ok(false), 8);
}

/// Returns a directory with authentication enabled, in which `alice` has roles with the permissions.
fn enabled(permissions: &[&str]) -> Directory {
    let mut changes = vec!["user+ root x", "grant root root", "user+ alice x", "user+ bob x"];
    let roles = ["role+ r", "role+ s", "grant alice r", "grant alice s"];
    changes.extend(roles.into_iter().chain(permissions.iter().copied()).chain(["enable"]));
    directory(&changes)
}

fn user(name: &str, directory: &Directory) -> Caller {
    Caller::User { name: name.to_owned(), revision: directory.revision() }
}

#[test]
fn permissions_of_all_roles_together_must_cover_the_keys() {
    use Access::{Read, Write};
    #[track_caller]
    fn check(permissions: &[&str], access: Access, key: &str, end: &str, expect: bool) {
        let directory = enabled(permissions);
        let wire = |text: &str| bytes::Bytes::from(text.replace('_', "").replace('0', "\0"));
        let span = Span::from_wire(wire(key), wire(end));
        let checked = directory.check_keys(Some(&user("alice", &directory)), access, &span);
        let expect = if expect { Ok(()) } else { Err(DirectoryError::PermissionDenied) };
        assert_eq!(checked, expect, "{permissions:?} {access:?} [{key},{end})");
        assert_eq!(directory.check_keys(Some(&user("root", &directory)), access, &span), Ok(()));
    }
    check(&[], Read, "a", "_", false);
    check(&["allow r r a _"], Read, "a", "_", true);
    check(&["allow r r a _"], Write, "a", "_", false);
    check(&["allow r rw a _"], Write, "a", "_", true);
    check(&["allow r r a _"], Read, "ab", "_", false);
    check(&["allow r r a _"], Read, "a", "b", false);
    check(&["allow r r a c"], Read, "b", "_", true);
    check(&["allow r r a c"], Read, "c", "_", false);
    check(&["allow r r a c"], Read, "a", "c", true);
    check(&["allow r r a c"], Read, "a", "d", false);
    check(&["allow r r b d"], Read, "a", "c", false);
    // Adjacent and overlapping ranges of several roles are merged.
    check(&["allow r r a c", "allow s rw c e"], Read, "b", "d", true);
    check(&["allow r r a c", "allow s w c e"], Read, "b", "d", false);
    check(&["allow r r a d", "allow s r b f"], Read, "a", "f", true);
    check(&["allow r r a c", "allow s r d f"], Read, "a", "f", false);
    check(&["allow r r a z", "allow s r b c"], Read, "x", "y", true);
    // Unbounded ranges.
    check(&["allow r r b 0"], Read, "b", "0", true);
    check(&["allow r r b 0"], Read, "c", "z", true);
    check(&["allow r r b 0"], Read, "a", "0", false);
    check(&["allow r r b z"], Read, "c", "0", false);
    check(&["allow r r 0 0"], Read, "0", "0", true);
    // A range without keys requires permission for its first key.
    check(&["allow r r a c"], Read, "b", "a", true);
    check(&["allow r r a c"], Read, "d", "a", false);
}

#[test]
fn anonymous_stale_and_unknown_callers_are_rejected() {
    use DirectoryError as E;
    let directory = enabled(&["allow r rw a _"]);
    let key = Span::key("a");
    let check = |caller: Option<&Caller>, keys: Result<(), DirectoryError>, admin: Result<(), DirectoryError>| {
        assert_eq!(directory.check_keys(caller, Access::Read, &key), keys, "{caller:?}");
        assert_eq!(directory.check_admin(caller), admin, "{caller:?}");
    };
    let stale = |name: &str| Caller::User { name: name.to_owned(), revision: directory.revision() - 1 };
    check(None, Err(E::UserEmpty), Err(E::UserEmpty));
    check(Some(&Caller::Cluster), Ok(()), Ok(()));
    check(Some(&user("root", &directory)), Ok(()), Ok(()));
    check(Some(&user("alice", &directory)), Ok(()), Err(E::PermissionDenied));
    check(Some(&user("bob", &directory)), Err(E::PermissionDenied), Err(E::PermissionDenied));
    check(Some(&user("carol", &directory)), Err(E::PermissionDenied), Err(E::UserNotFound));
    check(Some(&stale("alice")), Err(E::OldRevision), Err(E::PermissionDenied));
    check(Some(&stale("root")), Err(E::OldRevision), Ok(()));
    assert_eq!(directory.check_session("alice"), Ok(()));
    assert_eq!(directory.check_session("carol"), Err(E::AuthFailed));

    let disabled = Directory::default();
    for caller in [None, Some(&stale("carol"))] {
        assert_eq!(disabled.check_keys(caller, Access::Write, &key), Ok(()));
        assert_eq!((disabled.check_admin(caller), disabled.check_identified(caller)), (Ok(()), Ok(())));
    }
    assert_eq!(disabled.check_session("alice"), Err(E::NotEnabled));
}

#[test]
fn user_added_without_password_cannot_get_one() {
    let directory = directory(&["user+ a x", "user+ b", "passwd a y", "passwd b y"]);
    let password = |name| directory.user(name).map(|user| user.password.as_ref().map(PasswordHash::as_str));
    assert_eq!((password("a"), password("b")), (Ok(Some("y")), Ok(None)));
    assert_eq!(directory.user("c"), Err(DirectoryError::UserNotFound));
    assert!(!format!("{directory:?}").contains("\"y\""), "password hashes are not logged");
}

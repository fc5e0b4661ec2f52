//! The rules of users and roles, a line a case.

use super::*;

/// A change in words: `user+ NAME [PASSWORD]`, `user- NAME`, `passwd NAME PASSWORD`, `grant USER ROLE`, `revoke USER ROLE`, `role+ NAME`,
/// `role- NAME`, `allow ROLE r|w|rw KEY END`, `forbid ROLE KEY END`. `_` is nothing, `0` is a zero byte.
fn change(words: &str) -> DirectoryChange {
    let words: Vec<String> = words.split(' ').map(|word| word.replace('_', "").replace('0', "\0")).collect();
    let word = |at: usize| words.get(at).cloned().unwrap_or_default();
    let hash = |at: usize| words.get(at).cloned().map(PasswordHash::new);
    let span = |at: usize| Span::from_wire(word(at).into(), word(at + 1).into());
    match &*word(0) {
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
    for words in changes {
        assert_eq!(directory.apply(&change(words)), Ok(()), "{words}");
    }
    directory
}

/// Everything in one line: `user:role,role` and `role=r[key,end)`.
fn shown(directory: &Directory) -> String {
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
fn changes_do_what_they_say_and_count() {
    #[track_caller]
    fn check(changes: &[&str], expect: &str, revision: u64) {
        let directory = directory(changes);
        assert_eq!((shown(&directory).as_str(), directory.revision()), (expect, revision));
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
fn what_cannot_be_is_refused_and_changes_nothing() {
    #[track_caller]
    fn check(words: &str, expect: DirectoryError) {
        let mut directory = directory(&["user+ a x", "role+ r", "allow r r k _"]);
        let before = directory.clone();
        assert_eq!((directory.apply(&change(words)), directory), (Err(expect), before), "{words}");
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
fn the_root_role_allows_everything_and_the_root_user_must_have_it() {
    let mut directory = Directory::default();
    let mut check = |words: &str, expect: Result<(), DirectoryError>| {
        directory.apply(&change(words)).expect("it can be done");
        assert_eq!(directory.check_root(), expect, "{words}");
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
fn who_was_added_without_a_password_never_has_one() {
    let directory = directory(&["user+ a x", "user+ b", "passwd a y", "passwd b y"]);
    let password = |name| directory.user(name).map(|user| user.password.as_ref().map(PasswordHash::as_str));
    assert_eq!((password("a"), password("b")), (Ok(Some("y")), Ok(None)));
    assert_eq!(directory.user("c"), Err(DirectoryError::UserNotFound));
    assert!(!format!("{directory:?}").contains("\"y\""), "a log does not show what passwords are checked against");
}

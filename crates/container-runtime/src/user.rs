//! The user of a container: names are resolved with the image's passwd and group files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use serde::{Deserialize, Serialize};

/// Maximum size of passwd and group files, since an image may be hostile.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Numeric IDs of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct User {
    pub uid: u32,
    pub gid: u32,
    /// Supplemental groups, sorted.
    pub groups: Vec<u32>,
}

/// The requested user.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestedUser<'a> {
    pub uid: Option<u32>,
    pub name: Option<&'a str>,
    pub gid: Option<u32>,
    /// The image's user: `user` or `user:group`, by name or number.
    pub image: &'a str,
    /// Additional supplemental groups.
    pub groups: &'a [u32],
    /// Whether groups of the user in the image are added.
    pub merge: bool,
}

/// The user could not be resolved.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserError {
    #[error("the image has no user {0:?}")]
    NoUser(String),
    #[error("the image has no group {0:?}")]
    NoGroup(String),
    #[error("run_as_group is given without a user")]
    GroupWithoutUser,
}

/// Resolves a user with the files of a root directory.
pub(crate) fn resolve(root: &Path, requested: &RequestedUser<'_>) -> Result<User, UserError> {
    let passwd = read(root, "etc/passwd");
    let group = read(root, "etc/group");
    resolve_in(&passwd, &group, requested)
}

/// Parses a numeric user or group; `None` if it is a name or out of range.
pub(crate) fn number(text: &str) -> Option<u32> {
    is_numeric(text).then(|| text.parse().ok()).flatten()
}

/// Whether a user or group is numeric. A number is never looked up as a name: an image could give the name "1000" to
/// root.
fn is_numeric(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn resolve_in(passwd: &str, group: &str, requested: &RequestedUser<'_>) -> Result<User, UserError> {
    let (image_user, image_group) = requested.image.split_once(':').unwrap_or((requested.image, ""));
    let is_explicit = requested.uid.is_some() || requested.name.is_some();
    let text = requested.name.unwrap_or(image_user);
    let by_number = match requested.uid {
        None if text.is_empty() && requested.gid.is_some() => return Err(UserError::GroupWithoutUser),
        // The default user is root.
        None if text.is_empty() => Some(0),
        given => given.or_else(|| number(text)),
    };
    let account = accounts(passwd).find(|account| match by_number {
        Some(uid) => account.uid == uid,
        None => account.name == text && !is_numeric(text),
    });
    let mut user = User::default();
    match (&account, by_number) {
        (Some(account), _) => (user.uid, user.gid) = (account.uid, account.gid),
        // A numeric user needs no passwd entry.
        (None, Some(uid)) => user.uid = uid,
        (None, None) => return Err(UserError::NoUser(text.to_owned())),
    }
    let name = account.map(|account| account.name);
    if let Some(gid) = requested.gid {
        user.gid = gid;
    } else if !is_explicit && !image_group.is_empty() {
        let named = || groups(group).find(|one| one.name == image_group && !is_numeric(image_group));
        user.gid = number(image_group)
            .or_else(|| named().map(|one| one.gid))
            .ok_or_else(|| UserError::NoGroup(image_group.to_owned()))?;
    }
    // The primary group is also a supplemental group: a process that drops it must not gain access to files that deny
    // it.
    user.groups.push(user.gid);
    user.groups.extend(requested.groups);
    if let Some(name) = name.filter(|_| requested.merge) {
        user.groups
            .extend(groups(group).filter(|one| one.members.split(',').any(|member| member == name)).map(|one| one.gid));
    }
    user.groups.sort_unstable();
    user.groups.dedup();
    Ok(user)
}

struct Account<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
}

struct Group<'a> {
    name: &'a str,
    gid: u32,
    members: &'a str,
}

fn accounts(passwd: &str) -> impl Iterator<Item = Account<'_>> {
    passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let uid = fields.nth(1)?.parse().ok()?;
        Some(Account { name, uid, gid: fields.next()?.parse().ok()? })
    })
}

fn groups(group: &str) -> impl Iterator<Item = Group<'_>> {
    group.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let gid = fields.nth(1)?.parse().ok()?;
        Some(Group { name, gid, members: fields.next().unwrap_or("") })
    })
}

/// Reads a file inside the image; empty if it does not exist.
fn read(root: &Path, path: &str) -> String {
    let open = || {
        let root = rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        openat2(root, path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty(), ResolveFlags::IN_ROOT)
    };
    let mut text = Vec::new();
    if let Ok(file) = open() {
        // An unreadable file counts as empty: names are then not found, which is an error.
        let _ = File::from(file).take(FILE_BYTES_MAX).read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nweb:x:33:34::/:/bin/false\n";
    const GROUP: &str = "root:x:0:\nwww:x:34:\nlogs:x:50:web,other\n";

    fn check(requested: RequestedUser<'_>, expect: Result<(u32, u32, &[u32]), UserError>) {
        let got = resolve_in(PASSWD, GROUP, &requested);
        let expect = expect.map(|(uid, gid, groups)| User { uid, gid, groups: groups.to_vec() });
        assert_eq!(got, expect, "{requested:?}");
    }

    #[test]
    fn users_are_resolved_by_name_and_number() {
        check(RequestedUser::default(), Ok((0, 0, &[0])));
        check(RequestedUser { image: "web", merge: true, ..RequestedUser::default() }, Ok((33, 34, &[34, 50])));
        check(RequestedUser { image: "web:logs", ..RequestedUser::default() }, Ok((33, 50, &[50])));
        check(RequestedUser { image: "1000:1000", ..RequestedUser::default() }, Ok((1000, 1000, &[1000])));
        check(
            RequestedUser { uid: Some(33), merge: true, groups: &[7, 7], ..RequestedUser::default() },
            Ok((33, 34, &[7, 34, 50])),
        );
        check(RequestedUser { uid: Some(33), groups: &[7], ..RequestedUser::default() }, Ok((33, 34, &[7, 34])));
        check(RequestedUser { uid: Some(1000), image: "web:logs", ..RequestedUser::default() }, Ok((1000, 0, &[0])));
        check(RequestedUser { name: Some("web"), gid: Some(9), ..RequestedUser::default() }, Ok((33, 9, &[9])));
    }

    #[test]
    fn numeric_user_is_never_looked_up_by_name() {
        let passwd =
            "1000:x:0:0::/root:/bin/sh\n99999999999:x:0:0::/:/bin/sh\n33:x:0:0::/:/bin/sh\nweb:x:33:34::/:/bin/false\n";
        let group = "1000:x:0:1000,web\n";
        let check = |requested: RequestedUser<'_>, expect: (u32, u32, &[u32])| {
            let got = resolve_in(passwd, group, &requested).map(|user| (user.uid, user.gid, user.groups));
            assert_eq!(got, Ok((expect.0, expect.1, expect.2.to_vec())), "{requested:?}");
        };
        check(RequestedUser { uid: Some(1000), merge: true, ..RequestedUser::default() }, (1000, 0, &[0]));
        check(RequestedUser { uid: Some(33), ..RequestedUser::default() }, (33, 34, &[34]));
        check(RequestedUser { name: Some("1000"), ..RequestedUser::default() }, (1000, 0, &[0]));
        check(RequestedUser { image: "1000", merge: true, ..RequestedUser::default() }, (1000, 0, &[0]));
        check(RequestedUser { image: "1000:1000", ..RequestedUser::default() }, (1000, 1000, &[1000]));
        let too_large = resolve_in(passwd, group, &RequestedUser { image: "99999999999", ..RequestedUser::default() });
        assert_eq!(too_large, Err(UserError::NoUser("99999999999".into())));
    }

    #[test]
    fn unknown_names_are_errors() {
        check(RequestedUser { name: Some("me"), ..RequestedUser::default() }, Err(UserError::NoUser("me".into())));
        check(RequestedUser { image: "web:us", ..RequestedUser::default() }, Err(UserError::NoGroup("us".into())));
        check(RequestedUser { gid: Some(1), ..RequestedUser::default() }, Err(UserError::GroupWithoutUser));
    }
}

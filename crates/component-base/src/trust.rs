//! Files and directories that only the operator can change: their content runs commands as root.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// Returns why the file or directory with these metadata is not used: another user than root, the user of this process
/// and the user who runs it with sudo can change it. `what` is `file` or `directory`.
pub fn problem(what: &str, metadata: &Metadata) -> Option<String> {
    distrust(what, metadata.mode(), metadata.uid(), &trusted_owners())
}

fn trusted_owners() -> [u32; 3] {
    let own = rustix::process::geteuid().as_raw();
    let sudo = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
    [0, own, sudo.unwrap_or(own)]
}

fn distrust(what: &str, mode: u32, owner: u32, trusted: &[u32]) -> Option<String> {
    if !trusted.contains(&owner) {
        return Some(format!("the {what} belongs to user {owner}, who could change it; run `chown root` on it"));
    }
    (mode & 0o022 != 0).then(|| format!("other users can change the {what}; run `chmod go-w` on it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_other_users_can_change_are_not_trusted() {
        let check = |mode: u32, owner: u32, expect: Option<&str>| {
            let found = distrust("file", 0o100_000 | mode, owner, &[0, 1000]);
            assert_eq!(found.is_some(), expect.is_some(), "{mode:o} {owner}: {found:?}");
            assert!(found.unwrap_or_default().contains(expect.unwrap_or_default()), "{mode:o} {owner}");
        };
        check(0o644, 0, None);
        check(0o600, 1000, None);
        check(0o664, 0, Some("chmod go-w"));
        check(0o646, 1000, Some("chmod go-w"));
        check(0o600, 1001, Some("belongs to user 1001"));
    }
}

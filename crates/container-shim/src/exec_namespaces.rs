//! Exec in a container with a user namespace: the OCI runtime library joins every namespace except that one.
//!
//! The library leaves the process as root with all capabilities. This module then joins the user namespace and sets the
//! user and the capabilities in terms of that namespace.

use std::fs::File;
use std::io;
use std::path::Path;
use std::str::FromStr;

use caps::{CapSet, Capability, CapsHashSet};
use nix::sched::{CloneFlags, setns};
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use oci_spec::runtime::{LinuxCapabilities, Process, UserBuilder};

/// The credentials of the process inside the user namespace.
pub(crate) struct Entering {
    users: File,
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
    capabilities: CapsHashSet,
    ambient: CapsHashSet,
    no_new_privileges: bool,
}

impl Entering {
    /// Moves the credentials out of a process specification, and replaces them by root with every capability.
    pub(crate) fn take(process: &mut Process, users: &Path) -> io::Result<Entering> {
        let user = process.user().clone();
        let requested = process.capabilities().clone().unwrap_or_default();
        let set = |set: &Option<_>| names(&serde_json::to_value(set)?);
        let entering = Entering {
            users: File::open(users)?,
            uid: Uid::from_raw(user.uid()),
            gid: Gid::from_raw(user.gid()),
            groups: user.additional_gids().iter().flatten().map(|gid| Gid::from_raw(*gid)).collect(),
            capabilities: set(requested.permitted())?,
            ambient: set(requested.ambient())?,
            no_new_privileges: process.no_new_privileges() == Some(true),
        };
        let bounding = caps::read(None, CapSet::Bounding).map_err(io::Error::other)?;
        let bounding: Vec<String> = bounding.iter().map(ToString::to_string).collect();
        let all: LinuxCapabilities = serde_json::from_value(serde_json::json!({
            "bounding": bounding, "effective": bounding, "permitted": bounding, "inheritable": [], "ambient": [],
        }))?;
        let root = UserBuilder::default().uid(0u32).gid(0u32).build().map_err(io::Error::other)?;
        process.set_user(root).set_capabilities(Some(all)).set_no_new_privileges(Some(false));
        Ok(entering)
    }

    /// Enters the namespace and applies the credentials. The capability `keep` is also kept; the caller must drop it
    /// later.
    pub(crate) fn enter(&self, keep: Option<Capability>) -> io::Result<()> {
        setns(&self.users, CloneFlags::CLONE_NEWUSER)?;
        setgroups(&self.groups)?;
        setresgid(self.gid, self.gid, self.gid)?;
        nix::sys::prctl::set_keepcaps(true)?;
        setresuid(self.uid, self.uid, self.uid)?;
        let mut usable = self.capabilities.clone();
        usable.extend(keep);
        let change = |set: CapSet, to: &CapsHashSet| caps::set(None, set, to).map_err(io::Error::other);
        // The bounding set is changed first: that needs a capability that the next steps may drop.
        change(CapSet::Effective, &caps::read(None, CapSet::Permitted).map_err(io::Error::other)?)?;
        for other in caps::read(None, CapSet::Bounding).map_err(io::Error::other)?.difference(&self.capabilities) {
            caps::drop(None, CapSet::Bounding, *other).map_err(io::Error::other)?;
        }
        change(CapSet::Effective, &usable)?;
        change(CapSet::Permitted, &usable)?;
        change(CapSet::Inheritable, &self.ambient)?;
        change(CapSet::Ambient, &self.ambient)?;
        if self.no_new_privileges {
            nix::sys::prctl::set_no_new_privs()?;
        }
        Ok(())
    }

    /// Whether loading a seccomp filter needs CAP_SYS_ADMIN.
    pub(crate) fn loads_by_privilege(&self) -> bool {
        !self.no_new_privileges
    }

    /// Whether CAP_SYS_ADMIN is one of the process's own capabilities.
    pub(crate) fn administrates(&self) -> bool {
        self.capabilities.contains(&Capability::CAP_SYS_ADMIN)
    }
}

fn names(set: &serde_json::Value) -> io::Result<CapsHashSet> {
    let names = set.as_array().map_or(&[][..], Vec::as_slice).iter().filter_map(serde_json::Value::as_str);
    names.map(|name| Capability::from_str(name).map_err(io::Error::other)).collect()
}

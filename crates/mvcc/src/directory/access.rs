//! Permission checks of requests while authentication is enabled.
//!
//! The checks are pure functions of directory and request, so all members that apply a command decide alike.

use bytes::Bytes;

use super::{Access, Directory, DirectoryError, Permission, ROOT, User};
use crate::{End, Span};

/// The identity on whose behalf a command or query is executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The cluster itself, such as the leader that revokes an expired lease. It may do everything.
    Cluster,
    User {
        name: String,
        /// The directory revision when the user was authenticated. A later revision makes the request stale.
        revision: u64,
    },
}

impl Directory {
    /// Whether authentication is enabled.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Checks that `caller` may read or write every key of `span`; `access` is not [`Access::ReadWrite`].
    pub fn check_keys(&self, caller: Option<&Caller>, access: Access, span: &Span) -> Result<(), DirectoryError> {
        let (name, revision) = match caller {
            _ if !self.enabled => return Ok(()),
            Some(Caller::Cluster) => return Ok(()),
            Some(Caller::User { name, revision }) => (name, *revision),
            None => return Err(DirectoryError::UserEmpty),
        };
        if revision < self.revision {
            return Err(DirectoryError::OldRevision);
        }
        let user = self.users.get(name).ok_or(DirectoryError::PermissionDenied)?;
        let permitted = user.roles.contains(ROOT) || self.covers(user, access, span);
        if permitted { Ok(()) } else { Err(DirectoryError::PermissionDenied) }
    }

    /// Checks that `caller` has the root role.
    pub fn check_admin(&self, caller: Option<&Caller>) -> Result<(), DirectoryError> {
        match caller {
            _ if !self.enabled => Ok(()),
            Some(Caller::Cluster) => Ok(()),
            Some(Caller::User { name, .. }) if !name.is_empty() => {
                let is_root = self.user(name)?.roles.contains(ROOT);
                if is_root { Ok(()) } else { Err(DirectoryError::PermissionDenied) }
            }
            Some(Caller::User { .. }) | None => Err(DirectoryError::UserEmpty),
        }
    }

    /// Checks that `caller` is authenticated.
    pub fn check_identified(&self, caller: Option<&Caller>) -> Result<(), DirectoryError> {
        if self.enabled && caller.is_none() { Err(DirectoryError::UserEmpty) } else { Ok(()) }
    }

    /// Checks that a session can be opened for a user whose password the proposer has verified.
    pub(crate) fn check_session(&self, user: &str) -> Result<(), DirectoryError> {
        if !self.enabled {
            return Err(DirectoryError::NotEnabled);
        }
        let has_password = self.users.get(user).is_some_and(|user| user.password.is_some());
        if has_password { Ok(()) } else { Err(DirectoryError::AuthFailed) }
    }

    /// Whether the combined permissions of a user's roles cover a span.
    fn covers(&self, user: &User, access: Access, span: &Span) -> bool {
        let granted = user.roles.iter().filter_map(|role| self.roles.get(role)).flatten();
        let granted = granted.filter(|permission| permission.access.includes(access)).map(Permission::bounds);
        let mut granted: Vec<(Bytes, Option<Bytes>)> = granted.collect();
        granted.sort_unstable();
        let (start, end) = bounds(span);
        // Extends the covered part from the start of the span until it reaches the end or finds a gap.
        let mut covered: Option<Bytes> = None;
        for (from, to) in granted {
            let reach = covered.as_ref().unwrap_or(&start);
            if from > *reach {
                return false;
            }
            match to {
                None => return true,
                Some(to) if to > *reach => {
                    if end.as_ref().is_some_and(|end| to >= *end) {
                        return true;
                    }
                    covered = Some(to);
                }
                Some(_) => {}
            }
        }
        false
    }
}

impl Access {
    fn includes(self, access: Access) -> bool {
        self == Self::ReadWrite || self == access
    }
}

impl Permission {
    fn bounds(&self) -> (Bytes, Option<Bytes>) {
        bounds(&self.span)
    }
}

/// Returns the first key of a span and the first key after it, if there is one.
fn bounds(span: &Span) -> (Bytes, Option<Bytes>) {
    let end = match &span.end {
        // The successor of a key is the key and a zero byte.
        End::Single => Some([&span.start[..], &[0]].concat().into()),
        End::Before(end) => Some(end.clone()),
        End::Unbounded => None,
    };
    (span.start.clone(), end)
}

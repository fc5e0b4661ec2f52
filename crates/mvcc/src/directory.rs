//! Users, roles and permissions (etcd auth).
//!
//! The rules and the error messages are etcd's.

mod access;
mod codec;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::{End, Span};

pub use access::Caller;
pub(crate) use codec::read_text;

/// The user that must exist before authentication can be enabled, and the role that grants everything. Users can be
/// granted the role without adding it.
const ROOT: &str = "root";

/// All users and roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    revision: u64,
    enabled: bool,
    users: BTreeMap<String, User>,
    /// The permissions of each role, ordered by first key.
    roles: BTreeMap<String, Vec<Permission>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The password hash; none if the user authenticates only by certificate.
    pub password: Option<PasswordHash>,
    pub roles: BTreeSet<String>,
}

/// A salted password hash with its parameters, as text.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash(String);

/// Read or write access to a range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    pub access: Access,
    pub span: Span,
}

/// Access to keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    ReadWrite,
}

/// A change of users or roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectoryChange {
    Enable,
    Disable,
    AddUser { name: String, password: Option<PasswordHash> },
    DeleteUser { name: String },
    SetPassword { name: String, password: PasswordHash },
    GrantRole { user: String, role: String },
    RevokeRole { user: String, role: String },
    AddRole { name: String },
    DeleteRole { name: String },
    GrantPermission { role: String, permission: Permission },
    RevokePermission { role: String, span: Span },
}

/// A rejected change, or a query for an unknown user or role; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DirectoryError {
    #[error("etcdserver: user name is empty")]
    UserEmpty,
    #[error("etcdserver: user name already exists")]
    UserExists,
    #[error("etcdserver: user name not found")]
    UserNotFound,
    #[error("etcdserver: role name is empty")]
    RoleEmpty,
    #[error("etcdserver: role name already exists")]
    RoleExists,
    #[error("etcdserver: role name not found")]
    RoleNotFound,
    #[error("etcdserver: role is not granted to the user")]
    RoleNotGranted,
    #[error("etcdserver: permission is not granted to the role")]
    PermissionNotGranted,
    #[error("etcdserver: invalid auth management")]
    InvalidManagement,
    #[error("etcdserver: root user does not exist")]
    RootUserNotFound,
    #[error("etcdserver: root user does not have root role")]
    RootRoleNotGranted,
    #[error("etcdserver: authentication is not enabled")]
    NotEnabled,
    #[error("etcdserver: authentication failed, invalid user ID or password")]
    AuthFailed,
    #[error("etcdserver: permission denied")]
    PermissionDenied,
    #[error("etcdserver: revision of auth store is old")]
    OldRevision,
}

impl Default for Directory {
    /// Returns an empty directory. The first revision is etcd's.
    fn default() -> Self {
        Self { revision: 1, enabled: false, users: BTreeMap::new(), roles: BTreeMap::new() }
    }
}

impl Directory {
    /// Returns the number of changes.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the names of all users, sorted.
    pub fn users(&self) -> impl Iterator<Item = &str> {
        self.users.keys().map(String::as_str)
    }

    /// Returns the names of all roles, sorted.
    pub fn roles(&self) -> impl Iterator<Item = &str> {
        self.roles.keys().map(String::as_str)
    }

    pub fn user(&self, name: &str) -> Result<&User, DirectoryError> {
        self.users.get(name).ok_or(DirectoryError::UserNotFound)
    }

    /// Returns the permissions of a role, ordered by first key. The root role has all permissions regardless of grants.
    pub fn permissions(&self, role: &str) -> Result<Vec<Permission>, DirectoryError> {
        let granted = self.roles.get(role).ok_or(DirectoryError::RoleNotFound)?;
        let everything = || vec![Permission { access: Access::ReadWrite, span: Span::all() }];
        Ok(if role == ROOT { everything() } else { granted.clone() })
    }

    /// Fails unless a root user with the root role exists, without which the store could not be administered.
    pub fn check_root(&self) -> Result<(), DirectoryError> {
        let root = self.users.get(ROOT).ok_or(DirectoryError::RootUserNotFound)?;
        if root.roles.contains(ROOT) { Ok(()) } else { Err(DirectoryError::RootRoleNotGranted) }
    }

    /// Applies a change atomically. A change without effect does not increment the revision.
    pub(crate) fn apply(&mut self, change: &DirectoryChange) -> Result<(), DirectoryError> {
        if self.enabled && change.takes_root() {
            return Err(DirectoryError::InvalidManagement);
        }
        let changed = match change {
            DirectoryChange::Enable => self.enable(),
            DirectoryChange::Disable => Ok(std::mem::take(&mut self.enabled)),
            DirectoryChange::AddUser { name, password } => self.add_user(name, password.as_ref()),
            DirectoryChange::DeleteUser { name } => {
                self.users.remove(name).map(|_| true).ok_or(DirectoryError::UserNotFound)
            }
            DirectoryChange::SetPassword { name, password } => self.set_password(name, password),
            DirectoryChange::GrantRole { user, role } => self.grant_role(user, role),
            DirectoryChange::RevokeRole { user, role } => self.revoke_role(user, role),
            DirectoryChange::AddRole { name } => self.add_role(name),
            DirectoryChange::DeleteRole { name } => self.delete_role(name),
            DirectoryChange::GrantPermission { role, permission } => self.grant_permission(role, permission),
            DirectoryChange::RevokePermission { role, span } => self.revoke_permission(role, span),
        }?;
        self.revision += u64::from(changed);
        Ok(())
    }

    /// Whether nothing was ever changed, so authentication was never enabled.
    pub(crate) fn is_untouched(&self) -> bool {
        self.revision == Self::default().revision
    }

    /// Enables authentication without a new revision: no tokens exist yet that it could make stale.
    fn enable(&mut self) -> Result<bool, DirectoryError> {
        if !self.enabled {
            self.check_root()?;
            self.enabled = true;
        }
        Ok(false)
    }

    fn add_user(&mut self, name: &str, password: Option<&PasswordHash>) -> Result<bool, DirectoryError> {
        if name.is_empty() {
            return Err(DirectoryError::UserEmpty);
        }
        if self.users.contains_key(name) {
            return Err(DirectoryError::UserExists);
        }
        let user = User { password: password.cloned(), roles: BTreeSet::new() };
        self.users.insert(name.to_owned(), user);
        Ok(true)
    }

    /// Changes a password. A user without a password does not get one: such users authenticate only by certificate.
    fn set_password(&mut self, name: &str, password: &PasswordHash) -> Result<bool, DirectoryError> {
        let user = self.users.get_mut(name).ok_or(DirectoryError::UserNotFound)?;
        user.password = user.password.take().map(|_| password.clone());
        Ok(true)
    }

    fn grant_role(&mut self, user: &str, role: &str) -> Result<bool, DirectoryError> {
        let user = self.users.get_mut(user).ok_or(DirectoryError::UserNotFound)?;
        if role != ROOT && !self.roles.contains_key(role) {
            return Err(DirectoryError::RoleNotFound);
        }
        Ok(user.roles.insert(role.to_owned()))
    }

    fn revoke_role(&mut self, user: &str, role: &str) -> Result<bool, DirectoryError> {
        let user = self.users.get_mut(user).ok_or(DirectoryError::UserNotFound)?;
        if user.roles.remove(role) { Ok(true) } else { Err(DirectoryError::RoleNotGranted) }
    }

    fn add_role(&mut self, name: &str) -> Result<bool, DirectoryError> {
        if name.is_empty() {
            return Err(DirectoryError::RoleEmpty);
        }
        if self.roles.contains_key(name) {
            return Err(DirectoryError::RoleExists);
        }
        self.roles.insert(name.to_owned(), Vec::new());
        Ok(true)
    }

    /// Deletes a role and revokes it from all users: a later role of the same name is a different one.
    fn delete_role(&mut self, name: &str) -> Result<bool, DirectoryError> {
        self.roles.remove(name).ok_or(DirectoryError::RoleNotFound)?;
        for user in self.users.values_mut() {
            user.roles.remove(name);
        }
        Ok(true)
    }

    // DEVIATION: a permission replaces the role's permission for the same range. etcd keeps both, with the wider one in
    // force, if the role has one with the same first key and a different end.
    fn grant_permission(&mut self, role: &str, permission: &Permission) -> Result<bool, DirectoryError> {
        if !permission.span.is_proper() {
            return Err(DirectoryError::InvalidManagement);
        }
        let granted = self.roles.get_mut(role).ok_or(DirectoryError::RoleNotFound)?;
        if let Some(same) = granted.iter_mut().find(|other| other.span == permission.span) {
            same.access = permission.access;
        } else {
            let at = granted.partition_point(|other| other.span.start <= permission.span.start);
            granted.insert(at, permission.clone());
        }
        Ok(true)
    }

    fn revoke_permission(&mut self, role: &str, span: &Span) -> Result<bool, DirectoryError> {
        let granted = self.roles.get_mut(role).ok_or(DirectoryError::RoleNotFound)?;
        let before = granted.len();
        granted.retain(|permission| permission.span != *span);
        if granted.len() < before { Ok(true) } else { Err(DirectoryError::PermissionNotGranted) }
    }
}

impl DirectoryChange {
    /// Whether the change needs more storage.
    pub(crate) fn grows(&self) -> bool {
        match self {
            Self::AddUser { .. } | Self::AddRole { .. } | Self::GrantRole { .. } | Self::GrantPermission { .. } => true,
            Self::Enable
            | Self::Disable
            | Self::DeleteUser { .. }
            | Self::SetPassword { .. }
            | Self::RevokeRole { .. }
            | Self::DeleteRole { .. }
            | Self::RevokePermission { .. } => false,
        }
    }

    /// Whether the store could not be administered after the change.
    fn takes_root(&self) -> bool {
        match self {
            Self::DeleteUser { name } | Self::DeleteRole { name } => name == ROOT,
            Self::RevokeRole { user, role } => user == ROOT && role == ROOT,
            _ => false,
        }
    }
}

impl Span {
    /// Whether the span can contain a key: it has a start, and its end is after the start.
    fn is_proper(&self) -> bool {
        let ends_after = match &self.end {
            End::Single | End::Unbounded => true,
            End::Before(end) => self.start < *end,
        };
        !self.start.is_empty() && ends_after
    }
}

impl PasswordHash {
    /// `text` is the formatted hash.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PasswordHash {
    /// Omits the hash from logs.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PasswordHash")
    }
}

#[cfg(test)]
mod tests;

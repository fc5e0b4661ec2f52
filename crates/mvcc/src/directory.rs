//! Users, roles and permissions, beside the key space.
//!
//! The rules and the error messages are etcd's.

mod access;
mod codec;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::{End, Span};

pub use access::Caller;
pub(crate) use codec::read_text;

/// The user that must exist before authentication can be enabled, and the role that may do everything. Users may have the role without its being added.
const ROOT: &str = "root";

/// All users and roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    revision: u64,
    enabled: bool,
    users: BTreeMap<String, User>,
    /// What each role allows, by the first key.
    roles: BTreeMap<String, Vec<Permission>>,
}

/// Somebody with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// What their password is checked against; none if only a certificate says who they are.
    pub password: Option<PasswordHash>,
    /// What they are.
    pub roles: BTreeSet<String>,
}

/// What is kept of a password: a text that says how it was made and does not lead back to it.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash(String);

/// That some keys may be read, written, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    /// What may be done.
    pub access: Access,
    /// To which keys.
    pub span: Span,
}

/// What may be done to keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Access {
    Read,
    Write,
    ReadWrite,
}

/// A change of users or roles.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
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

/// A change that was refused, or a question about somebody unknown; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
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
    /// Nobody. The first revision is etcd's.
    fn default() -> Self {
        Self { revision: 1, enabled: false, users: BTreeMap::new(), roles: BTreeMap::new() }
    }
}

impl Directory {
    /// Counts the changes.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The names of all users, in order.
    pub fn users(&self) -> impl Iterator<Item = &str> {
        self.users.keys().map(String::as_str)
    }

    /// The names of all roles, in order.
    pub fn roles(&self) -> impl Iterator<Item = &str> {
        self.roles.keys().map(String::as_str)
    }

    /// The user of a name.
    pub fn user(&self, name: &str) -> Result<&User, DirectoryError> {
        self.users.get(name).ok_or(DirectoryError::UserNotFound)
    }

    /// What a role allows, by the first key. The root's allows everything, whatever was granted to it.
    pub fn permissions(&self, role: &str) -> Result<Vec<Permission>, DirectoryError> {
        let granted = self.roles.get(role).ok_or(DirectoryError::RoleNotFound)?;
        let everything = || vec![Permission { access: Access::ReadWrite, span: Span::all() }];
        Ok(if role == ROOT { everything() } else { granted.clone() })
    }

    /// Whether there is a root user with the root role, without whom nobody could administer the store.
    pub fn check_root(&self) -> Result<(), DirectoryError> {
        let root = self.users.get(ROOT).ok_or(DirectoryError::RootUserNotFound)?;
        if root.roles.contains(ROOT) { Ok(()) } else { Err(DirectoryError::RootRoleNotGranted) }
    }

    /// Makes a change, whole or not at all. What changes nothing is no new revision.
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

    /// Whether nothing was ever changed, and authentication was therefore never enabled.
    pub(crate) fn is_untouched(&self) -> bool {
        self.revision == Self::default().revision
    }

    /// Enabling is no new revision: nobody has a token yet that it could make stale.
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

    /// Who has no password does not get one: they were added to be known by their certificate alone.
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

    /// A role that goes is taken from everybody: one that is added later by the same name is another.
    fn delete_role(&mut self, name: &str) -> Result<bool, DirectoryError> {
        self.roles.remove(name).ok_or(DirectoryError::RoleNotFound)?;
        for user in self.users.values_mut() {
            user.roles.remove(name);
        }
        Ok(true)
    }

    // DEVIATION: a permission takes the place of the role's other one for the same keys. etcd keeps both, the wider one in force, where the role
    // has one that begins with the same key and ends elsewhere.
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
    /// Whether there is more to keep afterwards.
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

    /// Whether nobody could administer the store afterwards.
    fn takes_root(&self) -> bool {
        match self {
            Self::DeleteUser { name } | Self::DeleteRole { name } => name == ROOT,
            Self::RevokeRole { user, role } => user == ROOT && role == ROOT,
            _ => false,
        }
    }
}

impl Span {
    /// Whether it can hold a key: it begins with one, and does not end before that.
    fn is_proper(&self) -> bool {
        let ends_after = match &self.end {
            End::Single | End::Unbounded => true,
            End::Before(end) => self.start < *end,
        };
        !self.start.is_empty() && ends_after
    }
}

impl PasswordHash {
    /// Takes what a password was made into.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PasswordHash {
    /// Who reads a log needs to know no more than that there is one.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PasswordHash")
    }
}

#[cfg(test)]
mod tests;

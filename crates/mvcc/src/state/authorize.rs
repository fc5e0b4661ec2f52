//! Authorization of commands while authentication is enabled.

use super::State;
use crate::command::{Command, Delete, Operation, Put, Txn};
use crate::directory::{Access, Caller, DirectoryError};
use crate::{LeaseId, Span};

impl State {
    /// Checks that `caller` may execute `command`. As in etcd, compactions, alarms and lease grants are checked where
    /// they are requested.
    pub(super) fn authorize(&self, caller: Option<&Caller>, command: &Command) -> Result<(), DirectoryError> {
        match command {
            Command::Authenticate { user, .. } => self.directory.check_session(user),
            _ if !self.directory.is_enabled() => Ok(()),
            Command::Put(put) => self.authorize_put(caller, put),
            Command::Delete(delete) => self.authorize_delete(caller, delete),
            Command::Txn(txn) => self.authorize_txn(caller, txn),
            Command::LeaseRevoke { id } => self.authorize_lease(caller, *id, Access::Write),
            Command::Directory(_) => self.directory.check_admin(caller),
            Command::LeaseGrant { .. }
            | Command::LeaseCheckpoint { .. }
            | Command::Compact { .. }
            | Command::Alarm { .. } => Ok(()),
            Command::Authorized { .. } => unreachable!("a command has one caller"),
        }
    }

    /// Checks that `caller` may execute a transaction, regardless of the selected branches.
    pub fn authorize_txn(&self, caller: Option<&Caller>, txn: &Txn) -> Result<(), DirectoryError> {
        for compare in &txn.compare {
            self.directory.check_keys(caller, Access::Read, &compare.span)?;
        }
        txn.success.iter().chain(&txn.failure).try_for_each(|operation| match operation {
            Operation::Range(range) => self.directory.check_keys(caller, Access::Read, &range.span),
            Operation::Put(put) => self.authorize_put(caller, put),
            Operation::Delete(delete) => self.authorize_delete(caller, delete),
            Operation::Txn(txn) => self.authorize_txn(caller, txn),
        })
    }

    /// Checks that `caller` may access every key attached to a lease.
    pub fn authorize_lease(&self, caller: Option<&Caller>, id: LeaseId, access: Access) -> Result<(), DirectoryError> {
        if self.directory.check_admin(caller).is_ok() {
            return Ok(());
        }
        let mut keys = self.lease_keys(id).map(|record| Span::key(record.key_bytes()));
        keys.try_for_each(|key| self.directory.check_keys(caller, access, &key))
    }

    /// Checks a put. Attaching a key to a lease requires write permission for all its other keys, because the caller
    /// could revoke the lease.
    fn authorize_put(&self, caller: Option<&Caller>, put: &Put) -> Result<(), DirectoryError> {
        let key = Span::key(put.key.clone());
        self.directory.check_keys(caller, Access::Write, &key)?;
        if let Some(lease) = put.lease.filter(|lease| *lease != 0) {
            self.authorize_lease(caller, lease, Access::Write)?;
        }
        if put.want_previous { self.directory.check_keys(caller, Access::Read, &key) } else { Ok(()) }
    }

    fn authorize_delete(&self, caller: Option<&Caller>, delete: &Delete) -> Result<(), DirectoryError> {
        self.directory.check_keys(caller, Access::Write, &delete.span)?;
        if delete.want_previous { self.directory.check_keys(caller, Access::Read, &delete.span) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Alarm, AlarmChange, Compare, DirectoryChange, Error, PasswordHash, Permission, Range, Relation, Reply, Target,
    };

    /// Returns a state with authentication enabled, in which `alice` may read and write the prefix `a/` and read
    /// `shared`.
    fn enabled() -> State {
        let text = str::to_owned;
        let password = || Some(PasswordHash::new(text("x")));
        let grant = |access, span| DirectoryChange::GrantPermission {
            role: text("r"),
            permission: Permission { access, span },
        };
        let changes = [
            DirectoryChange::AddUser { name: text("root"), password: password() },
            DirectoryChange::GrantRole { user: text("root"), role: text("root") },
            DirectoryChange::AddUser { name: text("alice"), password: password() },
            DirectoryChange::AddUser { name: text("certified"), password: None },
            DirectoryChange::AddRole { name: text("r") },
            DirectoryChange::GrantRole { user: text("alice"), role: text("r") },
            grant(Access::ReadWrite, Span::prefix("a/")),
            grant(Access::Read, Span::key("shared")),
            DirectoryChange::Enable,
        ];
        let mut state = State::new();
        for change in changes {
            assert_eq!(execute(&mut state, Command::Directory(change)), Ok(Reply::Directory));
        }
        state
    }

    #[expect(clippy::needless_pass_by_value, reason = "tests write commands in place")]
    fn execute(state: &mut State, command: Command) -> Result<Reply, Error> {
        state.apply(state.applied_index() + 1, &command).result
    }

    fn user(state: &State, name: &str) -> Caller {
        Caller::User { name: name.to_owned(), revision: state.directory().revision() }
    }

    fn put(key: &'static str, lease: LeaseId, want_previous: bool) -> Put {
        Put { key: key.into(), value: Some("v".into()), lease: Some(lease), want_previous }
    }

    /// Executes a command as every caller: as alice the result is `expect`, root and the cluster succeed, anonymous
    /// fails.
    #[track_caller]
    fn check(command: &Command, expect: Result<(), DirectoryError>) {
        let state = enabled();
        let run = |caller: Option<Caller>| {
            let mut state = state.clone();
            let command = command.clone();
            let command = if let Some(caller) = caller { command.authorized(caller) } else { command };
            let before = state.revision();
            let result = execute(&mut state, command).map(drop);
            assert!(result.is_ok() || state.revision() == before, "a rejected command changes nothing");
            result
        };
        assert_eq!(run(Some(user(&state, "alice"))), expect.map_err(Error::from), "{command:?}");
        assert_eq!(run(Some(user(&state, "root"))), Ok(()), "{command:?}");
        assert_eq!(run(Some(Caller::Cluster)), Ok(()), "{command:?}");
        assert_eq!(run(None), Err(DirectoryError::UserEmpty.into()), "{command:?}");
    }

    #[test]
    fn writes_require_permission_for_every_written_or_returned_key() {
        let denied = Err(DirectoryError::PermissionDenied);
        let delete = |span, want_previous| Command::Delete(Delete { span, want_previous });
        check(&Command::Put(put("a/1", 0, false)), Ok(()));
        check(&Command::Put(put("a/1", 0, true)), Ok(()));
        check(&Command::Put(put("shared", 0, false)), denied);
        check(&Command::Put(put("b", 0, false)), denied);
        check(&delete(Span::key("a/1"), true), Ok(()));
        check(&delete(Span::prefix("a/"), false), Ok(()));
        check(&delete(Span::prefix("a"), false), denied);
        check(&delete(Span::all(), false), denied);
    }

    #[test]
    fn every_branch_of_a_transaction_requires_permission() {
        let denied = Err(DirectoryError::PermissionDenied);
        let compare =
            |key: &'static str| Compare { span: Span::key(key), relation: Relation::Equal, target: Target::Version(0) };
        let range = |key: &'static str| Operation::Range(Range::of(Span::key(key)));
        let txn = |compared: &'static str, success: Vec<Operation>, failure: Vec<Operation>| {
            Command::Txn(Txn { compare: vec![compare(compared)], success, failure })
        };
        let nested = |operation| Operation::Txn(Txn { success: vec![operation], ..Txn::default() });
        let write = |key| Operation::Put(put(key, 0, false));
        check(&txn("shared", vec![write("a/1")], vec![range("shared")]), Ok(()));
        check(&txn("b", vec![write("a/1")], vec![]), denied);
        check(&txn("shared", vec![write("a/1"), range("b")], vec![]), denied);
        check(&txn("shared", vec![write("a/1")], vec![write("shared")]), denied);
        check(&txn("shared", vec![nested(write("a/1"))], vec![nested(nested(range("a/1")))]), Ok(()));
        check(&txn("shared", vec![], vec![nested(nested(write("b")))]), denied);
        let delete = Operation::Delete(Delete { span: Span::key("shared"), want_previous: false });
        check(&txn("shared", vec![], vec![delete]), denied);
    }

    #[test]
    fn lease_requires_write_permission_for_all_its_keys() {
        let mut state = enabled();
        let alice = user(&state, "alice");
        for id in [1, 2] {
            assert!(execute(&mut state, Command::LeaseGrant { id, ttl_seconds: 9 }).is_ok());
        }
        for (key, lease) in [("a/1", 1), ("b", 2)] {
            assert!(execute(&mut state, Command::Put(put(key, lease, false)).authorized(Caller::Cluster)).is_ok());
        }
        let denied = Err(DirectoryError::PermissionDenied.into());
        let mut as_alice = |command: Command| execute(&mut state, command.authorized(alice.clone())).map(drop);
        assert_eq!(as_alice(Command::Put(put("a/2", 1, false))), Ok(()));
        assert_eq!(as_alice(Command::Put(put("a/2", 2, false))), denied, "revoking the lease would delete b");
        assert_eq!(as_alice(Command::LeaseRevoke { id: 2 }), denied);
        assert_eq!(as_alice(Command::LeaseRevoke { id: 1 }), Ok(()));
        assert_eq!(state.authorize_lease(Some(&alice), 2, Access::Read), Err(DirectoryError::PermissionDenied));
        let anonymous = execute(&mut state, Command::LeaseRevoke { id: 2 });
        assert_eq!(anonymous, Err(DirectoryError::UserEmpty.into()));
        let expired = Command::LeaseRevoke { id: 2 }.authorized(Caller::Cluster);
        assert_eq!(execute(&mut state, expired), Ok(Reply::LeaseRevoked));
    }

    #[test]
    fn only_root_changes_users_and_roles_and_a_change_makes_requests_stale() {
        check(
            &Command::Directory(DirectoryChange::AddRole { name: "s".into() }),
            Err(DirectoryError::PermissionDenied),
        );
        check(&Command::Directory(DirectoryChange::Disable), Err(DirectoryError::PermissionDenied));
        let mut state = enabled();
        let (alice, root) = (user(&state, "alice"), user(&state, "root"));
        let add = Command::Directory(DirectoryChange::AddRole { name: "s".into() });
        assert_eq!(execute(&mut state, add.authorized(root)), Ok(Reply::Directory));
        let stale = execute(&mut state, Command::Put(put("a/1", 0, false)).authorized(alice));
        assert_eq!(stale, Err(DirectoryError::OldRevision.into()));
    }

    #[test]
    fn session_requires_a_password_and_enabled_authentication() {
        let open = |user: &str| Command::Authenticate { user: user.to_owned(), token: "t".into() };
        let mut state = enabled();
        let (index, revision) = (state.applied_index() + 1, state.directory().revision());
        assert_eq!(execute(&mut state, open("alice")), Ok(Reply::Authenticated { index, revision }));
        assert_eq!(execute(&mut state, open("certified")), Err(DirectoryError::AuthFailed.into()));
        assert_eq!(execute(&mut state, open("carol")), Err(DirectoryError::AuthFailed.into()));
        assert_eq!(execute(&mut State::new(), open("alice")), Err(DirectoryError::NotEnabled.into()));
    }

    #[test]
    fn exhausted_quota_accepts_users_but_a_full_disk_does_not() {
        let add = || Command::Directory(DirectoryChange::AddRole { name: "r".into() });
        let mut state = State::new();
        let raise = |alarm| Command::Alarm { change: AlarmChange::Raise, alarm, member: 1 };
        assert!(execute(&mut state, raise(Alarm::NoSpace)).is_ok());
        assert_eq!(execute(&mut state, Command::Put(put("a", 0, false))), Err(Error::NoSpace));
        assert_eq!(execute(&mut state, add()), Ok(Reply::Directory));
        assert!(execute(&mut state, raise(Alarm::Full)).is_ok());
        let another = Command::Directory(DirectoryChange::AddRole { name: "s".into() });
        assert_eq!(execute(&mut state, another), Err(Error::NoSpace));
    }
}

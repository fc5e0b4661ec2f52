//! Random commands for property tests, on few keys so that they interact.

use bytes::Bytes;
use proptest::prelude::*;

use crate::range::{Bounds, Range, Sort, SortBy};
use crate::{
    Access, Alarm, AlarmChange, Caller, Command, Compare, Delete, DirectoryChange, Operation, PasswordHash, Permission,
    Put, Relation, Span, Target, Txn,
};

pub(crate) fn key() -> impl Strategy<Value = Bytes> {
    prop_oneof![(b'a'..=b'f').prop_map(|key| Bytes::from(vec![key])), "[ab]{2,3}".prop_map(Bytes::from)]
}

pub(crate) fn span() -> impl Strategy<Value = Span> {
    prop_oneof![
        4 => key().prop_map(Span::key),
        2 => key().prop_map(Span::prefix),
        2 => (key(), key()).prop_map(|(key, end)| Span::from_wire(key, end)),
        1 => key().prop_map(|key| Span::from_wire(key, Bytes::from_static(&[0]))),
        1 => Just(Span::all()),
    ]
}

fn value() -> impl Strategy<Value = Bytes> {
    "[x-z]{0,3}".prop_map(Bytes::from)
}

fn lease() -> impl Strategy<Value = i64> {
    prop_oneof![6 => Just(0), 1 => 1..4i64]
}

fn put() -> impl Strategy<Value = Put> {
    (key(), prop::option::weighted(0.9, value()), prop::option::weighted(0.9, lease()), any::<bool>())
        .prop_map(|(key, value, lease, want_previous)| Put { key, value, lease, want_previous })
}

fn delete() -> impl Strategy<Value = Delete> {
    (span(), any::<bool>()).prop_map(|(span, want_previous)| Delete { span, want_previous })
}

pub(crate) fn range() -> impl Strategy<Value = Range> {
    let by = prop::sample::select(vec![
        SortBy::Key,
        SortBy::Version,
        SortBy::CreateRevision,
        SortBy::ModRevision,
        SortBy::Value,
    ]);
    let sort = prop::option::of((by, any::<bool>()).prop_map(|(by, descending)| Sort { by, descending }));
    let bounds = || prop_oneof![3 => Just(Bounds::default()), 1 => (0..20i64, 0..20i64).prop_map(|(min, max)| Bounds { min, max })];
    let revision = prop_oneof![2 => Just(0), 1 => 1..40i64];
    (span(), revision, -1..5i64, sort, any::<(bool, bool)>(), bounds(), bounds()).prop_map(
        |(span, revision, limit, sort, (keys_only, count_only), mod_revision, create_revision)| Range {
            span,
            revision,
            limit,
            sort,
            keys_only,
            count_only,
            mod_revision,
            create_revision,
        },
    )
}

fn compare() -> impl Strategy<Value = Compare> {
    let relation = prop::sample::select(vec![Relation::Equal, Relation::Greater, Relation::Less, Relation::NotEqual]);
    let target = prop_oneof![
        (0..3i64).prop_map(Target::Version),
        (0..9i64).prop_map(Target::CreateRevision),
        (0..9i64).prop_map(Target::ModRevision),
        lease().prop_map(Target::Lease),
        value().prop_map(Target::Value),
    ];
    (span(), relation, target).prop_map(|(span, relation, target)| Compare { span, relation, target })
}

fn txn() -> impl Strategy<Value = Txn> {
    let leaf = prop_oneof![
        2 => range().prop_map(Operation::Range),
        3 => put().prop_map(Operation::Put),
        1 => delete().prop_map(Operation::Delete),
    ];
    let operation = leaf.prop_recursive(2, 8, 3, |inner| {
        let list = || prop::collection::vec(inner.clone(), 0..3);
        (prop::collection::vec(compare(), 0..2), list(), list())
            .prop_map(|(compare, success, failure)| Operation::Txn(Txn { compare, success, failure }))
    });
    let list = || prop::collection::vec(operation.clone(), 0..4);
    (prop::collection::vec(compare(), 0..3), list(), list()).prop_map(|(compare, success, failure)| Txn {
        compare,
        success,
        failure,
    })
}

/// Generates a command as in the log, with or without a caller.
pub(crate) fn logged_command() -> impl Strategy<Value = Command> {
    let bare = prop_oneof![
        4 => command(),
        1 => ("[ab]?", "[xy]?").prop_map(|(user, token)| Command::Authenticate { user, token }),
        1 => prop::sample::select(vec![DirectoryChange::Enable, DirectoryChange::Disable]).prop_map(Command::Directory),
    ];
    let user = ("[ab]?", any::<u64>()).prop_map(|(name, revision)| Caller::User { name, revision });
    let caller = prop::option::of(prop_oneof![Just(Caller::Cluster), user]);
    (bare, caller).prop_map(|(command, caller)| match caller {
        Some(caller) => command.authorized(caller),
        None => command,
    })
}

fn directory_change() -> impl Strategy<Value = DirectoryChange> {
    let name = || "[ab]?";
    let hash = || "[xy]".prop_map(PasswordHash::new);
    let access = prop::sample::select(vec![Access::Read, Access::Write, Access::ReadWrite]);
    prop_oneof![
        (name(), prop::option::of(hash())).prop_map(|(name, password)| DirectoryChange::AddUser { name, password }),
        name().prop_map(|name| DirectoryChange::DeleteUser { name }),
        (name(), hash()).prop_map(|(name, password)| DirectoryChange::SetPassword { name, password }),
        (name(), name()).prop_map(|(user, role)| DirectoryChange::GrantRole { user, role }),
        (name(), name()).prop_map(|(user, role)| DirectoryChange::RevokeRole { user, role }),
        name().prop_map(|name| DirectoryChange::AddRole { name }),
        name().prop_map(|name| DirectoryChange::DeleteRole { name }),
        (name(), access, span()).prop_map(|(role, access, span)| {
            DirectoryChange::GrantPermission { role, permission: Permission { access, span } }
        }),
        (name(), span()).prop_map(|(role, span)| DirectoryChange::RevokePermission { role, span }),
    ]
}

pub(crate) fn command() -> impl Strategy<Value = Command> {
    let alarm = prop::sample::select(vec![Alarm::NoSpace, Alarm::Corrupt, Alarm::Low, Alarm::Full]);
    let change = prop::sample::select(vec![AlarmChange::Raise, AlarmChange::Lower, AlarmChange::Lower]);
    prop_oneof![
        8 => put().prop_map(Command::Put),
        3 => delete().prop_map(Command::Delete),
        6 => txn().prop_map(Command::Txn),
        2 => (1..4i64, 1..100i64).prop_map(|(id, ttl_seconds)| Command::LeaseGrant { id, ttl_seconds }),
        1 => (1..4i64).prop_map(|id| Command::LeaseRevoke { id }),
        1 => prop::collection::vec((1..4i64, 1..100i64), 0..3).prop_map(|remaining| Command::LeaseCheckpoint { remaining }),
        1 => (0..30i64).prop_map(|revision| Command::Compact { revision }),
        1 => (change, alarm, 0..3u64).prop_map(|(change, alarm, member)| Command::Alarm { change, alarm, member }),
        3 => directory_change().prop_map(Command::Directory),
    ]
}

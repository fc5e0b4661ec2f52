//! Property tests of the state against a model that keeps every version in plain lists.

mod model;

use proptest::prelude::*;

use super::*;
use crate::arbitrary::{command, range, span};
use crate::{Command, Compare, Delete, Operation, Put, Relation, Target, Txn};
use model::Model;

fn put(key: &str, value: &str) -> Put {
    Put { key: key.to_owned().into(), value: Some(value.to_owned().into()), lease: Some(0), want_previous: false }
}

fn state(commands: &[Command]) -> State {
    let mut state = State::new();
    for (index, command) in (1..).zip(commands) {
        let outcome = state.apply(index, command);
        assert!(outcome.result.is_ok(), "{command:?} gave {outcome:?}");
    }
    state
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn state_behaves_like_a_model_with_full_history(
        commands in prop::collection::vec(command(), 0..50),
        ranges in prop::collection::vec(range(), 8),
        span in span(),
        from in 0..30i64,
    ) {
        let mut state = State::new();
        let mut model = Model::default();
        for (index, command) in (1..).zip(&commands) {
            let outcome = state.apply(index, command);
            let expected = model.apply(command);
            prop_assert_eq!((outcome.revision, outcome.result.map(|reply| model::reply(&reply))), expected, "{:?}", command);
        }
        for range in &ranges {
            let found = state.range(range).map(|reply| model::range_reply(&reply));
            prop_assert_eq!(found, model.range(range), "{:?}", range);
        }
        let live: usize = state.heads.iter().filter(|head| !head.0.is_tombstone()).count();
        prop_assert_eq!(state.key_count(), live);
        let size: u64 = state.heads.iter().map(|head| head.0.size_bytes()).chain(state.history.iter().map(|past| past.0.size_bytes())).sum();
        prop_assert_eq!(state.size_bytes(), size);
        if from >= state.compact_revision() {
            let events: Vec<_> = state.events(&span, from).expect("not compacted").map(model::event).collect();
            let (events, expected) = model::comparable(events, model.events(&span, from), state.compact_revision());
            prop_assert_eq!(events, expected);
        }
        for id in 1..4 {
            let keys: Vec<_> = state.lease_keys(id).map(|record| record.key().to_vec()).collect();
            prop_assert_eq!(keys, model.lease_keys(id));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn progress_of_history_removal_is_not_observable(
        commands in prop::collection::vec((command(), 0..4usize), 0..60),
        ranges in prop::collection::vec(range(), 8),
        span in span(),
        from in 0..40i64,
    ) {
        let (mut eager, mut lazy) = (State::new(), State::new());
        for (index, (command, changes)) in (1..).zip(&commands) {
            prop_assert_eq!(eager.apply(index, command), lazy.apply(index, command));
            eager.prune(usize::MAX);
            lazy.prune(*changes);
        }
        for range in &ranges {
            prop_assert_eq!(eager.range(range), lazy.range(range));
        }
        if from >= eager.compact_revision() {
            let all = |state: &State| state.events(&span, from).map(|events| events.cloned().collect::<Vec<_>>());
            let after = |state: &State| all(state).map(|events| {
                let later = |event: &Event| event.record.mod_revision > eager.compact_revision();
                events.into_iter().filter(later).collect::<Vec<_>>()
            });
            prop_assert_eq!(after(&eager), after(&lazy));
        }
        prop_assert_eq!(eager.hash_kv(0), lazy.hash_kv(0));
        let bytes = |state: &State| {
            let mut bytes = Vec::new();
            state.write_to(&mut bytes).expect("writing to memory cannot fail");
            bytes
        };
        prop_assert_eq!(bytes(&eager), bytes(&lazy), "checkpoints are the same");
        while lazy.prune(3) {}
        prop_assert_eq!(eager.size_bytes(), lazy.size_bytes());
        prop_assert_eq!((eager.heads.len(), eager.history.len()), (lazy.heads.len(), lazy.history.len()));
    }
}

#[test]
fn transaction_is_one_revision_and_reads_its_own_writes() {
    let txn = Txn {
        compare: vec![],
        success: vec![
            Operation::Put(put("a", "1")),
            Operation::Range(Range::of(Span::key("a"))),
            Operation::Put(put("b", "2")),
        ],
        failure: vec![],
    };
    let mut state = State::new();
    let outcome = state.apply(1, &Command::Txn(txn));
    assert_eq!(outcome.revision, 2);
    let Ok(Reply::Txn { succeeded: true, replies }) = outcome.result else { panic!("it succeeds") };
    let OperationBody::Range(range) = &replies[1].body else { panic!("the second is the range") };
    assert_eq!((range.records[0].value(), range.revision), (&b"1"[..], 2));
    let at: Vec<_> = state.all_events(0).map(|event| (event.record.mod_revision, event.record.sub)).collect();
    assert_eq!(at, [(2, 0), (2, 1)]);
}

#[test]
fn command_without_changes_creates_no_revision() {
    let mut state = state(&[Command::Put(put("a", "1"))]);
    let outcome = state.apply(2, &Command::Delete(Delete { span: Span::key("x"), want_previous: true }));
    assert_eq!(outcome, Outcome { revision: 2, result: Ok(Reply::Delete { deleted: 0, previous: vec![] }) });
    state.apply(3, &Command::LeaseGrant { id: 1, ttl_seconds: 5 });
    assert_eq!(state.apply(4, &Command::LeaseRevoke { id: 1 }).revision, 2);
}

#[test]
fn entry_is_applied_once() {
    let mut state = state(&[Command::Put(put("a", "1"))]);
    let outcome = state.apply(1, &Command::Put(put("a", "2")));
    assert_eq!(outcome.result, Err(Error::AlreadyApplied { index: 1 }));
    assert_eq!(state.key(b"a").map(|record| record.version), Some(1));
}

#[test]
fn absent_key_compares_as_zero_but_has_no_value() {
    #[track_caller]
    fn check(relation: Relation, target: Target, expect: bool) {
        let compare = vec![Compare { span: Span::key("absent"), relation, target }];
        let outcome = State::new().apply(1, &Command::Txn(Txn { compare, ..Txn::default() }));
        assert_eq!(outcome.result, Ok(Reply::Txn { succeeded: expect, replies: vec![] }));
    }
    check(Relation::Equal, Target::ModRevision(0), true);
    check(Relation::Equal, Target::CreateRevision(0), true);
    check(Relation::Equal, Target::Version(0), true);
    check(Relation::Greater, Target::Version(0), false);
    check(Relation::Less, Target::Version(1), true);
    check(Relation::Equal, Target::Lease(0), true);
    check(Relation::Equal, Target::Value("".into()), false);
    check(Relation::NotEqual, Target::Value("x".into()), false);
}

#[test]
fn compaction_keeps_visible_records_and_removes_the_others() {
    let mut commands: Vec<_> =
        (0..3000).map(|at| Command::Put(put(&format!("k{}", at % 10), &at.to_string()))).collect();
    commands.push(Command::Delete(Delete { span: Span::key("k3"), want_previous: false }));
    let revision = 3002;
    commands.push(Command::Compact { revision });
    let mut state = state(&commands);
    assert!(state.is_forgetting() && state.range(&Range { revision: 5, ..Range::of(Span::all()) }).is_err());
    let mut slices = 1;
    while state.prune(100) {
        slices += 1;
    }
    assert_eq!(slices, 31, "3001 changes, a hundred at a time");
    assert_eq!((state.history.len(), state.heads.len(), state.log.len()), (0, 10, 1024));
    let range = |revision| state.range(&Range { revision, ..Range::of(Span::all()) });
    assert_eq!(range(revision).map(|reply| reply.count), Ok(9));
    assert_eq!(range(revision - 1), Err(Error::Compacted { compact_revision: revision }));
    assert_eq!(range(revision + 1), Err(Error::FutureRevision));
    assert!(state.events(&Span::all(), revision - 100).is_ok(), "the tail is retained");
    assert!(state.events(&Span::all(), 5).is_err());
    let mut bytes = Vec::new();
    state.write_to(&mut bytes).expect("writing to memory cannot fail");
    let mut again = State::read_from(&mut &bytes[..]).expect("just written");
    let last =
        again.events(&Span::all(), revision).map(|events| events.map(|event| event.record.is_tombstone()).collect());
    assert_eq!(last, Ok(vec![true]), "changes at the compact revision can be watched, also after a restart");
    assert!(again.apply(u64::MAX - 1, &Command::Put(put("k4", "new"))).result.is_ok());
    assert!(again.apply(u64::MAX, &Command::Compact { revision: revision + 1 }).result.is_ok());
    while again.prune(100) {}
    assert_eq!((again.history.len(), again.heads.len()), (0, 9), "the next compaction removes the deletion");
}

#[test]
fn skipped_revisions_compact_the_history_and_keep_current_records() {
    let mut state = state(&[Command::Put(put("a", "1")), Command::Put(put("a", "2")), Command::Put(put("b", "1"))]);
    state.skip_revisions(1000);
    state.compact_all();
    assert_eq!((state.revision(), state.compact_revision(), state.key_count()), (1004, 1004, 2));
    assert_eq!(state.key(b"a").map(|record| record.mod_revision), Some(3));
    let early = Range { revision: 4, ..Range::of(Span::all()) };
    assert_eq!(state.range(&early), Err(Error::Compacted { compact_revision: 1004 }));
    assert_eq!(state.apply(4, &Command::Put(put("a", "3"))).revision, 1005);
    state.compact_all();
    state.compact_all();
    assert_eq!((state.compact_revision(), state.history.len()), (1005, 0));
}

#[test]
fn full_store_rejects_growth_and_allows_deletion() {
    let mut state = state(&[
        Command::Put(put("a", "1")),
        Command::Alarm { change: crate::AlarmChange::Raise, alarm: Alarm::NoSpace, member: 5 },
    ]);
    assert_eq!(state.apply(3, &Command::Put(put("b", "1"))).result, Err(Error::NoSpace));
    let txn = Txn { failure: vec![Operation::Put(put("b", "1"))], ..Txn::default() };
    assert_eq!(state.apply(4, &Command::Txn(txn)).result, Err(Error::NoSpace));
    assert!(state.apply(5, &Command::Delete(Delete { span: Span::key("a"), want_previous: false })).result.is_ok());
    let lower = Command::Alarm { change: crate::AlarmChange::Lower, alarm: Alarm::NoSpace, member: 0 };
    assert_eq!(state.apply(6, &lower).result, Ok(Reply::Alarms(vec![(5, Alarm::NoSpace)])));
    assert!(state.apply(7, &Command::Put(put("b", "1"))).result.is_ok());
}

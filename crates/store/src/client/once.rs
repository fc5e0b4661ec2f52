//! Idempotent transactions, which can be retried even if the first attempt succeeds in the meantime.
//!
//! Such a transaction writes keys only if their mod revision is unchanged, so it succeeds at most once. If its outcome
//! is unknown, it is sent again. If the second attempt fails, the stored values are compared with the values to be
//! written.

use bytes::Bytes;
use mvcc::{OperationBody, OperationReply, Record, Reply, Revision};
use pb::compare::{CompareResult, CompareTarget, TargetUnion};
use pb::request_op::Request;

use super::TxnOutcome;
use crate::etcd::proto::etcdserverpb as pb;

/// A key that a transaction writes if its mod revision matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConditionalWrite {
    pub key: Bytes,
    value: Bytes,
    left_at: Revision,
}

/// Returns the keys that a transaction writes, if it is idempotent.
pub(super) fn written(txn: &pb::TxnRequest) -> Option<Vec<ConditionalWrite>> {
    let only_reads = |operation: &pb::RequestOp| matches!(operation.request, Some(Request::RequestRange(_)));
    let puts = txn.success.iter().map(|operation| match &operation.request {
        Some(Request::RequestPut(put)) if !put.ignore_value && !put.prev_kv => {
            let left_at = left_at(&txn.compare, &put.key)?;
            Some(ConditionalWrite { key: put.key.clone(), value: put.value.clone(), left_at })
        }
        _ => None,
    });
    let puts = puts.collect::<Option<Vec<_>>>().filter(|puts| !puts.is_empty())?;
    txn.failure.iter().all(only_reads).then_some(puts)
}

/// Returns the mod revision that a key is compared with.
fn left_at(compares: &[pb::Compare], key: &Bytes) -> Option<Revision> {
    compares.iter().find_map(|compare| match compare.target_union {
        Some(TargetUnion::ModRevision(revision))
            if compare.key == key
                && compare.range_end.is_empty()
                && compare.target() == CompareTarget::Mod
                && compare.result() == CompareResult::Equal =>
        {
            Some(revision)
        }
        _ => None,
    })
}

impl ConditionalWrite {
    /// Returns the revision of the stored record, if it is newer and has the value to be written.
    pub(super) fn done_at(&self, there: Option<&Record>) -> Option<Revision> {
        let there = there.filter(|there| there.mod_revision > self.left_at && there.value() == &*self.value)?;
        Some(there.mod_revision)
    }
}

/// Returns the outcome of a transaction that succeeded in an earlier attempt.
pub(super) fn outcome(revision: Revision, puts: usize) -> TxnOutcome {
    let put = || OperationReply { revision, body: OperationBody::Put { previous: None } };
    TxnOutcome { revision, reply: Reply::Txn { succeeded: true, replies: (0..puts).map(|_| put()).collect() } }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(key: &'static str, target: CompareTarget, revision: Revision) -> pb::Compare {
        pb::Compare {
            result: CompareResult::Equal.into(),
            target: target.into(),
            key: key.into(),
            target_union: Some(TargetUnion::ModRevision(revision)),
            ..pb::Compare::default()
        }
    }

    fn operation(request: Request) -> pb::RequestOp {
        pb::RequestOp { request: Some(request) }
    }

    fn put(key: &'static str) -> pb::RequestOp {
        operation(Request::RequestPut(pb::PutRequest { key: key.into(), value: "new".into(), ..Default::default() }))
    }

    fn read(key: &'static str) -> pb::RequestOp {
        operation(Request::RequestRange(pb::RangeRequest { key: key.into(), ..Default::default() }))
    }

    #[test]
    fn transaction_is_idempotent_if_it_compares_every_written_key() {
        let by_revision = |key| compare(key, CompareTarget::Mod, 7);
        let check = |compare: Vec<pb::Compare>, success: Vec<pb::RequestOp>, failure: Vec<pb::RequestOp>, expect| {
            let txn = pb::TxnRequest { compare, success, failure };
            assert_eq!(written(&txn).map(|puts| puts.len()), expect, "{txn:?}");
        };
        check(vec![by_revision("a")], vec![put("a")], vec![read("a")], Some(1));
        check(vec![by_revision("a"), by_revision("b")], vec![put("a"), put("b")], vec![], Some(2));
        check(vec![by_revision("a")], vec![put("a"), put("b")], vec![], None);
        check(vec![compare("a", CompareTarget::Version, 7)], vec![put("a")], vec![], None);
        check(vec![], vec![put("a")], vec![], None);
        check(vec![by_revision("a")], vec![put("a")], vec![put("a")], None);
        check(vec![by_revision("a")], vec![read("a")], vec![], None);
    }

    #[test]
    fn stored_record_is_compared_with_the_written_value() {
        let written = ConditionalWrite { key: "a".into(), value: "new".into(), left_at: 7 };
        let there = |value: &str, revision| Record::new(b"a", value.as_bytes(), (1, revision), 2, 0);
        assert_eq!(written.done_at(Some(&there("new", 9))), Some(9));
        assert_eq!(written.done_at(Some(&there("another", 9))), None);
        assert_eq!(written.done_at(Some(&there("new", 7))), None, "the value is unchanged");
        assert_eq!(written.done_at(None), None);
    }
}

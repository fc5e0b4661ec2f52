//! Validation of requests before they are proposed.

use std::collections::BTreeSet;

use bytes::Bytes;
use mvcc::Span;
use tonic::Status;

use super::proto::etcdserverpb as pb;
use super::proto::etcdserverpb::request_op::Request;
use super::status::invalid;

const EMPTY_KEY: &str = "etcdserver: key is not provided";
const DUPLICATE_KEY: &str = "etcdserver: duplicate key given in txn request";

pub(super) fn key(key: &[u8]) -> Result<(), Status> {
    if key.is_empty() { Err(invalid(EMPTY_KEY)) } else { Ok(()) }
}

pub(super) fn put(request: &pb::PutRequest) -> Result<(), Status> {
    key(&request.key)?;
    if request.ignore_value && !request.value.is_empty() {
        return Err(invalid("etcdserver: value is provided"));
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(invalid("etcdserver: lease is provided"));
    }
    Ok(())
}

/// Validates a transaction recursively: the number of operations, complete operations, and no key written twice.
pub(super) fn txn(request: &pb::TxnRequest, ops_max: usize) -> Result<(), Status> {
    operations(request, ops_max)?;
    writes(&request.success)?;
    writes(&request.failure)?;
    Ok(())
}

fn operations(request: &pb::TxnRequest, ops_max: usize) -> Result<(), Status> {
    let ops = request.compare.len().max(request.success.len()).max(request.failure.len());
    // Nested transactions share the limit of the outer one.
    let Some(ops_left) = ops_max.checked_sub(ops) else {
        return Err(invalid("etcdserver: too many operations in txn request"));
    };
    request.compare.iter().try_for_each(|compare| key(&compare.key))?;
    request.success.iter().chain(&request.failure).try_for_each(|operation| match &operation.request {
        Some(Request::RequestRange(range)) => key(&range.key),
        Some(Request::RequestPut(request)) => put(request),
        Some(Request::RequestDeleteRange(delete)) => key(&delete.key),
        Some(Request::RequestTxn(txn)) => operations(txn, ops_left),
        None => Err(invalid("etcdserver: key not found")),
    })
}

/// The keys and spans that a list of operations writes.
#[derive(Default)]
struct Writes {
    puts: BTreeSet<Bytes>,
    deletes: Vec<Span>,
}

impl Writes {
    fn put(&mut self, key: &Bytes) -> Result<(), Status> {
        if self.deletes.iter().any(|span| span.contains(key)) || !self.puts.insert(key.clone()) {
            return Err(invalid(DUPLICATE_KEY));
        }
        Ok(())
    }
}

/// Returns the written keys, or an error if a key is written twice. A put of a deleted key is rejected regardless of
/// the order of the operations. The branches of a nested transaction may write the same keys, because only one is
/// executed.
fn writes(operations: &[pb::RequestOp]) -> Result<Writes, Status> {
    let mut all = Writes::default();
    for operation in operations {
        if let Some(Request::RequestDeleteRange(delete)) = &operation.request {
            all.deletes.push(Span::from_wire(delete.key.clone(), delete.range_end.clone()));
        }
    }
    for operation in operations {
        if let Some(Request::RequestTxn(txn)) = &operation.request {
            let (success, failure) = (writes(&txn.success)?, writes(&txn.failure)?);
            let both: BTreeSet<Bytes> = success.puts.union(&failure.puts).cloned().collect();
            both.iter().try_for_each(|key| all.put(key))?;
            all.deletes.extend(success.deletes);
            all.deletes.extend(failure.deletes);
        }
    }
    for operation in operations {
        if let Some(Request::RequestPut(put)) = &operation.request {
            all.put(&put.key)?;
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put_op(key: &'static str) -> pb::RequestOp {
        op(Request::RequestPut(pb::PutRequest { key: key.into(), ..Default::default() }))
    }

    fn delete_op(key: &'static str, end: &'static str) -> pb::RequestOp {
        op(Request::RequestDeleteRange(pb::DeleteRangeRequest {
            key: key.into(),
            range_end: end.into(),
            prev_kv: false,
        }))
    }

    fn txn_op(success: Vec<pb::RequestOp>, failure: Vec<pb::RequestOp>) -> pb::RequestOp {
        op(Request::RequestTxn(pb::TxnRequest { compare: vec![], success, failure }))
    }

    fn op(request: Request) -> pb::RequestOp {
        pb::RequestOp { request: Some(request) }
    }

    #[track_caller]
    fn check(success: Vec<pb::RequestOp>, expect: Result<(), &str>) {
        let result = txn(&pb::TxnRequest { compare: vec![], success, failure: vec![] }, 4);
        assert_eq!(result.as_ref().map_err(Status::message).copied(), expect);
    }

    #[test]
    fn key_must_not_be_written_twice() {
        check(vec![put_op("a"), put_op("b"), delete_op("c", "")], Ok(()));
        check(vec![put_op("a"), put_op("a")], Err(DUPLICATE_KEY));
        check(vec![put_op("b"), delete_op("a", "c")], Err(DUPLICATE_KEY));
        check(vec![delete_op("a", "\0"), put_op("b")], Err(DUPLICATE_KEY));
        check(vec![delete_op("a", "c"), delete_op("a", "c")], Ok(()));
        check(vec![txn_op(vec![put_op("a")], vec![put_op("a")])], Ok(()));
        check(vec![txn_op(vec![put_op("a")], vec![]), put_op("a")], Err(DUPLICATE_KEY));
        check(vec![txn_op(vec![put_op("a")], vec![]), txn_op(vec![], vec![put_op("a")])], Err(DUPLICATE_KEY));
        check(vec![txn_op(vec![delete_op("a", "")], vec![]), put_op("a")], Err(DUPLICATE_KEY));
    }

    #[test]
    fn operations_are_limited_and_must_be_complete() {
        let many = ["a", "b", "c", "d", "e"].map(put_op);
        check(many[..4].to_vec(), Ok(()));
        check(many.to_vec(), Err("etcdserver: too many operations in txn request"));
        check(vec![txn_op(many[..4].to_vec(), vec![])], Err("etcdserver: too many operations in txn request"));
        check(vec![put_op("")], Err(EMPTY_KEY));
        check(vec![pb::RequestOp { request: None }], Err("etcdserver: key not found"));
    }
}

//! Conversion of etcd requests to commands and queries, and of outcomes to responses.

use std::sync::Arc;

use mvcc::{
    Bounds, Compare, Delete, Operation, OperationBody, OperationReply, Put, Range, RangeReply, Record, Relation, Reply,
    Sort, SortBy, Span, Target, Txn,
};

use super::proto::etcdserverpb as pb;
use super::proto::mvccpb;

pub(super) fn key_value(record: &Record) -> mvccpb::KeyValue {
    mvccpb::KeyValue {
        key: record.key_bytes(),
        create_revision: record.create_revision,
        mod_revision: record.mod_revision,
        version: record.version,
        value: record.value_bytes(),
        lease: record.lease,
    }
}

fn previous(record: Option<&Arc<Record>>) -> Option<mvccpb::KeyValue> {
    record.map(|record| key_value(record))
}

fn key_values(records: &[Arc<Record>]) -> Vec<mvccpb::KeyValue> {
    records.iter().map(|record| key_value(record)).collect()
}

pub(super) fn range(request: pb::RangeRequest) -> Range {
    let (order, target) = (request.sort_order(), request.sort_target());
    Range {
        sort: sort(order, target),
        span: Span::from_wire(request.key, request.range_end),
        revision: request.revision,
        limit: request.limit,
        keys_only: request.keys_only,
        count_only: request.count_only,
        mod_revision: Bounds { min: request.min_mod_revision, max: request.max_mod_revision },
        create_revision: Bounds { min: request.min_create_revision, max: request.max_create_revision },
    }
}

fn sort(order: pb::range_request::SortOrder, target: pb::range_request::SortTarget) -> Option<Sort> {
    use pb::range_request::{SortOrder, SortTarget};
    let by = match target {
        SortTarget::Key => SortBy::Key,
        SortTarget::Version => SortBy::Version,
        SortTarget::Create => SortBy::CreateRevision,
        SortTarget::Mod => SortBy::ModRevision,
        SortTarget::Value => SortBy::Value,
    };
    match (order, by) {
        // Keys are read in ascending order, so this order needs no sort and the limit applies to the read.
        (SortOrder::None | SortOrder::Ascend, SortBy::Key) => None,
        (SortOrder::None | SortOrder::Ascend, by) => Some(Sort { by, descending: false }),
        (SortOrder::Descend, by) => Some(Sort { by, descending: true }),
    }
}

pub(super) fn range_response(reply: &RangeReply, header: Option<pb::ResponseHeader>) -> pb::RangeResponse {
    let mut kvs = key_values(&reply.records);
    if reply.keys_only {
        kvs.iter_mut().for_each(|kv| kv.value.clear());
    }
    pb::RangeResponse { header, kvs, more: reply.more, count: reply.count }
}

pub(super) fn put(request: pb::PutRequest) -> Put {
    Put {
        key: request.key,
        value: (!request.ignore_value).then_some(request.value),
        lease: (!request.ignore_lease).then_some(request.lease),
        want_previous: request.prev_kv,
    }
}

pub(super) fn put_response(reply: &Reply, header: Option<pb::ResponseHeader>) -> pb::PutResponse {
    let previous_record = if let Reply::Put { previous } = reply { previous.as_ref() } else { None };
    pb::PutResponse { header, prev_kv: previous(previous_record) }
}

pub(super) fn delete(request: pb::DeleteRangeRequest) -> Delete {
    Delete { span: Span::from_wire(request.key, request.range_end), want_previous: request.prev_kv }
}

pub(super) fn delete_response(reply: &Reply, header: Option<pb::ResponseHeader>) -> pb::DeleteRangeResponse {
    let (deleted, records) = match reply {
        Reply::Delete { deleted, previous } => (*deleted, &previous[..]),
        _ => (0, &[][..]),
    };
    pb::DeleteRangeResponse { header, deleted: count(deleted), prev_kvs: key_values(records) }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).expect("memory holds fewer than 2^63 keys")
}

/// Converts a transaction whose operations have been validated.
pub(super) fn txn(request: pb::TxnRequest) -> Txn {
    let operations = |list: Vec<pb::RequestOp>| list.into_iter().filter_map(operation).collect();
    Txn {
        compare: request.compare.into_iter().map(compare).collect(),
        success: operations(request.success),
        failure: operations(request.failure),
    }
}

fn operation(operation: pb::RequestOp) -> Option<Operation> {
    use pb::request_op::Request;
    Some(match operation.request? {
        Request::RequestRange(request) => Operation::Range(range(request)),
        Request::RequestPut(request) => Operation::Put(put(request)),
        Request::RequestDeleteRange(request) => Operation::Delete(delete(request)),
        Request::RequestTxn(request) => Operation::Txn(txn(request)),
    })
}

fn compare(request: pb::Compare) -> Compare {
    use pb::compare::{CompareResult, CompareTarget, TargetUnion};
    let relation = match request.result() {
        CompareResult::Equal => Relation::Equal,
        CompareResult::Greater => Relation::Greater,
        CompareResult::Less => Relation::Less,
        CompareResult::NotEqual => Relation::NotEqual,
    };
    // `target` selects the comparison; a value for another target counts as absent, which is zero.
    let target = match (request.target(), request.target_union) {
        (CompareTarget::Version, Some(TargetUnion::Version(version))) => Target::Version(version),
        (CompareTarget::Version, _) => Target::Version(0),
        (CompareTarget::Create, Some(TargetUnion::CreateRevision(revision))) => Target::CreateRevision(revision),
        (CompareTarget::Create, _) => Target::CreateRevision(0),
        (CompareTarget::Mod, Some(TargetUnion::ModRevision(revision))) => Target::ModRevision(revision),
        (CompareTarget::Mod, _) => Target::ModRevision(0),
        (CompareTarget::Value, Some(TargetUnion::Value(value))) => Target::Value(value),
        (CompareTarget::Value, _) => Target::Value(bytes::Bytes::new()),
        (CompareTarget::Lease, Some(TargetUnion::Lease(lease))) => Target::Lease(lease),
        (CompareTarget::Lease, _) => Target::Lease(0),
    };
    Compare { span: Span::from_wire(request.key, request.range_end), relation, target }
}

pub(super) fn txn_response(reply: Reply, header: Option<pb::ResponseHeader>) -> pb::TxnResponse {
    let (succeeded, replies) = match reply {
        Reply::Txn { succeeded, replies } => (succeeded, replies),
        _ => (false, Vec::new()),
    };
    pb::TxnResponse { header, succeeded, responses: replies.into_iter().map(operation_response).collect() }
}

fn operation_response(reply: OperationReply) -> pb::ResponseOp {
    use pb::response_op::Response;
    // Headers within a transaction contain only the revision.
    let header = Some(pb::ResponseHeader { revision: reply.revision, ..pb::ResponseHeader::default() });
    let response = match reply.body {
        OperationBody::Range(reply) => Response::ResponseRange(range_response(&reply, header)),
        OperationBody::Put { previous } => Response::ResponsePut(put_response(&Reply::Put { previous }, header)),
        OperationBody::Delete { deleted, previous } => {
            Response::ResponseDeleteRange(delete_response(&Reply::Delete { deleted, previous }, header))
        }
        OperationBody::Txn { succeeded, replies } => {
            Response::ResponseTxn(txn_response(Reply::Txn { succeeded, replies }, header))
        }
    };
    pb::ResponseOp { response: Some(response) }
}

pub(super) fn event(event: &mvcc::Event, want_previous: bool) -> mvccpb::Event {
    let record = &event.record;
    let r#type = if record.is_tombstone() { mvccpb::event::EventType::Delete } else { mvccpb::event::EventType::Put };
    mvccpb::Event {
        r#type: r#type.into(),
        kv: Some(key_value(record)),
        prev_kv: event.previous.as_ref().filter(|_| want_previous).map(|record| key_value(record)),
    }
}

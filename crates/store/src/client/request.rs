//! Conversion of commands and queries to etcd requests, and of etcd responses to outcomes.

use std::sync::Arc;

use bytes::Bytes;
use mvcc::{
    Compare, Delete, Event, Operation, OperationBody, OperationReply, Put, Range, RangeReply, Record, Relation, Reply,
    SortBy, Target, Txn,
};

use super::Freshness;
use crate::etcd::proto::etcdserverpb as pb;
use crate::etcd::proto::mvccpb;

pub(super) fn range(range: Range, freshness: Freshness) -> pb::RangeRequest {
    use pb::range_request::{SortOrder, SortTarget};
    let order = |descending| if descending { SortOrder::Descend } else { SortOrder::Ascend };
    let target = |by| match by {
        SortBy::Key => SortTarget::Key,
        SortBy::Version => SortTarget::Version,
        SortBy::CreateRevision => SortTarget::Create,
        SortBy::ModRevision => SortTarget::Mod,
        SortBy::Value => SortTarget::Value,
    };
    pb::RangeRequest {
        range_end: range.span.wire_end(),
        key: first_key(range.span.start),
        limit: range.limit,
        revision: range.revision,
        sort_order: range.sort.map_or(SortOrder::None, |sort| order(sort.descending)).into(),
        sort_target: range.sort.map_or(SortTarget::Key, |sort| target(sort.by)).into(),
        serializable: freshness == Freshness::Stale,
        keys_only: range.keys_only,
        count_only: range.count_only,
        min_mod_revision: range.mod_revision.min,
        max_mod_revision: range.mod_revision.max,
        min_create_revision: range.create_revision.min,
        max_create_revision: range.create_revision.max,
    }
}

/// Maps the empty key, which the protocol does not have, to the smallest one: a zero byte.
pub(super) fn first_key(key: Bytes) -> Bytes {
    if key.is_empty() { Bytes::from_static(&[0]) } else { key }
}

pub(super) fn txn(txn: Txn) -> pb::TxnRequest {
    let operations = |list: Vec<Operation>| list.into_iter().map(operation).collect();
    pb::TxnRequest {
        compare: txn.compare.into_iter().map(compare).collect(),
        success: operations(txn.success),
        failure: operations(txn.failure),
    }
}

fn operation(operation: Operation) -> pb::RequestOp {
    use pb::request_op::Request;
    let request = match operation {
        Operation::Range(query) => Request::RequestRange(range(query, Freshness::Linearizable)),
        Operation::Put(write) => Request::RequestPut(put(write)),
        Operation::Delete(Delete { span, want_previous }) => Request::RequestDeleteRange(pb::DeleteRangeRequest {
            range_end: span.wire_end(),
            key: first_key(span.start),
            prev_kv: want_previous,
        }),
        Operation::Txn(nested) => Request::RequestTxn(txn(nested)),
    };
    pb::RequestOp { request: Some(request) }
}

fn put(put: Put) -> pb::PutRequest {
    pb::PutRequest {
        key: put.key,
        ignore_value: put.value.is_none(),
        value: put.value.unwrap_or_default(),
        ignore_lease: put.lease.is_none(),
        lease: put.lease.unwrap_or_default(),
        prev_kv: put.want_previous,
    }
}

fn compare(compare: Compare) -> pb::Compare {
    use pb::compare::{CompareResult, CompareTarget, TargetUnion};
    let result = match compare.relation {
        Relation::Equal => CompareResult::Equal,
        Relation::Greater => CompareResult::Greater,
        Relation::Less => CompareResult::Less,
        Relation::NotEqual => CompareResult::NotEqual,
    };
    let (target, value) = match compare.target {
        Target::Version(version) => (CompareTarget::Version, TargetUnion::Version(version)),
        Target::CreateRevision(revision) => (CompareTarget::Create, TargetUnion::CreateRevision(revision)),
        Target::ModRevision(revision) => (CompareTarget::Mod, TargetUnion::ModRevision(revision)),
        Target::Value(value) => (CompareTarget::Value, TargetUnion::Value(value)),
        Target::Lease(lease) => (CompareTarget::Lease, TargetUnion::Lease(lease)),
    };
    pb::Compare {
        result: result.into(),
        target: target.into(),
        range_end: compare.span.wire_end(),
        key: first_key(compare.span.start),
        target_union: Some(value),
    }
}

fn record(kv: &mvccpb::KeyValue) -> Arc<Record> {
    let revisions = (kv.create_revision, kv.mod_revision);
    Arc::new(Record::new(&kv.key, &kv.value, revisions, kv.version, kv.lease))
}

fn records(kvs: &[mvccpb::KeyValue]) -> Vec<Arc<Record>> {
    kvs.iter().map(record).collect()
}

fn revision(header: Option<&pb::ResponseHeader>) -> mvcc::Revision {
    header.map_or(0, |header| header.revision)
}

pub(super) fn range_reply(response: &pb::RangeResponse, keys_only: bool) -> RangeReply {
    RangeReply {
        revision: revision(response.header.as_ref()),
        records: records(&response.kvs),
        more: response.more,
        count: response.count,
        keys_only,
    }
}

pub(super) fn txn_reply(response: &pb::TxnResponse) -> Reply {
    Reply::Txn {
        succeeded: response.succeeded,
        replies: response.responses.iter().filter_map(operation_reply).collect(),
    }
}

fn operation_reply(operation: &pb::ResponseOp) -> Option<OperationReply> {
    use pb::response_op::Response;
    let (header, body) = match operation.response.as_ref()? {
        Response::ResponseRange(response) => (&response.header, OperationBody::Range(range_reply(response, false))),
        Response::ResponsePut(response) => {
            (&response.header, OperationBody::Put { previous: response.prev_kv.as_ref().map(record) })
        }
        Response::ResponseDeleteRange(response) => {
            let deleted = usize::try_from(response.deleted).unwrap_or(0);
            (&response.header, OperationBody::Delete { deleted, previous: records(&response.prev_kvs) })
        }
        Response::ResponseTxn(response) => {
            let replies = response.responses.iter().filter_map(operation_reply).collect();
            (&response.header, OperationBody::Txn { succeeded: response.succeeded, replies })
        }
    };
    Some(OperationReply { revision: revision(header.as_ref()), body })
}

pub(super) fn event(event: &mvccpb::Event) -> Option<Event> {
    Some(Event { record: record(event.kv.as_ref()?), previous: event.prev_kv.as_ref().map(record) })
}

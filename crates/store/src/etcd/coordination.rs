//! The Lock and Election services, for clients without a concurrency library.
//!
//! Both are a queue of keys under a prefix, one per waiting lease. The key with the lowest create revision owns the
//! lock. When a key is deleted or its lease expires, the next waiter is notified by its watch.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use mvcc::{
    Access, Bounds, Caller, Command, Compare, Delete, LeaseId, Operation, OperationBody, Put, Range, Record, Relation,
    Reply, Revision, Sort, SortBy, Span, State, Target, Txn,
};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tracing::Instrument;

use super::caller::Credentials;
use super::proto::v3electionpb::{self as election, LeaderKey};
use super::proto::v3lockpb as lock;
use super::{Server, convert, status};
use crate::backend::Backend;

/// Maximum number of events processed at a time while waiting.
const BATCH_EVENTS: usize = 100;

#[tonic::async_trait]
impl<B: Backend> lock::lock_server::Lock for Server<B> {
    async fn lock(&self, request: Request<lock::LockRequest>) -> Result<Response<lock::LockResponse>, Status> {
        let caller = self.caller(&Credentials::of(&request)).await?;
        let request = request.into_inner();
        let entry = self.queue(caller, &request.name, request.lease, Bytes::new()).await?;
        self.turn(&request.name, &entry).await?;
        Ok(Response::new(lock::LockResponse { header: self.header_now(), key: entry.key_bytes() }))
    }

    async fn unlock(&self, request: Request<lock::UnlockRequest>) -> Result<Response<lock::UnlockResponse>, Status> {
        let caller = self.caller(&Credentials::of(&request)).await?;
        let delete = Delete { span: Span::key(request.into_inner().key), want_previous: false };
        let (revision, _) = self.apply(caller, Command::Delete(delete)).await?;
        Ok(Response::new(lock::UnlockResponse { header: self.header(revision) }))
    }
}

#[tonic::async_trait]
impl<B: Backend> election::election_server::Election for Server<B> {
    type ObserveStream = Pin<Box<dyn Stream<Item = Result<election::LeaderResponse, Status>> + Send>>;

    async fn campaign(
        &self,
        request: Request<election::CampaignRequest>,
    ) -> Result<Response<election::CampaignResponse>, Status> {
        let caller = self.caller(&Credentials::of(&request)).await?;
        let request = request.into_inner();
        let entry = self.queue(caller, &request.name, request.lease, request.value).await?;
        self.turn(&request.name, &entry).await?;
        let (key, rev) = (entry.key_bytes(), entry.create_revision);
        let leader = Some(LeaderKey { name: request.name, key, rev, lease: request.lease });
        Ok(Response::new(election::CampaignResponse { header: self.header_now(), leader }))
    }

    async fn proclaim(
        &self,
        request: Request<election::ProclaimRequest>,
    ) -> Result<Response<election::ProclaimResponse>, Status> {
        let caller = self.caller(&Credentials::of(&request)).await?;
        let request = request.into_inner();
        let leader = request.leader.ok_or_else(no_leader_given)?;
        let put = put(&leader.key, request.value, leader.lease);
        let revision =
            self.as_leader(caller, leader, put).await?.ok_or_else(|| Status::unknown("election: not leader"))?;
        Ok(Response::new(election::ProclaimResponse { header: self.header(revision) }))
    }

    async fn leader(
        &self,
        request: Request<election::LeaderRequest>,
    ) -> Result<Response<election::LeaderResponse>, Status> {
        self.backend.read_index().await.map_err(status::of_backend)?;
        let caller = self.caller(&Credentials::of(&request)).await?;
        let name = request.into_inner().name;
        self.authorize_queue(caller.as_ref(), &name)?;
        let found = self.backend.view(|state| first(state, &name, 0)).map_err(status::of_mvcc)?;
        let leader = found.ok_or_else(|| Status::unknown("election: no leader"))?;
        Ok(Response::new(election::LeaderResponse { header: self.header_now(), kv: Some(convert::key_value(&leader)) }))
    }

    async fn observe(
        &self,
        request: Request<election::LeaderRequest>,
    ) -> Result<Response<Self::ObserveStream>, Status> {
        self.backend.read_index().await.map_err(status::of_backend)?;
        let caller = self.caller(&Credentials::of(&request)).await?;
        self.authorize_queue(caller.as_ref(), &request.get_ref().name)?;
        let (leaders, receiver) = mpsc::channel(1);
        let (server, name) = (self.clone(), request.into_inner().name);
        let task = async move {
            tokio::select! {
                () = server.observe_leaders(&name, &leaders) => {}
                () = leaders.closed() => {}
            }
        };
        tokio::spawn(task.in_current_span());
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn resign(
        &self,
        request: Request<election::ResignRequest>,
    ) -> Result<Response<election::ResignResponse>, Status> {
        let caller = self.caller(&Credentials::of(&request)).await?;
        let leader = request.into_inner().leader.ok_or_else(no_leader_given)?;
        let delete = Operation::Delete(Delete { span: Span::key(leader.key.clone()), want_previous: false });
        // A caller that is no longer the leader has already resigned.
        self.as_leader(caller, leader, delete).await?;
        Ok(Response::new(election::ResignResponse { header: self.header_now() }))
    }
}

impl<B: Backend> Server<B> {
    /// Enqueues a key for the lease, or finds the existing one, and sets its value.
    async fn queue(
        &self,
        caller: Option<Caller>,
        name: &[u8],
        lease: LeaseId,
        value: Bytes,
    ) -> Result<Arc<Record>, Status> {
        self.authorize_queue(caller.as_ref(), name)?;
        if lease == 0 {
            // DEVIATION: a request without a lease is rejected. etcd grants a lease here and keeps it alive only until
            // the call ends.
            return Err(Status::invalid_argument("etcdserver: lease is not provided"));
        }
        let key = Bytes::from([name, format!("/{lease:x}").as_bytes()].concat());
        let txn = Txn {
            compare: vec![created_at(&key, 0)],
            success: vec![put(&key, value.clone(), lease), Operation::Range(Range::of(Span::key(key.clone())))],
            failure: vec![Operation::Range(Range::of(Span::key(key.clone())))],
        };
        let (_, reply) = self.apply(caller.clone(), Command::Txn(txn)).await?;
        let Reply::Txn { replies, .. } = reply else { return Err(Status::internal("a transaction without its reply")) };
        let entry = replies.into_iter().find_map(|reply| match reply.body {
            OperationBody::Range(range) => range.records.into_iter().next(),
            _ => None,
        });
        let entry = entry.ok_or_else(|| Status::internal("the queue entry does not exist"))?;
        if entry.value() != &value[..] {
            let leader = LeaderKey { key, rev: entry.create_revision, lease, ..LeaderKey::default() };
            let put = put(&leader.key, value, lease);
            self.as_leader(caller, leader, put).await?;
        }
        Ok(entry)
    }

    /// Executes an operation if the key has the leader's create revision. Returns the revision if it was executed.
    async fn as_leader(
        &self,
        caller: Option<Caller>,
        leader: LeaderKey,
        operation: Operation,
    ) -> Result<Option<Revision>, Status> {
        let txn = Txn { compare: vec![created_at(&leader.key, leader.rev)], success: vec![operation], failure: vec![] };
        let (revision, reply) = self.apply(caller, Command::Txn(txn)).await?;
        Ok(matches!(reply, Reply::Txn { succeeded: true, .. }).then_some(revision))
    }

    /// Fails unless the caller may read the keys of the queue, because waiting reveals the earlier waiters.
    fn authorize_queue(&self, caller: Option<&Caller>, name: &[u8]) -> Result<(), Status> {
        self.permitted(|directory| directory.check_keys(caller, Access::Read, &places(name)))
    }

    /// Waits until all earlier keys are deleted; fails if this key is deleted first.
    async fn turn(&self, name: &[u8], entry: &Record) -> Result<(), Status> {
        self.backend.read_index().await.map_err(status::of_backend)?;
        while let Some(before) =
            self.backend.view(|state| last_before(state, name, entry.create_revision)).map_err(status::of_mvcc)?
        {
            self.wait_for_change(Span::key(before.key_bytes()), before.mod_revision + 1).await;
        }
        let still_queued = self.backend.view(|state| {
            state.key(&entry.key_bytes()).is_some_and(|key| key.create_revision == entry.create_revision)
        });
        if still_queued { Ok(()) } else { Err(Status::unknown("mutex: session is expired")) }
    }

    async fn observe_leaders(&self, name: &[u8], leaders: &mpsc::Sender<Result<election::LeaderResponse, Status>>) {
        let mut last_revision = 0;
        loop {
            let (leader, revision) = self.backend.view(|state| (first(state, name, 0), state.revision()));
            let Ok(leader) = leader else { return };
            if let Some(leader) = leader.filter(|leader| leader.mod_revision != last_revision) {
                last_revision = leader.mod_revision;
                let kv = Some(convert::key_value(&leader));
                if leaders.send(Ok(election::LeaderResponse { header: self.header(revision), kv })).await.is_err() {
                    return;
                }
            }
            self.wait_for_change(places(name), revision + 1).await;
        }
    }

    /// Waits for a change of the span from a revision on, or until that history is no longer available.
    async fn wait_for_change(&self, span: Span, from: Revision) {
        let mut watchers = self.backend.hub().watchers();
        watchers.add(span.clone(), from);
        loop {
            let (_, mark) = watchers.ready().await;
            let batch = self.backend.view(|state| state.event_batch(&span, mark.max(from), BATCH_EVENTS));
            if batch.is_ok_and(|batch| batch.events.is_empty()) {
                continue;
            }
            return;
        }
    }
}

fn no_leader_given() -> Status {
    Status::unknown("\"leader\" field must be provided")
}

fn created_at(key: &Bytes, revision: Revision) -> Compare {
    Compare { span: Span::key(key.clone()), relation: Relation::Equal, target: Target::CreateRevision(revision) }
}

fn put(key: &Bytes, value: Bytes, lease: LeaseId) -> Operation {
    Operation::Put(Put { key: key.clone(), value: Some(value), lease: Some(lease), want_previous: false })
}

fn places(name: &[u8]) -> Span {
    Span::prefix([name, b"/"].concat())
}

/// Returns the first key of a queue created up to revision `max`; 0 means any.
fn first(state: &State, name: &[u8], max: Revision) -> Result<Option<Arc<Record>>, mvcc::Error> {
    queue_entry(state, name, max, false)
}

fn last_before(state: &State, name: &[u8], create_revision: Revision) -> Result<Option<Arc<Record>>, mvcc::Error> {
    queue_entry(state, name, create_revision - 1, true)
}

fn queue_entry(
    state: &State,
    name: &[u8],
    max: Revision,
    descending: bool,
) -> Result<Option<Arc<Record>>, mvcc::Error> {
    let range = Range {
        limit: 1,
        sort: Some(Sort { by: SortBy::CreateRevision, descending }),
        create_revision: Bounds { min: 0, max },
        ..Range::of(places(name))
    };
    Ok(state.range(&range)?.records.into_iter().next())
}

//! The KV service: ranges, puts, deletes, transactions, compaction.

use mvcc::{Access, Command, End, State};
use tonic::{Request, Response, Status};

use super::caller::Credentials;
use super::proto::etcdserverpb as pb;
use super::{Server, check, convert, status};
use crate::backend::{Backend, forgotten};

/// Ranges up to this limit are read under the state's lock; longer ones use a snapshot, so that writes do not wait.
const SHORT_RANGE: i64 = 512;

#[tonic::async_trait]
impl<B: Backend> pb::kv_server::Kv for Server<B> {
    async fn range(&self, request: Request<pb::RangeRequest>) -> Result<Response<pb::RangeResponse>, Status> {
        let credentials = Credentials::of(&request);
        let request = request.into_inner();
        check::key(&request.key)?;
        if !request.serializable {
            self.reject_learner()?;
            self.backend.read_index().await.map_err(status::of_backend)?;
        }
        let caller = self.caller(&credentials).await?;
        let range = convert::range(request);
        let short = range.span.end == End::Single || range.count_only || (1..=SHORT_RANGE).contains(&range.limit);
        let read = |state: &State| {
            state.directory().check_keys(caller.as_ref(), Access::Read, &range.span)?;
            state.range(&range)
        };
        let found = if short { self.backend.view(read) } else { read(&self.backend.view(State::clone)) };
        let reply = found.map_err(status::of_mvcc)?;
        let header = self.header(reply.revision);
        Ok(Response::new(convert::range_response(&reply, header)))
    }

    async fn put(&self, request: Request<pb::PutRequest>) -> Result<Response<pb::PutResponse>, Status> {
        let credentials = Credentials::of(&request);
        let request = request.into_inner();
        check::put(&request)?;
        self.check_size(&request)?;
        let caller = self.caller(&credentials).await?;
        let (revision, reply) = self.apply(caller, Command::Put(convert::put(request))).await?;
        Ok(Response::new(convert::put_response(&reply, self.header(revision))))
    }

    async fn delete_range(
        &self,
        request: Request<pb::DeleteRangeRequest>,
    ) -> Result<Response<pb::DeleteRangeResponse>, Status> {
        let credentials = Credentials::of(&request);
        let request = request.into_inner();
        check::key(&request.key)?;
        let caller = self.caller(&credentials).await?;
        let (revision, reply) = self.apply(caller, Command::Delete(convert::delete(request))).await?;
        Ok(Response::new(convert::delete_response(&reply, self.header(revision))))
    }

    async fn txn(&self, request: Request<pb::TxnRequest>) -> Result<Response<pb::TxnResponse>, Status> {
        let credentials = Credentials::of(&request);
        let request = request.into_inner();
        check::txn(&request, self.config.txn_ops_max)?;
        self.check_size(&request)?;
        let serializable = is_serializable(&request);
        let txn = convert::txn(request);
        let (revision, reply) = if txn.is_write() {
            let caller = self.caller(&credentials).await?;
            self.apply(caller, Command::Txn(txn)).await?
        } else {
            if !serializable {
                self.backend.read_index().await.map_err(status::of_backend)?;
            }
            // A read-only transaction is executed on a temporary snapshot and not appended to the log.
            let command = match self.caller(&credentials).await? {
                Some(caller) => Command::Txn(txn).authorized(caller),
                None => Command::Txn(txn),
            };
            let outcome = self.backend.view(State::clone).apply(u64::MAX, &command);
            (outcome.revision, outcome.result.map_err(status::of_mvcc)?)
        };
        Ok(Response::new(convert::txn_response(reply, self.header(revision))))
    }

    async fn compact(
        &self,
        request: Request<pb::CompactionRequest>,
    ) -> Result<Response<pb::CompactionResponse>, Status> {
        self.require_admin(&Credentials::of(&request)).await?;
        let pb::CompactionRequest { revision, physical } = request.into_inner();
        let (revision, _) = self.apply(None, Command::Compact { revision }).await?;
        // A client compacts a full store to write again, so the space must be available on return.
        if physical || self.backend.view(State::is_full) {
            forgotten(&self.backend).await;
        }
        Ok(Response::new(pb::CompactionResponse { header: self.header(revision) }))
    }
}

/// Whether all reads of a transaction are serializable; its compares are then serializable too.
fn is_serializable(request: &pb::TxnRequest) -> bool {
    request.success.iter().chain(&request.failure).all(|operation| match &operation.request {
        Some(pb::request_op::Request::RequestRange(range)) => range.serializable,
        Some(pb::request_op::Request::RequestTxn(txn)) => is_serializable(txn),
        _ => true,
    })
}

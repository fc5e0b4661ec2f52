//! The Lease service: grant, revoke, keep alive, time to live, list.

use std::pin::Pin;

use mvcc::{Access, Command, LeaseId};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use super::caller::Credentials;
use super::proto::etcdserverpb as pb;
use super::{Server, gate, status};
use crate::backend::{Backend, BackendError};

/// Maximum lease TTL (etcd's limit).
const TTL_SECONDS_MAX: i64 = 9_000_000_000;

#[tonic::async_trait]
impl<B: Backend> pb::lease_server::Lease for Server<B> {
    type LeaseKeepAliveStream = Pin<Box<dyn Stream<Item = Result<pb::LeaseKeepAliveResponse, Status>> + Send>>;

    async fn lease_grant(
        &self,
        request: Request<pb::LeaseGrantRequest>,
    ) -> Result<Response<pb::LeaseGrantResponse>, Status> {
        let credentials = Credentials::of(&request);
        let request = request.into_inner();
        if request.ttl > TTL_SECONDS_MAX {
            return Err(Status::out_of_range("etcdserver: too large lease TTL"));
        }
        let ttl_seconds = request.ttl.max(self.config.lease_ttl_seconds_min);
        let id = if request.id == 0 { self.new_id()? } else { request.id };
        self.require_user(&credentials).await?;
        let (revision, _) = self.apply(None, Command::LeaseGrant { id, ttl_seconds }).await?;
        let response =
            pb::LeaseGrantResponse { header: self.header(revision), id, ttl: ttl_seconds, error: String::new() };
        Ok(Response::new(response))
    }

    async fn lease_revoke(
        &self,
        request: Request<pb::LeaseRevokeRequest>,
    ) -> Result<Response<pb::LeaseRevokeResponse>, Status> {
        let caller = self.caller(&Credentials::of(&request)).await?;
        self.permitted(|directory| directory.check_identified(caller.as_ref()))?;
        let (revision, _) = self.apply(caller, Command::LeaseRevoke { id: request.into_inner().id }).await?;
        Ok(Response::new(pb::LeaseRevokeResponse { header: self.header(revision) }))
    }

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<pb::LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let (server, monitor) = (self.clone(), self.clone());
        let credentials = Credentials::of(&request);
        let insists = gate::requires_leader(request.metadata().as_ref());
        let leaderless = Box::pin(async move { monitor.leaderless(insists).await });
        let responses = request.into_inner().then(move |request| {
            let (server, credentials) = (server.clone(), credentials.clone());
            async move {
                let id = request?.id;
                server.authorize_lease(&credentials, id, Access::Write).await?;
                let header = server.header_now();
                let ttl = server.backend.lease_renew(id).await.map_err(status::of_backend)?;
                // A TTL of 0 reports an expired lease; etcd returns no error.
                Ok(pb::LeaseKeepAliveResponse { header, id, ttl: ttl.unwrap_or(0) })
            }
        });
        let response_stream =
            futures_util::stream::unfold(Some((Box::pin(responses), leaderless)), |state| async move {
                let (mut responses, mut leaderless) = state?;
                tokio::select! {
                    response = responses.next() => Some((response?, Some((responses, leaderless)))),
                    () = &mut leaderless => Some((Err(status::of_backend(BackendError::NoLeader)), None)),
                }
            });
        Ok(Response::new(Box::pin(response_stream)))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<pb::LeaseTimeToLiveRequest>,
    ) -> Result<Response<pb::LeaseTimeToLiveResponse>, Status> {
        let credentials = Credentials::of(&request);
        let request = request.into_inner();
        if request.keys {
            self.authorize_lease(&credentials, request.id, Access::Read).await?;
        } else {
            self.require_user(&credentials).await?;
        }
        let remaining = self.backend.lease_remaining(request.id).await.map_err(status::of_backend)?;
        let found = self.backend.view(|state| {
            let lease = state.lease(request.id)?;
            let keys = if request.keys {
                state.lease_keys(request.id).map(|record| record.key_bytes()).collect()
            } else {
                vec![]
            };
            Some((lease.ttl_seconds, keys))
        });
        let response =
            pb::LeaseTimeToLiveResponse { header: self.header_now(), id: request.id, ttl: -1, ..Default::default() };
        let response = match (remaining, found) {
            (Some(ttl), Some((granted_ttl, keys))) => {
                pb::LeaseTimeToLiveResponse { ttl, granted_ttl, keys, ..response }
            }
            _ => response,
        };
        Ok(Response::new(response))
    }

    async fn lease_leases(
        &self,
        request: Request<pb::LeaseLeasesRequest>,
    ) -> Result<Response<pb::LeaseLeasesResponse>, Status> {
        let credentials = Credentials::of(&request);
        self.require_user(&credentials).await?;
        let ids: Vec<LeaseId> = self.backend.view(|state| state.leases().map(|lease| lease.id).collect());
        for id in &ids {
            self.authorize_lease(&credentials, *id, Access::Read).await?;
        }
        let leases = ids.into_iter().map(|id| pb::LeaseStatus { id }).collect();
        Ok(Response::new(pb::LeaseLeasesResponse { header: self.header_now(), leases }))
    }
}

impl<B: Backend> Server<B> {
    /// Fails unless the caller may access every key of the lease or authentication is disabled.
    async fn authorize_lease(&self, credentials: &Credentials, id: LeaseId, access: Access) -> Result<(), Status> {
        let caller = self.caller(credentials).await?;
        let checked = self.backend.view(|state| {
            state.directory().check_identified(caller.as_ref())?;
            state.authorize_lease(caller.as_ref(), id, access)
        });
        checked.map_err(status::of_directory)
    }

    /// Returns a positive ID that is unused on this member. If another client takes it first, the grant fails and the
    /// client retries.
    fn new_id(&self) -> Result<LeaseId, Status> {
        loop {
            let mut bytes = [0; 8];
            aws_lc_rs::rand::fill(&mut bytes)
                .map_err(|_| Status::internal("no random number for the id of the lease"))?;
            let id = LeaseId::from_be_bytes(bytes) & LeaseId::MAX;
            if id != 0 && self.backend.view(|state| state.lease(id).is_none()) {
                return Ok(id);
            }
        }
    }
}

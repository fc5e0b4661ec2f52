//! Request checks before all services: learners serve only stale reads, and a required leader must exist.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::Either;
use http::{HeaderMap, Request, Response};
use tokio::time::Instant;
use tower::{Layer, Service};

use super::{Server, status};
use crate::backend::{Backend, BackendError, Status};

/// Metadata key by which a client requires a leader.
pub(crate) const REQUIRES_LEADER: &str = "hasleader";
pub(crate) const YES: &str = "true";

/// Methods that a learner serves. The KV service itself checks whether a range may be stale.
const LEARNER_METHODS: &[&str] =
    &["/etcdserverpb.KV/Range", "/etcdserverpb.Maintenance/Snapshot", "/etcdserverpb.Maintenance/Status"];
/// Number of election timeouts after which streams that require a leader are cancelled.
const TIMEOUTS_WITHOUT_LEADER: u32 = 3;

/// Layer that adds the checks to services.
pub(super) struct Gate<B>(Arc<Server<B>>);

/// Services behind the checks.
pub(super) struct GatedService<B, S> {
    server: Arc<Server<B>>,
    inner: S,
}

/// Whether the client requires a leader.
pub(super) fn requires_leader(metadata: &HeaderMap) -> bool {
    metadata.get(REQUIRES_LEADER).is_some_and(|value| value == YES)
}

fn rejection(path: &str, requires_leader: bool, status: &Status) -> Option<BackendError> {
    if status.learner && !LEARNER_METHODS.contains(&path) {
        return Some(BackendError::Learner);
    }
    (requires_leader && status.leader == 0).then_some(BackendError::NoLeader)
}

impl<B: Backend> Server<B> {
    /// Rejects a request that must not be stale if this member is a learner.
    pub(super) fn reject_learner(&self) -> Result<(), tonic::Status> {
        let learner = self.backend.status().learner;
        if learner { Err(status::of_backend(BackendError::Learner)) } else { Ok(()) }
    }

    /// Completes when a stream that requires a leader had none for too long; never completes for other streams.
    pub(super) async fn leaderless(&self, requires_leader: bool) {
        if !requires_leader {
            return std::future::pending().await;
        }
        let interval = self.config.election_timeout;
        let mut ticks = tokio::time::interval_at(Instant::now() + interval, interval);
        let mut without = 0;
        while without < TIMEOUTS_WITHOUT_LEADER {
            ticks.tick().await;
            without = if self.backend.status().leader == 0 { without + 1 } else { 0 };
        }
    }
}

impl<B> Gate<B> {
    pub(super) fn new(server: Server<B>) -> Self {
        Self(Arc::new(server))
    }
}

impl<B> Clone for Gate<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B, S> Layer<S> for Gate<B> {
    type Service = GatedService<B, S>;

    fn layer(&self, inner: S) -> Self::Service {
        GatedService { server: Arc::clone(&self.0), inner }
    }
}

impl<B, S: Clone> Clone for GatedService<B, S> {
    fn clone(&self) -> Self {
        Self { server: Arc::clone(&self.server), inner: self.inner.clone() }
    }
}

impl<B, S, In, Out> Service<Request<In>> for GatedService<B, S>
where
    B: Backend,
    S: Service<Request<In>, Response = Response<Out>, Error = Infallible>,
    Out: Default,
{
    type Response = Response<Out>;
    type Error = Infallible;
    type Future = Either<Ready<Result<Response<Out>, Infallible>>, S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<In>) -> Self::Future {
        let error = rejection(request.uri().path(), requires_leader(request.headers()), &self.server.backend.status());
        match error {
            Some(error) => Either::Left(ready(Ok(status::of_backend(error).into_http()))),
            None => Either::Right(self.inner.call(request)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learners_serve_stale_reads_and_required_leader_is_enforced() {
        let check = |path: &str, insists: bool, leader: u64, learner: bool, expect: Option<BackendError>| {
            let status = Status { leader, learner, ..Status::default() };
            assert_eq!(rejection(path, insists, &status), expect, "{path} {insists} {leader} {learner}");
        };
        let (learner, leaderless) = (Some(BackendError::Learner), Some(BackendError::NoLeader));
        check("/etcdserverpb.KV/Put", false, 1, false, None);
        check("/etcdserverpb.KV/Put", true, 1, false, None);
        check("/etcdserverpb.KV/Put", true, 0, false, leaderless);
        check("/etcdserverpb.KV/Put", false, 0, false, None);
        for rejected in
            ["KV/Put", "KV/Txn", "Watch/Watch", "Lease/LeaseKeepAlive", "Cluster/MemberList", "Auth/UserList"]
        {
            check(&format!("/etcdserverpb.{rejected}"), false, 1, true, learner);
        }
        for served in ["KV/Range", "Maintenance/Status", "Maintenance/Snapshot"] {
            check(&format!("/etcdserverpb.{served}"), false, 1, true, None);
            check(&format!("/etcdserverpb.{served}"), true, 0, true, leaderless);
        }
        check("/v3lockpb.Lock/Lock", true, 0, true, learner);
    }
}

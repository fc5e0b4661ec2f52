//! Selection of a remote member: requests go to one member until it stops responding.

use std::pin::Pin;
use std::time::Duration;

use tokio::sync::watch;
use tonic::transport::Channel;
use tonic::{Code, ConnectError, Status};

use crate::backend::BackendError;
use crate::etcd::proto::etcdserverpb as pb;

/// Time before a health check of the member runs concurrently to a request. A slow but healthy member passes it.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Time to wait for a write to a member that does not respond: its outcome is unknown.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// The effect of a request on the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    None,
    /// Idempotent: repeating the request has no further effect.
    Once,
    Write,
}

/// The result of waiting for a response.
enum WaitResult<T> {
    Response(Result<T, Status>),
    /// There is no response yet, but the member is healthy.
    Slow,
}

/// The members of a cluster and the selected one.
#[derive(Debug)]
pub(super) struct Choice {
    channels: Vec<Channel>,
    pub(super) chosen: watch::Sender<usize>,
}

impl Choice {
    /// Starts with a member chosen by the PID, so that clients are distributed.
    pub(super) fn new(channels: Vec<Channel>) -> Self {
        let first = std::process::id() as usize % channels.len();
        Self { channels, chosen: watch::Sender::new(first) }
    }

    /// Returns the channel of the selected member.
    pub(super) fn channel(&self) -> Channel {
        self.channels[*self.chosen.borrow()].clone()
    }

    /// Sends a request to the selected member, and to the others if it is unreachable. A non-idempotent write is
    /// retried only if it was never sent. An idempotent write is also sent to another member if its member is slow: a
    /// request forwarded to a dead leader is lost. Returns the index of the member that responded, with the response.
    pub(super) async fn call<T, F>(&self, effect: Effect, send: impl Fn(Channel) -> F) -> Result<(usize, T), Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let mut last = None;
        let mut slow = 0;
        for tries_left in (0..self.channels.len()).rev() {
            let member = (*self.chosen.borrow() + slow) % self.channels.len();
            // Boxed because a request future is large, and the caller's future would contain it.
            let request = Box::pin(send(self.channels[member].clone()));
            match self.minded(member, (effect, tries_left), request).await {
                WaitResult::Response(Err(status)) if is_of_member(&status) => {
                    self.leave(member);
                    if effect == Effect::Write && !never_left(&status) {
                        return Err(status);
                    }
                    last = Some(status);
                }
                WaitResult::Response(response) => return response.map(|response| (member, response)),
                WaitResult::Slow => slow += 1,
            }
        }
        Err(last.expect("the last attempt has a result"))
    }

    /// Waits for a response until the member fails a health check.
    async fn minded<T>(
        &self,
        member: usize,
        (effect, tries_left): (Effect, usize),
        mut request: Pin<Box<impl Future<Output = Result<T, Status>>>>,
    ) -> WaitResult<T> {
        if self.channels.len() == 1 {
            return WaitResult::Response(request.await);
        }
        loop {
            let is_there = tokio::select! {
                biased;
                response = &mut request => return WaitResult::Response(response),
                is_there = Box::pin(self.is_there(member)) => is_there,
            };
            match (effect, is_there) {
                (Effect::Once, true) if tries_left > 0 => return WaitResult::Slow,
                (_, true) => {}
                (Effect::Write, false) => break,
                (Effect::None | Effect::Once, false) => return WaitResult::Response(Err(silent())),
            }
        }
        // Other requests use another member from now on.
        self.leave(member);
        let response = tokio::time::timeout(WRITE_TIMEOUT, request).await;
        WaitResult::Response(response.unwrap_or_else(|_| Err(silent())))
    }

    /// Waits for [`TIMEOUT`], and then returns whether the member responds to a status request within another one.
    async fn is_there(&self, member: usize) -> bool {
        let mut maintenance = pb::maintenance_client::MaintenanceClient::new(self.channels[member].clone());
        tokio::time::sleep(TIMEOUT).await;
        let status = tokio::time::timeout(TIMEOUT, maintenance.status(pb::StatusRequest {})).await;
        matches!(status, Ok(Ok(_)))
    }

    /// Selects the next member, unless another request already did.
    fn leave(&self, member: usize) {
        let next = (member + 1) % self.channels.len();
        let moved = self.chosen.send_if_modified(|chosen| {
            let is_first = *chosen == member && next != member;
            if is_first {
                *chosen = next;
            }
            is_first
        });
        if moved {
            tracing::warn!(member, next, "a store member does not respond; switching to another member");
        }
    }
}

fn silent() -> Status {
    Status::unavailable("the member does not respond")
}

/// Whether the request was not sent because there was no connection.
fn never_left(status: &Status) -> bool {
    let first = std::error::Error::source(status);
    std::iter::successors(first, |error| error.source()).any(<dyn std::error::Error>::is::<ConnectError>)
}

/// Whether another member may accept the request that this one rejected.
fn is_of_member(status: &Status) -> bool {
    let is_learner = || status.message() == BackendError::Learner.to_string();
    status.code() == Code::Unavailable || (status.code() == Code::FailedPrecondition && is_learner())
}

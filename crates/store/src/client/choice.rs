//! Which member of a remote cluster is asked: one, until it does not answer.

use std::pin::Pin;
use std::time::Duration;

use tokio::sync::watch;
use tonic::transport::Channel;
use tonic::{Code, ConnectError, Status};

use crate::etcd::proto::etcdserverpb as pb;

/// How long a request may take before it is asked whether its member is there at all. One that is only slow says that it is.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long a write that went to a member which does not answer is waited for: nobody can say whether it was done.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// What a request does to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    None,
    Write,
}

/// The members of a cluster, and the one that is asked.
#[derive(Debug)]
pub(super) struct Choice {
    channels: Vec<Channel>,
    pub(super) chosen: watch::Sender<usize>,
}

impl Choice {
    /// Begins with a member by chance, so that not everybody asks the same one.
    pub(super) fn new(channels: Vec<Channel>) -> Self {
        let first = std::process::id() as usize % channels.len();
        Self { channels, chosen: watch::Sender::new(first) }
    }

    /// The chosen member.
    pub(super) fn channel(&self) -> Channel {
        self.channels[*self.chosen.borrow()].clone()
    }

    /// Asks the chosen member, and others while that cannot be reached. A write is asked again only if it never left.
    /// Gives the member that answered with its answer.
    pub(super) async fn ask<T, F>(&self, effect: Effect, ask: impl Fn(Channel) -> F) -> Result<(usize, T), Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let mut last = None;
        for _ in 0..self.channels.len() {
            let member = *self.chosen.borrow();
            // A request is large, and a future of whoever waits for one is as large as all that it may wait for.
            let request = Box::pin(ask(self.channels[member].clone()));
            match self.minded(member, effect, request).await {
                Err(status) if status.code() == Code::Unavailable => {
                    self.leave(member);
                    if effect == Effect::Write && !never_left(&status) {
                        return Err(status);
                    }
                    last = Some(status);
                }
                answer => return answer.map(|answer| (member, answer)),
            }
        }
        Err(last.expect("there is at least one try"))
    }

    /// Waits for an answer, unless its member does not answer at all.
    async fn minded<T>(
        &self,
        member: usize,
        effect: Effect,
        mut request: Pin<Box<impl Future<Output = Result<T, Status>>>>,
    ) -> Result<T, Status> {
        if self.channels.len() == 1 {
            return request.await;
        }
        tokio::select! {
            biased;
            answer = &mut request => return answer,
            () = Box::pin(self.silence(member)) => {}
        }
        let silent = || Status::unavailable("the member does not answer");
        if effect == Effect::None {
            return Err(silent());
        }
        // Others go elsewhere from now on.
        self.leave(member);
        tokio::time::timeout(WRITE_PATIENCE, request).await.unwrap_or_else(|_| Err(silent()))
    }

    /// Ends when a member does not even say that it is there.
    async fn silence(&self, member: usize) {
        let mut maintenance = pb::maintenance_client::MaintenanceClient::new(self.channels[member].clone());
        loop {
            tokio::time::sleep(PATIENCE).await;
            let status = tokio::time::timeout(PATIENCE, maintenance.status(pb::StatusRequest {})).await;
            if !matches!(status, Ok(Ok(_))) {
                return;
            }
        }
    }

    /// Chooses the next one, unless somebody did.
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
            tracing::warn!(member, next, "a member of the store does not answer; another one is asked");
        }
    }
}

/// Whether there was no connection to send a request on.
fn never_left(status: &Status) -> bool {
    let first = std::error::Error::source(status);
    std::iter::successors(first, |error| error.source()).any(<dyn std::error::Error>::is::<ConnectError>)
}

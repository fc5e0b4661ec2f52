//! Which member of a remote cluster is asked: one, until it does not answer.

use std::pin::Pin;
use std::time::Duration;

use tokio::sync::watch;
use tonic::transport::Channel;
use tonic::{Code, ConnectError, Status};

use crate::backend::BackendError;
use crate::etcd::proto::etcdserverpb as pb;

/// How long a request may take before it is asked whether its member is there at all. One that is only slow says that it is.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long a write that went to a member which does not answer is waited for: nobody can say whether it was done.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// What a request does to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    None,
    /// What it does, it does once, however often it is asked for.
    Once,
    Write,
}

/// What became of a request.
enum Waited<T> {
    Answer(Result<T, Status>),
    /// It has no answer yet, though its member is there.
    Slow,
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

    /// Asks the chosen member, and others while that cannot be reached. A write that may be done twice is asked again only if it never left;
    /// one that cannot is also asked of another while its member only lets it wait: what a member passed on to a leader that is dead is lost.
    /// Gives the member that answered with its answer.
    pub(super) async fn ask<T, F>(&self, effect: Effect, ask: impl Fn(Channel) -> F) -> Result<(usize, T), Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let mut last = None;
        let mut slow = 0;
        for tries_left in (0..self.channels.len()).rev() {
            let member = (*self.chosen.borrow() + slow) % self.channels.len();
            // A request is large, and a future of whoever waits for one is as large as all that it may wait for.
            let request = Box::pin(ask(self.channels[member].clone()));
            match self.minded(member, (effect, tries_left), request).await {
                Waited::Answer(Err(status)) if is_of_member(&status) => {
                    self.leave(member);
                    if effect == Effect::Write && !never_left(&status) {
                        return Err(status);
                    }
                    last = Some(status);
                }
                Waited::Answer(answer) => return answer.map(|answer| (member, answer)),
                Waited::Slow => slow += 1,
            }
        }
        Err(last.expect("the last try is waited for"))
    }

    /// Waits for an answer, unless its member does not answer at all.
    async fn minded<T>(
        &self,
        member: usize,
        (effect, tries_left): (Effect, usize),
        mut request: Pin<Box<impl Future<Output = Result<T, Status>>>>,
    ) -> Waited<T> {
        if self.channels.len() == 1 {
            return Waited::Answer(request.await);
        }
        loop {
            let is_there = tokio::select! {
                biased;
                answer = &mut request => return Waited::Answer(answer),
                is_there = Box::pin(self.is_there(member)) => is_there,
            };
            match (effect, is_there) {
                (Effect::Once, true) if tries_left > 0 => return Waited::Slow,
                (_, true) => {}
                (Effect::Write, false) => break,
                (Effect::None | Effect::Once, false) => return Waited::Answer(Err(silent())),
            }
        }
        // Others go elsewhere from now on.
        self.leave(member);
        let answer = tokio::time::timeout(WRITE_PATIENCE, request).await;
        Waited::Answer(answer.unwrap_or_else(|_| Err(silent())))
    }

    /// Whether a member says that it is there, after a while.
    async fn is_there(&self, member: usize) -> bool {
        let mut maintenance = pb::maintenance_client::MaintenanceClient::new(self.channels[member].clone());
        tokio::time::sleep(PATIENCE).await;
        let status = tokio::time::timeout(PATIENCE, maintenance.status(pb::StatusRequest {})).await;
        matches!(status, Ok(Ok(_)))
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

fn silent() -> Status {
    Status::unavailable("the member does not answer")
}

/// Whether there was no connection to send a request on.
fn never_left(status: &Status) -> bool {
    let first = std::error::Error::source(status);
    std::iter::successors(first, |error| error.source()).any(<dyn std::error::Error>::is::<ConnectError>)
}

/// Whether another member may answer what this one refused.
fn is_of_member(status: &Status) -> bool {
    let is_learner = || status.message() == BackendError::Learner.to_string();
    status.code() == Code::Unavailable || (status.code() == Code::FailedPrecondition && is_learner())
}

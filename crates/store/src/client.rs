//! The store as the API server uses it: in this process, or a real etcd over the network. The caller does not know which it has.

mod choice;
mod connector;
mod local;
mod members;
mod once;
mod remote;
mod request;

use std::sync::Arc;

use bytes::Bytes;
use mvcc::{Event, LeaseId, Range, RangeReply, Record, Reply, Revision, Span, Txn};

pub use local::LocalWatch;
pub use members::{Member, Members, MembersError};
pub use remote::{Remote, RemoteConfig, RemoteError, RemoteWatch};

use crate::backend::{Backend, BackendError, NodeBackend};

/// A store, wherever it is. Clones share it.
#[derive(Clone)]
pub enum Client {
    /// A member in this process: a request is a function call, and values are shared with the store.
    Local(NodeBackend),
    /// A cluster that is reached by etcd's protocol.
    Remote(Box<Remote>),
}

/// How fresh a read must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Everything acknowledged before the call is seen.
    Linearizable,
    /// What the member at hand has.
    Stale,
}

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The key space refused it.
    #[error(transparent)]
    Refused(#[from] mvcc::Error),
    /// The cluster could not do it now.
    #[error(transparent)]
    Unavailable(#[from] BackendError),
    /// A remote store answered with an error of its own.
    #[error("{message}")]
    Remote {
        /// The gRPC code.
        code: tonic::Code,
        /// Its text.
        message: String,
    },
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnOutcome {
    /// The revision after it.
    pub revision: Revision,
    /// The answer: always [`Reply::Txn`].
    pub reply: Reply,
}

/// Changes that a watch delivers together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchBatch {
    /// The changes, in order; none in an answer to [`Watch::request_progress`].
    pub events: Vec<Event>,
    /// Every change up to this revision has been delivered, with this batch.
    pub revision: Revision,
}

/// A running watch; it ends when it is dropped.
pub enum Watch {
    /// Of a member in this process.
    Local(LocalWatch),
    /// Of a remote cluster.
    Remote(Box<RemoteWatch>),
}

impl Client {
    /// The key as of now, and the store's revision.
    pub async fn get(&self, key: Bytes, freshness: Freshness) -> Result<(Option<Arc<Record>>, Revision), ClientError> {
        let reply = self.range(Range::of(Span::key(key)), freshness).await?;
        Ok((reply.records.into_iter().next(), reply.revision))
    }

    /// A span, as of any revision that was not compacted.
    pub async fn range(&self, range: Range, freshness: Freshness) -> Result<RangeReply, ClientError> {
        match self {
            Client::Local(backend) => local::range(backend, &range, freshness).await,
            Client::Remote(remote) => remote.range(range, freshness).await,
        }
    }

    /// Compares and writes in one revision.
    pub async fn txn(&self, txn: Txn) -> Result<TxnOutcome, ClientError> {
        match self {
            Client::Local(backend) => local::txn(backend, txn).await,
            Client::Remote(remote) => remote.txn(txn).await,
        }
    }

    /// The changes of a span from a revision on; 0 is from now on.
    pub async fn watch(&self, span: Span, from: Revision) -> Result<Watch, ClientError> {
        match self {
            Client::Local(backend) => Ok(Watch::Local(LocalWatch::start(backend, span, from)?)),
            Client::Remote(remote) => Ok(Watch::Remote(Box::new(remote.watch(span, from).await?))),
        }
    }

    /// Forgets history before a revision.
    pub async fn compact(&self, revision: Revision) -> Result<(), ClientError> {
        match self {
            Client::Local(backend) => local::compact(backend, revision).await,
            Client::Remote(remote) => remote.compact(revision).await,
        }
    }

    /// A lease of at least so many seconds; keys that are attached to it end with it.
    pub async fn lease(&self, ttl_seconds: i64) -> Result<LeaseId, ClientError> {
        match self {
            Client::Local(backend) => local::lease(backend, ttl_seconds).await,
            Client::Remote(remote) => remote.lease(ttl_seconds).await,
        }
    }

    /// The store's revision now.
    pub async fn revision(&self) -> Result<Revision, ClientError> {
        match self {
            Client::Local(backend) => {
                backend.read_index().await?;
                Ok(backend.view(mvcc::State::revision))
            }
            Client::Remote(remote) => {
                // Any read tells it; a key that cannot be long is the cheapest.
                let range = Range { count_only: true, ..Range::of(Span::key(Bytes::from_static(&[0]))) };
                Ok(remote.range(range, Freshness::Linearizable).await?.revision)
            }
        }
    }
}

impl Watch {
    /// The next changes. After an error the watch is over: start another, from a revision that still exists.
    pub async fn next(&mut self) -> Result<WatchBatch, ClientError> {
        match self {
            Watch::Local(watch) => watch.next().await,
            Watch::Remote(watch) => watch.next().await,
        }
    }

    /// Asks for a batch, empty if nothing happened, that says how far the watch is.
    pub async fn request_progress(&mut self) -> Result<(), ClientError> {
        match self {
            Watch::Local(watch) => {
                watch.request_progress();
                Ok(())
            }
            Watch::Remote(watch) => watch.request_progress().await,
        }
    }
}

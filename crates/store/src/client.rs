//! Store client of the API server, for an embedded member or a remote etcd cluster.

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

/// A store client. Clones share the store.
#[derive(Clone)]
pub enum Client {
    /// A member in this process: requests are function calls, and values are shared with the store.
    Local(NodeBackend),
    /// A cluster that is accessed with etcd's protocol.
    Remote(Box<Remote>),
}

/// Consistency of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The read sees everything acknowledged before the call.
    Linearizable,
    /// The read sees the state of the contacted member.
    Stale,
}

/// A request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The key-value store rejected the request.
    #[error(transparent)]
    Rejected(#[from] mvcc::Error),
    /// The cluster cannot execute the request now.
    #[error(transparent)]
    Unavailable(#[from] BackendError),
    /// Any other error of a remote store.
    #[error("{message}")]
    Remote {
        code: tonic::Code,
        /// The message of the gRPC status.
        message: String,
    },
}

/// The result of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnOutcome {
    /// The store's revision after the transaction.
    pub revision: Revision,
    /// Always [`Reply::Txn`].
    pub reply: Reply,
}

/// Events that a watch delivers together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchBatch {
    /// Events in order; empty in a response to [`Watch::request_progress`].
    pub events: Vec<Event>,
    /// All events up to this revision have been delivered, including this batch.
    pub revision: Revision,
}

/// A running watch, which is cancelled when dropped.
pub enum Watch {
    Local(LocalWatch),
    Remote(Box<RemoteWatch>),
}

impl Client {
    /// Returns the current record of a key and the store's revision.
    pub async fn get(&self, key: Bytes, freshness: Freshness) -> Result<(Option<Arc<Record>>, Revision), ClientError> {
        let reply = self.range(Range::of(Span::key(key)), freshness).await?;
        Ok((reply.records.into_iter().next(), reply.revision))
    }

    /// Reads a key range at a revision that is not compacted.
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

    /// Watches a key range from a revision; 0 means from now.
    pub async fn watch(&self, span: Span, from: Revision) -> Result<Watch, ClientError> {
        match self {
            Client::Local(backend) => Ok(Watch::Local(LocalWatch::start(backend, span, from)?)),
            Client::Remote(remote) => Ok(Watch::Remote(Box::new(remote.watch(span, from).await?))),
        }
    }

    /// Removes the history before a revision.
    pub async fn compact(&self, revision: Revision) -> Result<(), ClientError> {
        match self {
            Client::Local(backend) => local::compact(backend, revision).await,
            Client::Remote(remote) => remote.compact(revision).await,
        }
    }

    /// Grants a lease of at least `ttl_seconds`; attached keys are deleted when it expires.
    pub async fn lease(&self, ttl_seconds: i64) -> Result<LeaseId, ClientError> {
        match self {
            Client::Local(backend) => local::lease(backend, ttl_seconds).await,
            Client::Remote(remote) => remote.lease(ttl_seconds).await,
        }
    }

    pub async fn revision(&self) -> Result<Revision, ClientError> {
        match self {
            Client::Local(backend) => {
                backend.read_index().await?;
                Ok(backend.view(mvcc::State::revision))
            }
            Client::Remote(remote) => {
                // Every response contains the revision; a count of one short key is the cheapest read.
                let range = Range { count_only: true, ..Range::of(Span::key(Bytes::from_static(&[0]))) };
                Ok(remote.range(range, Freshness::Linearizable).await?.revision)
            }
        }
    }
}

impl Watch {
    /// Returns the next events. After an error the watch is finished: start another one from a revision that still
    /// exists.
    pub async fn next(&mut self) -> Result<WatchBatch, ClientError> {
        match self {
            Watch::Local(watch) => watch.next().await,
            Watch::Remote(watch) => watch.next().await,
        }
    }

    /// Requests a batch, possibly empty, that reports the progress of the watch.
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

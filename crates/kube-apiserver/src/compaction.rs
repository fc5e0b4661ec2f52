//! Store compaction: drops history older than an interval, coordinated between all API servers of a store.

use std::time::Duration;

use bytes::Bytes;
use mvcc::{Compare, Operation, OperationBody, Put, Range, Relation, Reply, Revision, Span, Target, Txn};
use store::client::{Client, ClientError};

/// The key by which the servers select the one that compacts; upstream's servers use the same key.
const KEY: Bytes = Bytes::from_static(b"compact_rev_key");

/// The state of the previous compaction round.
#[derive(Debug, Default, PartialEq, Eq)]
struct Round {
    /// Total number of compactions by all servers: the version of the key.
    count: i64,
    /// The store's revision at the previous round.
    revision: Revision,
}

/// Compacts the store periodically until the server exits.
pub async fn run(store: Client, interval: Duration) {
    let mut round = Round::default();
    loop {
        tokio::time::sleep(interval).await;
        match compact(&store, &round).await {
            Ok(next) => round = next,
            Err(error) => tracing::warn!(%error, "failed to compact the store; retrying at the next interval"),
        }
    }
}

/// Writes the key if no other server has written it since, and then compacts up to the revision of the previous round.
async fn compact(store: &Client, round: &Round) -> Result<Round, ClientError> {
    let value = Some(Bytes::from(round.revision.to_string()));
    let outcome = store
        .txn(Txn {
            compare: vec![Compare {
                span: Span::key(KEY),
                relation: Relation::Equal,
                target: Target::Version(round.count),
            }],
            success: vec![Operation::Put(Put { key: KEY, value, lease: Some(0), want_previous: false })],
            failure: vec![Operation::Range(Range::of(Span::key(KEY)))],
        })
        .await?;
    let Reply::Txn { succeeded, replies } = &outcome.reply else {
        unreachable!("a transaction has a transaction reply")
    };
    if !succeeded {
        let found = replies.iter().find_map(|reply| match &reply.body {
            OperationBody::Range(reply) => reply.records.first(),
            _ => None,
        });
        return Ok(Round { count: found.map_or(0, |record| record.version), revision: outcome.revision });
    }
    if round.revision > 0 {
        match store.compact(round.revision).await {
            Ok(()) => tracing::debug!(revision = round.revision, "compacted the store"),
            // Another server has compacted further.
            Err(ClientError::Rejected(mvcc::Error::Compacted { .. })) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Round { count: round.count + 1, revision: outcome.revision })
}

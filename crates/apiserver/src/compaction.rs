//! Forgets history that is older than an interval, once for all servers of a store.

use std::time::Duration;

use bytes::Bytes;
use mvcc::{Compare, Operation, OperationBody, Put, Range, Relation, Reply, Revision, Span, Target, Txn};
use store::client::{Client, ClientError};

/// Which server compacts is settled by this key, which upstream's servers use too.
const KEY: Bytes = Bytes::from_static(b"compact_rev_key");

/// What one server knows of the compactions of all of them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Round {
    /// How often anyone has compacted, as the version of the key.
    count: i64,
    /// The store's revision an interval ago.
    revision: Revision,
}

/// Compacts for as long as the server runs.
pub async fn run(store: Client, interval: Duration) {
    let mut round = Round::default();
    loop {
        tokio::time::sleep(interval).await;
        match compact(&store, &round).await {
            Ok(next) => round = next,
            Err(error) => tracing::warn!(%error, "compaction failed and is tried again later"),
        }
    }
}

/// Writes the key if no other server did since, and then forgets what is older than the last look.
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
    let Reply::Txn { succeeded, replies } = &outcome.reply else { unreachable!("a transaction is answered as one") };
    if !succeeded {
        let found = replies.iter().find_map(|reply| match &reply.body {
            OperationBody::Range(reply) => reply.records.first(),
            _ => None,
        });
        return Ok(Round { count: found.map_or(0, |record| record.version), revision: outcome.revision });
    }
    if round.revision > 0 {
        match store.compact(round.revision).await {
            Ok(()) => tracing::debug!(revision = round.revision, "compacted"),
            // Somebody else did, further.
            Err(ClientError::Refused(mvcc::Error::Compacted { .. })) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Round { count: round.count + 1, revision: outcome.revision })
}

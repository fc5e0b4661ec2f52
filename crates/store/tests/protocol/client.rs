//! The API server's store client behaves the same with the embedded store and over etcd's protocol.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mvcc::{Compare, Delete, Operation, OperationBody, Put, Range, Relation, Reply, Span, Target, Txn};
use store::backend::Backend;
use store::client::{Client, ClientError, Freshness, Remote, RemoteConfig, Watch, WatchBatch};

use crate::common::Single;
use crate::transcript::Etcd;

/// Returns the transaction by which the API server creates a key that does not exist.
fn create(key: &str, value: &str) -> Txn {
    let (key, value) = (key.to_owned(), value.to_owned());
    Txn {
        compare: vec![Compare {
            span: Span::key(key.clone()),
            relation: Relation::Equal,
            target: Target::ModRevision(0),
        }],
        success: vec![Operation::Put(Put {
            key: key.clone().into(),
            value: Some(value.into()),
            lease: Some(0),
            want_previous: false,
        })],
        failure: vec![Operation::Range(Range::of(Span::key(key)))],
    }
}

fn delete(key: &str) -> Txn {
    let delete = Delete { span: Span::key(key.to_owned()), want_previous: true };
    Txn { success: vec![Operation::Delete(delete)], ..Txn::default() }
}

async fn next(watch: &mut Watch) -> Result<WatchBatch> {
    Ok(tokio::time::timeout(Duration::from_secs(20), watch.next()).await.context("the watch sends nothing")??)
}

async fn behaves(client: &Client) -> Result<()> {
    let start = client.revision().await?;
    let mut watch = client.watch(Span::prefix("k/"), 0).await?;
    watch.request_progress().await?;
    ensure!(next(&mut watch).await? == WatchBatch { events: vec![], revision: start });

    let created = client.txn(create("k/a", "1")).await?;
    ensure!(created.revision == start + 1 && matches!(created.reply, Reply::Txn { succeeded: true, .. }));
    let again = client.txn(create("k/a", "2")).await?;
    let Reply::Txn { succeeded: false, replies } = again.reply else { anyhow::bail!("created twice") };
    let OperationBody::Range(range) = &replies[0].body else { anyhow::bail!("no range in {replies:?}") };
    ensure!(range.records[0].value() == b"1");

    let (found, revision) = client.get("k/a".into(), Freshness::Linearizable).await?;
    let found = found.context("the key is there")?;
    ensure!((found.value(), found.mod_revision, found.version, revision) == (&b"1"[..], start + 1, 1, start + 1));
    client.txn(create("k/b", "2")).await?;
    client.txn(create("other", "3")).await?;
    client.txn(delete("k/a")).await?;

    let mut events = Vec::new();
    while events.len() < 3 {
        events.extend(next(&mut watch).await?.events);
    }
    let seen: Vec<_> =
        events.iter().map(|event| (event.record.key().to_vec(), event.record.mod_revision - start)).collect();
    ensure!(seen == [(b"k/a".to_vec(), 1), (b"k/b".to_vec(), 2), (b"k/a".to_vec(), 4)], "{seen:?}");
    ensure!(events[2].record.is_tombstone() && events[2].previous.as_ref().is_some_and(|old| old.value() == b"1"));

    let page = client
        .range(Range { limit: 1, revision: start + 2, ..Range::of(Span::prefix("k/")) }, Freshness::Stale)
        .await?;
    ensure!(page.more && page.count == 2 && page.records.len() == 1 && page.revision == start + 4);
    client.compact(start + 3).await?;
    let old = client.range(Range { revision: start + 1, ..Range::of(Span::prefix("k/")) }, Freshness::Stale).await;
    ensure!(matches!(old, Err(ClientError::Rejected(mvcc::Error::Compacted { .. }))), "{old:?}");
    let late = match client.watch(Span::prefix("k/"), start + 1).await {
        Ok(mut watch) => watch.next().await.err(),
        Err(error) => Some(error),
    };
    ensure!(late == Some(ClientError::Rejected(mvcc::Error::Compacted { compact_revision: start + 3 })), "{late:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embedded_and_remote_members_behave_the_same() -> Result<()> {
    let single = Single::start(store::etcd::Config::default()).await?;
    behaves(&Client::Local(single.backend.clone())).await.context("in this process")?;
    let remote = Remote::new(&RemoteConfig { servers: vec![single.endpoint.clone()], ..RemoteConfig::default() })?;
    let client = Client::Remote(Box::new(remote));
    for key in ["k/b", "other"] {
        client.txn(delete(key)).await?;
    }
    behaves(&client).await.context("over the network")?;
    single.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_etcd_can_replace_the_store() -> Result<()> {
    let etcd = Etcd::start().await?;
    let remote = Remote::new(&RemoteConfig { servers: vec![etcd.endpoint.clone()], ..RemoteConfig::default() })?;
    behaves(&Client::Remote(Box::new(remote))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embedded_store_enforces_the_quota_and_recovers_after_compaction() -> Result<()> {
    let single = Single::start(store::etcd::Config::default()).await?;
    let client = Client::Local(single.backend.clone().with_quota(Some(64 << 10)));
    let mut written = 0;
    let write_error = loop {
        ensure!(written < 100, "the quota is not noticed");
        match client.txn(create(&format!("k/{written}"), &"v".repeat(4096))).await {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    ensure!(write_error == ClientError::Rejected(mvcc::Error::NoSpace), "{write_error}");
    ensure!((15..=17).contains(&written), "{written} writes of 4 KiB went into 64 KiB");
    ensure!(single.backend.view(|state| state.has_alarm(mvcc::Alarm::NoSpace)), "no member reports the alarm");
    let reply = client.range(Range::of(Span::prefix("k/")), Freshness::Linearizable).await?;
    ensure!(reply.records.len() == written, "what was written is read");

    let outcome = client.txn(delete("k/0")).await?;
    client.compact(outcome.revision).await?;
    client.txn(create("k/0", "small")).await.context("there is room again")?;
    ensure!(!single.backend.view(|state| state.has_alarm(mvcc::Alarm::NoSpace)), "the alarm is lowered");
    single.stop().await;
    Ok(())
}

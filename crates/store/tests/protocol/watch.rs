//! The Watch service as its clients see it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use store::etcd::proto::etcdserverpb as pb;
use store::etcd::proto::etcdserverpb::watch_request::RequestUnion;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

use crate::common::Single;

/// A watch stream, and a KV client for writes.
struct Session {
    kv: pb::kv_client::KvClient<Channel>,
    requests: mpsc::Sender<pb::WatchRequest>,
    responses: Streaming<pb::WatchResponse>,
    single: Single,
}

impl Session {
    async fn start(config: store::etcd::Config) -> Result<Self> {
        let single = Single::start(config).await?;
        let channel = Channel::from_shared(single.endpoint.clone())?.connect().await?;
        let (requests, receiver) = mpsc::channel(16);
        let mut watch = pb::watch_client::WatchClient::new(channel.clone());
        let responses = watch.watch(ReceiverStream::new(receiver)).await?.into_inner();
        Ok(Self { kv: pb::kv_client::KvClient::new(channel), requests, responses, single })
    }

    async fn put(&mut self, key: &str, value: &str) -> Result<i64> {
        let request =
            pb::PutRequest { key: key.to_owned().into(), value: value.to_owned().into(), ..Default::default() };
        let response = self.kv.put(request).await?.into_inner();
        Ok(response.header.context("a header")?.revision)
    }

    async fn send(&self, union: RequestUnion) -> Result<()> {
        Ok(self.requests.send(pb::WatchRequest { request_union: Some(union) }).await?)
    }

    async fn create(&mut self, create: pb::WatchCreateRequest) -> Result<pb::WatchResponse> {
        self.send(RequestUnion::CreateRequest(create)).await?;
        self.next().await
    }

    async fn next(&mut self) -> Result<pb::WatchResponse> {
        let message = tokio::time::timeout(Duration::from_secs(20), self.responses.message()).await;
        message.context("the stream sends nothing")??.context("the stream has ended")
    }

    /// Returns `count` events as (watch ID, key, revision).
    async fn events(&mut self, count: usize) -> Result<Vec<(i64, String, i64)>> {
        let mut events = Vec::new();
        while events.len() < count {
            let response = self.next().await?;
            events.extend(response.events.iter().filter_map(|event| {
                let kv = event.kv.as_ref()?;
                Some((response.watch_id, String::from_utf8_lossy(&kv.key).into_owned(), kv.mod_revision))
            }));
        }
        Ok(events)
    }
}

fn prefix(key: &str) -> pb::WatchCreateRequest {
    let span = mvcc::Span::prefix(key.to_owned());
    pb::WatchCreateRequest { range_end: span.wire_end(), key: span.start, ..Default::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_watches_share_a_stream_by_id() -> Result<()> {
    let mut session = Session::start(store::etcd::Config::default()).await?;
    ensure!(session.create(prefix("a/")).await?.watch_id == 0);
    ensure!(session.create(pb::WatchCreateRequest { watch_id: 7, ..prefix("b/") }).await?.watch_id == 7);
    let twice = session.create(pb::WatchCreateRequest { watch_id: 7, ..prefix("c/") }).await?;
    ensure!(twice.created && twice.canceled && twice.watch_id == -1);
    ensure!(twice.cancel_reason == "mvcc: duplicate watch ID provided on the WatchStream");
    let empty = pb::WatchCreateRequest { key: "b".into(), range_end: "a".into(), ..Default::default() };
    ensure!(session.create(empty).await?.cancel_reason == "mvcc: watcher range is empty");

    session.put("a/1", "x").await?;
    session.put("b/1", "x").await?;
    ensure!(session.events(2).await? == [(0, "a/1".to_owned(), 2), (7, "b/1".to_owned(), 3)]);
    session.send(RequestUnion::CancelRequest(pb::WatchCancelRequest { watch_id: 0 })).await?;
    let cancelled = session.next().await?;
    ensure!(cancelled.canceled && cancelled.watch_id == 0 && cancelled.cancel_reason.is_empty());
    session.put("a/2", "x").await?;
    session.put("b/2", "x").await?;
    ensure!(session.events(1).await? == [(7, "b/2".to_owned(), 5)]);
    session.single.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_response_follows_every_event_up_to_its_revision() -> Result<()> {
    let mut session = Session::start(store::etcd::Config::default()).await?;
    session.create(prefix("a/")).await?;
    for round in 0..100 {
        let written = session.put(&format!("a/{round}"), "x").await?;
        session.send(RequestUnion::ProgressRequest(pb::WatchProgressRequest {})).await?;
        let mut seen = 0;
        loop {
            let response = session.next().await?;
            seen = response
                .events
                .iter()
                .filter_map(|event| event.kv.as_ref())
                .map(|kv| kv.mod_revision)
                .fold(seen, i64::max);
            if response.watch_id == -1 {
                let revision = response.header.context("a header")?.revision;
                ensure!(
                    revision >= written && seen == written,
                    "progress {revision} arrived after {seen} of {written} events"
                );
                break;
            }
        }
    }
    session.single.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_watcher_receives_requested_progress_notifications() -> Result<()> {
    let config = store::etcd::Config { progress_interval: Duration::from_millis(50), ..Default::default() };
    let mut session = Session::start(config).await?;
    session.create(prefix("a/")).await?;
    session.create(pb::WatchCreateRequest { progress_notify: true, ..prefix("a/") }).await?;
    let revision = session.put("elsewhere", "x").await?;
    loop {
        let quiet = session.next().await?;
        ensure!(quiet.watch_id == 1 && quiet.events.is_empty());
        if quiet.header.context("a header")?.revision == revision {
            break;
        }
    }
    session.single.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filters_previous_values_and_fragments_are_respected() -> Result<()> {
    let config = store::etcd::Config { request_bytes_max: 3000, ..Default::default() };
    let mut session = Session::start(config).await?;
    session.put("a/1", &"o".repeat(1000)).await?;
    session.put("a/2", &"x".repeat(2000)).await?;
    session.put("a/3", &"y".repeat(2000)).await?;
    session.put("a/1", &"n".repeat(1000)).await?;
    let create = pb::WatchCreateRequest { start_revision: 2, fragment: true, prev_kv: true, ..prefix("a/") };
    session.create(create).await?;
    let mut parts = Vec::new();
    loop {
        let part = session.next().await?;
        parts.push((part.events.len(), part.fragment));
        if !part.fragment {
            let previous = part.events.last().and_then(|event| event.prev_kv.as_ref()).context("a previous value")?;
            ensure!(previous.value.starts_with(b"ooo") && previous.mod_revision == 2);
            break;
        }
    }
    ensure!(parts.len() > 1 && parts.iter().map(|(events, _)| events).sum::<usize>() == 4, "{parts:?}");

    let filters = vec![pb::watch_create_request::FilterType::Noput.into()];
    let id = session.create(pb::WatchCreateRequest { filters, ..prefix("b/") }).await?.watch_id;
    session.put("b/1", "x").await?;
    let delete = pb::DeleteRangeRequest { key: "b/1".into(), ..Default::default() };
    session.kv.delete_range(delete).await?;
    ensure!(session.events(1).await? == [(id, "b/1".to_owned(), 7)]);
    session.single.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_does_not_read_delays_no_other_client() -> Result<()> {
    let mut session = Session::start(store::etcd::Config::default()).await?;
    session.create(prefix("a/")).await?;
    // Far more than fits into the flow control windows: the stream of this session stalls.
    let value = "x".repeat(100_000);
    for round in 0..200 {
        session.put(&format!("a/{round}"), &value).await?;
    }
    let mut other = {
        let channel = Channel::from_shared(session.single.endpoint.clone())?.connect().await?;
        let (requests, receiver) = mpsc::channel(1);
        let create = pb::WatchCreateRequest { start_revision: 150, ..prefix("a/") };
        requests.send(pb::WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }).await?;
        let mut watch = pb::watch_client::WatchClient::new(channel).max_decoding_message_size(usize::MAX);
        (watch.watch(ReceiverStream::new(receiver)).await?.into_inner(), requests)
    };
    let mut seen = 0;
    while seen < 52 {
        seen += other.0.message().await?.context("the stream has ended")?.events.len();
    }
    session.single.stop().await;
    Ok(())
}

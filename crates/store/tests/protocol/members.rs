//! Members without a leader, and learners, as their clients see them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use consensus::Change;
use store::etcd::proto::etcdserverpb as pb;
use store::etcd::proto::etcdserverpb::watch_request::RequestUnion;
use store::member::{NodeStatus, Start};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};

use crate::common::{Member, Seat};

/// Short, so that members detect a lost leader quickly.
const HEARTBEAT: Duration = Duration::from_millis(20);
const DEADLINE: Duration = Duration::from_secs(20);

impl Member {
    pub(crate) fn kv(&self) -> pb::kv_client::KvClient<Channel> {
        pb::kv_client::KvClient::new(self.channel.clone())
    }

    async fn until(&self, holds: impl Fn(&NodeStatus) -> bool) -> Result<()> {
        let mut status = self.node.status_watch();
        let reached = tokio::time::timeout(DEADLINE, status.wait_for(|status| holds(status))).await;
        reached.with_context(|| format!("not in time: {:?}", self.node.status()))??;
        Ok(())
    }

    async fn watch(&self, insists: bool) -> Result<(mpsc::Sender<pb::WatchRequest>, Streaming<pb::WatchResponse>)> {
        let (requests, receiver) = mpsc::channel(4);
        let create = pb::WatchCreateRequest { key: "a".into(), ..Default::default() };
        requests.send(pb::WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }).await?;
        let mut watch = pb::watch_client::WatchClient::new(self.channel.clone());
        let mut responses = watch.watch(marked(ReceiverStream::new(receiver), insists)).await?.into_inner();
        ensure!(responses.message().await?.is_some_and(|response| response.created));
        Ok((requests, responses))
    }
}

fn marked<T>(message: T, insists: bool) -> Request<T> {
    let mut request = Request::new(message);
    if insists {
        request.metadata_mut().insert("hasleader", "true".parse().expect("it is plain text"));
    }
    request
}

fn put() -> pb::PutRequest {
    pb::PutRequest { key: "a".into(), value: "1".into(), ..Default::default() }
}

fn range(serializable: bool) -> pb::RangeRequest {
    pb::RangeRequest { key: "a".into(), serializable, ..Default::default() }
}

fn check_error<T: std::fmt::Debug>(result: Result<T, Status>, text: &str) -> Result<()> {
    let status = result.err().with_context(|| format!("an answer instead of {text:?}"))?;
    let code = if text.ends_with("for learner") { Code::FailedPrecondition } else { Code::Unavailable };
    ensure!(status.code() == code && status.message() == text, "{status:?}");
    Ok(())
}

/// Returns the end of a stream.
async fn end<T: std::fmt::Debug>(mut stream: Streaming<T>) -> Result<Result<Option<T>, Status>> {
    loop {
        let message = tokio::time::timeout(DEADLINE, stream.message()).await.context("the stream goes on")?;
        if !matches!(message, Ok(Some(_))) {
            return Ok(message);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_require_a_leader_fail_and_streams_are_cancelled_without_one() -> Result<()> {
    let (first, second) = (Seat::new(1, HEARTBEAT).await?, Seat::new(2, HEARTBEAT).await?);
    let peers = vec![first.peer.clone(), second.peer.clone()];
    let (first, second) = (first.start(Start::New(peers.clone())).await?, second.start(Start::New(peers)).await?);
    first.until(|status| status.leader != 0).await?;
    first.kv().put(marked(put(), true)).await?;
    let mut leases = pb::lease_client::LeaseClient::new(first.channel.clone());
    let lease = leases.lease_grant(pb::LeaseGrantRequest { ttl: 600, id: 0 }).await?.into_inner().id;
    let (keep_alives, receiver) = mpsc::channel(4);
    keep_alives.send(pb::LeaseKeepAliveRequest { id: lease }).await?;
    let mut responses = leases.lease_keep_alive(marked(ReceiverStream::new(receiver), true)).await?.into_inner();
    ensure!(responses.message().await?.is_some_and(|reply| reply.ttl == 600));
    let (_asking, strict) = first.watch(true).await?;
    let (asking, mut lenient) = first.watch(false).await?;

    second.node.stop().await;
    first.until(|status| status.leader == 0).await?;
    check_error(end(strict).await?, "etcdserver: no leader")?;
    check_error(end(responses).await?, "etcdserver: no leader")?;
    check_error(first.kv().put(marked(put(), true)).await, "etcdserver: no leader")?;
    check_error(first.kv().range(marked(range(true), true)).await, "etcdserver: no leader")?;
    ensure!(first.kv().range(marked(range(true), false)).await?.get_ref().count == 1);
    // A stream that does not require a leader continues and responds to requests that need no leader.
    let union = RequestUnion::ProgressRequest(pb::WatchProgressRequest {});
    asking.send(pb::WatchRequest { request_union: Some(union) }).await?;
    let progress =
        tokio::time::timeout(DEADLINE, lenient.message()).await.context("no progress notification arrived")??;
    ensure!(progress.is_some_and(|response| response.watch_id == -1 && !response.canceled));
    first.node.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn learner_serves_only_stale_reads() -> Result<()> {
    const REJECTION: &str = "etcdserver: rpc not supported for learner";
    let first = Seat::new(1, HEARTBEAT).await?;
    let peers = vec![first.peer.clone()];
    let first = first.start(Start::New(peers)).await?;
    first.kv().put(put()).await?;
    let mut joining = Seat::new(2, HEARTBEAT).await?;
    joining.peer.learner = true;
    first.node.change(Change::Add(joining.peer.clone())).await?;
    let learner = joining.start(Start::Join(first.node.members())).await?;
    learner.until(|status| status.is_learner).await?;
    tokio::time::timeout(DEADLINE, learner.node.read_index()).await??;

    check_error(learner.kv().put(put()).await, REJECTION)?;
    check_error(learner.kv().txn(pb::TxnRequest::default()).await, REJECTION)?;
    check_error(learner.kv().range(range(false)).await, REJECTION)?;
    ensure!(learner.kv().range(range(true)).await?.get_ref().count == 1);
    let mut cluster = pb::cluster_client::ClusterClient::new(learner.channel.clone());
    check_error(cluster.member_list(pb::MemberListRequest { linearizable: false }).await, REJECTION)?;
    let mut leases = pb::lease_client::LeaseClient::new(learner.channel.clone());
    check_error(leases.lease_grant(pb::LeaseGrantRequest { ttl: 60, id: 0 }).await, REJECTION)?;
    let (_requests, receiver) = mpsc::channel(1);
    let mut watch = pb::watch_client::WatchClient::new(learner.channel.clone());
    check_error(watch.watch(ReceiverStream::new(receiver)).await, REJECTION)?;
    let mut maintenance = pb::maintenance_client::MaintenanceClient::new(learner.channel.clone());
    ensure!(maintenance.status(pb::StatusRequest {}).await?.get_ref().is_learner);
    let mut snapshot = maintenance.snapshot(pb::SnapshotRequest {}).await?.into_inner();
    ensure!(snapshot.message().await?.is_some());

    let promoted = async {
        // The learner has the state before the leader receives its response.
        while first.node.change(Change::Promote { id: 2 }).await.is_err() {
            learner.node.read_index().await?;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(DEADLINE, promoted).await.context("it is not promoted")??;
    learner.until(|status| !status.is_learner).await?;
    learner.kv().put(put()).await?;
    learner.node.stop().await;
    first.node.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn membership_changes_require_a_majority_with_stable_connections() -> Result<()> {
    use store::backend::{Backend, BackendError, MemberChange, NodeBackend};
    let seats = [Seat::new(1, HEARTBEAT).await?, Seat::new(2, HEARTBEAT).await?, Seat::new(3, HEARTBEAT).await?];
    let peers: Vec<_> = seats.iter().map(|seat| seat.peer.clone()).collect();
    let mut members = Vec::new();
    for seat in seats {
        members.push(seat.start(Start::New(peers.clone())).await?);
    }
    for member in &members {
        // Followers are also connected to each other, although they exchange no messages.
        let connected = async {
            while member.node.peer_traffic().iter().filter(|peer| peer.connected_for.is_some()).count() < 2 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(DEADLINE, connected).await.context("the members are not connected")?;
        member.until(|status| status.leader != 0).await?;
    }
    let backend = |connected_min| {
        NodeBackend::new(members[0].node.clone(), store::watch::Hub::default()).with_connected_min(connected_min)
    };
    let add = || MemberChange::Add { peer_urls: vec!["http://127.0.0.1:1".to_owned()], learner: true };
    let (strict, lenient) = (backend(Duration::from_secs(3600)), backend(Duration::ZERO));
    ensure!(strict.change_members(add()).await == Err(BackendError::Unhealthy));
    ensure!(strict.change_members(MemberChange::Remove(peers[2].id)).await == Err(BackendError::Unhealthy));
    ensure!(lenient.change_members(add()).await?.is_some_and(|member| member.learner));
    lenient.change_members(MemberChange::Remove(peers[2].id)).await?;
    for member in &members {
        member.node.stop().await;
    }
    Ok(())
}

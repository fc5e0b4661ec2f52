//! The Lock and Election services: one owner at a time, in order of arrival.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use store::etcd::proto::etcdserverpb as pb;
use store::etcd::proto::v3electionpb::{self as election, election_client::ElectionClient};
use store::etcd::proto::v3lockpb::{self as lock, lock_client::LockClient};
use tonic::transport::Channel;

use crate::common::Single;

const DEADLINE: Duration = Duration::from_secs(20);

async fn start() -> Result<(Single, Channel, [i64; 2])> {
    let single = Single::start(store::etcd::Config::default()).await?;
    let channel = Channel::from_shared(single.endpoint.clone())?.connect().await?;
    let mut leases = pb::lease_client::LeaseClient::new(channel.clone());
    let mut ids = [0; 2];
    for id in &mut ids {
        *id = leases.lease_grant(pb::LeaseGrantRequest { ttl: 100, id: 0 }).await?.into_inner().id;
    }
    Ok((single, channel, ids))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn released_lock_is_acquired_by_the_next_waiter() -> Result<()> {
    let (single, channel, [one, two]) = start().await?;
    let mut first = LockClient::new(channel.clone());
    let lock_key = first.lock(lock::LockRequest { name: "l".into(), lease: one }).await?.into_inner().key;
    ensure!(lock_key == format!("l/{one:x}"));
    let mut second = LockClient::new(channel);
    let waiting = tokio::spawn(async move { second.lock(lock::LockRequest { name: "l".into(), lease: two }).await });
    ensure!(
        first.lock(lock::LockRequest { name: "l".into(), lease: one }).await?.into_inner().key == lock_key,
        "the holder locked it twice"
    );
    ensure!(!waiting.is_finished());
    first.unlock(lock::UnlockRequest { key: lock_key }).await?;
    let next =
        tokio::time::timeout(DEADLINE, waiting).await.context("the next holder is not notified")???.into_inner().key;
    ensure!(next == format!("l/{two:x}"));
    single.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn election_has_one_leader_and_observers_see_every_change() -> Result<()> {
    let (single, channel, [one, two]) = start().await?;
    let mut client = ElectionClient::new(channel.clone());
    let nobody = client.leader(election::LeaderRequest { name: "e".into() }).await;
    ensure!(nobody.is_err_and(|status| status.message() == "election: no leader"));
    let mut observed = client.observe(election::LeaderRequest { name: "e".into() }).await?.into_inner();
    let campaign =
        |lease, value: &'static str| election::CampaignRequest { name: "e".into(), lease, value: value.into() };
    let leader = client.campaign(campaign(one, "a")).await?.into_inner().leader;
    let mut other = client.clone();
    let waiting = tokio::spawn(async move { other.campaign(campaign(two, "b")).await });
    client.proclaim(election::ProclaimRequest { leader: leader.clone(), value: "a2".into() }).await?;
    client.resign(election::ResignRequest { leader: leader.clone() }).await?;
    let next = tokio::time::timeout(DEADLINE, waiting).await.context("the next holder is not notified")???.into_inner();
    ensure!(next.leader.is_some_and(|leader| leader.lease == two));
    let late = client.proclaim(election::ProclaimRequest { leader, value: "a3".into() }).await;
    ensure!(late.is_err_and(|status| status.message() == "election: not leader"));
    loop {
        let seen = tokio::time::timeout(DEADLINE, observed.message()).await.context("nothing to observe")??;
        let value = seen.context("the stream has ended")?.kv.context("a leader")?.value;
        ensure!(["a", "a2", "b"].iter().any(|known| value == known.as_bytes()));
        if value == "b" {
            break;
        }
    }
    single.stop().await;
    Ok(())
}

//! Test clusters of three members that a fourth can join: real etcd, and this store.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use consensus::{Change, Peer};
use regex::Regex;
use store::member::Start;

use crate::common::{Member, Seat};
use crate::transcript::{Etcd, Servers, free_url};

/// Member names in scenarios.
const NAMES: [&str; 4] = ["one", "two", "three", "four"];
/// Long enough for a loaded host: elections are not compared.
const HEARTBEAT: Duration = Duration::from_millis(100);
const IDS: u64 = 0x8e9e_05c5_2164_6940;

/// A cluster of real etcd members.
pub(crate) struct EtcdCluster {
    members: Vec<Etcd>,
    /// Client URL and peer URL of the fourth member.
    fourth: (String, String),
}

impl EtcdCluster {
    pub(crate) async fn start() -> Result<Self> {
        let mut places = Vec::new();
        for name in ["m1", "m2", "m3"] {
            places.push((name, free_url()?, free_url()?));
        }
        let all: Vec<_> = places.iter().map(|(name, _, peer)| format!("{name}={peer}")).collect();
        let spawn = |(name, client, peer): &(&str, String, String)| {
            Etcd::spawn(name, client, peer, &["--initial-cluster", &all.join(",")])
        };
        let members: Vec<_> = places.iter().map(spawn).collect::<Result<_>>()?;
        for member in &members {
            member.ready().await?;
        }
        Ok(Self { members, fourth: (free_url()?, free_url()?) })
    }

    /// Returns the client URLs.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|member| member.endpoint.as_str())
    }
}

impl Servers for EtcdCluster {
    fn endpoint(&self) -> String {
        self.members[0].endpoint.clone()
    }

    fn names(&self) -> Vec<(&'static str, String)> {
        let endpoints = self.endpoints().chain([self.fourth.0.as_str()]).map(str::to_owned);
        NAMES.into_iter().zip(endpoints).chain([("peer", self.fourth.1.clone())]).collect()
    }

    async fn join(&mut self, name: &str, added: &str) -> Result<()> {
        let all = Regex::new(r#"ETCD_INITIAL_CLUSTER="([^"]*)""#)?;
        let all = all.captures(added).context("the output names no new member")?[1].to_owned();
        let arguments = ["--initial-cluster", &all, "--initial-cluster-state", "existing"];
        self.members.push(Etcd::spawn(name, &self.fourth.0, &self.fourth.1, &arguments)?);
        Ok(())
    }
}

/// A cluster of this store.
pub(crate) struct Cluster {
    pub members: Vec<Member>,
    endpoints: Vec<String>,
    peers: Vec<String>,
    fourth: Option<Seat>,
}

impl Cluster {
    pub(crate) async fn start() -> Result<Self> {
        let mut seats = Vec::new();
        for id in 1..=4 {
            seats.push(Seat::new(IDS + id, HEARTBEAT).await?);
        }
        let of = |urls: fn(&Peer) -> &Vec<String>| seats.iter().map(|seat| urls(&seat.peer)[0].clone()).collect();
        let (endpoints, peers) = (of(|peer| &peer.client_urls), of(|peer| &peer.peer_urls));
        let fourth = seats.pop();
        let founders: Vec<_> = seats.iter().map(|seat| seat.peer.clone()).collect();
        let mut members = Vec::new();
        for seat in seats {
            members.push(seat.start(Start::New(founders.clone())).await?);
        }
        for member in &members {
            member.node.read_index().await?;
        }
        Ok(Self { members, endpoints, peers, fourth })
    }

    pub(crate) async fn stop(self) {
        for member in self.members {
            member.node.stop().await;
        }
    }
}

impl Servers for Cluster {
    fn endpoint(&self) -> String {
        self.endpoints[0].clone()
    }

    fn names(&self) -> Vec<(&'static str, String)> {
        NAMES.into_iter().zip(self.endpoints.clone()).chain([("peer", self.peers[3].clone())]).collect()
    }

    async fn join(&mut self, name: &str, _added: &str) -> Result<()> {
        let mut seat = self.fourth.take().context("the fourth has joined already")?;
        let (_, peers) = store::peer::members_of(&self.peers[..3], None).await?;
        let known = peers.iter().find(|peer| peer.peer_urls == seat.peer.peer_urls).context("it was not added")?;
        ensure!(known.name.is_empty(), "it has started before");
        seat.peer = Peer { name: name.to_owned(), client_urls: seat.peer.client_urls, ..known.clone() };
        let this = seat.peer.clone();
        let member = seat.start(Start::Join(peers)).await?;
        let mut group = member.node.group_watch();
        group.wait_for(|group| group.member(this.id).is_some()).await?;
        while member.node.change(Change::Update(this.clone())).await.is_err() {
            member.node.read_index().await?;
        }
        self.members.push(member);
        Ok(())
    }
}

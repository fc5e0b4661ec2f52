//! `knarr server`: one of several servers of a cluster, the first or one that joins.
//!
//! Every server runs an API server, and a member of the replicated store unless the store is an etcd of somebody else's. All
//! API servers answer; controllers and schedulers elect the one that acts.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{ArgMatches, Args, FromArgMatches};
use client::Client;
use pki::Pki;

use ::store::client::{Members, MembersError};

use crate::ask;
use crate::join::token_args::{self, TokenArgs};
use crate::join::{self, Network, bundle};
use crate::up::plan::{self, Layout, Store};
use crate::up::{self, Options, preflight};

/// How long a joining server waits for a healthy store, and how often it asks.
const HEALTHY_DEADLINE: Duration = Duration::from_secs(60);
const HEALTHY_RETRY: Duration = Duration::from_millis(500);

/// How a server comes to its cluster.
#[derive(Args, Debug, Clone)]
struct Server {
    /// A server of the cluster to join; without it a cluster is founded.
    #[arg(long, value_name = "https://HOST:PORT")]
    join: Option<String>,
    #[command(flatten)]
    token: TokenArgs,
    /// Members of an etcd that holds the cluster's state, in place of members of our own.
    #[arg(long, value_delimiter = ',')]
    etcd_servers: Vec<String>,
    /// Authority of the etcd's certificates.
    #[arg(long)]
    etcd_cafile: Option<PathBuf>,
    /// Certificate to show to the etcd.
    #[arg(long)]
    etcd_certfile: Option<PathBuf>,
    /// Its key.
    #[arg(long)]
    etcd_keyfile: Option<PathBuf>,
}

pub fn arguments(command: clap::Command) -> clap::Command {
    up::arguments(Server::augment_args(command))
}

/// Runs the server until it is told to stop; pods go on.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let server = Server::from_arg_matches(matches)?;
    let options = up::options(matches)?;
    if !options.systemd_unit {
        token_args::conceal()?;
    }
    up::launch(options, async |options| server.complete(options).await)
}

impl Server {
    /// Says where the state is; on the first start, after having come to know the cluster.
    async fn complete(&self, mut options: Options) -> Result<Options> {
        let is_new = !options.data_dir.join("pki").join("ca.crt").is_file();
        let network = match (self.join.as_deref(), Network::kept(&options.data_dir)?) {
            (Some(server), _) if is_new => Some(self.come_to_know(server, &options).await?),
            (Some(server), Some(kept)) => Some(kept.refreshed(as_admin(server, &options), &options.data_dir).await?),
            (_, kept) => kept,
        };
        if let Some(network) = network {
            options = Options { joined: true, ..network.given(options) };
        }
        options.store = if self.etcd_servers.is_empty() {
            // Before the others take in a member that could not run.
            preflight::member([plan::STORE_PORT, plan::STORE_PEER_PORT])?;
            self.member(&options).await?
        } else {
            Store::External(self.etcd_flags())
        };
        Ok(options)
    }

    /// Takes what the servers of the cluster share.
    async fn come_to_know(&self, server: &str, options: &Options) -> Result<Network> {
        let token = self.token.read()?;
        let token = token
            .context("a server joins by a token: give it with --token-file, `knarr token create --server` makes one")?;
        let key = token.key.as_deref();
        let key =
            key.context("a server joins by a token that `knarr token create --server` makes; this one is for agents")?;
        let cluster = join::ask(server, &token).await?;
        let shared = join::shared(server, &cluster, &token).await?;
        // Before the authority, by which the next start knows that this machine has joined.
        cluster.network.keep(&options.data_dir)?;
        bundle::unlock(&shared, key, &options.data_dir.join("pki"))?;
        token_args::forget(&options.data_dir)?;
        Ok(cluster.network)
    }

    /// A member of the store: the one that ran before, the first, or one that the others take in.
    async fn member(&self, options: &Options) -> Result<Store> {
        let has_run = options.data_dir.join("etcd").is_dir();
        let unnamed = Options { store: Store::Member { initial: Vec::new(), via: None }, ..options.clone() };
        let layout = Layout::of(&unnamed, preflight::addresses_or(&options.node_ip, &options.service_cidr)?)?;
        let own = format!("{}={}", layout.node_name, layout.peer_url());
        let Some(host) = self.join.as_deref().map(host_of).transpose()? else {
            return Ok(Store::Member { initial: vec![own], via: None });
        };
        if has_run {
            return Ok(Store::Member { initial: vec![own], via: Some(host) });
        }
        Pki::open(&layout.pki())?.certificate(&Layout::store_client(), std::time::SystemTime::now())?;
        let members = Members::new(&layout.store_at(&host))?;
        let taken = add_learner(&members, &layout.peer_url()).await;
        taken.with_context(|| format!("the store at {host} does not take this member"))?;
        let named = members.list().await?.into_iter().filter(|member| !member.name.is_empty());
        let others = named
            .flat_map(|member| member.peer_urls.iter().map(|url| format!("{}={url}", member.name)).collect::<Vec<_>>());
        Ok(Store::Member {
            initial: others.filter(|other| *other != own).chain([own.clone()]).collect(),
            via: Some(host),
        })
    }

    fn etcd_flags(&self) -> Vec<String> {
        let files = [("cafile", &self.etcd_cafile), ("certfile", &self.etcd_certfile), ("keyfile", &self.etcd_keyfile)];
        let files =
            files.into_iter().filter_map(|(name, file)| Some(format!("--etcd-{name}={}", file.as_ref()?.display())));
        [format!("--etcd-servers={}", self.etcd_servers.join(","))].into_iter().chain(files).collect()
    }
}

/// A client of another server, with what this machine shows to its own.
fn as_admin(server: &str, options: &Options) -> Result<Client> {
    let mut config = ask::config(&options.data_dir)?;
    config.server = server.parse().with_context(|| format!("--join {server:?} is no address"))?;
    ask::admin(&config)
}

/// Adds this server's member, and waits while the store refuses because its members have not been connected for long enough: the server
/// before this one may have joined a moment ago.
async fn add_learner(members: &Members, peer_url: &str) -> Result<(), MembersError> {
    let deadline = tokio::time::Instant::now() + HEALTHY_DEADLINE;
    loop {
        match members.add_learner(peer_url).await {
            Err(error) if error.is_unhealthy_cluster() && tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(HEALTHY_RETRY).await;
            }
            added => return added.map(drop),
        }
    }
}

/// The host of a server's address.
fn host_of(server: &str) -> Result<String> {
    let uri: http::Uri = server.parse().with_context(|| format!("--join {server:?} is no address"))?;
    Ok(uri.host().with_context(|| format!("--join {server:?} names no host"))?.to_owned())
}

//! `knarr server`: a control plane server of a cluster, the first one or one that joins.
//!
//! Every server runs an API server, and a member of the replicated store unless an external etcd is used. All API
//! servers are active. Controllers and schedulers elect a leader.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{ArgMatches, Args, FromArgMatches};
use client::Client;
use pki::Pki;

use ::store::client::{Members, MembersError};

use crate::join::token_args::{self, TokenArgs};
use crate::join::{self, Network, bundle};
use crate::up::plan::{self, Layout, Store};
use crate::up::{self, Options, preflight};
use crate::{admin_client, backup};

/// Time limit for a healthy store when a server joins, and the retry interval.
const HEALTHY_DEADLINE: Duration = Duration::from_secs(60);
const HEALTHY_RETRY: Duration = Duration::from_millis(500);

/// Run a control plane server.
#[derive(Args, Debug, Clone)]
struct Server {
    /// URL of a server of the cluster to join; without it a new cluster is created.
    #[arg(long, value_name = "https://HOST:PORT")]
    join: Option<String>,
    #[command(flatten)]
    token: TokenArgs,
    /// URLs of an external etcd cluster to use instead of the built-in replicated store.
    #[arg(long, value_delimiter = ',')]
    etcd_servers: Vec<String>,
    /// CA file used to verify etcd.
    #[arg(long)]
    etcd_cafile: Option<PathBuf>,
    /// Client certificate file used to authenticate to etcd.
    #[arg(long)]
    etcd_certfile: Option<PathBuf>,
    /// Private key file matching --etcd-certfile.
    #[arg(long)]
    etcd_keyfile: Option<PathBuf>,
}

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    up::arguments(Server::augment_args(command))
}

/// Runs the server until SIGTERM or SIGINT. Pods keep running.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let server = Server::from_arg_matches(matches)?;
    let options = up::options(matches)?;
    if !options.systemd_unit {
        token_args::hide_token()?;
    }
    up::launch(options, backup::keep, async |options| server.complete(options).await)
}

impl Server {
    /// Adds the network and store settings to the options. The first start of a joining server fetches the shared
    /// files.
    async fn complete(&self, mut options: Options) -> Result<Options> {
        let is_new = !options.data_dir.join("pki").join("ca.crt").is_file();
        let network = match (self.join.as_deref(), Network::load(&options.data_dir)?) {
            (Some(server), _) if is_new => Some(self.come_to_know(server, &options).await?),
            (Some(server), Some(stored)) => {
                Some(stored.refreshed(as_admin(server, &options), &options.data_dir).await?)
            }
            (_, stored) => stored,
        };
        if let Some(network) = network {
            options = Options { joined: true, ..network.given(options) };
        }
        options.store = if self.etcd_servers.is_empty() {
            // Checked before the other members add a member that could not run.
            preflight::member([plan::STORE_PORT, plan::STORE_PEER_PORT])?;
            self.member(&options).await?
        } else {
            Store::External(self.etcd_flags())
        };
        Ok(options)
    }

    /// Fetches the cluster's network settings and the files that its servers share.
    async fn come_to_know(&self, server: &str, options: &Options) -> Result<Network> {
        let token = self.token.read()?;
        let token = token.context(
            "a server joins with a token: give it with --token-file; create one with `knarr token create --server`",
        )?;
        let key = token.key.as_deref();
        let key = key.context("this token is for agents; create one for servers with `knarr token create --server`")?;
        let cluster = join::fetch_cluster(server, &token).await?;
        let shared = join::shared(server, &cluster, &token).await?;
        // Stored before the CA certificate: at the next start, an existing certificate means that this server has
        // joined.
        cluster.network.keep(&options.data_dir)?;
        bundle::decrypt(&shared, key, &options.data_dir.join("pki"))?;
        token_args::delete_token(&options.data_dir)?;
        Ok(cluster.network)
    }

    /// Returns the store configuration: the existing member, the first member, or one that is added to the others.
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
        taken.with_context(|| format!("the store at {host} rejected this member"))?;
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

/// Returns an admin client for another server, with this host's credentials.
fn as_admin(server: &str, options: &Options) -> Result<Client> {
    let mut config = admin_client::config(&options.data_dir)?;
    config.server = server.parse().with_context(|| format!("--join {server:?} is not a URL"))?;
    admin_client::admin(&config)
}

/// Adds this server's store member as a learner. Retries while the store rejects it because its members have not been
/// connected long enough: another server may have joined a moment ago.
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

/// Returns the host of a server's URL.
fn host_of(server: &str) -> Result<String> {
    let uri: http::Uri = server.parse().with_context(|| format!("--join {server:?} is not a URL"))?;
    Ok(uri.host().with_context(|| format!("--join {server:?} has no host"))?.to_owned())
}

//! `knarr etcd`: the store alone, with etcd's own flags.

use std::path::PathBuf;
use std::time::Duration;

use ::store::backend::NodeBackend;
use ::store::disk::FileDisk;
use ::store::etcd::compactor::{self, Retention};
use ::store::etcd::tls::{ServerTls, TlsFiles};
use ::store::etcd::{self, Endpoint};
use ::store::log;
use ::store::node::{self, Node, Start, StopReason};
use ::store::peer::{self, Address, Tls};
use ::store::watch::Hub;
use anyhow::{Context, Result, bail, ensure};
use clap::{ArgAction, ArgMatches, Args, FromArgMatches};
use consensus::{Change, Peer};

use crate::component;

pub(crate) mod identity;
mod retention;

/// The store, started alone, with etcd's own flags.
#[derive(Args, Debug, Clone)]
struct Etcd {
    /// Name of this member.
    #[arg(long, env = "ETCD_NAME", default_value = "default")]
    name: String,
    /// Directory of log and checkpoints [default: NAME.etcd].
    #[arg(long, env = "ETCD_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// URLs to listen on for clients.
    #[arg(long, env = "ETCD_LISTEN_CLIENT_URLS", value_delimiter = ',', default_value = "http://localhost:2379")]
    listen_client_urls: Vec<String>,
    /// URLs that clients are told.
    #[arg(long, env = "ETCD_ADVERTISE_CLIENT_URLS", value_delimiter = ',')]
    advertise_client_urls: Vec<String>,
    /// URLs to listen on for other members.
    #[arg(long, env = "ETCD_LISTEN_PEER_URLS", value_delimiter = ',', default_value = "http://localhost:2380")]
    listen_peer_urls: Vec<String>,
    /// URLs that other members are told.
    #[arg(
        long,
        env = "ETCD_INITIAL_ADVERTISE_PEER_URLS",
        value_delimiter = ',',
        default_value = "http://localhost:2380"
    )]
    initial_advertise_peer_urls: Vec<String>,
    /// URLs to listen on for metrics and health only.
    #[arg(long, env = "ETCD_LISTEN_METRICS_URLS", value_delimiter = ',')]
    listen_metrics_urls: Vec<String>,
    /// The first members: name=url, several urls by repeating the name [default: this member alone].
    #[arg(long, env = "ETCD_INITIAL_CLUSTER", value_delimiter = ',')]
    initial_cluster: Vec<String>,
    /// `new` to found a cluster, `existing` to join one.
    #[arg(long, env = "ETCD_INITIAL_CLUSTER_STATE", default_value = "new")]
    initial_cluster_state: String,
    /// Tells clusters with the same members apart.
    #[arg(long, env = "ETCD_INITIAL_CLUSTER_TOKEN", default_value = "etcd-cluster")]
    initial_cluster_token: String,
    #[command(flatten)]
    security: Security,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    accepted: Accepted,
}

/// Certificates.
#[derive(Args, Debug, Clone)]
struct Security {
    /// Certificate shown to clients.
    #[arg(long, env = "ETCD_CERT_FILE")]
    cert_file: Option<PathBuf>,
    /// Its key.
    #[arg(long, env = "ETCD_KEY_FILE")]
    key_file: Option<PathBuf>,
    /// Authority of clients' certificates; with it they must have one.
    #[arg(long, env = "ETCD_TRUSTED_CA_FILE")]
    trusted_ca_file: Option<PathBuf>,
    /// Ask clients for certificates.
    #[arg(long, env = "ETCD_CLIENT_CERT_AUTH", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    client_cert_auth: bool,
    /// Certificate shown to other members.
    #[arg(long, env = "ETCD_PEER_CERT_FILE")]
    peer_cert_file: Option<PathBuf>,
    /// Its key.
    #[arg(long, env = "ETCD_PEER_KEY_FILE")]
    peer_key_file: Option<PathBuf>,
    /// Authority of members' certificates.
    #[arg(long, env = "ETCD_PEER_TRUSTED_CA_FILE")]
    peer_trusted_ca_file: Option<PathBuf>,
    /// Ask members for certificates; with TLS they are always asked.
    #[arg(long, env = "ETCD_PEER_CLIENT_CERT_AUTH", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    peer_client_cert_auth: bool,
}

/// Bounds and times.
#[derive(Args, Debug, Clone)]
struct Limits {
    /// Milliseconds between heartbeats.
    #[arg(long, env = "ETCD_HEARTBEAT_INTERVAL", default_value_t = 100)]
    heartbeat_interval: u64,
    /// Milliseconds without a leader until an election.
    #[arg(long, env = "ETCD_ELECTION_TIMEOUT", default_value_t = 1000)]
    election_timeout: u64,
    /// Bytes the records may take; 0 is 2 GiB, less is no bound.
    #[arg(long, env = "ETCD_QUOTA_BACKEND_BYTES", default_value_t = 0, allow_negative_numbers = true)]
    quota_backend_bytes: i64,
    /// Operations in a transaction.
    #[arg(long, env = "ETCD_MAX_TXN_OPS", default_value_t = 128)]
    max_txn_ops: usize,
    /// Bytes of a request.
    #[arg(long, env = "ETCD_MAX_REQUEST_BYTES", default_value_t = 1_572_864)]
    max_request_bytes: usize,
    /// `periodic` or `revision`.
    #[arg(long, env = "ETCD_AUTO_COMPACTION_MODE", default_value = "periodic")]
    auto_compaction_mode: String,
    /// How much history automatic compaction keeps: a time (5m; hours without a unit), or revisions; 0 is all.
    #[arg(long, env = "ETCD_AUTO_COMPACTION_RETENTION", default_value = "0")]
    auto_compaction_retention: String,
    /// How often a watcher hears that nothing happened.
    #[arg(long, env = "ETCD_EXPERIMENTAL_WATCH_PROGRESS_NOTIFY_INTERVAL", default_value = "10m")]
    experimental_watch_progress_notify_interval: String,
    /// `debug`, `info`, `warn` or `error`.
    #[arg(long, env = "ETCD_LOG_LEVEL", default_value = "info")]
    log_level: String,
}

/// etcd's flags that have nothing to set here: what they tune does not exist, or is always so.
#[derive(Args, Debug, Clone)]
struct Accepted {
    #[arg(long, hide = true)]
    wal_dir: Option<PathBuf>,
    #[arg(long, hide = true)]
    snapshot_count: Option<u64>,
    #[arg(long, hide = true)]
    max_snapshots: Option<u64>,
    #[arg(long, hide = true)]
    max_wals: Option<u64>,
    #[arg(long, hide = true)]
    logger: Option<String>,
    #[arg(long, hide = true)]
    log_outputs: Option<String>,
    #[arg(long, hide = true)]
    metrics: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pre_vote: Option<bool>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    strict_reconfig_check: Option<bool>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_v2: Option<bool>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    initial_election_tick_advance: Option<bool>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    experimental_initial_corrupt_check: Option<bool>,
    #[arg(long, hide = true)]
    experimental_corrupt_check_time: Option<String>,
    #[arg(long, hide = true)]
    backend_batch_interval: Option<String>,
    #[arg(long, hide = true)]
    backend_batch_limit: Option<u64>,
    #[arg(long, hide = true)]
    max_concurrent_streams: Option<u64>,
    #[arg(long, hide = true)]
    grpc_keepalive_min_time: Option<String>,
    #[arg(long, hide = true)]
    grpc_keepalive_interval: Option<String>,
    #[arg(long, hide = true)]
    grpc_keepalive_timeout: Option<String>,
    #[arg(long, hide = true)]
    cipher_suites: Option<String>,
    #[arg(long, hide = true)]
    auth_token: Option<String>,
    #[arg(long, hide = true)]
    feature_gates: Option<String>,
}

pub fn arguments(command: clap::Command) -> clap::Command {
    Etcd::augment_args(command)
}

/// Runs the member until it is told to stop.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let flags = &Etcd::from_arg_matches(matches)?;
    let level: tracing::Level =
        flags.limits.log_level.parse().with_context(|| format!("--log-level {:?}", flags.limits.log_level))?;
    tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).init();
    flags.note_accepted();
    component::run(serve(flags))
}

/// Runs the member in a process that has a log and an executor.
pub async fn start(matches: &ArgMatches) -> Result<()> {
    serve(&Etcd::from_arg_matches(matches)?).await
}

async fn serve(flags: &Etcd) -> Result<()> {
    let client_tls = flags.security.client_tls()?;
    let peer_tls = flags.security.peer_tls()?;
    let mut endpoints = Vec::new();
    for url in flags.listen_client_urls.iter().chain(&flags.listen_metrics_urls) {
        endpoints.push(open(url, client_tls.as_ref()).await?);
    }
    let this = flags.this_member(&endpoints)?;
    let (cluster_id, this, start) = flags.found_or_join(this, peer_tls.as_ref()).await?;
    let hub = Hub::default();
    let node = Node::start(flags.node_config(cluster_id, &this, start, peer_tls, hub.clone()).await?).await?;
    let backend = NodeBackend::new(node.clone(), hub);
    let router = etcd::router(backend.clone(), flags.server_config()?);
    let (stop, stopping) = tokio::sync::watch::channel(false);
    let mut serving = tokio::task::JoinSet::new();
    for endpoint in endpoints {
        let mut stopping = stopping.clone();
        tracing::info!(address = ?endpoint.local_addr().ok(), tls = endpoint.tls.is_some(), "serving clients");
        serving.spawn(etcd::serve(endpoint, router.clone(), async move {
            let _ = stopping.wait_for(|stop| *stop).await;
        }));
    }
    if let Some(retention) = flags.limits.retention()? {
        tokio::spawn(compactor::run(backend, retention));
    }
    tokio::spawn(publish(node.clone(), this));
    let reason = tokio::select! {
        reason = node.stopped() => reason,
        signal = signal() => { signal?; StopReason::Asked }
    };
    stop.send_replace(true);
    serving.join_all().await;
    node.stop().await;
    match reason {
        StopReason::Asked => Ok(()),
        StopReason::Removed => bail!("this member was removed from the cluster; its data directory can be deleted"),
        StopReason::Failed(error) => Err(anyhow::Error::from_boxed(Box::new(error)).context("the member cannot go on")),
    }
}

/// Tells the cluster this member's name and addresses, until it has heard.
async fn publish(node: Node, this: Peer) {
    let mut group = node.group_watch();
    loop {
        let known = node.members().into_iter().find(|peer| peer.id == this.id);
        match known {
            Some(known) if known.name == this.name && known.client_urls == this.client_urls => return,
            Some(known) => {
                let change =
                    Change::Update(Peer { name: this.name.clone(), client_urls: this.client_urls.clone(), ..known });
                if let Err(error) = node.change(change).await {
                    tracing::debug!(%error, "name and client URLs are not published yet");
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
            None if group.changed().await.is_err() => return,
            None => {}
        }
    }
}

pub(crate) async fn signal() -> Result<()> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        interrupt = tokio::signal::ctrl_c() => Ok(interrupt?),
    }
}

async fn open(url: &str, tls: Option<&ServerTls>) -> Result<Endpoint> {
    let address = Address::parse(url)?;
    let tls = match (address.secure, tls) {
        (false, _) => None,
        (true, Some(tls)) => Some(tls.clone()),
        (true, None) => bail!("{url} needs --cert-file and --key-file"),
    };
    Ok(Endpoint::open(&format!("{}:{}", bracketed(&address.host), address.port), tls).await?)
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

impl Etcd {
    fn data_dir(&self) -> PathBuf {
        self.data_dir.clone().unwrap_or_else(|| format!("{}.etcd", self.name).into())
    }

    /// This member as it will be known, without its id.
    fn this_member(&self, endpoints: &[Endpoint]) -> Result<Peer> {
        let mut client_urls = self.advertise_client_urls.clone();
        if client_urls.is_empty() {
            // Port 0 is known only now.
            for (url, endpoint) in self.listen_client_urls.iter().zip(endpoints) {
                let address = Address::parse(url)?;
                let scheme = if address.secure { "https" } else { "http" };
                client_urls.push(format!("{scheme}://{}:{}", bracketed(&address.host), endpoint.local_addr()?.port()));
            }
        }
        let mut peer_urls = self.initial_advertise_peer_urls.clone();
        peer_urls.sort();
        Ok(Peer { id: 0, name: self.name.clone(), peer_urls, client_urls, learner: false })
    }

    /// The cluster's id, this member with its own, and how it starts when its directory is empty.
    async fn found_or_join(&self, this: Peer, tls: Option<&Tls>) -> Result<(u64, Peer, Start)> {
        // A member that has run before is who it was: the other members need not be there to say so.
        let data_dir = self.data_dir();
        if data_dir.is_dir()
            && let Some((cluster_id, id)) = log::identity(&FileDisk::open(data_dir)?)?
        {
            return Ok((cluster_id, Peer { id, ..this }, Start::Join(Vec::new())));
        }
        let alone = this.peer_urls.iter().map(|url| format!("{}={url}", this.name)).collect();
        let listed = if self.initial_cluster.is_empty() { alone } else { self.initial_cluster.clone() };
        let listed = identity::members(&listed)?;
        if self.initial_cluster_state == "existing" {
            let urls: Vec<String> =
                listed.iter().filter(|peer| peer.name != self.name).flat_map(|peer| peer.peer_urls.clone()).collect();
            let (cluster_id, peers) = peer::members_of(&urls, tls).await.context("no member of the cluster answers")?;
            let known = peers.iter().find(|peer| peer.peer_urls == this.peer_urls);
            let known =
                known.context("the cluster has no member with these peer URLs: add it first with `member add`")?;
            let this = Peer { id: known.id, learner: known.learner, ..this };
            return Ok((cluster_id, this, Start::Join(peers)));
        }
        ensure!(self.initial_cluster_state == "new", "--initial-cluster-state is `new` or `existing`");
        let (cluster_id, peers) = identity::found(listed, &self.initial_cluster_token);
        let found = peers.iter().find(|peer| peer.name == self.name);
        let found = found.with_context(|| format!("--initial-cluster does not name {}", self.name))?;
        ensure!(
            found.peer_urls == this.peer_urls,
            "--initial-cluster has {} for {}, --initial-advertise-peer-urls has {}",
            found.peer_urls.join(","),
            self.name,
            this.peer_urls.join(",")
        );
        Ok((cluster_id, Peer { id: found.id, ..this }, Start::New(peers)))
    }

    async fn node_config(
        &self,
        cluster_id: u64,
        this: &Peer,
        start: Start,
        tls: Option<Tls>,
        hub: Hub,
    ) -> Result<node::Config> {
        let mut listeners = Vec::new();
        for url in &self.listen_peer_urls {
            let address = Address::parse(url)?;
            ensure!(
                !address.secure || tls.is_some(),
                "{url} needs --peer-cert-file, --peer-key-file and --peer-trusted-ca-file"
            );
            let listener = tokio::net::TcpListener::bind((&*address.host, address.port)).await;
            listeners.push(listener.with_context(|| format!("cannot listen on {url}"))?);
        }
        let limits = &self.limits;
        ensure!(limits.heartbeat_interval > 0, "--heartbeat-interval must be more than 0");
        ensure!(
            limits.election_timeout >= 5 * limits.heartbeat_interval,
            "--election-timeout[{}ms] should be at least as 5 times as --heartbeat-interval[{}ms]",
            limits.election_timeout,
            limits.heartbeat_interval
        );
        Ok(node::Config {
            id: this.id,
            cluster_id,
            data_dir: self.data_dir(),
            heartbeat: Duration::from_millis(limits.heartbeat_interval),
            election_ticks: usize::try_from(limits.election_timeout / limits.heartbeat_interval)?,
            start,
            listeners,
            tls,
            on_apply: Box::new(move |state| hub.publish(state)),
            segment_bytes: ::store::alone::SEGMENT_BYTES,
            checkpoint_bytes: ::store::alone::CHECKPOINT_BYTES,
        })
    }

    fn server_config(&self) -> Result<etcd::Config> {
        let limits = &self.limits;
        let default = etcd::Config::default();
        Ok(etcd::Config {
            txn_ops_max: limits.max_txn_ops,
            request_bytes_max: limits.max_request_bytes,
            quota_bytes: match limits.quota_backend_bytes {
                0 => default.quota_bytes,
                bytes => u64::try_from(bytes).ok(),
            },
            // One and a half election timeouts, in whole seconds.
            lease_ttl_seconds_min: i64::try_from((limits.election_timeout * 3 / 2).div_ceil(1000))?,
            progress_interval: retention::duration(&limits.experimental_watch_progress_notify_interval)
                .context("--experimental-watch-progress-notify-interval")?,
        })
    }

    fn note_accepted(&self) {
        let accepted = &self.accepted;
        let given = [
            ("wal-dir", accepted.wal_dir.is_some(), "the log is in --data-dir"),
            ("enable-v2", accepted.enable_v2 == Some(true), "there is no v2 API"),
            ("pre-vote", accepted.pre_vote == Some(false), "it is always on"),
            ("strict-reconfig-check", accepted.strict_reconfig_check == Some(false), "it is always on"),
            ("cipher-suites", accepted.cipher_suites.is_some(), "the safe ones of TLS 1.2 and 1.3 are offered"),
            ("auth-token", accepted.auth_token.is_some(), "there are no users"),
        ];
        for (flag, given, why) in given {
            if given {
                tracing::warn!("--{flag} has no effect: {why}");
            }
        }
    }
}

impl Security {
    fn client_tls(&self) -> Result<Option<ServerTls>> {
        let (cert, key) = match (&self.cert_file, &self.key_file) {
            (Some(cert), Some(key)) => (cert.clone(), key.clone()),
            (None, None) => return Ok(None),
            _ => bail!("--cert-file and --key-file go together"),
        };
        ensure!(!self.client_cert_auth || self.trusted_ca_file.is_some(), "--client-cert-auth needs --trusted-ca-file");
        let client_ca = self.trusted_ca_file.clone();
        Ok(Some(ServerTls::new(TlsFiles { cert, key, client_ca })?))
    }

    fn peer_tls(&self) -> Result<Option<Tls>> {
        match (&self.peer_cert_file, &self.peer_key_file, &self.peer_trusted_ca_file) {
            (Some(cert), Some(key), Some(authority)) => Ok(Some(Tls::from_files(cert, key, authority)?)),
            (None, None, None) => Ok(None),
            _ => bail!("--peer-cert-file, --peer-key-file and --peer-trusted-ca-file go together"),
        }
    }
}

impl Limits {
    fn retention(&self) -> Result<Option<Retention>> {
        retention::parse(&self.auto_compaction_mode, &self.auto_compaction_retention)
    }
}

//! `knarr etcd`: a store member as a separate process, with etcd's flags.

use std::path::PathBuf;
use std::time::Duration;

use ::store::backend::NodeBackend;
use ::store::disk::FileDisk;
use ::store::etcd::compactor::{self, Retention};
use ::store::etcd::tls::ServerTls;
use ::store::etcd::{self, Endpoint, Routers};
use ::store::log;
use ::store::member::{self, Node, ReadError, Start, StopReason};
use ::store::peer::{self, Address, Tls};
use ::store::watch::Hub;
use anyhow::{Context, Result, bail, ensure};
use clap::{ArgAction, ArgMatches, Args, FromArgMatches};
use consensus::{Change, Peer};

use crate::component;

use authentication::Authentication;
use security::Security;
use tracing::Instrument;

mod accepted;
mod authentication;
mod file;
pub(crate) mod identity;
mod retention;
mod security;

/// Time that members must have been connected before a membership change, as in etcd.
const HEALTH_INTERVAL: Duration = Duration::from_secs(5);

/// Run a store member alone, with etcd's flags.
#[derive(Args, Debug, Clone)]
struct Etcd {
    /// Name of this member.
    #[arg(long, env = "ETCD_NAME", default_value = "default")]
    name: String,
    /// Directory of the write-ahead log and the checkpoints [default: NAME.etcd].
    #[arg(long, env = "ETCD_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// URLs to listen on for client traffic.
    #[arg(long, env = "ETCD_LISTEN_CLIENT_URLS", value_delimiter = ',', default_value = "http://localhost:2379")]
    listen_client_urls: Vec<String>,
    /// Client URLs that this member advertises [default: --listen-client-urls].
    #[arg(long, env = "ETCD_ADVERTISE_CLIENT_URLS", value_delimiter = ',')]
    advertise_client_urls: Vec<String>,
    /// URLs to listen on for peer traffic.
    #[arg(long, env = "ETCD_LISTEN_PEER_URLS", value_delimiter = ',', default_value = "http://localhost:2380")]
    listen_peer_urls: Vec<String>,
    /// Peer URLs that this member advertises to the other members.
    #[arg(
        long,
        env = "ETCD_INITIAL_ADVERTISE_PEER_URLS",
        value_delimiter = ',',
        default_value = "http://localhost:2380"
    )]
    initial_advertise_peer_urls: Vec<String>,
    /// URLs to listen on for HTTP requests other than gRPC: metrics and health.
    #[arg(long, env = "ETCD_LISTEN_CLIENT_HTTP_URLS", value_delimiter = ',')]
    listen_client_http_urls: Vec<String>,
    /// URLs to listen on for metrics and health only.
    #[arg(long, env = "ETCD_LISTEN_METRICS_URLS", value_delimiter = ',')]
    listen_metrics_urls: Vec<String>,
    /// Initial members as name=url; repeat the name for several URLs [default: this member alone].
    #[arg(long, env = "ETCD_INITIAL_CLUSTER", value_delimiter = ',')]
    initial_cluster: Vec<String>,
    /// `new` to bootstrap a cluster, `existing` to join one.
    #[arg(long, env = "ETCD_INITIAL_CLUSTER_STATE", default_value = "new")]
    initial_cluster_state: String,
    /// Token that distinguishes clusters with the same initial members.
    #[arg(long, env = "ETCD_INITIAL_CLUSTER_TOKEN", default_value = "etcd-cluster")]
    initial_cluster_token: String,
    /// Reject membership changes unless a majority has been connected for five seconds.
    // DEVIATION: without `--strict-reconfig-check`, changes that would leave fewer started members than a majority are
    // still rejected.
    #[arg(long, env = "ETCD_STRICT_RECONFIG_CHECK", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true", action = ArgAction::Set)]
    strict_reconfig_check: bool,
    #[command(flatten)]
    security: Security,
    #[command(flatten)]
    authentication: Authentication,
    #[command(flatten)]
    limits: Limits,
    /// Path to a configuration file; other flags and environment variables are then ignored.
    #[arg(long, env = "ETCD_CONFIG_FILE")]
    config_file: Option<PathBuf>,
    /// Print the version and exit.
    #[arg(long)]
    version: bool,
}

/// Limits and timeouts.
#[derive(Args, Debug, Clone)]
struct Limits {
    /// Heartbeat interval in milliseconds.
    #[arg(long, env = "ETCD_HEARTBEAT_INTERVAL", default_value_t = 100)]
    heartbeat_interval: u64,
    /// Election timeout in milliseconds.
    #[arg(long, env = "ETCD_ELECTION_TIMEOUT", default_value_t = 1000)]
    election_timeout: u64,
    /// Storage quota in bytes; 0 means 2 GiB, a negative value disables the quota.
    #[arg(long, env = "ETCD_QUOTA_BACKEND_BYTES", default_value_t = 0, allow_negative_numbers = true)]
    quota_backend_bytes: i64,
    /// Maximum number of operations in a transaction.
    #[arg(long, env = "ETCD_MAX_TXN_OPS", default_value_t = 128)]
    max_txn_ops: usize,
    /// Maximum size of a client request in bytes.
    #[arg(long, env = "ETCD_MAX_REQUEST_BYTES", default_value_t = 1_572_864)]
    max_request_bytes: usize,
    /// Automatic compaction mode: `periodic` or `revision`.
    #[arg(long, env = "ETCD_AUTO_COMPACTION_MODE", default_value = "periodic")]
    auto_compaction_mode: String,
    /// History kept by automatic compaction: a duration (5m; hours without a unit) or a number of revisions; 0 disables
    /// it.
    #[arg(long, env = "ETCD_AUTO_COMPACTION_RETENTION", default_value = "0")]
    auto_compaction_retention: String,
    /// Interval of watch progress notifications [default: 10m].
    #[arg(long, env = "ETCD_WATCH_PROGRESS_NOTIFY_INTERVAL")]
    watch_progress_notify_interval: Option<String>,
    /// Deprecated name of --watch-progress-notify-interval.
    #[arg(long, env = "ETCD_EXPERIMENTAL_WATCH_PROGRESS_NOTIFY_INTERVAL", hide = true)]
    experimental_watch_progress_notify_interval: Option<String>,
    /// Log level: `debug`, `info`, `warn` or `error`.
    #[arg(long, env = "ETCD_LOG_LEVEL", default_value = "info")]
    log_level: String,
}

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    let command = Etcd::augment_args(command).args(accepted::arguments());
    // As with Go's flags, the last value of a repeated flag overrides the earlier ones, for lists too.
    command.args_override_self(true).mut_args(|flag| match flag.get_action() {
        ArgAction::Append => flag.action(ArgAction::Set),
        _ => flag,
    })
}

/// Returns the output of `etcd --version`. Scripts read its first line.
fn version() -> String {
    let program = env!("CARGO_PKG_VERSION");
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    format!("etcd Version: {}\nKnarr Version: {program}\nOS/Arch: {os}/{arch}\n", etcd::VERSION)
}

/// Runs the member until SIGTERM or SIGINT.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let (flags, warnings) = &flags(matches)?;
    if flags.version {
        crate::output::out!("{}", version());
        return Ok(());
    }
    let level: tracing::Level =
        flags.limits.log_level.parse().with_context(|| format!("invalid --log-level {:?}", flags.limits.log_level))?;
    crate::log::to_stderr(level);
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    component::run("etcd", serve(flags))
}

/// Runs the member in a process that already has a log and a Tokio runtime.
pub(crate) async fn start(matches: &ArgMatches) -> Result<()> {
    let (flags, warnings) = flags(matches)?;
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    serve(&flags).await
}

/// Returns the settings of the flags or of the configuration file, and warnings about ignored flags.
fn flags(matches: &ArgMatches) -> Result<(Etcd, Vec<String>)> {
    let flags = Etcd::from_arg_matches(matches)?;
    let Some(path) = &flags.config_file else { return Ok((flags, accepted::check_flags(matches)?)) };
    let command = arguments(clap::Command::new("etcd")).mut_args(|flag| flag.env(None::<&'static str>));
    let matches = command.no_binary_name(true).try_get_matches_from(file::flags(path)?)?;
    Ok((Etcd::from_arg_matches(&matches)?, accepted::check_flags(&matches)?))
}

async fn serve(flags: &Etcd) -> Result<()> {
    let data_dir = flags.data_dir();
    let client_urls: Vec<String> =
        [&flags.listen_client_urls, &flags.listen_metrics_urls, &flags.listen_client_http_urls]
            .into_iter()
            .flatten()
            .cloned()
            .collect();
    let client_tls = flags.security.client_tls(&data_dir, &client_urls)?;
    let peer_tls = flags.security.peer_tls(&data_dir, &flags.listen_peer_urls)?;
    let (mut endpoints, mut observed) = (Vec::new(), Vec::new());
    for url in &flags.listen_client_urls {
        endpoints.push(open(url, client_tls.as_ref()).await?);
    }
    for url in flags.listen_metrics_urls.iter().chain(&flags.listen_client_http_urls) {
        observed.push(open(url, client_tls.as_ref()).await?);
    }
    let this = flags.this_member(&endpoints)?;
    let (cluster_id, this, start) = flags.found_or_join(this, peer_tls.as_ref()).await?;
    let hub = Hub::default();
    let node = Node::start(flags.node_config(cluster_id, &this, start, peer_tls, hub.clone()).await?).await?;
    let mut backend = NodeBackend::new(node.clone(), hub);
    if flags.strict_reconfig_check {
        backend = backend.with_connected_min(HEALTH_INTERVAL);
    }
    // Clients of the metrics URLs often have no certificate, so they must not reach the key-value API.
    let Routers { clients, observers } = etcd::routers(backend.clone(), flags.server_config()?);
    let (stop, stopping) = tokio::sync::watch::channel(false);
    let mut serving = tokio::task::JoinSet::new();
    let for_clients = endpoints.into_iter().map(|endpoint| (endpoint, &clients, "serving clients"));
    let for_observers = observed.into_iter().map(|endpoint| (endpoint, &observers, "serving metrics and health"));
    for (endpoint, router, what) in for_clients.chain(for_observers) {
        let mut stopping = stopping.clone();
        tracing::info!(address = ?endpoint.local_addr().ok(), tls = endpoint.tls.is_some(), "{what}");
        serving.spawn(
            etcd::serve(endpoint, router.clone(), async move {
                let _ = stopping.wait_for(|stop| *stop).await;
            })
            .in_current_span(),
        );
    }
    if let Some(retention) = flags.limits.retention()? {
        tokio::spawn(compactor::run(backend, retention).in_current_span());
    }
    tokio::spawn(announce(node.clone(), this).in_current_span());
    let reason = tokio::select! {
        reason = node.stopped() => reason,
        signal = signal() => { signal?; StopReason::Requested }
    };
    stop.send_replace(true);
    serving.join_all().await;
    node.stop().await;
    match reason {
        StopReason::Requested => Ok(()),
        StopReason::Removed => bail!("this member was removed from the cluster; its data directory can be deleted"),
        StopReason::Failed(error) => Err(anyhow::Error::from_boxed(Box::new(error)).context("the member failed")),
    }
}

/// Publishes this member and logs when it is ready: a leader exists, and all that it committed is applied here.
async fn announce(node: Node, this: Peer) {
    publish(node.clone(), this).await;
    loop {
        match node.read_index().await {
            Ok(()) => return tracing::info!("ready to serve client requests"),
            Err(ReadError::Timeout) => {}
            Err(ReadError::Stopped) => return,
        }
    }
}

/// Proposes this member's name and client URLs until the cluster has them.
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
                    tracing::debug!(%error, "failed to publish name and client URLs; retrying");
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
        (true, None) => bail!("{url} needs --cert-file and --key-file, or --auto-tls"),
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

    /// Returns the advertised form of this member, without an ID.
    fn this_member(&self, endpoints: &[Endpoint]) -> Result<Peer> {
        let mut client_urls = self.advertise_client_urls.clone();
        if client_urls.is_empty() {
            // The port of an address with port 0 is known only after binding.
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

    /// Returns the cluster ID, this member with its ID, and its bootstrap mode if the data directory is empty.
    async fn found_or_join(&self, this: Peer, tls: Option<&Tls>) -> Result<(u64, Peer, Start)> {
        // A restarted member reads its ID from disk. The other members need not be reachable.
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
            let (cluster_id, peers) =
                peer::members_of(&urls, tls).await.context("no member of the cluster responds")?;
            let known = peers.iter().find(|peer| peer.peer_urls == this.peer_urls);
            let known =
                known.context("the cluster has no member with these peer URLs; add it first with `member add`")?;
            let this = Peer { id: known.id, learner: known.learner, ..this };
            return Ok((cluster_id, this, Start::Join(peers)));
        }
        ensure!(self.initial_cluster_state == "new", "--initial-cluster-state must be `new` or `existing`");
        let (cluster_id, peers) = identity::found(listed, &self.initial_cluster_token);
        let found = peers.iter().find(|peer| peer.name == self.name);
        let found = found.with_context(|| format!("--initial-cluster does not contain the member {}", self.name))?;
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
    ) -> Result<member::Config> {
        let mut listeners = Vec::new();
        for url in &self.listen_peer_urls {
            let address = Address::parse(url)?;
            ensure!(
                !address.secure || tls.is_some(),
                "{url} needs --peer-cert-file, --peer-key-file and --peer-trusted-ca-file, or --peer-auto-tls"
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
        Ok(member::Config {
            id: this.id,
            cluster_id,
            data_dir: self.data_dir(),
            heartbeat: Duration::from_millis(limits.heartbeat_interval),
            election_ticks: usize::try_from(limits.election_timeout / limits.heartbeat_interval)?,
            start,
            listeners,
            tls,
            on_apply: Box::new(move |state| hub.publish(state)),
            segment_bytes: ::store::single_member::SEGMENT_BYTES,
            checkpoint_bytes: ::store::single_member::CHECKPOINT_BYTES,
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
            // etcd's minimum lease TTL: one and a half election timeouts, rounded up to seconds.
            lease_ttl_seconds_min: i64::try_from((limits.election_timeout * 3 / 2).div_ceil(1000))?,
            election_timeout: Duration::from_millis(limits.election_timeout),
            progress_interval: match limits.progress_interval() {
                Some(text) => retention::duration(text).context("--watch-progress-notify-interval")?,
                None => default.progress_interval,
            },
            auth: self.authentication.config(self.security.client_cert_auth)?,
        })
    }
}

impl Limits {
    fn progress_interval(&self) -> Option<&str> {
        let given = self.watch_progress_notify_interval.as_ref();
        given.or(self.experimental_watch_progress_notify_interval.as_ref()).map(String::as_str)
    }

    fn retention(&self) -> Result<Option<Retention>> {
        retention::parse(&self.auto_compaction_mode, &self.auto_compaction_retention)
    }
}

#[cfg(test)]
mod tests {
    use ::store::etcd::tls::Versions;

    use super::*;

    fn read(given: &[&str]) -> Result<(Etcd, Vec<String>)> {
        let command = arguments(clap::Command::new("etcd")).no_binary_name(true);
        flags(&command.try_get_matches_from(given)?)
    }

    #[test]
    fn config_file_replaces_flags() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("etcd.yaml");
        let file = format!("--config-file={}", path.display());
        let text = "name: m1\nheartbeat-interval: 50\nenable-v2: true\nlisten-client-urls: http://a:1,http://b:2\n\
                    client-transport-security: {client-cert-auth: true}\n";
        std::fs::write(&path, text).unwrap();
        let (flags, warnings) = read(&["--name=other", "--election-timeout=5000", &file]).unwrap();
        assert_eq!(
            (flags.name.as_str(), flags.limits.heartbeat_interval, flags.limits.election_timeout),
            ("m1", 50, 1000)
        );
        assert_eq!(flags.listen_client_urls, ["http://a:1", "http://b:2"]);
        assert!(flags.security.client_cert_auth);
        assert_eq!(warnings, ["--enable-v2 has no effect: the v2 API is not implemented"]);
        for (text, message) in [("no-such: 1", "unexpected argument"), ("force-new-cluster: true", "is not supported")]
        {
            std::fs::write(&path, text).unwrap();
            let error = format!("{:#}", read(&[&file]).unwrap_err());
            assert!(error.contains(message), "{text}: {error}");
        }
    }

    #[test]
    fn last_value_of_a_repeated_flag_wins() {
        let (flags, _) = read(&["--name=a", "--client-cert-auth", "--name", "b", "--client-cert-auth=false"]).unwrap();
        assert_eq!((flags.name.as_str(), flags.security.client_cert_auth), ("b", false));
        let (flags, _) =
            read(&["--initial-cluster=a=http://a:1", "--initial-cluster", "b=http://b:1,c=http://c:1"]).unwrap();
        assert_eq!(flags.initial_cluster, ["b=http://b:1", "c=http://c:1"]);
        assert!(read(&["--snapshot-count=1", "--snapshot-count=2"]).is_ok());
    }

    #[test]
    fn version_output_has_the_etcd_and_the_knarr_version() {
        let text = version();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some(&*format!("etcd Version: {}", etcd::VERSION)));
        assert!(lines.next().is_some_and(|line| line.starts_with("Knarr Version: ")));
        assert!(read(&["--version"]).unwrap().0.version);
    }

    #[test]
    fn experimental_flag_names_and_tls_versions_are_parsed() {
        let interval = |given: &[&str]| read(given).unwrap().0.server_config().unwrap().progress_interval.as_secs();
        assert_eq!(interval(&[]), 600);
        assert_eq!(interval(&["--watch-progress-notify-interval=5s"]), 5);
        assert_eq!(interval(&["--experimental-watch-progress-notify-interval=7s"]), 7);
        let versions = |given: &[&str]| read(given).unwrap().0.security.versions().map_err(|error| error.to_string());
        assert_eq!(versions(&[]), Ok(Versions::Both));
        assert_eq!(versions(&["--tls-min-version=TLS1.3"]), Ok(Versions::Only13));
        assert_eq!(versions(&["--tls-min-version=TLS1.2", "--tls-max-version=TLS1.2"]), Ok(Versions::Only12));
        assert!(versions(&["--tls-min-version=TLS1.3", "--tls-max-version=TLS1.2"]).is_err());
        assert!(versions(&["--tls-min-version=TLS1.0"]).is_err());
    }
}

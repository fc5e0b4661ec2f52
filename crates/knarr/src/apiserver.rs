//! `knarr kube-apiserver`: the API server alone, with upstream's flags.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ::apiserver::authentication::{Authenticators, ServiceAccounts};
use ::apiserver::proxy::Kubelets;
use ::apiserver::server::Mode;
use ::apiserver::{Config, Server, aggregation, claims, tls, vault};
use ::store::backend::NodeBackend;
use ::store::client::{Client, Remote, RemoteConfig};
use ::store::node::{self, Node, Start};
use ::store::watch::Hub;
use anyhow::{Context, Result, bail};
use auth::keys::{KeySet, PrivateKey, PublicKey};
use auth::service_account::request;
use auth::service_account::token::Checker;
use clap::{ArgMatches, Args, FromArgMatches};
use consensus::Peer;
use machinery::Str;

/// The API server, started alone, with upstream's flags.
#[derive(Args, Debug, Clone)]
struct ApiServer {
    /// Port to serve HTTPS on; 0 chooses one.
    #[arg(long, default_value_t = 6443)]
    secure_port: u16,
    /// Address to serve on.
    #[arg(long, default_value = "0.0.0.0")]
    bind_address: IpAddr,
    /// Address that others reach this server at.
    #[arg(long)]
    advertise_address: Option<IpAddr>,
    /// Directory of the embedded store, used when --etcd-servers is not given.
    #[arg(long, default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
    /// Where certificates are made when none are given.
    #[arg(long, default_value = "/var/run/kubernetes")]
    cert_dir: PathBuf,
    /// Certificate shown to clients.
    #[arg(long)]
    tls_cert_file: Option<PathBuf>,
    /// Its key.
    #[arg(long)]
    tls_private_key_file: Option<PathBuf>,
    /// Authority of clients' certificates.
    #[arg(long)]
    client_ca_file: Option<PathBuf>,
    /// File of static tokens: token,user,uid,"group1,group2".
    #[arg(long)]
    token_auth_file: Option<PathBuf>,
    /// Whether those who prove nothing are let through to authorization.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true", action = clap::ArgAction::Set)]
    anonymous_auth: bool,
    /// Authorizers in their order: AlwaysAllow, AlwaysDeny, ABAC, RBAC, Node.
    #[arg(long, value_delimiter = ',', default_value = "AlwaysAllow")]
    authorization_mode: Vec<String>,
    /// Admission plug-ins that are on besides those that are on by default.
    #[arg(long, value_delimiter = ',')]
    enable_admission_plugins: Vec<String>,
    /// Admission plug-ins that are off, also if on by default.
    #[arg(long, value_delimiter = ',')]
    disable_admission_plugins: Vec<String>,
    /// File of ABAC policies.
    #[arg(long)]
    authorization_policy_file: Option<PathBuf>,
    /// URLs of an etcd to use instead of the embedded store.
    #[arg(long, value_delimiter = ',')]
    etcd_servers: Vec<String>,
    /// Authority of etcd's certificate.
    #[arg(long)]
    etcd_cafile: Option<PathBuf>,
    /// Certificate shown to etcd.
    #[arg(long)]
    etcd_certfile: Option<PathBuf>,
    /// Its key.
    #[arg(long)]
    etcd_keyfile: Option<PathBuf>,
    /// What all keys start with.
    #[arg(long, default_value = "/registry")]
    etcd_prefix: String,
    /// Ranges of service addresses.
    #[arg(long, value_delimiter = ',', default_value = "10.0.0.0/24")]
    service_cluster_ip_range: Vec<String>,
    /// Ports that services open on every node.
    #[arg(long, default_value = "30000-32767")]
    service_node_port_range: String,
    /// Issuers of service account tokens; the first one issues new ones.
    #[arg(long)]
    service_account_issuer: Vec<String>,
    /// Key that signs service account tokens; made in --cert-dir if there is none.
    #[arg(long)]
    service_account_signing_key_file: Option<PathBuf>,
    /// Keys that service account tokens may be signed with.
    #[arg(long)]
    service_account_key_file: Vec<PathBuf>,
    /// Whom tokens may be for [default: the issuers].
    #[arg(long, value_delimiter = ',')]
    api_audiences: Vec<String>,
    /// File that says which resources are encrypted at rest, and how.
    #[arg(long)]
    encryption_provider_config: Option<PathBuf>,
    /// Whether that file is read again when it changes.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = clap::ArgAction::Set)]
    encryption_provider_config_automatic_reload: bool,
    /// How long events are kept.
    #[arg(long, default_value = "1h0m0s", value_parser = duration)]
    event_ttl: Duration,
    /// How much history the store keeps; 0 if somebody else compacts it.
    #[arg(long, default_value = "5m0s", value_parser = duration)]
    etcd_compaction_interval: Duration,
    /// Whether services are reached at their endpoints instead of their own address.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = clap::ArgAction::Set)]
    enable_aggregator_routing: bool,
    /// Sorts of node addresses to reach kubelets at, the most wanted first.
    #[arg(long, value_delimiter = ',', default_value = "Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP")]
    kubelet_preferred_address_types: Vec<String>,
    /// Certificate shown to kubelets.
    #[arg(long)]
    kubelet_client_certificate: Option<PathBuf>,
    /// Its key.
    #[arg(long)]
    kubelet_client_key: Option<PathBuf>,
    /// Authority of kubelets' certificates; any certificate is taken without it.
    #[arg(long)]
    kubelet_certificate_authority: Option<PathBuf>,
    /// Certificate shown to aggregated API servers.
    #[arg(long)]
    proxy_client_cert_file: Option<PathBuf>,
    /// Its key.
    #[arg(long)]
    proxy_client_key_file: Option<PathBuf>,
    /// Whether secrets of the bootstrap kind are tokens.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = clap::ArgAction::Set)]
    enable_bootstrap_token_auth: bool,
}

pub fn arguments(command: clap::Command) -> clap::Command {
    ApiServer::augment_args(command)
}

/// A time in Go's form.
fn duration(text: &str) -> Result<Duration, String> {
    let parsed: machinery::time::Duration = text.parse().map_err(|error| format!("{error}"))?;
    u64::try_from(parsed.nanos()).map(Duration::from_nanos).map_err(|_| format!("{text} is negative"))
}

/// Runs the server in a process that has a log and an executor.
pub async fn start(matches: &ArgMatches) -> Result<()> {
    serve(&ApiServer::from_arg_matches(matches)?).await
}

/// Runs the server until it is told to stop.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let flags = &ApiServer::from_arg_matches(matches)?;
    tracing_subscriber::fmt().with_max_level(tracing::Level::INFO).with_writer(std::io::stderr).init();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(serve(flags))
}

async fn serve(flags: &ApiServer) -> Result<()> {
    let (store, node) = flags.store().await?;
    let server = Server::start(flags.config()?, store).await?;
    tracing::info!(address = %server.address(), "serving");
    tokio::select! {
        signal = crate::etcd::signal() => signal?,
        reason = stopped(node.as_ref()) => bail!("the embedded store stopped: {reason:?}"),
    }
    server.stop().await;
    if let Some(node) = node {
        node.stop().await;
    }
    Ok(())
}

async fn stopped(node: Option<&Node>) -> node::StopReason {
    match node {
        Some(node) => node.stopped().await,
        None => std::future::pending().await,
    }
}

impl ApiServer {
    fn config(&self) -> Result<Config> {
        let mut authenticators = Authenticators { anonymous: self.anonymous_auth, ..Authenticators::default() };
        if let Some(file) = &self.token_auth_file {
            let text = std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
            authenticators.tokens = auth::token_file::parse(&text).with_context(|| format!("{}", file.display()))?;
        }
        authenticators.service_accounts = Some(self.service_accounts()?);
        authenticators.bootstrap_tokens = self.enable_bootstrap_token_auth;
        let advertised = self.advertise_address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        Ok(Config {
            address: SocketAddr::new(self.bind_address, self.secure_port),
            etcd_prefix: self.etcd_prefix.clone(),
            aggregator_routing: self.enable_aggregator_routing,
            kubelets: Kubelets {
                preferred: self.kubelet_preferred_address_types.clone(),
                client: self.kubelet_client_certificate.clone().zip(self.kubelet_client_key.clone()),
                authority: self.kubelet_certificate_authority.clone(),
            },
            aggregation: aggregation::Config {
                client: self.proxy_client_cert_file.clone().zip(self.proxy_client_key_file.clone()),
                client_ca: self.client_ca_file.clone(),
                proxy_ca: None,
            },
            tls: tls::Files {
                cert_dir: self.cert_dir.clone(),
                certificate: self.tls_cert_file.clone(),
                key: self.tls_private_key_file.clone(),
                client_ca: self.client_ca_file.clone(),
            },
            names: ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
                .map(str::to_owned)
                .to_vec(),
            addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST), advertised],
            authenticators,
            modes: self.authorization_mode.iter().map(|mode| self.mode(mode)).collect::<Result<_>>()?,
            admission: registry::admission::Flags {
                enable: self.enable_admission_plugins.clone(),
                disable: self.disable_admission_plugins.clone(),
                ..registry::admission::Flags::default()
            },
            external_address: self
                .advertise_address
                .map(|address| SocketAddr::new(address, self.secure_port).to_string()),
            ranges: claims::ranges(&self.service_cluster_ip_range, &self.service_node_port_range)
                .map_err(anyhow::Error::msg)?,
            encryption: self
                .encryption_provider_config
                .clone()
                .map(|path| vault::File { path, reload: self.encryption_provider_config_automatic_reload }),
            event_life: self.event_ttl,
            compaction_interval: Some(self.etcd_compaction_interval).filter(|interval| !interval.is_zero()),
            kinds: api::kinds::all(),
        })
    }

    /// What makes and checks service account tokens.
    fn service_accounts(&self) -> Result<ServiceAccounts> {
        let read = |file: &PathBuf| {
            std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))
        };
        let file = match &self.service_account_signing_key_file {
            Some(file) => file.clone(),
            None => self.own_key()?,
        };
        let key = PrivateKey::from_pem(&read(&file)?).with_context(|| format!("{} holds no key", file.display()))?;
        let mut keys = vec![key.public().clone()];
        for file in &self.service_account_key_file {
            keys.extend(
                PublicKey::all_from_pem(&read(file)?).with_context(|| format!("{} holds no key", file.display()))?,
            );
        }
        let texts = |list: &[String]| list.iter().map(|text| Str::from(text.as_str())).collect::<Vec<_>>();
        let issuers = match self.service_account_issuer.as_slice() {
            [] => vec![Str::from("https://kubernetes.default.svc")],
            some => texts(some),
        };
        let audiences = if self.api_audiences.is_empty() { issuers.clone() } else { texts(&self.api_audiences) };
        let config = request::Config {
            issuer: issuers[0].clone(),
            audiences: audiences.clone(),
            extend_expiration: true,
            max_seconds: None,
        };
        let checker = Checker { issuers, keys: KeySet::of(keys), audiences };
        Ok(ServiceAccounts { key, config, checker })
    }

    /// The key that the server made for itself, made now if it is the first time.
    fn own_key(&self) -> Result<PathBuf> {
        let file = self.cert_dir.join("service-account.key");
        if !file.is_file() {
            std::fs::create_dir_all(&self.cert_dir)
                .with_context(|| format!("{} cannot be made", self.cert_dir.display()))?;
            tls::write_new_key(&file)?;
        }
        Ok(file)
    }

    fn mode(&self, name: &str) -> Result<Mode> {
        Ok(match name {
            "AlwaysAllow" => Mode::AlwaysAllow,
            "AlwaysDeny" => Mode::AlwaysDeny,
            "RBAC" => Mode::Rbac,
            "Node" => Mode::Node,
            "ABAC" => {
                let file = self.authorization_policy_file.as_ref().context("ABAC needs --authorization-policy-file")?;
                let text =
                    std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
                Mode::Abac(auth::abac::Policies::parse(&text)?)
            }
            other => {
                bail!("--authorization-mode has {other:?}, which is none of AlwaysAllow, AlwaysDeny, ABAC, RBAC, Node")
            }
        })
    }

    /// The store: etcd where it is given, otherwise a member of one in this process.
    async fn store(&self) -> Result<(Client, Option<Node>)> {
        if !self.etcd_servers.is_empty() {
            let identity = match (&self.etcd_certfile, &self.etcd_keyfile) {
                (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
                (None, None) => None,
                _ => bail!("--etcd-certfile and --etcd-keyfile go together"),
            };
            let config =
                RemoteConfig { servers: self.etcd_servers.clone(), ca_file: self.etcd_cafile.clone(), identity };
            return Ok((Client::Remote(Box::new(Remote::new(&config)?)), None));
        }
        let hub = Hub::default();
        let watching = hub.clone();
        let peer =
            Peer { id: 1, name: "default".into(), peer_urls: Vec::new(), client_urls: Vec::new(), learner: false };
        let config = node::Config {
            id: 1,
            cluster_id: 1,
            data_dir: self.data_dir.join("store"),
            heartbeat: Duration::from_millis(100),
            election_ticks: 10,
            start: Start::New(vec![peer]),
            listeners: Vec::new(),
            tls: None,
            on_apply: Box::new(move |state| watching.publish(state)),
            segment_bytes: crate::etcd::SEGMENT_BYTES,
            checkpoint_bytes: crate::etcd::CHECKPOINT_BYTES,
        };
        let node = Node::start(config).await?;
        let backend = NodeBackend::new(node.clone(), hub);
        Ok((Client::Local(backend), Some(node)))
    }
}

//! The flags of the API server that mean something here, by upstream's names.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use super::webhooks::Webhooks;

/// The API server, started alone, with upstream's flags.
#[derive(Args, Debug, Clone)]
pub struct Flags {
    /// Port to serve HTTPS on; 0 chooses one.
    #[arg(long, default_value_t = 6443)]
    pub secure_port: u16,
    /// Address to serve on.
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// Address that others reach this server at.
    #[arg(long)]
    pub advertise_address: Option<IpAddr>,
    /// Name that others reach this server by, in URLs it gives out.
    #[arg(long)]
    pub external_hostname: Option<String>,
    /// Directory of the embedded store, used when --etcd-servers is not given.
    #[arg(long, default_value = "/var/lib/knarr")]
    pub data_dir: PathBuf,
    /// Where certificates are made when none are given.
    #[arg(long, default_value = "/var/run/kubernetes")]
    pub cert_dir: PathBuf,
    /// Certificate shown to clients.
    #[arg(long)]
    pub tls_cert_file: Option<PathBuf>,
    /// Its key.
    #[arg(long)]
    pub tls_private_key_file: Option<PathBuf>,
    /// Certificate and key for clients that ask for certain names: cert,key or cert,key:name,*.name.
    #[arg(long)]
    pub tls_sni_cert_key: Vec<String>,
    /// Oldest version of TLS that clients may speak: VersionTLS12 or VersionTLS13.
    #[arg(long, default_value = "VersionTLS12")]
    pub tls_min_version: String,
    /// Cipher suites of TLS 1.2 that are offered [default: all sound ones].
    #[arg(long, value_delimiter = ',')]
    pub tls_cipher_suites: Vec<String>,
    /// Authority of clients' certificates.
    #[arg(long)]
    pub client_ca_file: Option<PathBuf>,
    /// File of static tokens: token,user,uid,"group1,group2".
    #[arg(long)]
    pub token_auth_file: Option<PathBuf>,
    /// Whether those who prove nothing are let through to authorization.
    #[arg(long, default_value_t = true, action = ArgAction::Set)]
    pub anonymous_auth: bool,
    /// File of an AuthenticationConfiguration: issuers of tokens, and what may be asked by nobody.
    #[arg(long)]
    pub authentication_config: Option<PathBuf>,
    /// Other servers that are asked.
    #[command(flatten)]
    pub webhooks: Webhooks,
    /// Authorizers in their order: AlwaysAllow, AlwaysDeny, ABAC, RBAC, Node, Webhook [default: AlwaysAllow].
    #[arg(long, value_delimiter = ',')]
    pub authorization_mode: Vec<String>,
    /// File of an AuthorizationConfiguration: authorizers in their order.
    #[arg(long)]
    pub authorization_config: Option<PathBuf>,
    /// File of ABAC policies.
    #[arg(long)]
    pub authorization_policy_file: Option<PathBuf>,
    /// Admission plug-ins that are on besides those that are on by default.
    #[arg(long, value_delimiter = ',')]
    pub enable_admission_plugins: Vec<String>,
    /// Admission plug-ins that are off, also if on by default.
    #[arg(long, value_delimiter = ',')]
    pub disable_admission_plugins: Vec<String>,
    /// Outdated: the only admission plug-ins that are on.
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["enable_admission_plugins", "disable_admission_plugins"])]
    pub admission_control: Vec<String>,
    /// How long pods stay on a node that is not ready, unless they say otherwise.
    #[arg(long, default_value_t = 300)]
    pub default_not_ready_toleration_seconds: i64,
    /// How long pods stay on a node that is not heard of, unless they say otherwise.
    #[arg(long, default_value_t = 300)]
    pub default_unreachable_toleration_seconds: i64,
    /// How the endpoints of the kubernetes service are kept: lease (all servers that live) or none.
    #[arg(long, default_value = "lease", value_parser = ["lease", "none"])]
    pub endpoint_reconciler_type: String,
    /// Whether containers may be privileged.
    #[arg(long, default_value_t = false, action = ArgAction::Set)]
    pub allow_privileged: bool,
    /// URLs of an etcd to use instead of the embedded store.
    #[arg(long, value_delimiter = ',')]
    pub etcd_servers: Vec<String>,
    /// Authority of etcd's certificate.
    #[arg(long)]
    pub etcd_cafile: Option<PathBuf>,
    /// Certificate shown to etcd.
    #[arg(long)]
    pub etcd_certfile: Option<PathBuf>,
    /// Its key.
    #[arg(long)]
    pub etcd_keyfile: Option<PathBuf>,
    /// What all keys start with.
    #[arg(long, default_value = "/registry")]
    pub etcd_prefix: String,
    /// Ranges of service addresses.
    #[arg(long, value_delimiter = ',', default_value = "10.0.0.0/24")]
    pub service_cluster_ip_range: Vec<String>,
    /// Ports that services open on every node.
    #[arg(long, default_value = "30000-32767")]
    pub service_node_port_range: String,
    /// File that says which resources are encrypted at rest, and how.
    #[arg(long)]
    pub encryption_provider_config: Option<PathBuf>,
    /// Whether that file is read again when it changes.
    #[arg(long, default_value_t = false, action = ArgAction::Set)]
    pub encryption_provider_config_automatic_reload: bool,
    /// How long events are kept.
    #[arg(long, default_value = "1h0m0s", value_parser = duration)]
    pub event_ttl: Duration,
    /// How much history the store keeps; 0 if somebody else compacts it.
    #[arg(long, default_value = "5m0s", value_parser = duration)]
    pub etcd_compaction_interval: Duration,
    /// Whether services are reached at their endpoints instead of their own address.
    #[arg(long, default_value_t = false, action = ArgAction::Set)]
    pub enable_aggregator_routing: bool,
    /// How long a request may take that does not stay open.
    #[arg(long, default_value = "1m0s", value_parser = duration)]
    pub request_timeout: Duration,
    /// Seconds that a watch goes on at least, and at most twice as long, if its client does not say.
    #[arg(long, default_value_t = 1800)]
    pub min_request_timeout: u64,
    /// Requests that change nothing and are served at a time; 0 for any number.
    #[arg(long, default_value_t = 400)]
    pub max_requests_inflight: u32,
    /// Requests that change something and are served at a time; 0 for any number.
    #[arg(long, default_value_t = 200)]
    pub max_mutating_requests_inflight: u32,
    /// Whether the two limits are one, divided by FlowSchemas and PriorityLevelConfigurations.
    #[arg(long, default_value_t = true, action = ArgAction::Set)]
    pub enable_priority_and_fairness: bool,
    /// Versions and resources that are served or not: api/beta=true, apps/v1=false, apps/v1/deployments=false.
    #[arg(long, value_delimiter = ',')]
    pub runtime_config: Vec<String>,
    /// Features that are on or off: Name=true. What is here is on, and no name changes it.
    #[arg(long, value_delimiter = ',')]
    pub feature_gates: Vec<String>,
    /// How much is logged: 0 to 3 what matters, 4 and 5 more, 6 and above everything.
    #[arg(long, short, default_value_t = 0)]
    pub v: u8,
    #[command(flatten)]
    pub oidc: Oidc,
    #[command(flatten)]
    pub request_header: RequestHeader,
    #[command(flatten)]
    pub service_accounts: ServiceAccounts,
    #[command(flatten)]
    pub behind: Behind,
    #[command(flatten)]
    pub audit: super::audit::Flags,
}

/// Kubelets and servers behind this one.
#[derive(Args, Debug, Clone)]
pub struct Behind {
    /// Sorts of node addresses to reach kubelets at, the most wanted first.
    #[arg(long, value_delimiter = ',', default_value = "Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP")]
    pub kubelet_preferred_address_types: Vec<String>,
    /// Certificate shown to kubelets.
    #[arg(long)]
    pub kubelet_client_certificate: Option<PathBuf>,
    /// Its key.
    #[arg(long)]
    pub kubelet_client_key: Option<PathBuf>,
    /// Authority of kubelets' certificates; any certificate is taken without it.
    #[arg(long)]
    pub kubelet_certificate_authority: Option<PathBuf>,
    /// Certificate shown to aggregated API servers.
    #[arg(long)]
    pub proxy_client_cert_file: Option<PathBuf>,
    /// Its key.
    #[arg(long)]
    pub proxy_client_key_file: Option<PathBuf>,
}

/// One issuer of tokens outside the cluster.
#[derive(Args, Debug, Clone)]
pub struct Oidc {
    /// URL of the issuer.
    #[arg(long, default_value = "")]
    pub oidc_issuer_url: String,
    /// Whom its tokens must be for.
    #[arg(long, default_value = "")]
    pub oidc_client_id: String,
    /// Authority of its server's certificate [default: the system's].
    #[arg(long)]
    pub oidc_ca_file: Option<PathBuf>,
    /// Claim that is the name of the user.
    #[arg(long, default_value = "sub")]
    pub oidc_username_claim: String,
    /// What names start with; `-` for nothing.
    #[arg(long, default_value = "")]
    pub oidc_username_prefix: String,
    /// Claim that has the groups of the user.
    #[arg(long, default_value = "")]
    pub oidc_groups_claim: String,
    /// What groups start with.
    #[arg(long, default_value = "")]
    pub oidc_groups_prefix: String,
    /// Claims that tokens must have: key=value.
    #[arg(long, value_delimiter = ',')]
    pub oidc_required_claim: Vec<String>,
}

/// Proxies in front of the server that say whom they speak for.
#[derive(Args, Debug, Clone)]
pub struct RequestHeader {
    /// Authority of proxies' certificates.
    #[arg(long)]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Common names that a proxy's certificate may have [default: any].
    #[arg(long, value_delimiter = ',')]
    pub requestheader_allowed_names: Vec<String>,
    /// Headers that hold the name of the user.
    #[arg(long, value_delimiter = ',')]
    pub requestheader_username_headers: Vec<String>,
    /// Headers that hold the uid of the user.
    #[arg(long, value_delimiter = ',')]
    pub requestheader_uid_headers: Vec<String>,
    /// Headers that hold the groups of the user.
    #[arg(long, value_delimiter = ',')]
    pub requestheader_group_headers: Vec<String>,
    /// What headers start with that hold more about the user.
    #[arg(long, value_delimiter = ',')]
    pub requestheader_extra_headers_prefix: Vec<String>,
}

/// Tokens of service accounts and of bootstrapping nodes.
#[derive(Args, Debug, Clone)]
pub struct ServiceAccounts {
    /// Issuers of service account tokens; the first one issues new ones.
    #[arg(long)]
    pub service_account_issuer: Vec<String>,
    /// Socket of a program that signs tokens; there is no such way here.
    #[arg(long, hide = true)]
    pub service_account_signing_endpoint: Option<String>,
    /// Key that signs service account tokens; made in --cert-dir if there is none.
    #[arg(long)]
    pub service_account_signing_key_file: Option<PathBuf>,
    /// Keys that service account tokens may be signed with.
    #[arg(long)]
    pub service_account_key_file: Vec<PathBuf>,
    /// Where others find the keys, if not here.
    #[arg(long, default_value = "")]
    pub service_account_jwks_uri: String,
    /// The longest that a token may be asked to count [default: no limit].
    #[arg(long, value_parser = duration)]
    pub service_account_max_token_expiration: Option<Duration>,
    /// Whether tokens of pods count longer than they say, for clients that do not read them again.
    #[arg(long, default_value_t = true, action = ArgAction::Set)]
    pub service_account_extend_token_expiration: bool,
    /// Whom tokens may be for [default: the issuers].
    #[arg(long, value_delimiter = ',')]
    pub api_audiences: Vec<String>,
    /// Whether secrets of the bootstrap kind are tokens.
    #[arg(long, default_value_t = false, action = ArgAction::Set)]
    pub enable_bootstrap_token_auth: bool,
}

/// Adds the arguments. A switch is `--name` or `--name=false`, as Go has it.
pub fn arguments(command: clap::Command) -> clap::Command {
    Flags::augment_args(command).mut_args(|arg| {
        if arg.get_value_parser().type_id() == std::any::TypeId::of::<bool>() {
            arg.num_args(0..=1).require_equals(true).default_missing_value("true")
        } else {
            arg
        }
    })
}

/// Reads a duration as Go writes one.
pub fn duration(text: &str) -> Result<Duration, String> {
    let parsed: machinery::time::Duration = text.parse().map_err(|error| format!("{error}"))?;
    u64::try_from(parsed.nanos()).map(Duration::from_nanos).map_err(|_| "it must not be negative".to_owned())
}

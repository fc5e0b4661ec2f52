//! The supported flags of kube-apiserver, with upstream's names.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use super::webhooks::Webhooks;

/// Run the API server alone, with upstream's flags.
#[derive(Args, Debug, Clone)]
pub(super) struct Flags {
    /// Port on which to serve HTTPS; 0 picks a free port.
    #[arg(long, default_value_t = 6443)]
    pub secure_port: u16,
    /// IP address on which to listen.
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// IP address on which to advertise the API server to members of the cluster.
    #[arg(long)]
    pub advertise_address: Option<IpAddr>,
    /// Host name to use in URLs generated for this server.
    #[arg(long)]
    pub external_hostname: Option<String>,
    /// Directory of the embedded store, used when --etcd-servers is not given.
    #[arg(long, default_value = "/var/lib/knarr")]
    pub data_dir: PathBuf,
    /// Directory in which serving certificates are generated if none are given.
    #[arg(long, default_value = "/var/run/kubernetes")]
    pub cert_dir: PathBuf,
    /// File containing the serving certificate.
    #[arg(long)]
    pub tls_cert_file: Option<PathBuf>,
    /// File containing the private key matching --tls-cert-file.
    #[arg(long)]
    pub tls_private_key_file: Option<PathBuf>,
    /// Certificate and key for the given SNI names: cert,key or cert,key:name,*.name.
    #[arg(long)]
    pub tls_sni_cert_key: Vec<String>,
    /// Minimum TLS version: VersionTLS12 or VersionTLS13.
    #[arg(long, default_value = "VersionTLS12")]
    pub tls_min_version: String,
    /// Cipher suites offered for TLS 1.2 [default: all secure ones].
    #[arg(long, value_delimiter = ',')]
    pub tls_cipher_suites: Vec<String>,
    /// CA bundle for client certificates; a client with a valid one is authenticated as its CommonName.
    #[arg(long)]
    pub client_ca_file: Option<PathBuf>,
    /// File of static tokens: token,user,uid,"group1,group2".
    #[arg(long)]
    pub token_auth_file: Option<PathBuf>,
    /// Allow anonymous requests to reach the authorizers.
    #[arg(long, default_value_t = true, action = ArgAction::Set)]
    pub anonymous_auth: bool,
    /// File with an AuthenticationConfiguration: JWT issuers, and the paths open to anonymous requests.
    #[arg(long)]
    pub authentication_config: Option<PathBuf>,
    /// Authentication and authorization webhooks, and admission configuration.
    #[command(flatten)]
    pub webhooks: Webhooks,
    /// Ordered list of authorizers: AlwaysAllow, AlwaysDeny, ABAC, RBAC, Node, Webhook [default: AlwaysAllow].
    #[arg(long, value_delimiter = ',')]
    pub authorization_mode: Vec<String>,
    /// File with an AuthorizationConfiguration: an ordered list of authorizers.
    #[arg(long)]
    pub authorization_config: Option<PathBuf>,
    /// File with ABAC policies, for the authorization mode ABAC.
    #[arg(long)]
    pub authorization_policy_file: Option<PathBuf>,
    /// Admission plugins to enable in addition to the default ones.
    #[arg(long, value_delimiter = ',')]
    pub enable_admission_plugins: Vec<String>,
    /// Admission plugins to disable, although they are enabled by default.
    #[arg(long, value_delimiter = ',')]
    pub disable_admission_plugins: Vec<String>,
    /// Deprecated: the only admission plugins to enable; use --enable-admission-plugins instead.
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["enable_admission_plugins", "disable_admission_plugins"])]
    pub admission_control: Vec<String>,
    /// tolerationSeconds for notReady:NoExecute that is added to pods without such a toleration.
    #[arg(long, default_value_t = 300)]
    pub default_not_ready_toleration_seconds: i64,
    /// tolerationSeconds for unreachable:NoExecute that is added to pods without such a toleration.
    #[arg(long, default_value_t = 300)]
    pub default_unreachable_toleration_seconds: i64,
    /// Endpoint reconciler of the kubernetes Service: lease (all live servers) or none.
    #[arg(long, default_value = "lease", value_parser = ["lease", "none"])]
    pub endpoint_reconciler_type: String,
    /// Allow privileged containers.
    #[arg(long, default_value_t = false, action = ArgAction::Set)]
    pub allow_privileged: bool,
    /// URLs of an etcd cluster to use instead of the embedded store.
    #[arg(long, value_delimiter = ',')]
    pub etcd_servers: Vec<String>,
    /// CA file used to verify etcd.
    #[arg(long)]
    pub etcd_cafile: Option<PathBuf>,
    /// Client certificate file used to authenticate to etcd.
    #[arg(long)]
    pub etcd_certfile: Option<PathBuf>,
    /// Private key file matching --etcd-certfile.
    #[arg(long)]
    pub etcd_keyfile: Option<PathBuf>,
    /// Prefix of all keys in etcd.
    #[arg(long, default_value = "/registry")]
    pub etcd_prefix: String,
    /// CIDRs from which to assign Service cluster IPs, at most one per IP family.
    #[arg(long, value_delimiter = ',', default_value = "10.0.0.0/24")]
    pub service_cluster_ip_range: Vec<String>,
    /// Port range reserved for Services of type NodePort.
    #[arg(long, default_value = "30000-32767")]
    pub service_node_port_range: String,
    /// File with an EncryptionConfiguration for resources stored in etcd.
    #[arg(long)]
    pub encryption_provider_config: Option<PathBuf>,
    /// Reload the file of --encryption-provider-config when it changes.
    #[arg(long, default_value_t = false, action = ArgAction::Set)]
    pub encryption_provider_config_automatic_reload: bool,
    /// Amount of time to retain events.
    #[arg(long, default_value = "1h0m0s", value_parser = duration)]
    pub event_ttl: Duration,
    /// Interval of compaction requests; 0 disables compaction by the API server.
    #[arg(long, default_value = "5m0s", value_parser = duration)]
    pub etcd_compaction_interval: Duration,
    /// Route aggregator requests to endpoint IPs instead of the cluster IP.
    #[arg(long, default_value_t = false, action = ArgAction::Set)]
    pub enable_aggregator_routing: bool,
    /// Timeout of requests that are not long-running.
    #[arg(long, default_value = "1m0s", value_parser = duration)]
    pub request_timeout: Duration,
    /// Minimum timeout in seconds of a watch without timeoutSeconds; the timeout is a random value up to twice as long.
    #[arg(long, default_value_t = 1800)]
    pub min_request_timeout: u64,
    /// Maximum number of concurrent non-mutating requests; 0 means no limit.
    #[arg(long, default_value_t = 400)]
    pub max_requests_inflight: u32,
    /// Maximum number of concurrent mutating requests; 0 means no limit.
    #[arg(long, default_value_t = 200)]
    pub max_mutating_requests_inflight: u32,
    /// Replace the two limits by API Priority and Fairness (FlowSchemas and PriorityLevelConfigurations).
    #[arg(long, default_value_t = true, action = ArgAction::Set)]
    pub enable_priority_and_fairness: bool,
    /// Enable or disable API versions and resources: api/beta=true, apps/v1=false, apps/v1/deployments=false.
    #[arg(long, value_delimiter = ',')]
    pub runtime_config: Vec<String>,
    /// Feature gates as Name=true; accepted for compatibility, implemented features are always on.
    #[arg(long, value_delimiter = ',')]
    pub feature_gates: Vec<String>,
    /// Log verbosity: 0 to 3 is info, 4 and 5 debug, 6 and above trace.
    #[arg(long, short, default_value_t = 0)]
    pub v: u8,
    #[command(flatten)]
    pub oidc: Oidc,
    #[command(flatten)]
    pub request_header: RequestHeader,
    #[command(flatten)]
    pub service_accounts: ServiceAccounts,
    #[command(flatten)]
    pub backends: BackendFlags,
    #[command(flatten)]
    pub audit: super::audit::Flags,
}

/// Connections to kubelets and aggregated API servers.
#[derive(Args, Debug, Clone)]
pub(super) struct BackendFlags {
    /// Node address types to use for kubelet connections, in order of preference.
    #[arg(long, value_delimiter = ',', default_value = "Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP")]
    pub kubelet_preferred_address_types: Vec<String>,
    /// Client certificate file for connections to kubelets.
    #[arg(long)]
    pub kubelet_client_certificate: Option<PathBuf>,
    /// Private key file matching --kubelet-client-certificate.
    #[arg(long)]
    pub kubelet_client_key: Option<PathBuf>,
    /// CA file used to verify kubelets; without it any certificate is accepted.
    #[arg(long)]
    pub kubelet_certificate_authority: Option<PathBuf>,
    /// Client certificate file for connections to aggregated API servers.
    #[arg(long)]
    pub proxy_client_cert_file: Option<PathBuf>,
    /// Private key file matching --proxy-client-cert-file.
    #[arg(long)]
    pub proxy_client_key_file: Option<PathBuf>,
}

/// One OpenID Connect issuer.
#[derive(Args, Debug, Clone)]
pub(super) struct Oidc {
    /// URL of the OpenID issuer.
    #[arg(long, default_value = "")]
    pub oidc_issuer_url: String,
    /// Client ID that ID tokens must be issued for.
    #[arg(long, default_value = "")]
    pub oidc_client_id: String,
    /// CA file used to verify the issuer's server [default: the host's root CAs].
    #[arg(long)]
    pub oidc_ca_file: Option<PathBuf>,
    /// Claim to use as the user name.
    #[arg(long, default_value = "sub")]
    pub oidc_username_claim: String,
    /// Prefix of user names from this issuer; `-` for none.
    #[arg(long, default_value = "")]
    pub oidc_username_prefix: String,
    /// Claim to use as the user's groups.
    #[arg(long, default_value = "")]
    pub oidc_groups_claim: String,
    /// Prefix of group names from this issuer.
    #[arg(long, default_value = "")]
    pub oidc_groups_prefix: String,
    /// Claims that ID tokens must contain: key=value.
    #[arg(long, value_delimiter = ',')]
    pub oidc_required_claim: Vec<String>,
}

/// Authenticating front proxies.
#[derive(Args, Debug, Clone)]
pub(super) struct RequestHeader {
    /// CA file used to verify client certificates of front proxies.
    #[arg(long)]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Allowed common names of front proxies' certificates [default: any].
    #[arg(long, value_delimiter = ',')]
    pub requestheader_allowed_names: Vec<String>,
    /// Request headers to inspect for user names.
    #[arg(long, value_delimiter = ',')]
    pub requestheader_username_headers: Vec<String>,
    /// Request headers to inspect for UIDs.
    #[arg(long, value_delimiter = ',')]
    pub requestheader_uid_headers: Vec<String>,
    /// Request headers to inspect for groups.
    #[arg(long, value_delimiter = ',')]
    pub requestheader_group_headers: Vec<String>,
    /// Prefixes of request headers to inspect for extra user information.
    #[arg(long, value_delimiter = ',')]
    pub requestheader_extra_headers_prefix: Vec<String>,
}

/// Service account tokens and bootstrap tokens.
#[derive(Args, Debug, Clone)]
pub(super) struct ServiceAccounts {
    /// Issuers of service account tokens; the first one issues new tokens.
    #[arg(long)]
    pub service_account_issuer: Vec<String>,
    /// Socket of an external token signer; not supported.
    #[arg(long, hide = true)]
    pub service_account_signing_endpoint: Option<String>,
    /// File with the private key that signs service account tokens; generated in --cert-dir if not given.
    #[arg(long)]
    pub service_account_signing_key_file: Option<PathBuf>,
    /// Files with keys that verify service account tokens.
    #[arg(long)]
    pub service_account_key_file: Vec<PathBuf>,
    /// URI of the JSON web key set in the discovery document, if it is not served here.
    #[arg(long, default_value = "")]
    pub service_account_jwks_uri: String,
    /// Maximum lifetime of a requested service account token [default: no limit].
    #[arg(long, value_parser = duration)]
    pub service_account_max_token_expiration: Option<Duration>,
    /// Extend the lifetime of pods' tokens, for clients that do not reload them.
    #[arg(long, default_value_t = true, action = ArgAction::Set)]
    pub service_account_extend_token_expiration: bool,
    /// Audiences of the API, one of which a token must have [default: the issuers].
    #[arg(long, value_delimiter = ',')]
    pub api_audiences: Vec<String>,
    /// Allow Secrets of type bootstrap.kubernetes.io/token to be used for TLS bootstrap authentication.
    #[arg(long, default_value_t = false, action = ArgAction::Set)]
    pub enable_bootstrap_token_auth: bool,
}

/// Adds the arguments. Boolean flags accept `--name` and `--name=false`, as in Go.
pub(super) fn arguments(command: clap::Command) -> clap::Command {
    Flags::augment_args(command).mut_args(|arg| {
        if arg.get_value_parser().type_id() == std::any::TypeId::of::<bool>() {
            arg.num_args(0..=1).require_equals(true).default_missing_value("true")
        } else {
            arg
        }
    })
}

/// Parses a Go duration. Rejects negative values.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let parsed: apimachinery::time::Duration = text.parse().map_err(|error| format!("{error}"))?;
    u64::try_from(parsed.nanos()).map(Duration::from_nanos).map_err(|_| "must not be negative".to_owned())
}

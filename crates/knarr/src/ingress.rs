//! `knarr ingress`: the ingress controller, which routes HTTP requests to Services.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use apimachinery::Key;
use clap::{ArgAction, ArgMatches, Args, FromArgMatches};
use component_base::election;
use ingress::proxy::{self, Proxy};
use ingress::run::Config;
use ingress::{acme, plan};
use tracing::Instrument;

use crate::component::{self, ApiEndpoint, InProcessServer, level};
use crate::output::outln;

/// Time for requests in flight after a signal.
const SHUTDOWN: Duration = Duration::from_secs(5);

#[derive(Args, Debug, Clone)]
struct Flags {
    /// Path to a kubeconfig file [default: the in-cluster configuration].
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// IP addresses on which to listen.
    #[arg(long, value_delimiter = ',', default_value = "0.0.0.0")]
    bind_address: Vec<IpAddr>,
    /// Port on which to serve HTTP.
    #[arg(long, default_value_t = 80)]
    http_port: u16,
    /// Port on which to serve HTTPS.
    #[arg(long, default_value_t = 443)]
    https_port: u16,
    /// Addresses to write to the status of Ingresses and Gateways [default: --bind-address, or none if that is
    /// unspecified].
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    publish_address: Vec<IpAddr>,
    /// Further addresses of this host, for Gateways that would conflict with older ones. Needs --bind-address.
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    gateway_address: Vec<IpAddr>,
    /// Share the ports with other processes of this user, so that a new instance can start before the old one stops.
    #[arg(long)]
    reuse_port: bool,
    /// Maximum number of concurrent connections.
    #[arg(long, value_name = "NUMBER")]
    connections_max: Option<usize>,
    /// Maximum number of requests in flight; further ones are answered with 503.
    #[arg(long, value_name = "NUMBER")]
    requests_max: Option<usize>,
    /// Require the PROXY protocol (v1 or v2) on each connection. Set it only if all clients are trusted load balancers.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    proxy_protocol: bool,
    /// Append to the forwarding headers of requests instead of replacing them. Set it only if all clients are trusted
    /// proxies.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    trust_forwarded_headers: bool,
    /// Log each request.
    #[arg(long)]
    access_log: bool,
    /// Let only the instance that holds the Lease kube-system/knarr-ingress write statuses and Events.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    leader_elect: bool,
    /// URL of the directory of an ACME server for Ingresses with the annotation knarr.io/acme. Accepts its terms of
    /// service.
    #[arg(long, value_name = "URL")]
    acme_directory: Option<String>,
    /// Email address for warnings of the ACME server.
    #[arg(long, value_name = "ADDRESS", requires = "acme_directory")]
    acme_email: Option<String>,
    /// Path to the CA certificates of the ACME server [default: those of the system].
    #[arg(long, value_name = "PATH", requires = "acme_directory")]
    acme_ca_file: Option<PathBuf>,
    /// Address on which to serve metrics [default: none].
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics_listen: Option<SocketAddr>,
    /// Log verbosity: 0 to 10.
    #[arg(short = 'v', long = "v", default_value_t = 0)]
    verbosity: u8,
}

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    Flags::augment_args(command)
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    crate::log::to_stderr(level(Flags::from_arg_matches(matches)?.verbosity));
    component::run_stateless("ingress", start(matches, None))
}

/// Serves in a process that already has a log and a Tokio runtime.
pub(crate) async fn start(matches: &ArgMatches, in_process: Option<&InProcessServer>) -> Result<()> {
    let flags = Flags::from_arg_matches(matches)?;
    ensure!(flags.http_port != flags.https_port, "--http-port and --https-port must differ");
    ensure!(
        flags.gateway_address.is_empty() || !flags.bind_address.iter().any(IpAddr::is_unspecified),
        "--gateway-address needs --bind-address with the other addresses: an unspecified address includes all of them"
    );
    let config = config(&flags)?;
    let reach = ApiEndpoint::new(flags.kubeconfig.as_deref(), None, in_process)?;
    let settings = client::Settings { user_agent: "knarr-ingress".to_owned(), ..client::Settings::default() };
    let client = reach.client(settings)?;
    let proxy = Arc::new(Proxy::new(proxy_settings(&flags)));
    if let Some(address) = flags.metrics_listen {
        let listener =
            tokio::net::TcpListener::bind(address).await.with_context(|| format!("failed to listen on {address}"))?;
        let metrics_source = Arc::clone(&proxy);
        tokio::spawn(dns::metrics::serve(listener, move || metrics_source.metrics()).in_current_span());
    }
    if in_process.is_none() {
        outln!("ready");
    }
    let stopped = tokio::select! {
        ended = ingress::run::run(client, config, &proxy) => ended.map_err(Into::into),
        signal = crate::etcd::signal() => signal,
    };
    proxy.shutdown(SHUTDOWN).await;
    stopped
}

fn proxy_settings(flags: &Flags) -> proxy::Settings {
    let mut settings = proxy::Settings::default();
    settings.bind.clone_from(&flags.bind_address);
    settings.access_log = flags.access_log;
    settings.reuse_port = flags.reuse_port;
    if flags.trust_forwarded_headers {
        settings.forwarding = proxy::ForwardingTrust::Append;
    }
    settings.connections_max = flags.connections_max.unwrap_or(settings.connections_max);
    settings.requests_max = flags.requests_max.unwrap_or(settings.requests_max);
    settings
}

fn config(flags: &Flags) -> Result<Config> {
    let mut addresses =
        if flags.publish_address.is_empty() { &flags.bind_address } else { &flags.publish_address }.clone();
    addresses.retain(|address| !address.is_unspecified());
    let election = flags
        .leader_elect
        .then(|| election::Settings::new(Key::new("kube-system", "knarr-ingress"), component::identity()));
    let plan = plan::Settings {
        http_port: flags.http_port,
        https_port: flags.https_port,
        addresses,
        gateway_addresses: flags.gateway_address.clone(),
        default_certificate: None,
        acme: flags.acme_directory.is_some(),
        proxy_protocol: flags.proxy_protocol,
    };
    Ok(Config { plan, election, acme: acme(flags)? })
}

fn acme(flags: &Flags) -> Result<Option<acme::Settings>> {
    let Some(directory) = flags.acme_directory.clone() else { return Ok(None) };
    ensure!(directory.starts_with("https://"), "--acme-directory: {directory:?} is not an https:// URL");
    let read = |path: &PathBuf| {
        std::fs::read(path).with_context(|| format!("--acme-ca-file: failed to read {}", path.display()))
    };
    let ca_pem = flags.acme_ca_file.as_ref().map(read).transpose()?;
    Ok(Some(acme::Settings { directory, email: flags.acme_email.clone(), ca_pem }))
}

//! `knarr metrics-server`: the resource metrics API (metrics.k8s.io), with upstream's flags.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Arg, ArgAction, ArgMatches, Args, FromArgMatches};
use client::config::{Pem, Tls};
use metrics_server::{Certificate, Kubelets, Scraper, Server};

use crate::component::{self, ApiEndpoint, InProcessServer, duration, level};
use crate::health;
use crate::output::outln;

/// Minimum resolution, to limit the load on kubelets.
const RESOLUTION_MIN: Duration = Duration::from_secs(10);

/// Run the metrics server alone, with upstream's flags.
#[derive(Args, Debug, Clone)]
struct Flags {
    /// Path to a kubeconfig file [default: the in-cluster configuration].
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// IP address on which to listen.
    #[arg(long, default_value = "0.0.0.0")]
    bind_address: IpAddr,
    /// Port on which to serve HTTPS.
    #[arg(long, default_value_t = 443)]
    secure_port: u16,
    /// File containing the serving certificate; a self-signed one is generated if not given.
    #[arg(long)]
    tls_cert_file: Option<PathBuf>,
    /// File containing the private key matching --tls-cert-file.
    #[arg(long)]
    tls_private_key_file: Option<PathBuf>,
    /// Maximum age of the metrics that are served.
    #[arg(long, default_value = "60s", value_parser = duration)]
    metric_resolution: Duration,
    /// Do not verify the serving certificates of kubelets.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    kubelet_insecure_tls: bool,
    /// CA file used to verify kubelets [default: the CA of the API server].
    #[arg(long)]
    kubelet_certificate_authority: Option<PathBuf>,
    /// Port of the kubelets.
    #[arg(long, default_value_t = 10250)]
    kubelet_port: u16,
    /// Use the port in the node status instead of --kubelet-port.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    kubelet_use_node_status_port: bool,
    /// Node address types to use for kubelet connections, in order of preference.
    #[arg(long, value_delimiter = ',', default_value = "Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP")]
    kubelet_preferred_address_types: Vec<String>,
    /// Timeout of requests to kubelets.
    #[arg(long, default_value = "10s", value_parser = duration)]
    kubelet_request_timeout: Duration,
    /// Log verbosity: 0 to 10.
    #[arg(short = 'v', long = "v", default_value_t = 0)]
    verbosity: u8,
}

/// Upstream's flags without effect.
const WITHOUT_MEANING: &str = "audit-log-path authentication-kubeconfig authentication-skip-lookup \
    authentication-token-webhook-cache-ttl authentication-tolerate-lookup-failure authorization-always-allow-paths \
    authorization-kubeconfig authorization-webhook-cache-authorized-ttl authorization-webhook-cache-unauthorized-ttl \
    cert-dir client-ca-file contention-profiling deprecated-kubelet-completely-insecure feature-gates \
    http2-max-streams-per-connection kubelet-client-certificate kubelet-client-key logging-format node-selector \
    permit-address-sharing permit-port-sharing profiling requestheader-allowed-names requestheader-client-ca-file \
    requestheader-extra-headers-prefix requestheader-group-headers requestheader-username-headers \
    shutdown-delay-duration tls-cipher-suites tls-min-version tls-sni-cert-key vmodule";

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    let vain = WITHOUT_MEANING
        .split_whitespace()
        .map(|name| Arg::new(name).long(name).action(ArgAction::Append).num_args(0..=1).hide(true));
    Flags::augment_args(command).args(vain)
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let flags = Flags::from_arg_matches(matches)?;
    crate::log::to_stderr(level(flags.verbosity));
    component::run_stateless("metrics-server", start(matches, None))
}

/// Serves in a process that already has a log and a Tokio runtime.
pub(crate) async fn start(matches: &ArgMatches, in_process: Option<&InProcessServer>) -> Result<()> {
    let flags = Flags::from_arg_matches(matches)?;
    ensure!(flags.metric_resolution >= RESOLUTION_MIN, "--metric-resolution must be at least 10s");
    let vain = WITHOUT_MEANING.split_whitespace().filter(|name| matches.contains_id(name));
    let vain: Vec<String> = vain.map(|name| format!("--{name}")).collect();
    if !vain.is_empty() {
        tracing::warn!(flags = vain.join("these flags have no effect"), "these flags have no effect here");
    }
    let reach = ApiEndpoint::new(flags.kubeconfig.as_deref(), None, in_process)?;
    let settings = client::Settings { user_agent: "metrics-server".to_owned(), ..client::Settings::default() };
    let client = reach.client(settings)?;
    let listener = health::listen(flags.bind_address, flags.secure_port).await?;
    let address = listener.local_addr()?;
    let (scraper, scraping) = Scraper::start(client.clone(), kubelets(&flags, &reach), flags.metric_resolution);
    let (server, following) = Server::new(client, scraper, certificate(&flags)?)?;
    if in_process.is_none() {
        outln!("ready: {address}");
    }
    tokio::select! {
        () = server.serve(listener) => anyhow::bail!("the listener stopped"),
        () = scraping => anyhow::bail!("the watch of nodes stopped"),
        () = following => anyhow::bail!("the watch of the authentication configuration stopped"),
        signal = crate::etcd::signal() => signal,
    }
}

fn certificate(flags: &Flags) -> Result<Certificate> {
    match (&flags.tls_cert_file, &flags.tls_private_key_file) {
        (Some(certificate), Some(key)) => Ok(Certificate::Files(certificate.clone(), key.clone())),
        (None, None) => Ok(Certificate::make()?),
        _ => anyhow::bail!("--tls-cert-file and --tls-private-key-file must be given together"),
    }
}

/// Returns the kubelet client. It authenticates with the same credentials as to the API server.
fn kubelets(flags: &Flags, reach: &ApiEndpoint) -> Kubelets {
    let mut config = reach.config.clone();
    let ca = flags.kubelet_certificate_authority.clone().map(Pem::File);
    config.tls = Tls {
        insecure_skip_verify: flags.kubelet_insecure_tls,
        certificate_authority: ca.or(config.tls.certificate_authority).filter(|_| !flags.kubelet_insecure_tls),
        server_name: None,
        client: config.tls.client,
    };
    config.proxy = None;
    config.impersonate = None;
    Kubelets {
        config,
        address_types: flags.kubelet_preferred_address_types.clone(),
        port: (!flags.kubelet_use_node_status_port).then_some(flags.kubelet_port),
        timeout: flags.kubelet_request_timeout,
    }
}

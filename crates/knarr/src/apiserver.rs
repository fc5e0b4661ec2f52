//! `knarr kube-apiserver`: the API server as a separate process, with upstream's flags.

mod audit;
mod authentication;
mod flags;
mod ignored;
mod webhooks;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::kube_apiserver::proxy::Kubelets;
use ::kube_apiserver::server::{FilterConfig, Mode};
use ::kube_apiserver::{Config, Server, aggregation, allocations, encryptor, flow_control, runtime_config, tls};
use ::store::client::{Client, Remote, RemoteConfig};
use ::store::member::{self, Node};
use anyhow::{Context, Result, bail, ensure};
use apimachinery::value;
use auth::authorization_config;
use clap::{ArgMatches, FromArgMatches};
use tracing::Level;

use component_base::spans;
use flags::Flags;
use tracing::Instrument;

use crate::component::{self, InProcessServer};

/// Unix socket in the data directory that serves snapshots of the embedded store.
pub(crate) const STORE_SOCKET: &str = "store.sock";
/// Time limit for the store's first response, and the interval of the attempts.
const STORE_TIMEOUT: Duration = Duration::from_secs(20);
const STORE_POLL_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    ignored::arguments(flags::arguments(command))
}

/// Runs the server in a process that already has a log and a Tokio runtime.
pub(crate) async fn start(matches: &ArgMatches, in_process: Option<&InProcessServer>) -> Result<()> {
    serve(&Flags::from_arg_matches(matches)?, in_process).await
}

/// Runs the server until SIGTERM or SIGINT.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let flags = &Flags::from_arg_matches(matches)?;
    let level = match flags.v {
        0..=3 => Level::INFO,
        4 | 5 => Level::DEBUG,
        6.. => Level::TRACE,
    };
    crate::log::to_stderr(level);
    ignored::warn_ignored_flags(matches);
    for gate in gates(&flags.feature_gates)? {
        tracing::warn!("--feature-gates {gate} has no effect: implemented features are always on");
    }
    component::run("kube-apiserver", serve(flags, None))
}

/// Returns the feature gates. Empty ones are ignored, as by upstream.
fn gates(values: &[String]) -> Result<Vec<&str>> {
    let gates: Vec<&str> = values.iter().map(String::as_str).filter(|gate| !gate.is_empty()).collect();
    for gate in &gates {
        let (name, value) = gate.split_once('=').with_context(|| format!("missing bool value for {gate}"))?;
        ensure!(matches!(value, "true" | "false"), "invalid value of {name}={value}, it must be true or false");
    }
    Ok(gates)
}

async fn serve(flags: &Flags, in_process: Option<&InProcessServer>) -> Result<()> {
    let (store, node) = store(flags).await?;
    let store_task = keep_store(flags, &store);
    let server = Server::start(config(flags)?, store).await?;
    tracing::info!(address = %server.address(), "serving");
    if let Some(in_process) = in_process {
        in_process.started(server.state());
    }
    tokio::select! {
        signal = crate::etcd::signal() => signal?,
        reason = stopped(node.as_ref()) => bail!("the embedded store stopped: {reason:?}"),
        () = store_task => {}
    }
    server.stop().await;
    if let Some(node) = node {
        node.stop().await;
    }
    Ok(())
}

async fn stopped(node: Option<&Node>) -> member::StopReason {
    match node {
        Some(node) => node.stopped().await,
        None => std::future::pending().await,
    }
}

fn config(flags: &Flags) -> Result<Config> {
    let advertised = flags.advertise_address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"].map(str::to_owned);
    let host = flags.external_hostname.clone().or_else(|| flags.advertise_address.map(in_url));
    let modes = modes(flags)?;
    let mut authenticators = authentication::authenticators(flags)?;
    if authenticators.anonymous && modes.iter().any(|mode| matches!(mode, Mode::AlwaysAllow)) {
        tracing::warn!(
            "anonymous requests are rejected: with --authorization-mode=AlwaysAllow every client could do anything; \
             set another --authorization-mode, or --anonymous-auth=false to silence this warning"
        );
        authenticators.anonymous = false;
    }
    Ok(Config {
        address: SocketAddr::new(flags.bind_address, flags.secure_port),
        etcd_prefix: flags.etcd_prefix.clone(),
        tls: tls_files(flags)?,
        names: names.into_iter().chain(flags.external_hostname.clone()).collect(),
        addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST), advertised],
        authenticators,
        modes,
        admission: admission(flags)?,
        external_address: host.map(|host| format!("{host}:{}", flags.secure_port)),
        advertised: advertised_to_others(flags),
        ranges: allocations::ranges(&flags.service_cluster_ip_range, &flags.service_node_port_range)
            .map_err(anyhow::Error::msg)?,
        aggregator_routing: flags.enable_aggregator_routing,
        kubelets: Kubelets {
            preferred: flags.backends.kubelet_preferred_address_types.clone(),
            client: flags.backends.kubelet_client_certificate.clone().zip(flags.backends.kubelet_client_key.clone()),
            ca: flags.backends.kubelet_certificate_authority.clone(),
        },
        aggregation: aggregation::Config {
            client: flags.backends.proxy_client_cert_file.clone().zip(flags.backends.proxy_client_key_file.clone()),
            client_ca: flags.client_ca_file.clone(),
            proxy_ca: flags.request_header.requestheader_client_ca_file.clone(),
        },
        encryption: flags
            .encryption_provider_config
            .clone()
            .map(|path| encryptor::File { path, reload: flags.encryption_provider_config_automatic_reload }),
        event_life: flags.event_ttl,
        compaction_interval: Some(flags.etcd_compaction_interval).filter(|interval| !interval.is_zero()),
        kinds: runtime_config::apply(api::kinds::all(), &flags.runtime_config)?,
        filters: filters(flags)?,
    })
}

fn admission(flags: &Flags) -> Result<admission::Flags> {
    let mut config = flags.webhooks.admission()?;
    config.insert(
        "DefaultTolerationSeconds".to_owned(),
        value!({
            "notReadySeconds": (flags.default_not_ready_toleration_seconds),
            "unreachableSeconds": (flags.default_unreachable_toleration_seconds),
        }),
    );
    let mut disable = flags.disable_admission_plugins.clone();
    let (only, mut enable) = (&flags.admission_control, flags.enable_admission_plugins.clone());
    if !only.is_empty() {
        enable.clone_from(only);
        disable.extend(admission::names().filter(|name| only.iter().all(|only| only != name)).map(str::to_owned));
    }
    Ok(admission::Flags { enable, disable, reject_privileged: !flags.allow_privileged, config })
}

/// Returns the address for the endpoints of the `kubernetes` Service: one that other hosts can reach.
fn advertised_to_others(flags: &Flags) -> Option<IpAddr> {
    let address = flags.advertise_address.unwrap_or(flags.bind_address);
    let reachable = !address.is_loopback() && !address.is_unspecified();
    (reachable && flags.endpoint_reconciler_type == "lease").then_some(address)
}

fn in_url(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

fn filters(flags: &Flags) -> Result<FilterConfig> {
    let (read_only, mutating) = (flags.max_requests_inflight, flags.max_mutating_requests_inflight);
    if flags.enable_priority_and_fairness {
        flowcontrol::inflight::total_concurrency(read_only.into(), mutating.into())?;
    }
    ensure!(!flags.request_timeout.is_zero(), "--request-timeout must not be 0");
    Ok(FilterConfig {
        request_timeout: flags.request_timeout,
        watch_time: Duration::from_secs(flags.min_request_timeout),
        fairness: flow_control::Config {
            enabled: flags.enable_priority_and_fairness,
            read_only_max: read_only,
            mutating_max: mutating,
        },
        audit: flags.audit.config()?,
    })
}

fn tls_files(flags: &Flags) -> Result<tls::Files> {
    let min_version = flags.tls_min_version.parse()?;
    Ok(tls::Files {
        cert_dir: flags.cert_dir.clone(),
        certificate: flags.tls_cert_file.clone(),
        key: flags.tls_private_key_file.clone(),
        client_ca: flags.client_ca_file.clone(),
        request_header_ca: flags.request_header.requestheader_client_ca_file.clone(),
        sni: flags.tls_sni_cert_key.iter().map(|text| sni(text)).collect::<Result<_>>()?,
        min_version,
        cipher_suites: flags.tls_cipher_suites.clone(),
    })
}

/// Parses `cert,key` or `cert,key:name,*.name`.
fn sni(text: &str) -> Result<tls::Sni> {
    let (pair, names) = text.split_once(':').unwrap_or((text, ""));
    let (certificate, key) = pair
        .split_once(',')
        .with_context(|| format!("--tls-sni-cert-key {text:?} is not of the form cert,key or cert,key:names"))?;
    Ok(tls::Sni {
        certificate: certificate.into(),
        key: key.into(),
        names: names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
    })
}

/// Returns the authorizers from `--authorization-mode` or `--authorization-config`.
fn modes(flags: &Flags) -> Result<Vec<Mode>> {
    if let Some(file) = &flags.authorization_config {
        ensure!(
            flags.authorization_mode.is_empty(),
            "--authorization-config and --authorization-mode are mutually exclusive"
        );
        return configured(file);
    }
    match flags.authorization_mode.as_slice() {
        [] => Ok(vec![Mode::AlwaysAllow]),
        some => some.iter().map(|name| mode(name, flags)).collect(),
    }
}

fn configured(file: &Path) -> Result<Vec<Mode>> {
    let config = authorization_config::Config::parse(&read(file)?).with_context(|| format!("{}", file.display()))?;
    let mode = |authorizer: authorization_config::AuthorizerConfig| {
        Ok(match authorizer.kind {
            authorization_config::Kind::AlwaysAllow => Mode::AlwaysAllow,
            authorization_config::Kind::AlwaysDeny => Mode::AlwaysDeny,
            authorization_config::Kind::Node => Mode::Node,
            authorization_config::Kind::Rbac => Mode::Rbac,
            authorization_config::Kind::Webhook(rules) => webhooks::authorizer(*rules)?,
            kind @ authorization_config::Kind::Abac => {
                bail!("{}: authorizer type {kind:?} is not supported in the file", file.display())
            }
        })
    };
    config.authorizers.into_iter().map(mode).collect()
}

fn mode(name: &str, flags: &Flags) -> Result<Mode> {
    Ok(match name {
        "AlwaysAllow" => Mode::AlwaysAllow,
        "AlwaysDeny" => Mode::AlwaysDeny,
        "RBAC" => Mode::Rbac,
        "Node" => Mode::Node,
        "Webhook" => flags.webhooks.authorizer()?,
        "ABAC" => {
            let file = flags
                .authorization_policy_file
                .as_ref()
                .context("the authorization mode ABAC needs --authorization-policy-file")?;
            Mode::Abac(auth::abac::Policies::parse(&read(file)?)?)
        }
        other => {
            bail!(
                "--authorization-mode: unknown mode {other:?}, must be one of AlwaysAllow, AlwaysDeny, ABAC, RBAC, Node, Webhook"
            )
        }
    })
}

fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))
}

/// Opens the store: etcd if `--etcd-servers` is given, otherwise an embedded single member.
async fn store(flags: &Flags) -> Result<(Client, Option<Node>)> {
    if !flags.etcd_servers.is_empty() {
        let client = Client::Remote(Box::new(Remote::new(&remote(flags)?)?));
        reached(&client).await;
        return Ok((client, None));
    }
    let (client, node) =
        ::store::single_member::open(flags.data_dir.join("store")).instrument(spans::component("store")).await?;
    Ok((client, Some(node)))
}

/// Serves snapshots of the embedded store on [`STORE_SOCKET`], which only the owner of the data directory can reach.
fn keep_store(flags: &Flags, store: &Client) -> impl Future<Output = ()> + use<> {
    let backend = if let Client::Local(backend) = store { Some(backend.clone()) } else { None };
    let socket = flags.data_dir.join(STORE_SOCKET);
    async move {
        if let Some(backend) = backend
            && let Err(error) = ::store::single_member::serve_snapshots(backend, &socket, std::future::pending()).await
        {
            tracing::warn!(%error, "failed to serve snapshots of the embedded store");
        }
        std::future::pending::<()>().await;
    }
}

/// Waits up to [`STORE_TIMEOUT`] for a store that is started at the same time. An immediate failure would cost a
/// restart delay.
async fn reached(client: &Client) {
    let ready = async {
        while client.revision().await.is_err() {
            tokio::time::sleep(STORE_POLL_INTERVAL).await;
        }
    };
    if tokio::time::timeout(STORE_TIMEOUT, ready).await.is_err() {
        tracing::warn!("the store does not respond");
    }
}

fn remote(flags: &Flags) -> Result<RemoteConfig> {
    let identity: Option<(PathBuf, PathBuf)> = match (&flags.etcd_certfile, &flags.etcd_keyfile) {
        (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
        (None, None) => None,
        _ => bail!("--etcd-certfile and --etcd-keyfile must be given together"),
    };
    Ok(RemoteConfig { servers: flags.etcd_servers.clone(), ca_file: flags.etcd_cafile.clone(), identity })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_feature_gates_are_ignored_and_malformed_ones_rejected() {
        let check = |gates: &[&str], expect: Result<&[&str], &str>| {
            let values: Vec<String> = gates.iter().map(|gate| (*gate).to_owned()).collect();
            let found = super::gates(&values).map_err(|error| error.to_string());
            assert_eq!(found.as_deref().map_err(String::as_str), expect);
        };
        check(&[""], Ok(&[]));
        check(&["A=true", "", "B=false"], Ok(&["A=true", "B=false"]));
        check(&["A"], Err("missing bool value for A"));
        check(&["A=yes"], Err("invalid value of A=yes, it must be true or false"));
    }
}

//! `knarr kubelet`: the kubelet as a separate process, with upstream's flags.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use ::kubelet::bootstrap::{self, Purpose};
use ::kubelet::context::Gate;
use ::kubelet::{Config, Kubelet, Runtime};
use anyhow::{Context, Result, bail};
use apimachinery::{Key, Object, Value, json, value};
use clap::{Arg, ArgAction, ArgMatches, Command};
use client::Client;
use component_base::spans;
use tracing::Instrument;

use crate::component::{self, ApiEndpoint, InProcessServer, ProcessContext};
use crate::output::outln;
use crate::registry_flags;

/// Syntax of a flag that sets a configuration field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Number,
    Bool,
    /// `a,b`
    List,
    /// `a=b,c=d`
    Map,
    /// `a<b,c<d`
    Thresholds,
    /// `0:a=b,c=d;1:e=f`
    ByNode,
    /// `a:b,a:c`
    Headers,
}

/// Flags that set a field of KubeletConfiguration.
const FIELDS: &[(&str, &str, Form)] = &[
    ("address", "address", Form::Text),
    ("allowed-unsafe-sysctls", "allowedUnsafeSysctls", Form::List),
    ("cgroup-driver", "cgroupDriver", Form::Text),
    ("cgroup-root", "cgroupRoot", Form::Text),
    ("cgroups-per-qos", "cgroupsPerQOS", Form::Bool),
    ("cluster-dns", "clusterDNS", Form::List),
    ("cluster-domain", "clusterDomain", Form::Text),
    ("container-log-max-files", "containerLogMaxFiles", Form::Number),
    ("container-log-max-size", "containerLogMaxSize", Form::Text),
    ("cpu-cfs-quota", "cpuCFSQuota", Form::Bool),
    ("cpu-manager-policy", "cpuManagerPolicy", Form::Text),
    ("enforce-node-allocatable", "enforceNodeAllocatable", Form::List),
    ("eviction-hard", "evictionHard", Form::Thresholds),
    ("eviction-max-pod-grace-period", "evictionMaxPodGracePeriod", Form::Number),
    ("eviction-minimum-reclaim", "evictionMinimumReclaim", Form::Map),
    ("eviction-pressure-transition-period", "evictionPressureTransitionPeriod", Form::Text),
    ("eviction-soft", "evictionSoft", Form::Thresholds),
    ("eviction-soft-grace-period", "evictionSoftGracePeriod", Form::Map),
    ("healthz-port", "healthzPort", Form::Number),
    ("http-check-frequency", "httpCheckFrequency", Form::Text),
    ("image-gc-high-threshold", "imageGCHighThresholdPercent", Form::Number),
    ("image-gc-low-threshold", "imageGCLowThresholdPercent", Form::Number),
    ("kube-reserved", "kubeReserved", Form::Map),
    ("manifest-url", "staticPodURL", Form::Text),
    ("manifest-url-header", "staticPodURLHeader", Form::Headers),
    ("max-pods", "maxPods", Form::Number),
    ("memory-manager-policy", "memoryManagerPolicy", Form::Text),
    ("minimum-image-ttl-duration", "imageMinimumGCAge", Form::Text),
    ("node-status-max-images", "nodeStatusMaxImages", Form::Number),
    ("node-status-update-frequency", "nodeStatusUpdateFrequency", Form::Text),
    ("oom-score-adj", "oomScoreAdj", Form::Number),
    ("pod-manifest-path", "staticPodPath", Form::Text),
    ("pod-max-pids", "podPidsLimit", Form::Number),
    ("port", "port", Form::Number),
    ("protect-kernel-defaults", "protectKernelDefaults", Form::Bool),
    ("provider-id", "providerID", Form::Text),
    ("register-node", "registerNode", Form::Bool),
    ("reserved-cpus", "reservedSystemCPUs", Form::Text),
    ("reserved-memory", "reservedMemory", Form::ByNode),
    ("resolv-conf", "resolvConf", Form::Text),
    ("rotate-certificates", "rotateCertificates", Form::Bool),
    ("rotate-server-certificates", "serverTLSBootstrap", Form::Bool),
    ("seccomp-default", "seccompDefault", Form::Bool),
    ("serialize-image-pulls", "serializeImagePulls", Form::Bool),
    ("streaming-connection-idle-timeout", "streamingConnectionIdleTimeout", Form::Text),
    ("system-reserved", "systemReserved", Form::Map),
    ("tls-cert-file", "tlsCertFile", Form::Text),
    ("tls-cipher-suites", "tlsCipherSuites", Form::List),
    ("tls-min-version", "tlsMinVersion", Form::Text),
    ("tls-private-key-file", "tlsPrivateKeyFile", Form::Text),
    ("topology-manager-policy", "topologyManagerPolicy", Form::Text),
    ("topology-manager-scope", "topologyManagerScope", Form::Text),
];

/// Flags that are not fields of KubeletConfiguration, and their help.
const OWN: &[(&str, &str)] = &[
    (
        "allow-missing-cgroup-controllers",
        "Run pods without the limits that need missing cgroup controllers [default: false, the kubelet does not start]",
    ),
    ("anonymous-auth", "Allow anonymous requests to the kubelet's server"),
    ("authentication-token-webhook", "Authenticate bearer tokens with TokenReviews"),
    ("authorization-mode", "Authorization mode of the kubelet's server: AlwaysAllow or Webhook"),
    (
        "bootstrap-kubeconfig",
        "Kubeconfig file used to request a client certificate if the file of --kubeconfig does not exist",
    ),
    ("cert-dir", "Directory of TLS certificates"),
    ("client-ca-file", "CA bundle for client certificates of the kubelet's server"),
    ("config", "File with a KubeletConfiguration; flags override it"),
    ("container-runtime-endpoint", "CRI socket of a container runtime [default: the built-in runtime]"),
    ("hostname-override", "Name of the node [default: the host name]"),
    (
        "image-credential-provider-bin-dir",
        "Directory with the executables of the credential providers of --image-credential-provider-config",
    ),
    (
        "image-credential-provider-config",
        "File with a CredentialProviderConfig, or directory of such files: plugins that return registry credentials",
    ),
    ("kubeconfig", "Path to a kubeconfig file; without it the kubelet runs standalone"),
    ("node-external-ip", "External IP addresses to report in the node's status, at most one per IP family"),
    ("node-ip", "IP addresses of the node, at most one per IP family"),
    ("node-labels", "Labels to add when registering the node"),
    ("register-with-taints", "Taints to add when registering the node: key=value:effect"),
    ("root-dir", "Directory of the kubelet's files, such as volumes"),
];

/// Upstream's flags without effect. A warning is logged if one is given.
const WITHOUT_EFFECT: &str = "application-metrics-count-limit authentication-token-webhook-cache-ttl \
    authorization-webhook-cache-authorized-ttl authorization-webhook-cache-unauthorized-ttl boot-id-file \
    cloud-provider config-dir container-hints containerd containerd-namespace contention-profiling \
    cpu-cfs-quota-period cpu-manager-policy-options cpu-manager-reconcile-period \
    enable-controller-attach-detach enable-debugging-handlers enable-load-reader enable-server \
    event-burst event-qps event-storage-age-limit event-storage-event-limit \
    exit-on-lock-contention \
    experimental-allocatable-ignore-eviction experimental-mounter-path fail-cgroupv1 fail-swap-on feature-gates \
    file-check-frequency global-housekeeping-interval hairpin-mode healthz-bind-address housekeeping-interval \
    image-service-endpoint \
    kernel-memcg-notification kube-api-burst kube-api-content-type kube-api-qps kube-reserved-cgroup kubelet-cgroups \
    local-storage-capacity-isolation lock-file log-cadvisor-usage log-flush-frequency log-json-info-buffer-size \
    log-json-split-stream log-text-info-buffer-size log-text-split-stream logging-format machine-id-file \
    make-iptables-util-chains max-open-files maximum-dead-containers \
    maximum-dead-containers-per-container minimum-container-ttl-duration \
    pods-per-core qos-reserved read-only-port registry-burst registry-qps \
    runonce runtime-cgroups runtime-request-timeout \
    storage-driver-buffer-duration storage-driver-db storage-driver-host storage-driver-password \
    storage-driver-secure storage-driver-table storage-driver-user sync-frequency \
    system-cgroups system-reserved-cgroup \
    topology-manager-policy-options v vmodule volume-plugin-dir volume-stats-agg-period";

/// Adds upstream's flags and those of the built-in runtime.
pub(crate) fn arguments(command: Command) -> Command {
    // Go's flags accept `--flag`, `--flag=value` and `--flag value`, depending on their type.
    let any = |name: &'static str| Arg::new(name).long(name).action(ArgAction::Append).num_args(1);
    let switch = |arg: Arg| arg.num_args(0..=1).require_equals(true).default_missing_value("true");
    let mut command = crate::cri::runtime_arguments(command);
    for (name, field, form) in FIELDS {
        let arg = any(name).help(format!("Sets {field} of the KubeletConfiguration"));
        command = command.arg(match form {
            Form::Bool => switch(arg),
            Form::Number => arg.allow_negative_numbers(true),
            _ => arg,
        });
    }
    for (name, help) in OWN {
        let arg = any(name).help(*help);
        let is_switch =
            matches!(*name, "allow-missing-cgroup-controllers" | "anonymous-auth" | "authentication-token-webhook");
        command = command.arg(if is_switch { switch(arg) } else { arg });
    }
    for name in WITHOUT_EFFECT.split_whitespace() {
        command = command.arg(any(name).num_args(0..=1).hide(true));
    }
    command
}

/// Runs the kubelet in a process that already has a log and a Tokio runtime.
pub(crate) async fn start(matches: &ArgMatches, shared: &ProcessContext) -> Result<()> {
    serve(matches, config(matches)?, shared).await
}

/// Runs the kubelet until SIGTERM or SIGINT. Pods keep running.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    crate::log::to_stderr(tracing::Level::INFO);
    let config = config(matches)?;
    component::run("kubelet", async { serve(matches, config, &ProcessContext::default()).await })
}

async fn serve(matches: &ArgMatches, mut config: Config, shared: &ProcessContext) -> Result<()> {
    let in_process = shared.in_process.as_ref();
    crate::oom::set_score(config.oom_score_adj);
    bootstrap(matches, &config).await?;
    config.standalone = text(matches, "kubeconfig").is_none_or(str::is_empty);
    let client = if config.standalone { alone(&config)? } else { client(matches, "kubeconfig", in_process)? };
    let endpoint = match text(matches, "container-runtime-endpoint").filter(|endpoint| !endpoint.is_empty()) {
        Some(endpoint) => {
            warn_of_unused_registry_flags(matches);
            endpoint.to_owned()
        }
        None => embedded(matches).await?,
    };
    let channel = node_api::cri::connect(&endpoint).await?;
    let name = config.node_name.clone();
    if config.rotate_certificates && bootstrap::current(&config.cert_dir).exists() {
        let (client, dir) = (client.clone(), config.cert_dir.clone());
        tokio::spawn(bootstrap::keep(client, name.clone(), dir, Purpose::Client, || {}).in_current_span());
    }
    let mut kubelet = Kubelet::start(config, client, Runtime::new(&channel), Some(gate(shared))).await?;
    let announce = async {
        kubelet.registered().await;
        if in_process.is_none() {
            outln!("ready: node {name} on {}", kubelet.address());
        }
    };
    let stopping = crate::etcd::signal();
    tokio::pin!(stopping);
    tokio::select! {
        () = announce => {}
        signal = &mut stopping => return signal,
    }
    tokio::select! {
        () = kubelet.run() => bail!("the kubelet exited unexpectedly"),
        signal = &mut stopping => signal?,
    }
    kubelet.shut_down().await;
    Ok(())
}

/// Another container runtime has registry settings of its own.
fn warn_of_unused_registry_flags(matches: &ArgMatches) {
    let is_given = |flag: &&str| matches.value_source(flag) == Some(clap::parser::ValueSource::CommandLine);
    for flag in [registry_flags::PRIVATE_REGISTRY, registry_flags::CONFIG_DIR].iter().filter(|flag| is_given(flag)) {
        tracing::warn!(flag, "the flag has no effect with --container-runtime-endpoint: configure that runtime");
    }
}

/// Returns the gate that delays pods until the network policies of this process are known.
fn gate(shared: &ProcessContext) -> Gate {
    let gate = Arc::clone(&shared.gate);
    Arc::new(move |pod, ips| {
        let gate = Arc::clone(&gate);
        Box::pin(async move { gate.pass(&Key::of(&pod), kube_proxy::policy::Pod::at(&pod, ips)).await })
    })
}

/// Starts the built-in runtime in this process. Returns its socket, which other CRI clients may use too.
async fn embedded(matches: &ArgMatches) -> Result<String> {
    let config = crate::cri::config(matches)?;
    let socket = config.root.with_file_name("cri.sock");
    let span = spans::component("container-runtime");
    let runtime = container_runtime::Runtime::open(config).instrument(span.clone()).await?;
    let (ready_sender, ready) = tokio::sync::oneshot::channel();
    let socket_path = socket.clone();
    let task = async move {
        let ready = || {
            // Sending fails only if the receiver was dropped.
            let _ = ready_sender.send(());
        };
        if let Err(error) = container_runtime::serve(runtime, &socket_path, ready, std::future::pending()).await {
            tracing::error!(%error, "the built-in runtime stopped");
        }
    };
    tokio::spawn(task.instrument(span));
    ready.await.context("failed to start the built-in runtime")?;
    Ok(socket.display().to_string())
}

/// Requests a client certificate with `--bootstrap-kubeconfig` if `--kubeconfig` does not exist or the certificate has
/// expired.
async fn bootstrap(matches: &ArgMatches, config: &Config) -> Result<()> {
    let (Some(from), Some(to)) = (text(matches, "bootstrap-kubeconfig"), text(matches, "kubeconfig")) else {
        return Ok(());
    };
    // A kubelet whose certificate expired while it was stopped must bootstrap again.
    let over = bootstrap::is_over(&bootstrap::current(&config.cert_dir), component_base::clock::now());
    if from.is_empty() || Path::new(to).exists() && !over {
        return Ok(());
    }
    let client = client(matches, "bootstrap-kubeconfig", None)?;
    bootstrap::obtain(&client, &config.node_name, &config.cert_dir, &Purpose::Client).await?;
    Ok(bootstrap::write_kubeconfig(Path::new(from), Path::new(to), &bootstrap::current(&config.cert_dir))?)
}

/// Returns the client of a standalone kubelet, which runs only static pods. Fails if webhook authentication or
/// authorization is on.
fn alone(config: &Config) -> Result<Client> {
    if config.token_webhook {
        bail!(
            "no client provided, cannot use webhook authentication: give --kubeconfig, or run without an API server with --authentication-token-webhook=false --authorization-mode=AlwaysAllow"
        );
    }
    if config.authorization_webhook {
        bail!(
            "no client provided, cannot use webhook authorization: give --kubeconfig, or run without an API server with --authorization-mode=AlwaysAllow"
        );
    }
    tracing::warn!("no --kubeconfig: the kubelet runs standalone, with static pods only");
    Ok(::kubelet::standalone::client(settings())?)
}

fn settings() -> client::Settings {
    client::Settings { user_agent: format!("kubelet/{}", ::kubelet::node::VERSION), ..Default::default() }
}

fn client(matches: &ArgMatches, flag: &str, in_process: Option<&InProcessServer>) -> Result<Client> {
    let Some(file) = text(matches, flag) else { bail!("--{flag} is required") };
    let settings = settings();
    ApiEndpoint::new(Some(Path::new(file)), None, in_process)?.client(settings)
}

fn config(matches: &ArgMatches) -> Result<Config> {
    let name = text(matches, "hostname-override").map_or_else(::kubelet::node::machine::hostname, str::to_owned);
    let mut config = Config::new(name);
    let mut vain = Vec::new();
    if let Some(file) = text(matches, "config") {
        let content = std::fs::read_to_string(file).with_context(|| format!("failed to read --config {file}"))?;
        vain = config.apply(&content).with_context(|| format!("invalid --config {file}"))?;
    }
    if let Some(dir) = text(matches, "root-dir") {
        config.root_dir = dir.into();
        config.cert_dir = config.root_dir.join("pki");
    }
    if let Some(dir) = text(matches, "cert-dir") {
        config.cert_dir = dir.into();
    }
    let given = std::mem::take(&mut config.given);
    config.apply(&flags_as_configuration(matches)?)?;
    config.given = given;
    own_flags(matches, &mut config)?;
    vain.extend(
        WITHOUT_EFFECT.split_whitespace().filter(|name| text(matches, name).is_some()).map(|name| format!("--{name}")),
    );
    if !vain.is_empty() {
        tracing::warn!(settings = vain.join(", "), "these settings have no effect here");
    }
    Ok(config)
}

/// Parses the IP addresses of a flag.
fn addresses(flag: &str, text: &str) -> Result<Vec<IpAddr>> {
    let parse = |ip: &str| ip.parse().with_context(|| format!("--{flag}: {ip:?} is not an IP address"));
    text.split(',').map(parse).collect()
}

fn own_flags(matches: &ArgMatches, config: &mut Config) -> Result<()> {
    if let Some(ips) = text(matches, "node-ip").filter(|ips| !ips.is_empty()) {
        config.node_ips = addresses("node-ip", ips)?;
    }
    if let Some(ips) = text(matches, "node-external-ip").filter(|ips| !ips.is_empty()) {
        config.external_ips = addresses("node-external-ip", ips)?;
    }
    for pair in list(matches, "node-labels") {
        let (key, value) = pair.split_once('=').unwrap_or((&pair, ""));
        config.node_labels.insert(key.to_owned(), value.to_owned());
    }
    for taint in list(matches, "register-with-taints") {
        let Some((what, effect)) = taint.rsplit_once(':') else {
            bail!("--register-with-taints: {taint:?} is not of the form key=value:effect")
        };
        let (key, value) = what.split_once('=').unwrap_or((what, ""));
        let mut one = value!({"key": key, "effect": effect});
        if let (Some(one), false) = (one.as_object_mut(), value.is_empty()) {
            one.insert("value", value);
        }
        config.taints.push(one);
    }
    config.allow_missing_controllers =
        switch(matches, "allow-missing-cgroup-controllers")?.unwrap_or(config.allow_missing_controllers);
    config.anonymous = switch(matches, "anonymous-auth")?.unwrap_or(config.anonymous);
    config.token_webhook = switch(matches, "authentication-token-webhook")?.unwrap_or(config.token_webhook);
    if let Some(mode) = text(matches, "authorization-mode") {
        let known = ::kubelet::config::authorization_mode(mode);
        config.authorization_webhook =
            known.with_context(|| format!("--authorization-mode: {mode:?} is neither AlwaysAllow nor Webhook"))?;
    }
    let given = |flag: &str| text(matches, flag).filter(|path| !path.is_empty());
    config.credential_providers =
        match (given("image-credential-provider-config"), given("image-credential-provider-bin-dir")) {
            (None, None) => Vec::new(),
            (Some(file), Some(dir)) => ::kubelet::credential_providers::read(Path::new(file), Path::new(dir))?,
            _ => bail!("give both --image-credential-provider-config and --image-credential-provider-bin-dir, or none"),
        };
    if let Some(file) = text(matches, "client-ca-file") {
        config.client_ca = Some(file.into());
    }
    Ok(())
}

/// Returns the flags that set fields as a KubeletConfiguration.
fn flags_as_configuration(matches: &ArgMatches) -> Result<String> {
    let mut fields: Object =
        [("apiVersion", "kubelet.config.k8s.io/v1beta1"), ("kind", "KubeletConfiguration")].into_iter().collect();
    for (flag, field, form) in FIELDS {
        let Some(given) = text(matches, flag) else { continue };
        let pairs = |between: char| -> Result<Value> {
            let pair = |pair: String| {
                let split = pair.split_once(between).map(|(key, value)| (key.to_owned(), Value::from(value)));
                split.with_context(|| format!("--{flag}: {pair:?} has no {between:?}"))
            };
            Ok(Value::Object(
                list(matches, flag).into_iter().map(pair).collect::<Result<Vec<_>>>()?.into_iter().collect(),
            ))
        };
        let value = match form {
            Form::Text => given.into(),
            Form::Number => {
                given.parse::<i64>().with_context(|| format!("--{flag}: {given:?} is not a number"))?.into()
            }
            Form::Bool => switch(matches, flag)?.unwrap_or(true).into(),
            Form::List => Value::Array(list(matches, flag).into_iter().map(Value::from).collect()),
            Form::Map => pairs('=')?,
            Form::Thresholds => pairs('<')?,
            Form::ByNode => by_node(flag, given)?,
            Form::Headers => headers(flag, list(matches, flag))?,
        };
        fields.insert(*field, value);
    }
    // Every JSON document is also YAML.
    Ok(json::to_string(&Value::Object(fields)))
}

/// Parses `0:memory=1Gi,hugepages-2Mi=10Mi;1:memory=1Gi` to the list of the configuration field.
fn by_node(flag: &str, given: &str) -> Result<Value> {
    let bad = || format!("--{flag}: {given:?} is not of the form node:kind=amount,kind=amount;node:…");
    let one = |part: &str| -> Result<Value> {
        let (node, limits) = part.split_once(':').with_context(bad)?;
        let node: i64 = node.trim().parse().ok().with_context(bad)?;
        let limit = |pair: &str| {
            let (kind, amount) = pair.split_once('=')?;
            Some((kind.trim().to_owned(), Value::from(amount.trim())))
        };
        let limits: Option<Object> =
            limits.split(',').map(limit).collect::<Option<Vec<_>>>().map(FromIterator::from_iter);
        Ok(value!({"numaNode": node, "limits": (limits.with_context(bad)?)}))
    };
    Ok(Value::Array(given.split(';').filter(|part| !part.is_empty()).map(one).collect::<Result<_>>()?))
}

/// Parses `a:b` and `a:c` to lists of values by header name.
fn headers(flag: &str, given: Vec<String>) -> Result<Value> {
    let mut all = Object::new();
    for pair in given {
        let (name, value) =
            pair.split_once(':').with_context(|| format!("--{flag}: {pair:?} is not of the form name:value"))?;
        let values = all.get_or_insert_with(name.trim(), || Value::Array(Vec::new()));
        values.as_array_mut().context("values are a list")?.push(value.trim().into());
    }
    Ok(Value::Object(all))
}

/// Returns the last value of a flag.
fn text<'a>(matches: &'a ArgMatches, flag: &str) -> Option<&'a str> {
    matches.get_many::<String>(flag)?.next_back().map(String::as_str)
}

fn list(matches: &ArgMatches, flag: &str) -> Vec<String> {
    let given = matches.get_many::<String>(flag).into_iter().flatten();
    given.flat_map(|text| text.split(',')).filter(|one| !one.is_empty()).map(str::to_owned).collect()
}

fn switch(matches: &ArgMatches, flag: &str) -> Result<Option<bool>> {
    let Some(given) = text(matches, flag) else { return Ok(None) };
    match given {
        "true" | "1" | "t" | "T" => Ok(Some(true)),
        "false" | "0" | "f" | "F" => Ok(Some(false)),
        other => bail!("--{flag}: {other:?} is neither true nor false"),
    }
}

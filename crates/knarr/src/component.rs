//! Shared parts of components: API client configuration, identity, log level, signal handling.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use auth::User;
use client::config::{Credential, Kubeconfig, Tls};
use client::{Client, Config, Https, Settings, Transport};
use component_base::spans;
use kube_apiserver::in_process;
use kube_apiserver::state::State;
use tracing::Instrument;

use crate::trace_file::TraceFile;

/// Time after which the code pages of the start are released. A start usually takes one second.
const START: Duration = Duration::from_secs(5);

/// Maximum time that a stateless component may take to stop.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// A component lost its leader lease. Its state may be stale, so the process must restart.
#[derive(Debug, thiserror::Error)]
#[error("leader election lost")]
pub(crate) struct LeadershipLost;

/// The API server in the same process, available once it has started, and the user of its requests.
#[derive(Clone)]
pub(crate) struct InProcessServer {
    server: Arc<OnceLock<Arc<State>>>,
    user: User,
}

/// Values that the components of one process share.
#[derive(Clone, Default)]
pub(crate) struct ProcessContext {
    pub in_process: Option<InProcessServer>,
    /// Delays pods until the network policies of the node are known.
    pub gate: Arc<kube_proxy::policy::gate::Gate>,
    /// The trace file of the data directory, if the process has one.
    pub trace: Option<Arc<TraceFile>>,
    /// The stage records of the nodes on this host.
    pub node_records: Option<::dashboard::NodeRecordsSource>,
}

/// Makes pods wait for network policies if the component that enforces them is one of `components`.
pub(crate) fn expect_policies(gate: &kube_proxy::policy::gate::Gate, components: &[&str]) {
    if components.contains(&"network") {
        gate.expect_enforcer();
    }
}

/// A component's connection to the API server: over the network with its kubeconfig, or within the process.
#[derive(Clone)]
pub(crate) struct ApiEndpoint {
    pub config: Config,
    in_process: Option<InProcessServer>,
}

impl InProcessServer {
    /// Returns a handle to a server that has not started yet.
    pub(crate) fn new() -> Self {
        Self { server: Arc::default(), user: User::anonymous() }
    }

    /// Returns a handle to the same server for requests of `user`.
    pub(crate) fn with_user(&self, user: User) -> Self {
        Self { server: Arc::clone(&self.server), user }
    }

    /// Makes the started server available to all handles.
    pub(crate) fn started(&self, server: &Arc<State>) {
        // A process has at most one API server, so the value is never set twice.
        let _ = self.server.set(Arc::clone(server));
    }

    /// Serves further paths in the listener of the started server.
    pub(crate) fn mount(&self, mount: kube_apiserver::mount::Mount) -> Result<()> {
        let server = self.server.get().context("the API server of this process has not started")?;
        server.mount.set(mount).map_err(|_| anyhow::anyhow!("the API server has a mounted handler already"))
    }

    /// Adds metrics of this process to those of the started server.
    pub(crate) fn add_metrics(&self, text: impl Fn() -> String + Send + Sync + 'static) -> Result<()> {
        let server = self.server.get().context("the API server of this process has not started")?;
        let added = server.metrics.of_process.set(Box::new(text));
        added.map_err(|_| anyhow::anyhow!("the API server has the metrics of this process already"))
    }

    fn transport(&self, user: Option<User>) -> Result<Arc<dyn Transport>> {
        let server = self.server.get().context("the API server of this process has not started")?;
        Ok(in_process::transport(Arc::clone(server), user))
    }
}

impl ApiEndpoint {
    /// Uses the kubeconfig, or the service account of the pod; `master` overrides the server address. A server in the
    /// same process is preferred.
    pub(crate) fn new(
        kubeconfig: Option<&Path>,
        master: Option<&str>,
        in_process: Option<&InProcessServer>,
    ) -> Result<Self> {
        Ok(Self { config: client_config(kubeconfig, master)?, in_process: in_process.cloned() })
    }

    pub(crate) fn client(&self, settings: Settings) -> Result<Client> {
        Ok(match &self.in_process {
            Some(in_process) => Client::new(in_process.transport(Some(in_process.user.clone()))?, settings)?,
            None => Client::connect(&self.config, settings)
                .with_context(|| format!("failed to connect to {}", self.config.server))?,
        })
    }

    /// Returns a transport without credentials, for requests that carry a bearer token.
    pub(crate) fn anonymous(&self) -> Result<Arc<dyn Transport>> {
        if let Some(in_process) = &self.in_process {
            return in_process.transport(None);
        }
        let anonymous = Config {
            tls: Tls { client: None, ..self.config.tls.clone() },
            credential: Credential::None,
            impersonate: None,
            ..self.config.clone()
        };
        let https = Https::new(anonymous).with_context(|| format!("failed to connect to {}", self.config.server))?;
        Ok(Arc::new(https))
    }
}

/// Runs a component on a new Tokio runtime until it returns. Its log lines carry `name`.
pub(crate) fn run(name: &str, component: impl Future<Output = Result<()>>) -> Result<()> {
    sys::reserve_arena();
    raise_open_files();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        tokio::spawn(release_startup_code());
        component.instrument(spans::component(name)).await
    })
}

/// Runs a component without state on disk. The process exits within [`STOP_GRACE`] of SIGTERM or SIGINT, or immediately
/// at a second signal. Its log lines carry `name`.
pub(crate) fn run_stateless(name: &str, component: impl Future<Output = Result<()>>) -> Result<()> {
    sys::reserve_arena();
    raise_open_files();
    let executor = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = executor.block_on(async {
        tokio::spawn(release_startup_code());
        // A separate task, because the component may block its thread.
        tokio::spawn(exit_after_grace().instrument(spans::component(name)));
        component.instrument(spans::component(name)).await
    });
    // Dropping the runtime would wait for blocking calls, such as a name lookup without a responding resolver.
    executor.shutdown_background();
    result
}

/// Allows this process as many connections as the hard limit of open files. A lower limit is not fatal.
pub(crate) fn raise_open_files() {
    if let Err(error) = sys::raise_open_files() {
        tracing::warn!(%error, "failed to raise the soft limit of open files");
    }
}

async fn exit_after_grace() {
    if crate::etcd::signal().await.is_err() {
        return;
    }
    tokio::select! {
        () = tokio::time::sleep(STOP_GRACE) => tracing::error!("not stopped {STOP_GRACE:?} after the signal; exiting"),
        _ = crate::etcd::signal() => tracing::error!("second signal; exiting immediately"),
    }
    std::process::exit(1);
}

/// Releases the code pages that only the start needed.
async fn release_startup_code() {
    tokio::time::sleep(START).await;
    if let Err(error) = sys::release_code() {
        tracing::debug!("failed to release the code pages of the start: {error}");
    }
}

/// Returns the client configuration of the kubeconfig or of the pod's service account. `master` overrides the server
/// address.
pub(crate) fn client_config(kubeconfig: Option<&Path>, master: Option<&str>) -> Result<Config> {
    let mut config = match (kubeconfig, master) {
        (Some(file), _) => {
            ensure!(file.is_file(), "--kubeconfig: no such file: {}", file.display());
            Kubeconfig::load(&[file.to_owned()])?.config(None)?
        }
        (None, Some(master)) => Config::new(master.parse().context("--master")?),
        (None, None) => in_cluster()?,
    };
    if let Some(master) = master {
        config.server = master.parse().with_context(|| format!("--master {master:?} is not a URL"))?;
    }
    Ok(config)
}

/// Maps `-v` to a log level.
pub(crate) const fn level(verbosity: u8) -> tracing::Level {
    match verbosity {
        0..=3 => tracing::Level::INFO,
        4..=7 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    }
}

pub(crate) fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// Returns a leader election identity: host name, PID and a random number.
pub(crate) fn identity() -> String {
    let number = (client::backoff::random() * f64::from(u32::MAX)) as u32;
    format!("{}_{}-{number:08x}", host(), std::process::id())
}

/// Parses a Go duration. Rejects negative values.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let duration: apimachinery::time::Duration = text.parse().map_err(|error| format!("{error}"))?;
    u64::try_from(duration.nanos()).map(Duration::from_nanos).map_err(|_| "must not be negative".to_owned())
}

fn in_cluster() -> Result<Config> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (Some(host), Some(port)) = (variable("KUBERNETES_SERVICE_HOST"), variable("KUBERNETES_SERVICE_PORT")) else {
        bail!("no in-cluster configuration found (KUBERNETES_SERVICE_HOST is not set); give --kubeconfig");
    };
    Ok(Config::in_cluster(&host, &port, Path::new("/var/run/secrets/kubernetes.io/serviceaccount"))?)
}

//! What components that run alone have in common: where the API server is, who they are, what they log.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use apiserver::inside;
use apiserver::state::State;
use auth::User;
use client::config::{Credential, Kubeconfig, Tls};
use client::{Client, Config, Https, Settings, Transport};

/// A start takes a second; after this it is over, whatever else the machine does.
const START: Duration = Duration::from_secs(5);

/// How long a component that keeps nothing on disk may take to stop.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// A component that led does not anymore. What it had in mind may be wrong: it must begin anew.
#[derive(Debug, thiserror::Error)]
#[error("leadership is lost; start again to be a candidate once more")]
pub struct LeadershipLost;

/// An API server in the same process, once it has started, and who asks it.
#[derive(Clone)]
pub struct Inside {
    server: Arc<OnceLock<Arc<State>>>,
    user: User,
}

/// What components of one process share.
#[derive(Clone, Default)]
pub struct Shared {
    /// The API server, if there is one.
    pub inside: Option<Inside>,
    /// What the node's pods wait for.
    pub gate: Arc<proxy::policy::gate::Gate>,
}

/// Holds pods up until network policies are known, if the component that enforces them is one of these.
pub fn expect_policies(gate: &proxy::policy::gate::Gate, components: &[&str]) {
    if components.contains(&"network") {
        gate.expect_enforcer();
    }
}

/// How a component reaches the API server: over the network as its kubeconfig says, or in the same process.
#[derive(Clone)]
pub struct Reach {
    /// What the kubeconfig says.
    pub config: Config,
    inside: Option<Inside>,
}

impl Inside {
    /// A place for a server that is yet to start.
    pub fn new() -> Self {
        Self { server: Arc::default(), user: User::anonymous() }
    }

    /// The same server, asked by somebody.
    pub fn asked_by(&self, user: User) -> Self {
        Self { server: Arc::clone(&self.server), user }
    }

    /// The server has started.
    pub fn started(&self, server: &Arc<State>) {
        // One process has one.
        let _ = self.server.set(Arc::clone(server));
    }

    fn transport(&self, user: Option<User>) -> Result<Arc<dyn Transport>> {
        let server = self.server.get().context("the API server of this process has not started")?;
        Ok(inside::transport(Arc::clone(server), user))
    }
}

impl Reach {
    /// What the kubeconfig says, or what a pod is given; `master` is an address in its place. A server in the same process is
    /// preferred.
    pub fn new(kubeconfig: Option<&Path>, master: Option<&str>, inside: Option<&Inside>) -> Result<Self> {
        Ok(Self { config: client_config(kubeconfig, master)?, inside: inside.cloned() })
    }

    /// A client.
    pub fn client(&self, settings: Settings) -> Result<Client> {
        Ok(match &self.inside {
            Some(inside) => Client::new(inside.transport(Some(inside.user.clone()))?, settings)?,
            None => Client::connect(&self.config, settings)
                .with_context(|| format!("{} cannot be used", self.config.server))?,
        })
    }

    /// Carries requests that say themselves who makes them.
    pub fn anonymous(&self) -> Result<Arc<dyn Transport>> {
        if let Some(inside) = &self.inside {
            return inside.transport(None);
        }
        let anonymous = Config {
            tls: Tls { client: None, ..self.config.tls.clone() },
            credential: Credential::None,
            impersonate: None,
            ..self.config.clone()
        };
        let https = Https::new(anonymous).with_context(|| format!("{} cannot be used", self.config.server))?;
        Ok(Arc::new(https))
    }
}

/// Runs a component until it ends, on an executor of its own.
pub fn run(component: impl Future<Output = Result<()>>) -> Result<()> {
    sys::make_room();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        tokio::spawn(settle());
        component.await
    })
}

/// Runs a component that has nothing to lose: it exits within [`STOP_GRACE`] of SIGTERM or SIGINT, or at a second one at once,
/// whatever it waits for.
pub fn run_stateless(component: impl Future<Output = Result<()>>) -> Result<()> {
    sys::make_room();
    let executor = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = executor.block_on(async {
        tokio::spawn(settle());
        // A task of its own, because the component may block its thread.
        tokio::spawn(exit_after_grace());
        component.await
    });
    // Dropping it would wait for blocking calls, such as the lookup of a name that no resolver answers.
    executor.shutdown_background();
    ended
}

async fn exit_after_grace() {
    if crate::etcd::signal().await.is_err() {
        return;
    }
    tokio::select! {
        () = tokio::time::sleep(STOP_GRACE) => tracing::error!("not stopped {STOP_GRACE:?} after the signal; exiting"),
        _ = crate::etcd::signal() => tracing::error!("second signal; exiting at once"),
    }
    std::process::exit(1);
}

/// Gives back what only a start needs: most of the code that it runs is not run again.
async fn settle() {
    tokio::time::sleep(START).await;
    if let Err(error) = sys::release_code() {
        tracing::debug!("the code of the start stays in memory: {error}");
    }
}

/// Where the API server is: what the kubeconfig says, or what a pod is given. `master` is an address in its place.
pub fn client_config(kubeconfig: Option<&Path>, master: Option<&str>) -> Result<Config> {
    let mut config = match (kubeconfig, master) {
        (Some(file), _) => {
            ensure!(file.is_file(), "--kubeconfig: there is no file {}", file.display());
            Kubeconfig::load(&[file.to_owned()])?.config(None)?
        }
        (None, Some(master)) => Config::new(master.parse().context("--master")?),
        (None, None) => in_cluster()?,
    };
    if let Some(master) = master {
        config.server = master.parse().with_context(|| format!("--master {master:?} is no address"))?;
    }
    Ok(config)
}

/// What `-v` means.
pub const fn level(verbosity: u8) -> tracing::Level {
    match verbosity {
        0..=3 => tracing::Level::INFO,
        4..=7 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    }
}

/// The name of this machine.
pub fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// This machine, and a number that no other process on it has.
pub fn identity() -> String {
    let number = (client::backoff::random() * f64::from(u32::MAX)) as u32;
    format!("{}_{}-{number:08x}", host(), std::process::id())
}

/// A duration in Go's notation that is not negative.
pub fn duration(text: &str) -> Result<Duration, String> {
    let duration: machinery::time::Duration = text.parse().map_err(|error| format!("{error}"))?;
    u64::try_from(duration.nanos()).map(Duration::from_nanos).map_err(|_| "it must not be negative".to_owned())
}

fn in_cluster() -> Result<Config> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (Some(host), Some(port)) = (variable("KUBERNETES_SERVICE_HOST"), variable("KUBERNETES_SERVICE_PORT")) else {
        bail!("there is no cluster around this process; say where it is with --kubeconfig");
    };
    Ok(Config::in_cluster(&host, &port, Path::new("/var/run/secrets/kubernetes.io/serviceaccount"))?)
}

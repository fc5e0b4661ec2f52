//! Plugin watcher: discovers CSI and DRA drivers by their sockets, calls GetInfo and registers them.

pub(crate) mod claims;
pub(crate) mod csi;
mod csi_node;

use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use client::Client;
use component_base::inotify::Changes;
use node_api::csi as csi_v1;
use node_api::csi::node_client::NodeClient;
use node_api::registration as v1;
use node_api::registration::registration_client::RegistrationClient;
use tokio::task::JoinSet;
use tonic::transport::Channel;
use tracing::Instrument;

use crate::blocking;

/// Delay before a failed registration is retried.
const RETRY: Duration = Duration::from_secs(5);
/// Timeout of a registration call to a driver.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The API of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Container Storage Interface.
    Csi,
    /// Dynamic resource allocation.
    Dra,
}

/// A driver could not be registered.
#[derive(Debug, thiserror::Error)]
enum RegisterError {
    #[error("cannot connect to {path}")]
    Connect { path: String, source: node_api::cri::ConnectError },
    #[error("the driver call failed: {}", .0.message())]
    Call(tonic::Status),
    #[error("the driver did not respond within {} seconds", TIMEOUT.as_secs())]
    Timeout,
    #[error("plugin type {0:?} is not supported")]
    Kind(String),
    #[error("none of the driver's versions {0:?} is supported")]
    Version(Vec<String>),
    #[error("failed to update the CSINode object")]
    Api(#[source] client::Error),
}

/// The registered drivers. Clones share them.
#[derive(Clone, Default)]
pub struct Drivers(Arc<Mutex<BTreeMap<(Kind, String), Driver>>>);

#[derive(Clone)]
struct Driver {
    channel: Channel,
    /// The registration socket.
    socket: PathBuf,
}

/// The dependencies of the plugin watcher.
pub(crate) struct Registry {
    pub drivers: Drivers,
    /// Directory of registration sockets.
    pub dir: PathBuf,
    pub client: Client,
    pub node_name: String,
}

impl Drivers {
    /// Returns the gRPC channel of a registered driver.
    pub fn find(&self, kind: Kind, name: &str) -> Option<Channel> {
        let drivers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        drivers.get(&(kind, name.to_owned())).map(|driver| driver.channel.clone())
    }

    fn change<R>(&self, change: impl FnOnce(&mut BTreeMap<(Kind, String), Driver>) -> R) -> R {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Discovers and registers drivers forever.
pub(crate) async fn run(registry: Registry) {
    let registry = Arc::new(registry);
    let changes = Changes::of(&registry.dir);
    let mut registering: JoinSet<PathBuf> = JoinSet::new();
    let mut busy: Vec<PathBuf> = Vec::new();
    loop {
        let sockets = blocking::in_place(|| sockets(&registry.dir));
        registry.unregister_all_except(&sockets).await;
        let known: Vec<PathBuf> = registry.drivers.change(|all| all.values().map(|one| one.socket.clone()).collect());
        let fresh: Vec<PathBuf> =
            sockets.into_iter().filter(|socket| !known.contains(socket) && !busy.contains(socket)).collect();
        for socket in fresh {
            busy.push(socket.clone());
            let registry = Arc::clone(&registry);
            let task = async move {
                if let Err(error) = registry.register(&socket).await {
                    let problem = describe(&error);
                    tracing::warn!(socket = %socket.display(), problem, "failed to register a driver");
                    tokio::time::sleep(RETRY).await;
                }
                socket
            };
            registering.spawn(task.in_current_span());
        }
        let changed = async {
            match &changes {
                Ok(changes) if changes.next().await.is_ok() => {}
                _ => std::future::pending::<()>().await,
            }
        };
        tokio::select! {
            () = changed => {}
            Some(done) = registering.join_next() => if let Ok(socket) = done { busy.retain(|one| *one != socket) },
        }
    }
}

impl Registry {
    async fn register(&self, socket: &Path) -> Result<(), RegisterError> {
        let mut client = RegistrationClient::new(connect(&socket.display().to_string()).await?);
        let info = timely(client.get_info(v1::InfoRequest {})).await?;
        let endpoint = match info.endpoint.as_str() {
            "" => socket.display().to_string(),
            path => path.to_owned(),
        };
        let taken = self.take(&info, &endpoint, socket).await;
        let status = v1::RegistrationStatus {
            plugin_registered: taken.is_ok(),
            error: taken.as_ref().err().map(describe).unwrap_or_default(),
        };
        // A driver stays registered even if it rejects the notification.
        let _ = timely(client.notify_registration_status(status)).await;
        taken
    }

    async fn take(&self, info: &v1::PluginInfo, endpoint: &str, socket: &Path) -> Result<(), RegisterError> {
        let versions = &info.supported_versions;
        let (kind, spoken) = match info.r#type.as_str() {
            "CSIPlugin" => (Kind::Csi, versions.iter().any(|one| one.starts_with("1.") || one.starts_with("v1."))),
            "DRAPlugin" => (Kind::Dra, versions.iter().any(|one| one == "v1.DRAPlugin" || one == "v1")),
            other => return Err(RegisterError::Kind(other.to_owned())),
        };
        if !spoken {
            return Err(RegisterError::Version(versions.clone()));
        }
        let channel = connect(endpoint).await?;
        if kind == Kind::Csi {
            let mut node = NodeClient::new(channel.clone());
            let about = timely(node.node_get_info(csi_v1::NodeGetInfoRequest {})).await?;
            csi_node::add(&self.client, &self.node_name, &info.name, &about).await.map_err(RegisterError::Api)?;
        }
        let driver = Driver { channel, socket: socket.to_owned() };
        self.drivers.change(|all| all.insert((kind, info.name.clone()), driver));
        tracing::info!(name = info.name, kind = info.r#type, "a driver registered");
        Ok(())
    }

    /// Unregisters drivers whose socket was removed.
    async fn unregister_all_except(&self, sockets: &[PathBuf]) {
        let removed: Vec<(Kind, String)> = self.drivers.change(|all| {
            let removed = all.iter().filter(|(_, driver)| !sockets.contains(&driver.socket));
            let removed: Vec<_> = removed.map(|(key, _)| key.clone()).collect();
            for key in &removed {
                all.remove(key);
            }
            removed
        });
        for (kind, name) in removed {
            tracing::info!(name, "a driver was unregistered");
            if kind == Kind::Csi
                && let Err(error) = csi_node::remove(&self.client, &self.node_name, &name).await
            {
                tracing::warn!(name, %error, "failed to remove a driver from the CSINode object");
            }
        }
    }
}

async fn connect(path: &str) -> Result<Channel, RegisterError> {
    node_api::cri::connect(path).await.map_err(|source| RegisterError::Connect { path: path.to_owned(), source })
}

async fn timely<T>(
    future: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, RegisterError> {
    match tokio::time::timeout(TIMEOUT, future).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(RegisterError::Call(status)),
        Err(_) => Err(RegisterError::Timeout),
    }
}

/// Formats an error with its sources in one line.
fn describe(error: &RegisterError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

fn sockets(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()))
        .filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// Returns the SHA-256 of a text in hexadecimal, for use in file names.
pub(crate) fn sha256_hex(text: &str) -> String {
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

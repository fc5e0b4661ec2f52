//! How sandboxes get their addresses: somebody else's business, behind a trait.

mod cni;

use std::future::Future;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use cri::v1;

pub use cni::Cni;

/// Why a sandbox has no network.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// There is no configuration to go by.
    #[error("no network configuration in {0}")]
    NotConfigured(PathBuf),
    /// A configuration cannot be read.
    #[error("network configuration {path} cannot be read")]
    Configuration {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A plug-in failed.
    #[error("network plug-in {plugin} failed: {message}")]
    Plugin {
        /// Which one.
        plugin: String,
        /// What it says.
        message: String,
    },
}

/// What a network needs to know of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attachment {
    /// The sandbox's id.
    pub id: String,
    /// The pod's name.
    pub name: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's uid.
    pub uid: String,
    /// Ports of the machine that lead to it.
    pub ports: Vec<v1::PortMapping>,
    /// Free-form wishes: bandwidth and the like.
    pub annotations: std::collections::BTreeMap<String, String>,
}

/// A future that can be held in a trait object.
pub type NetworkFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, NetworkError>> + Send + 'a>>;

/// Whoever connects sandboxes.
pub trait Network: Send + Sync {
    /// Whether sandboxes can be connected now, and why not.
    fn ready(&self) -> Result<(), NetworkError>;

    /// Connects the network namespace at a path; the first address is the sandbox's main one.
    fn attach<'a>(&'a self, netns: &'a Path, sandbox: &'a Attachment) -> NetworkFuture<'a, Vec<IpAddr>>;

    /// Takes back what `attach` gave; also for one that failed half way, and more than once.
    fn detach<'a>(&'a self, netns: Option<&'a Path>, sandbox: &'a Attachment) -> NetworkFuture<'a, ()>;

    /// The machine's share of the pods' addresses is known.
    fn set_pod_cidr(&self, cidr: &str);
}

/// No network but each sandbox's own loopback interface.
#[derive(Debug, Default)]
pub struct Loopback;

impl Network for Loopback {
    fn ready(&self) -> Result<(), NetworkError> {
        Ok(())
    }

    fn attach<'a>(&'a self, _netns: &'a Path, _sandbox: &'a Attachment) -> NetworkFuture<'a, Vec<IpAddr>> {
        Box::pin(async { Ok(vec![IpAddr::from([127, 0, 0, 1])]) })
    }

    fn detach<'a>(&'a self, _netns: Option<&'a Path>, _sandbox: &'a Attachment) -> NetworkFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn set_pod_cidr(&self, _cidr: &str) {}
}

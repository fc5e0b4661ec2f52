//! The trait of pod networks, with which the container runtime attaches and detaches sandboxes.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use netlink::bandwidth::BandwidthError;

use crate::ipam::LeaseError;
use crate::port_mapping::PortMapping;

/// A sandbox could not be attached.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// No CNI configuration exists in this directory.
    #[error("no CNI configuration in {0}")]
    NotConfigured(PathBuf),
    #[error("failed to read the CNI configuration {path}")]
    Configuration {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("CNI plugin {plugin} failed: {message}")]
    Plugin {
        /// Name of the plugin.
        plugin: String,
        message: String,
    },
    /// The pod CIDR of the node is not known yet.
    #[error("the pod CIDR of this node is not known yet")]
    NoAddresses,
    #[error("failed to allocate addresses")]
    Lease(#[from] LeaseError),
    /// The kernel rejected a request.
    #[error("failed to configure the pod network")]
    Kernel(#[from] netlink::Error),
    /// A file operation failed.
    #[error("failed to {what}")]
    Io {
        /// Description of the operation.
        what: String,
        #[source]
        source: std::io::Error,
    },
    /// The bandwidth annotations of the pod are invalid.
    #[error("invalid bandwidth limit of the pod")]
    Bandwidth(#[from] BandwidthError),
    /// The existing network differs from what was set up.
    #[error("the sandbox's network is not as configured: {0}")]
    Damaged(String),
}

/// A sandbox to attach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attachment {
    pub id: String,
    /// Pod name.
    pub name: String,
    /// Pod namespace.
    pub namespace: String,
    /// Pod UID.
    pub uid: String,
    /// Host ports of the pod.
    pub ports: Vec<PortMapping>,
    /// Pod annotations, for example bandwidth limits.
    pub annotations: BTreeMap<String, String>,
}

pub type NetworkFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, NetworkError>> + Send + 'a>>;

/// A pod network.
pub trait Network: Send + Sync {
    /// Fails if sandboxes cannot be attached now.
    fn ready(&self) -> NetworkFuture<'_, ()>;

    /// Attaches the network namespace at a path; the first address is the sandbox's primary one.
    fn attach<'a>(&'a self, netns: &'a Path, sandbox: &'a Attachment) -> NetworkFuture<'a, Vec<IpAddr>>;

    /// Reverts `attach`. Idempotent, and also usable after a failed `attach`.
    fn detach<'a>(&'a self, netns: Option<&'a Path>, sandbox: &'a Attachment) -> NetworkFuture<'a, ()>;

    /// Checks that a sandbox is attached as `attach` left it.
    fn check<'a>(&'a self, netns: &'a Path, sandbox: &'a Attachment) -> NetworkFuture<'a, ()>;

    /// Detaches all sandboxes except these.
    fn collect<'a>(&'a self, alive: &'a [String]) -> NetworkFuture<'a, ()>;

    /// Sets the pod CIDR of the node.
    fn set_pod_cidr(&self, cidr: &str);
}

/// A network without links: each sandbox has only its loopback interface.
#[derive(Debug, Default)]
pub struct Loopback;

impl Network for Loopback {
    fn ready(&self) -> NetworkFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn attach<'a>(&'a self, _netns: &'a Path, _sandbox: &'a Attachment) -> NetworkFuture<'a, Vec<IpAddr>> {
        Box::pin(async { Ok(vec![IpAddr::from([127, 0, 0, 1])]) })
    }

    fn detach<'a>(&'a self, _netns: Option<&'a Path>, _sandbox: &'a Attachment) -> NetworkFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn check<'a>(&'a self, _netns: &'a Path, _sandbox: &'a Attachment) -> NetworkFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn collect<'a>(&'a self, _alive: &'a [String]) -> NetworkFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn set_pod_cidr(&self, _cidr: &str) {}
}

impl NetworkError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

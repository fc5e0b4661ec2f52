//! What a runtime asks of whoever connects its sandboxes.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use serde::{Deserialize, Serialize};

use crate::leases::LeaseError;
use crate::netlink;
use crate::shape::BandwidthError;

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
    /// The node has no share of the pods' addresses yet.
    #[error("the addresses of this node's pods are not known yet")]
    NoAddresses,
    /// An address could not be had.
    #[error("cannot give out addresses")]
    Lease(#[from] LeaseError),
    /// The kernel refused.
    #[error("cannot set up the network")]
    Kernel(#[from] netlink::Error),
    /// A file of the system could not be used.
    #[error("cannot {what}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// A pod wishes for a bandwidth that there is not.
    #[error("the pod's bandwidth cannot be limited")]
    Bandwidth(#[from] BandwidthError),
    /// What is there is not what was made.
    #[error("the sandbox's network is damaged: {0}")]
    Damaged(String),
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
    pub ports: Vec<PortMapping>,
    /// Free-form wishes: bandwidth and the like.
    pub annotations: BTreeMap<String, String>,
}

/// A port of the machine that leads to a port of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortMapping {
    /// The protocol.
    pub protocol: Protocol,
    /// The machine's port.
    pub host_port: u16,
    /// The pod's port.
    pub container_port: u16,
    /// The machine's address; all of them if there is none.
    #[serde(default, rename = "hostIP", skip_serializing_if = "Option::is_none")]
    pub host_ip: Option<IpAddr>,
}

/// What ports belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// A future that can be held in a trait object.
pub type NetworkFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, NetworkError>> + Send + 'a>>;

/// Whoever connects sandboxes.
pub trait Network: Send + Sync {
    /// Whether sandboxes can be connected now, and why not.
    fn ready(&self) -> NetworkFuture<'_, ()>;

    /// Connects the network namespace at a path; the first address is the sandbox's main one.
    fn attach<'a>(&'a self, netns: &'a Path, sandbox: &'a Attachment) -> NetworkFuture<'a, Vec<IpAddr>>;

    /// Takes back what `attach` gave; also for one that failed half way, and more than once.
    fn detach<'a>(&'a self, netns: Option<&'a Path>, sandbox: &'a Attachment) -> NetworkFuture<'a, ()>;

    /// Whether a sandbox is still connected as `attach` left it.
    fn check<'a>(&'a self, netns: &'a Path, sandbox: &'a Attachment) -> NetworkFuture<'a, ()>;

    /// Takes back what sandboxes have that are none of these any more.
    fn collect<'a>(&'a self, alive: &'a [String]) -> NetworkFuture<'a, ()>;

    /// The machine's share of the pods' addresses is known.
    fn set_pod_cidr(&self, cidr: &str);
}

/// No network but each sandbox's own loopback interface.
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

impl Protocol {
    /// Its number inside IP.
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }

    /// As Kubernetes writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }

    /// Reads what Kubernetes writes; TCP if nothing is written.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "TCP" => Some(Self::Tcp),
            "UDP" => Some(Self::Udp),
            "SCTP" => Some(Self::Sctp),
            _ => None,
        }
    }
}

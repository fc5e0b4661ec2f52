//! The pod network of a node: CNI plugins if a configuration exists, otherwise the built-in network.
//!
//! A CNI configuration may be added or removed while pods run. Both networks record their attached sandboxes on disk. A
//! pod is therefore detached by the network that attached it, regardless of the current configuration and process.

use std::net::IpAddr;
use std::path::Path;

use netlink::cidr::Cidr;

use crate::cni::Cni;
use crate::network::{Attachment, Network, NetworkError, NetworkFuture};
use crate::routed::RoutedNetwork;

/// Selects between CNI and the built-in network.
pub struct Auto {
    cni: Cni,
    built_in: RoutedNetwork,
}

impl Auto {
    pub const fn new(cni: Cni, built_in: RoutedNetwork) -> Self {
        Self { cni, built_in }
    }

    /// Sets up the node's side now, if new pods use the built-in network.
    pub fn start(&self) -> Result<(), NetworkError> {
        if self.cni.is_configured() { Ok(()) } else { self.built_in.start() }
    }

    /// Returns the network for new pods.
    fn for_new(&self) -> &dyn Network {
        if self.cni.is_configured() { &self.cni } else { &self.built_in }
    }

    /// Returns the network that attached a sandbox; the built-in one if neither did, because it can detach unknown
    /// sandboxes.
    fn of(&self, sandbox: &Attachment) -> &dyn Network {
        if self.cni.has(&sandbox.id) { &self.cni } else { &self.built_in }
    }
}

impl Network for Auto {
    fn ready(&self) -> NetworkFuture<'_, ()> {
        self.for_new().ready()
    }

    fn attach<'a>(&'a self, netns: &'a Path, sandbox: &'a Attachment) -> NetworkFuture<'a, Vec<IpAddr>> {
        self.for_new().attach(netns, sandbox)
    }

    fn detach<'a>(&'a self, netns: Option<&'a Path>, sandbox: &'a Attachment) -> NetworkFuture<'a, ()> {
        self.of(sandbox).detach(netns, sandbox)
    }

    fn check<'a>(&'a self, netns: &'a Path, sandbox: &'a Attachment) -> NetworkFuture<'a, ()> {
        self.of(sandbox).check(netns, sandbox)
    }

    fn collect<'a>(&'a self, alive: &'a [String]) -> NetworkFuture<'a, ()> {
        Box::pin(async move {
            let (by_plugins, built_in) = (self.cni.collect(alive).await, self.built_in.collect(alive).await);
            by_plugins.and(built_in)
        })
    }

    fn set_pod_cidr(&self, cidr: &str) {
        if !self.cni.is_configured() {
            return self.built_in.set_pod_cidr(cidr);
        }
        // While CNI plugins are configured, they must create the routes to these addresses.
        let parsed = Cidr::parse_list(cidr).map_err(|error| error.to_string());
        let result =
            parsed.and_then(|blocks| self.built_in.remember_pod_cidrs(blocks).map_err(|error| error.to_string()));
        if let Err(error) = result {
            tracing::warn!(cidr, error, "failed to store the pod CIDR");
        }
    }
}

//! The network that a node has: by CNI plug-ins where there is a configuration for them, the built-in one otherwise.
//!
//! A configuration may come and go while pods run. Each of the two networks keeps what it connected on disk, so that a pod is let
//! go by the one that has it, whatever is configured by then and whatever process does it.

use std::net::IpAddr;
use std::path::Path;

use crate::cidr::Cidr;
use crate::cni::Cni;
use crate::network::{Attachment, Network, NetworkError, NetworkFuture};
use crate::routed::Routed;

/// One of two networks.
pub struct Auto {
    cni: Cni,
    built_in: Routed,
}

impl Auto {
    /// By plug-ins if they are configured, by the built-in network if not.
    pub const fn new(cni: Cni, built_in: Routed) -> Self {
        Self { cni, built_in }
    }

    /// Sets up the node's side now, where the built-in network is the one for new pods.
    pub fn start(&self) -> Result<(), NetworkError> {
        if self.cni.is_configured() { Ok(()) } else { self.built_in.start() }
    }

    /// The network for new pods.
    fn for_new(&self) -> &dyn Network {
        if self.cni.is_configured() { &self.cni } else { &self.built_in }
    }

    /// The network that has a sandbox; the built-in one if neither has, for it lets go what it never had.
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
        // Routes to these addresses are the plug-ins' to make, for as long as there are plug-ins.
        let told = Cidr::parse_list(cidr).map_err(|error| error.to_string());
        let kept = told.and_then(|blocks| self.built_in.remember_pod_cidrs(blocks).map_err(|error| error.to_string()));
        if let Err(error) = kept {
            tracing::warn!(cidr, error, "cannot keep these addresses for pods");
        }
    }
}

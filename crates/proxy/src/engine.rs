//! How rules become true: by nf_tables, by iptables, or by a process that carries every byte itself.

use std::net::IpAddr;

use net::{Cidr, netlink};
use tokio::task::JoinError;

use crate::config::Mode;
use crate::rules::Changes;
use crate::{iptables, nftables, userspace};

/// How packets are treated, whatever the services are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Where pods are; empty if that is not known.
    pub pods: Vec<Cidr>,
    /// The node's addresses whose ports lead to services.
    pub node_addresses: Vec<IpAddr>,
    /// Ports of services are those of all addresses that the node has or will have; iptables only.
    pub every_address: bool,
    /// The addresses of the loopback interface are among them.
    pub localhost: bool,
    /// The bit of a packet's mark that asks for masquerading.
    pub mark: u32,
}

/// One of the ways, with what it has done.
#[derive(Debug)]
pub enum Engine {
    /// By nf_tables.
    Nftables(nftables::Writer),
    /// By iptables.
    Iptables(iptables::Writer),
    /// By this process.
    Userspace(userspace::Proxy),
}

/// Why rules are not true.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused.
    #[error("cannot write packet rules")]
    Kernel(#[from] netlink::Error),
    /// iptables refused, or is not there.
    #[error("cannot write rules of iptables")]
    Iptables(#[from] iptables::Error),
    /// The task that did it failed.
    #[error("the task that writes rules failed")]
    Task(#[from] JoinError),
}

impl Engine {
    /// One that has done nothing.
    pub fn new(mode: Mode) -> Self {
        match mode {
            Mode::Nftables => Self::Nftables(nftables::Writer::default()),
            Mode::Iptables => Self::Iptables(iptables::Writer::default()),
            Mode::Userspace => Self::Userspace(userspace::Proxy::default()),
        }
    }

    /// Makes all rules true, whatever was there before.
    pub async fn everything(&mut self, settings: Settings, changes: Changes) -> Result<(), Error> {
        match self {
            Self::Nftables(writer) => {
                let found = tokio::task::spawn_blocking(nftables::Ground::look).await??;
                match commit(writer.everything(&found, settings.clone(), &changes)).await {
                    Ok(()) => Ok(()),
                    Err(_) => commit(writer.everything(&nftables::Ground::New, settings, &changes)).await,
                }
            }
            Self::Iptables(writer) => iptables(writer, move |writer| writer.everything(settings, &changes)).await,
            Self::Userspace(proxy) => Ok(proxy.everything(settings, &changes).await?),
        }
    }

    /// Makes a change true.
    pub async fn change(&mut self, changes: Changes) -> Result<(), Error> {
        match self {
            Self::Nftables(writer) => commit(writer.change(&changes)).await,
            Self::Iptables(writer) => iptables(writer, move |writer| writer.change(&changes)).await,
            Self::Userspace(proxy) => Ok(proxy.change(&changes).await?),
        }
    }
}

/// Takes away what the other ways left behind, now that one serves.
pub fn clean_up_others(mode: Mode) -> Result<(), Error> {
    if mode != Mode::Nftables {
        nftables::no_rules().commit()?;
    }
    if mode != Mode::Iptables {
        iptables::clean_up()?;
    }
    if mode != Mode::Userspace {
        userspace::clean_up()?;
    }
    Ok(())
}

/// Takes away what any of the ways left behind.
pub fn clean_up() -> Result<(), Error> {
    nftables::no_rules().commit()?;
    iptables::clean_up()?;
    Ok(userspace::clean_up()?)
}

async fn commit(batch: net::nft::Batch) -> Result<(), Error> {
    Ok(tokio::task::spawn_blocking(move || batch.commit()).await??)
}

/// Runs programs where waiting for them holds up nobody.
async fn iptables(
    writer: &mut iptables::Writer,
    work: impl FnOnce(&mut iptables::Writer) -> Result<(), iptables::Error> + Send + 'static,
) -> Result<(), Error> {
    let mut own = std::mem::take(writer);
    let (own, done) = tokio::task::spawn_blocking(move || {
        let done = work(&mut own);
        (own, done)
    })
    .await?;
    *writer = own;
    Ok(done?)
}

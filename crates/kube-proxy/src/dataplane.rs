//! Proxy backends that apply the rules: nf_tables, iptables, or a userspace proxy.

use tokio::task::JoinError;

use crate::config::Mode;
use crate::service_state::Changes;
use crate::settings::Settings;
use crate::{iptables, nftables, userspace};

/// A proxy backend with its state.
#[derive(Debug)]
pub enum Engine {
    Nftables(nftables::Writer),
    Iptables(iptables::Writer),
    Userspace(userspace::Proxy),
}

/// Rules could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel rejected the transaction.
    #[error("failed to write the packet rules")]
    Kernel(#[from] netlink::Error),
    /// iptables failed or is not installed.
    #[error("failed to write the iptables rules")]
    Iptables(#[from] iptables::Error),
    #[error("the task that writes packet rules failed")]
    Task(#[from] JoinError),
}

impl Engine {
    pub fn new(mode: Mode) -> Self {
        match mode {
            Mode::Nftables => Self::Nftables(nftables::Writer::default()),
            Mode::Iptables => Self::Iptables(iptables::Writer::default()),
            Mode::Userspace => Self::Userspace(userspace::Proxy::default()),
        }
    }

    /// Replaces all rules, regardless of the existing state.
    pub async fn everything(&mut self, settings: Settings, changes: Changes) -> Result<(), Error> {
        match self {
            Self::Nftables(writer) => {
                let found = tokio::task::spawn_blocking(nftables::ExistingTable::detect).await??;
                match commit(writer.everything(&found, settings.clone(), &changes)).await {
                    Ok(()) => Ok(()),
                    Err(_) => commit(writer.everything(&nftables::ExistingTable::New, settings, &changes)).await,
                }
            }
            Self::Iptables(writer) => iptables(writer, move |writer| writer.everything(settings, &changes)).await,
            Self::Userspace(proxy) => Ok(proxy.everything(settings, &changes).await?),
        }
    }

    /// Applies a change.
    pub async fn change(&mut self, changes: Changes) -> Result<(), Error> {
        match self {
            Self::Nftables(writer) => commit(writer.change(&changes)).await,
            Self::Iptables(writer) => iptables(writer, move |writer| writer.change(&changes)).await,
            Self::Userspace(proxy) => Ok(proxy.change(&changes).await?),
        }
    }
}

/// Removes the rules of the other modes once this one is in place.
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

/// Removes the rules of all modes.
pub fn clean_up() -> Result<(), Error> {
    nftables::no_rules().commit()?;
    iptables::clean_up()?;
    Ok(userspace::clean_up()?)
}

async fn commit(batch: netlink::nft::Batch) -> Result<(), Error> {
    Ok(tokio::task::spawn_blocking(move || batch.commit()).await??)
}

/// Runs the iptables binaries on a blocking thread.
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

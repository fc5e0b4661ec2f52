//! `knarr restore`: creates a cluster from a backup, on a host without a cluster.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use ::store::{single_member, snapshot};
use anyhow::{Context, Result, ensure};
use clap::{ArgMatches, Args, FromArgMatches};
use consensus::Peer;

use super::Scratch;
use super::archive::{self, DATA, Description, HOST, Key, PKI, SNAPSHOT, StoreKind};
use crate::backup_encryption;
use crate::etcd::identity;
use crate::output::outln;
use crate::up::plan::STORE_PEER_PORT;
use crate::up::{DATA_DIR_MODE, Options, preflight};

/// Create the cluster of a backup on this host, which must have none.
#[derive(Args, Debug)]
struct Restore {
    /// File of `knarr backup`.
    file: PathBuf,
    /// File with the private key, for an encrypted backup.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Data directory of the cluster, which must be empty.
    #[arg(long, default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
    /// Name of the server in a replicated store [default: that of the backup].
    #[arg(long)]
    node_name: Option<String>,
    /// IP address of the server in a replicated store [default: the source address of the default route].
    #[arg(long)]
    node_ip: Option<IpAddr>,
    /// Directory for settings instead of `/`.
    #[arg(long, value_name = "DIR", default_value = "/", hide_default_value = true)]
    root: PathBuf,
}

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    Restore::augment_args(command)
}

pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let Restore { file, key, data_dir, node_name, node_ip, root } = Restore::from_arg_matches(matches)?;
    let secret = key.as_deref().map(backup_encryption::read_secret).transpose()?;
    let place = RestoreTarget { data_dir, root, node_name, node_ip };
    let RestoredBackup { description, kept } = restore(&file, secret.as_deref(), &place)?;
    let Description { node_name, time, revision, keys, .. } = &description;
    outln!(
        "restored {keys} keys of {time}, revision {revision}, into {}; objects written later are lost",
        place.data_dir.display()
    );
    for path in kept {
        outln!("kept {}, which differs from the one in the backup", path.display());
    }
    let node = place.node_name.as_ref().unwrap_or(node_name);
    outln!("the cluster ran with: knarr {}", description.command.join(" "));
    outln!("start it with the same flags and `--node-name {node}`, so that the pods of this node run here again");
    Ok(())
}

/// The directories and the identity of a restored cluster.
pub(super) struct RestoreTarget {
    pub data_dir: PathBuf,
    pub root: PathBuf,
    pub node_name: Option<String>,
    pub node_ip: Option<IpAddr>,
}

/// A restored backup, and the files of the host that were not replaced.
pub(super) struct RestoredBackup {
    pub description: Description,
    pub kept: Vec<PathBuf>,
}

/// Restores a backup. Nothing is written outside a scratch directory before the complete file was verified.
pub(super) fn restore(file: &Path, secret: Option<&str>, place: &RestoreTarget) -> Result<RestoredBackup> {
    let data_dir = &place.data_dir;
    let is_used = std::fs::read_dir(data_dir).is_ok_and(|mut entries| entries.next().is_some());
    ensure!(
        !is_used,
        "{} is not empty: a backup is restored on a host without a cluster; remove the old one with `knarr down --purge`, or choose another directory with --data-dir",
        data_dir.display()
    );
    sys::create_dirs(data_dir, DATA_DIR_MODE)
        .with_context(|| format!("failed to create {}; run this command as root", data_dir.display()))?;
    let scratch = Scratch::create(&data_dir.join("restore.tmp"))?;
    let from = &scratch.0;
    let description = archive::extract(file, secret.map_or(Key::None, Key::Secret), from)?;
    let mut state = snapshot::read(&from.join(SNAPSHOT))?;
    let members = members(&description, place)?;
    // Clients may have seen later revisions than the backup contains.
    state.skip_revisions(snapshot::SKIPPED);
    state.compact_all();
    snapshot::restore(state, &members, &from.join("restored"))?;
    std::fs::rename(from.join("restored"), data_dir.join(description.store.dir()))?;
    std::fs::rename(from.join(PKI), data_dir.join(PKI)).context("the backup has no PKI")?;
    for entry in std::fs::read_dir(from.join(DATA)).into_iter().flatten() {
        let entry = entry?;
        std::fs::rename(entry.path(), data_dir.join(entry.file_name()))?;
    }
    let kept = restore_host_files(&from.join(HOST), &place.root)?;
    sys::sync_dir(data_dir)?;
    Ok(RestoredBackup { description, kept })
}

/// Returns the members of the restored store: this host alone.
fn members(description: &Description, place: &RestoreTarget) -> Result<Vec<Peer>> {
    match description.store {
        StoreKind::Embedded => Ok(vec![single_member::member()]),
        StoreKind::Member => {
            let name = place.node_name.as_ref().unwrap_or(&description.node_name);
            let given: Vec<IpAddr> = place.node_ip.into_iter().collect();
            let addresses = preflight::addresses_or(&given, &Options::default().service_cidr)?;
            let address = addresses.first().context("this host has no address; give it with --node-ip")?;
            let url = format!("{name}=https://{}", SocketAddr::new(*address, STORE_PEER_PORT));
            Ok(identity::found(identity::members(&[url])?, "etcd-cluster").1)
        }
    }
}

/// Restores files of the host that do not exist. Returns those that exist with another content.
pub(super) fn restore_host_files(from: &Path, root: &Path) -> Result<Vec<PathBuf>> {
    let (mut kept, mut dirs) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(from.join(&dir)).into_iter().flatten() {
            let entry = entry?;
            let name = dir.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                dirs.push(name);
                continue;
            }
            let (content, target) = (std::fs::read(entry.path())?, root.join(&name));
            match std::fs::read(&target) {
                Ok(found) if found == content => {}
                Ok(_) => kept.push(target),
                Err(_) => {
                    if let Some(parent) = target.parent() {
                        sys::create_dirs(parent, 0o755)?;
                    }
                    sys::replace_file(&target, &content, 0o600)?;
                }
            }
        }
    }
    kept.sort();
    Ok(kept)
}

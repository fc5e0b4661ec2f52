//! `knarr store`: snapshots of the store, and a check of its data directory.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use ::store::client::RemoteConfig;
use ::store::disk::FileDisk;
use ::store::{checkpoint, log, single_member, snapshot};
use anyhow::{Context, Result, bail, ensure};
use clap::{ArgMatches, Args, FromArgMatches, Subcommand};
use consensus::Payload;

use crate::apiserver::STORE_SOCKET;
use crate::etcd::identity;
use crate::members;
use crate::output::outln;

/// Manage snapshots of the store, and check its data directory.
#[derive(Args, Debug, Clone)]
struct Store {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug, Clone)]
enum Command {
    /// Save, inspect and restore snapshots.
    #[command(subcommand)]
    Snapshot(Snapshot),
    /// Verify the integrity of a member's data directory. The member must not run.
    Check {
        /// Data directory of the member.
        #[arg(long)]
        data_dir: PathBuf,
    },
}

#[derive(Subcommand, Debug, Clone)]
enum Snapshot {
    /// Save a snapshot of a running cluster or of store members.
    Save {
        /// File to write.
        file: PathBuf,
        /// Data directory of the cluster on this host to save [default: /var/lib/knarr, if it exists].
        #[arg(long, conflicts_with = "endpoints")]
        data_dir: Option<PathBuf>,
        /// Client URLs of store members [default: http://127.0.0.1:2379, if this host has no cluster].
        #[arg(long, value_delimiter = ',')]
        endpoints: Vec<String>,
        /// CA file used to verify the members.
        #[arg(long)]
        cacert: Option<PathBuf>,
        /// Client certificate file.
        #[arg(long, requires = "key")]
        cert: Option<PathBuf>,
        /// Private key file matching --cert.
        #[arg(long, requires = "cert")]
        key: Option<PathBuf>,
    },
    /// Show the content of a snapshot.
    Status {
        /// Snapshot file.
        file: PathBuf,
    },
    /// Create the data directory of a member of a new cluster from a snapshot.
    Restore {
        /// Snapshot file.
        file: PathBuf,
        /// Name of the member.
        #[arg(long, default_value = "default")]
        name: String,
        /// Data directory of the member, which must be empty.
        #[arg(long)]
        data_dir: PathBuf,
        /// Restore for the embedded store of `knarr up`, which is `store` in its data directory.
        #[arg(long, conflicts_with_all = ["name", "initial_advertise_peer_urls", "initial_cluster", "initial_cluster_token"])]
        embedded: bool,
        /// Peer URLs that the member advertises.
        #[arg(long, value_delimiter = ',', default_value = "http://localhost:2380")]
        initial_advertise_peer_urls: Vec<String>,
        /// Initial members as name=url [default: this member alone].
        #[arg(long, value_delimiter = ',')]
        initial_cluster: Vec<String>,
        /// Token that distinguishes clusters with the same initial members.
        #[arg(long, default_value = "etcd-cluster")]
        initial_cluster_token: String,
        /// Number to add to the revision, so that clients that saw later revisions than the snapshot's see no revision
        /// twice [default: 1000000000 with --embedded, otherwise 0].
        #[arg(long)]
        bump_revision: Option<u32>,
        /// Mark all older revisions as compacted, so that watches are restarted; always on with --embedded.
        #[arg(long, requires = "bump_revision")]
        mark_compacted: bool,
    },
}

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    Store::augment_args(command)
}

pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    match &Store::from_arg_matches(matches)?.command {
        Command::Check { data_dir } => check(data_dir),
        Command::Snapshot(Snapshot::Save { file, data_dir, endpoints, cacert, cert, key }) => {
            let identity = cert.clone().zip(key.clone());
            let given = RemoteConfig { servers: endpoints.clone(), ca_file: cacert.clone(), identity };
            let cluster = remote_config(data_dir.as_deref(), given)?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let size = runtime.block_on(snapshot::save(&cluster, file))?;
            outln!("Snapshot saved at {} ({size} bytes)", file.display());
            Ok(())
        }
        Command::Snapshot(Snapshot::Status { file }) => {
            let state = snapshot::read(file)?;
            let size = std::fs::metadata(file)?.len();
            outln!(
                "hash {:x}, revision {}, keys {}, size {size}",
                state.hash_kv(0)?,
                state.revision(),
                state.key_count()
            );
            Ok(())
        }
        Command::Snapshot(restore @ Snapshot::Restore { .. }) => restore.restore(),
    }
}

impl Snapshot {
    fn restore(&self) -> Result<()> {
        let Snapshot::Restore {
            file,
            name,
            data_dir,
            embedded,
            initial_advertise_peer_urls,
            initial_cluster,
            initial_cluster_token,
            bump_revision,
            mark_compacted,
        } = self
        else {
            return Ok(());
        };
        let alone = initial_advertise_peer_urls.iter().map(|url| format!("{name}={url}")).collect();
        let listed = if initial_cluster.is_empty() { alone } else { initial_cluster.clone() };
        let (_, members) = identity::found(identity::members(&listed)?, initial_cluster_token);
        ensure!(
            members.iter().any(|member| member.name == *name),
            "--initial-cluster does not contain the member {name}"
        );
        let members = if *embedded { vec![single_member::member()] } else { members };
        let mut state = snapshot::read(file)?;
        state.skip_revisions(bump_revision.unwrap_or(if *embedded { snapshot::SKIPPED } else { 0 }));
        if *mark_compacted || *embedded {
            state.compact_all();
        }
        let (revision, keys) = (state.revision(), state.key_count());
        snapshot::restore(state, &members, data_dir)?;
        outln!("Restored {keys} keys at revision {revision} into {}", data_dir.display());
        if !embedded {
            outln!("Start each member of the new cluster with the same --initial-cluster and --initial-cluster-token.");
        }
        Ok(())
    }
}

/// Returns the connection to the store: the given endpoints, the store of the data directory, or the default one of
/// this host.
fn remote_config(data_dir: Option<&Path>, given: RemoteConfig) -> Result<RemoteConfig> {
    if !given.servers.is_empty() {
        return Ok(given);
    }
    let dir = data_dir.unwrap_or(Path::new("/var/lib/knarr"));
    match (local_config(dir)?, data_dir) {
        (Some(found), _) => Ok(found),
        (None, Some(dir)) => {
            bail!("no store runs in {}; start its cluster, or give store members with --endpoints", dir.display())
        }
        (None, None) => Ok(RemoteConfig { servers: vec!["http://127.0.0.1:2379".to_owned()], ..given }),
    }
}

/// Returns the connection to the store of a cluster on this host, embedded or replicated. `None` if it does not run.
pub(crate) fn local_config(dir: &Path) -> Result<Option<RemoteConfig>> {
    let socket = dir.join(STORE_SOCKET);
    // Connecting fails on a stale socket of a killed process.
    if UnixStream::connect(&socket).is_ok() {
        return Ok(Some(RemoteConfig {
            servers: vec![format!("unix://{}", socket.display())],
            ..RemoteConfig::default()
        }));
    }
    members::config(dir)
}

fn check(data_dir: &Path) -> Result<()> {
    ensure!(data_dir.is_dir(), "no such directory: {}", data_dir.display());
    let lock = store::disk::lock_file(&data_dir.join("lock")).context("failed to lock the directory")?;
    lock.try_lock().context("the directory is in use: stop the member first")?;
    let disk = FileDisk::open(data_dir)?;
    match checkpoint::read(&disk)? {
        None => outln!("checkpoint: none"),
        Some((meta, state)) => outln!(
            "checkpoint: entry {}, revision {}, {} keys, {} bytes of records, hash {:x}",
            meta.index,
            state.revision(),
            state.key_count(),
            state.size_bytes(),
            state.hash_kv(0)?
        ),
    }
    let Some(log::Inspection { identity: (cluster, member), contents }) = log::inspect(&disk)? else {
        outln!("log: none");
        return Ok(());
    };
    outln!("log: of member {member:x} of cluster {cluster:x}, started {} times", contents.boot);
    for entry in &contents.entries {
        if let Payload::Command { data, .. } = &entry.payload {
            mvcc::Command::decode(data).with_context(|| format!("log entry {} is not a command", entry.index))?;
        }
    }
    match (contents.entries.first(), contents.entries.last()) {
        (Some(first), Some(last)) => outln!("log: entries {} to {}", first.index, last.index),
        _ => outln!("log: no entries"),
    }
    if contents.torn_bytes > 0 {
        outln!(
            "log: {} bytes at the end are incomplete because of a crash; they were never acknowledged and are removed at the next start",
            contents.torn_bytes
        );
    }
    outln!("whole");
    Ok(())
}

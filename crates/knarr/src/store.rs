//! `knarr store`: snapshots of the store, and a check of its directory.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use ::store::client::RemoteConfig;
use ::store::disk::FileDisk;
use ::store::{alone, checkpoint, log, snapshot};
use anyhow::{Context, Result, bail, ensure};
use clap::{ArgMatches, Args, FromArgMatches, Subcommand};
use consensus::Payload;

use crate::apiserver::STORE_SOCKET;
use crate::etcd::identity;
use crate::members;
use crate::output::outln;

/// Snapshots of the store, and a check of its directory.
#[derive(Args, Debug, Clone)]
struct Store {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug, Clone)]
enum Command {
    /// Saves, looks at and restores snapshots.
    #[command(subcommand)]
    Snapshot(Snapshot),
    /// Reads everything a member has on disk and says whether it is whole. The member must not run.
    Check {
        /// The member's directory.
        #[arg(long)]
        data_dir: PathBuf,
    },
}

#[derive(Subcommand, Debug, Clone)]
enum Snapshot {
    /// Saves a snapshot of a running cluster, ours or etcd's kind of server that streams ours.
    Save {
        /// Where to.
        file: PathBuf,
        /// The folder of the cluster of this machine that is to be saved [default: /var/lib/knarr, if there is one].
        #[arg(long, conflicts_with = "endpoints")]
        data_dir: Option<PathBuf>,
        /// URLs of the members of a store of its own [default: http://127.0.0.1:2379, if there is no cluster here].
        #[arg(long, value_delimiter = ',')]
        endpoints: Vec<String>,
        /// Authority of the servers' certificates.
        #[arg(long)]
        cacert: Option<PathBuf>,
        /// Certificate to show them.
        #[arg(long, requires = "key")]
        cert: Option<PathBuf>,
        /// Its key.
        #[arg(long, requires = "cert")]
        key: Option<PathBuf>,
    },
    /// Says what is in a snapshot.
    Status {
        /// The snapshot.
        file: PathBuf,
    },
    /// Makes the directory of a member of a new cluster from a snapshot.
    Restore {
        /// The snapshot.
        file: PathBuf,
        /// Name of the member.
        #[arg(long, default_value = "default")]
        name: String,
        /// Its directory, which must be empty.
        #[arg(long)]
        data_dir: PathBuf,
        /// Restore for `knarr up`, which has its store inside: the directory is `store` in its folder.
        #[arg(long, conflicts_with_all = ["name", "initial_advertise_peer_urls", "initial_cluster", "initial_cluster_token"])]
        embedded: bool,
        /// URLs of the member for the others.
        #[arg(long, value_delimiter = ',', default_value = "http://localhost:2380")]
        initial_advertise_peer_urls: Vec<String>,
        /// The first members: name=url [default: this member alone].
        #[arg(long, value_delimiter = ',')]
        initial_cluster: Vec<String>,
        /// Tells clusters with the same members apart.
        #[arg(long, default_value = "etcd-cluster")]
        initial_cluster_token: String,
        /// Go on so many revisions later, so that clients that saw what came after the snapshot see no revision twice
        /// [default: 1000000000 with --embedded, otherwise 0].
        #[arg(long)]
        bump_revision: Option<u32>,
        /// Marks everything before the new revision as compacted, so that watches begin anew; always with --embedded.
        #[arg(long, requires = "bump_revision")]
        mark_compacted: bool,
    },
}

pub fn arguments(command: clap::Command) -> clap::Command {
    Store::augment_args(command)
}

/// Does what the command says and prints what came of it.
pub fn run(matches: &ArgMatches) -> Result<()> {
    match &Store::from_arg_matches(matches)?.command {
        Command::Check { data_dir } => check(data_dir),
        Command::Snapshot(Snapshot::Save { file, data_dir, endpoints, cacert, cert, key }) => {
            let identity = cert.clone().zip(key.clone());
            let given = RemoteConfig { servers: endpoints.clone(), ca_file: cacert.clone(), identity };
            let cluster = asked(data_dir.as_deref(), given)?;
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
        ensure!(members.iter().any(|member| member.name == *name), "--initial-cluster does not name {name}");
        let members = if *embedded { vec![alone::member()] } else { members };
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

/// Which store is meant: the one that is named, the one of a folder, or the usual one of this machine.
fn asked(data_dir: Option<&Path>, given: RemoteConfig) -> Result<RemoteConfig> {
    if !given.servers.is_empty() {
        return Ok(given);
    }
    let folder = data_dir.unwrap_or(Path::new("/var/lib/knarr"));
    match (of_folder(folder)?, data_dir) {
        (Some(found), _) => Ok(found),
        (None, Some(folder)) => bail!(
            "no store runs in {}; start its cluster, or name a store of its own with --endpoints",
            folder.display()
        ),
        (None, None) => Ok(RemoteConfig { servers: vec!["http://127.0.0.1:2379".to_owned()], ..given }),
    }
}

/// The store of a cluster of this machine: inside of its process, or a member beside it.
fn of_folder(folder: &Path) -> Result<Option<RemoteConfig>> {
    let socket = folder.join(STORE_SOCKET);
    // One that a process left which was killed answers nobody.
    if UnixStream::connect(&socket).is_ok() {
        return Ok(Some(RemoteConfig {
            servers: vec![format!("unix://{}", socket.display())],
            ..RemoteConfig::default()
        }));
    }
    members::config(folder)
}

fn check(data_dir: &Path) -> Result<()> {
    ensure!(data_dir.is_dir(), "there is no directory {}", data_dir.display());
    let lock = store::disk::lock_file(&data_dir.join("lock")).context("cannot lock the directory")?;
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
    let Some(log::Inspected { identity: (cluster, member), contents }) = log::inspect(&disk)? else {
        outln!("log: none");
        return Ok(());
    };
    outln!("log: of member {member:x} of cluster {cluster:x}, started {} times", contents.boot);
    for entry in &contents.entries {
        if let Payload::Command { data, .. } = &entry.payload {
            mvcc::Command::decode(data).with_context(|| format!("log entry {} is no command", entry.index))?;
        }
    }
    match (contents.entries.first(), contents.entries.last()) {
        (Some(first), Some(last)) => outln!("log: entries {} to {}", first.index, last.index),
        _ => outln!("log: no entries"),
    }
    if contents.torn_bytes > 0 {
        outln!(
            "log: {} bytes at its end were torn by a crash; they were never acknowledged and are cut at the next start",
            contents.torn_bytes
        );
    }
    outln!("whole");
    Ok(())
}

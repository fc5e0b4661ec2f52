//! `knarr store`: snapshots of the store, and a check of its directory.

use std::path::{Path, PathBuf};

use ::store::client::RemoteConfig;
use ::store::disk::FileDisk;
use ::store::{checkpoint, log, snapshot};
use anyhow::{Context, Result, ensure};
use clap::{ArgMatches, Args, FromArgMatches, Subcommand};
use consensus::Payload;

use crate::etcd::identity;

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
        /// URLs of its members.
        #[arg(long, value_delimiter = ',', default_value = "http://127.0.0.1:2379")]
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
        /// URLs of the member for the others.
        #[arg(long, value_delimiter = ',', default_value = "http://localhost:2380")]
        initial_advertise_peer_urls: Vec<String>,
        /// The first members: name=url [default: this member alone].
        #[arg(long, value_delimiter = ',')]
        initial_cluster: Vec<String>,
        /// Tells clusters with the same members apart.
        #[arg(long, default_value = "etcd-cluster")]
        initial_cluster_token: String,
        /// Adds so much to the revision: clients that saw later revisions than the snapshot's must see no earlier ones.
        #[arg(long, default_value_t = 0)]
        bump_revision: u32,
        /// Marks everything before the new revision as compacted, so that watches begin anew.
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
        Command::Snapshot(Snapshot::Save { file, endpoints, cacert, cert, key }) => {
            let identity = cert.clone().zip(key.clone());
            let cluster = RemoteConfig { servers: endpoints.clone(), ca_file: cacert.clone(), identity };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let size = runtime.block_on(snapshot::save(&cluster, file))?;
            println!("Snapshot saved at {} ({size} bytes)", file.display());
            Ok(())
        }
        Command::Snapshot(Snapshot::Status { file }) => {
            let state = snapshot::read(file)?;
            let size = std::fs::metadata(file)?.len();
            println!(
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
        let mut state = snapshot::read(file)?;
        state.skip_revisions(*bump_revision);
        if *mark_compacted {
            state.compact_all();
        }
        let (revision, keys) = (state.revision(), state.key_count());
        snapshot::restore(state, &members, data_dir)?;
        println!("Restored {keys} keys at revision {revision} into {}", data_dir.display());
        println!("Start each member of the new cluster with the same --initial-cluster and --initial-cluster-token.");
        Ok(())
    }
}

fn check(data_dir: &Path) -> Result<()> {
    ensure!(data_dir.is_dir(), "there is no directory {}", data_dir.display());
    let lock = std::fs::File::create(data_dir.join("lock")).context("cannot lock the directory")?;
    lock.try_lock().context("the directory is in use: stop the member first")?;
    let disk = FileDisk::open(data_dir)?;
    match checkpoint::read(&disk)? {
        None => println!("checkpoint: none"),
        Some((meta, state)) => println!(
            "checkpoint: entry {}, revision {}, {} keys, {} bytes of records, hash {:x}",
            meta.index,
            state.revision(),
            state.key_count(),
            state.size_bytes(),
            state.hash_kv(0)?
        ),
    }
    let Some(log::Inspected { identity: (cluster, member), contents }) = log::inspect(&disk)? else {
        println!("log: none");
        return Ok(());
    };
    println!("log: of member {member:x} of cluster {cluster:x}, started {} times", contents.boot);
    for entry in &contents.entries {
        if let Payload::Command { data, .. } = &entry.payload {
            mvcc::Command::decode(data).with_context(|| format!("log entry {} is no command", entry.index))?;
        }
    }
    match (contents.entries.first(), contents.entries.last()) {
        (Some(first), Some(last)) => println!("log: entries {} to {}", first.index, last.index),
        _ => println!("log: no entries"),
    }
    if contents.torn_bytes > 0 {
        println!(
            "log: {} bytes at its end were torn by a crash; they were never acknowledged and are cut at the next start",
            contents.torn_bytes
        );
    }
    println!("whole");
    Ok(())
}

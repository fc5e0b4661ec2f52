//! `knarr backup` and `knarr restore`: the store, the PKI and the settings of a cluster in one file.
//!
//! ```text
//!  make: snapshot ──> archive (encrypted to a public key) ──> verify: restore into a scratch directory ──> rename
//! ```

mod archive;
mod restore;
mod schedule;

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ::store::{single_member, snapshot};
use anyhow::{Context, Result, bail, ensure};
use clap::{ArgMatches, Args, FromArgMatches, Subcommand};
use component_base::clock;
use pki::Pki;

use crate::backup_encryption::ContentKey;
use crate::last_backup::Record;
use crate::output::outln;
use crate::up::{Instance, preflight};
use crate::{backup_encryption, settings, store};
use archive::{DATA, Description, Entry, HOST, Key, PKI, SNAPSHOT, StoreKind};

pub(crate) use restore::{arguments as restore_arguments, run as restore};
pub(crate) use schedule::keep;

/// Directory of backups in the data directory.
pub(crate) const DIR: &str = "backups";
/// Files of the data directory that are part of a backup if they exist.
const DATA_FILES: [&str; 2] = ["cluster.json", "offer"];

/// Save the store, the PKI and the settings of the cluster on this host in one file.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
struct Backup {
    /// File to write, which must not exist [default: a file with the time in `backups` of the data directory].
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Public key of `knarr backup key`; only its private key decrypts the backup.
    #[arg(long, value_name = "PUBLIC-KEY")]
    encrypt_to: Option<String>,
    /// Data directory of the cluster.
    #[arg(long, default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
    #[command(subcommand)]
    what: Option<BackupCommand>,
}

#[derive(Subcommand, Debug)]
enum BackupCommand {
    /// Write a new private key for encrypted backups into a file and print its public key. Keep the file elsewhere.
    Key {
        /// File to write, which must not exist.
        file: PathBuf,
    },
}

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    Backup::augment_args(command)
}

pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let Backup { to, encrypt_to, data_dir, what } = Backup::from_arg_matches(matches)?;
    if let Some(BackupCommand::Key { file }) = what {
        return write_key(&file);
    }
    let request = Request { to: to.unwrap_or_else(|| default_file(&data_dir.join(DIR))), encrypt_to, data_dir };
    let executor = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let record = executor.block_on(make(&request))?;
    outln!(
        "saved {} ({} bytes, revision {}); it was verified by restoring it",
        record.file.display(),
        record.bytes,
        record.revision
    );
    Ok(())
}

fn write_key(file: &Path) -> Result<()> {
    let (secret, public) = backup_encryption::new_key_pair()?;
    let context = || format!("failed to write {}", file.display());
    let out = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    out.and_then(|mut out| out.write_all(format!("{secret}\n").as_bytes())).with_context(context)?;
    outln!("{public}");
    Ok(())
}

/// A backup to make.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub data_dir: PathBuf,
    pub to: PathBuf,
    /// The public key of the reader.
    pub encrypt_to: Option<String>,
}

/// Returns the name of a new backup in a directory. Names are sorted by time.
pub(crate) fn default_file(dir: &Path) -> PathBuf {
    dir.join(format!("knarr-{}.backup", clock::now().to_string().replace(':', "")))
}

/// Makes a backup of the running cluster, verifies it and records it. The file gets its name when it is complete.
pub(crate) async fn make(request: &Request) -> Result<Record> {
    let Request { data_dir, to, encrypt_to } = request;
    ensure!(!to.exists(), "{} exists; name another file with --to", to.display());
    let kind = store_kind(data_dir)?;
    let store = store::local_config(data_dir)?;
    let store = store.with_context(|| format!("no store runs in {}; start the cluster first", data_dir.display()))?;
    let key = encrypt_to.as_deref().map(ContentKey::for_recipient).transpose()?;
    let scratch = Scratch::create(&to.with_added_extension("tmp"))?;
    let made = async {
        let saved = scratch.0.join(SNAPSHOT);
        snapshot::save(&store, &saved).await.context("failed to save the store")?;
        let (data_dir, scratch, to) = (data_dir.clone(), scratch.0.clone(), to.clone());
        let writing = tokio::task::spawn_blocking(move || write(&data_dir, kind, &scratch, &to, key.as_ref()));
        writing.await.context("the backup panicked")?
    };
    let record = made.await.map_err(|error| with_advice(error, to))?;
    record.write(data_dir)?;
    Ok(record)
}

/// Adds advice to the error of a full disk.
fn with_advice(error: anyhow::Error, to: &Path) -> anyhow::Error {
    let is_full = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|it| it.kind() == std::io::ErrorKind::StorageFull)
    };
    if error.chain().any(is_full) {
        let to = to.display();
        return error
            .context(format!("the disk of {to} is full; free some space, or name a file on another disk with --to"));
    }
    error.context(format!("failed to write {}", to.display()))
}

fn store_kind(data_dir: &Path) -> Result<StoreKind> {
    let kinds = [StoreKind::Embedded, StoreKind::Member];
    let found = kinds.into_iter().find(|kind| data_dir.join(kind.dir()).is_dir());
    found.with_context(|| {
        format!(
            "{} has no store: this host is not a server, or its cluster uses an external etcd, which has its own backup tools",
            data_dir.display()
        )
    })
}

/// Writes the archive, verifies it and gives it its name.
fn write(data_dir: &Path, kind: StoreKind, scratch: &Path, to: &Path, key: Option<&ContentKey>) -> Result<Record> {
    let saved = scratch.join(SNAPSHOT);
    let state = snapshot::read(&saved)?;
    let description = Description {
        store: kind,
        node_name: node_name(data_dir),
        time: clock::now().to_string(),
        revision: state.revision(),
        keys: i64::try_from(state.key_count())?,
        hash: i64::from(state.hash_kv(0)?),
        command: command(data_dir),
    };
    drop(state);
    let mut entries = vec![(PathBuf::from(SNAPSHOT), saved)];
    entries.extend(files(data_dir, &description.command)?);
    let unfinished = scratch.join("archive");
    archive::write(&unfinished, &description, &entries, key)?;
    verify(&unfinished, key, &scratch.join("restored"), &description).context("the new backup cannot be restored")?;
    std::fs::rename(&unfinished, to)?;
    if let Some(dir) = to.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        sys::sync_dir(dir)?;
    }
    let bytes = std::fs::metadata(to)?.len();
    Ok(Record {
        time: clock::now(),
        file: std::path::absolute(to)?,
        bytes,
        revision: description.revision,
        every: None,
    })
}

/// Restores a backup into a scratch directory.
fn verify(archive: &Path, key: Option<&ContentKey>, scratch: &Path, expected: &Description) -> Result<()> {
    let key = key.map_or(Key::None, Key::Content);
    let found = archive::extract(archive, key, scratch)?;
    ensure!(found == *expected, "the description differs");
    let state = snapshot::read(&scratch.join(SNAPSHOT))?;
    let is_equal = state.revision() == found.revision
        && i64::try_from(state.key_count())? == found.keys
        && i64::from(state.hash_kv(0)?) == found.hash;
    ensure!(is_equal, "the store differs from the saved one");
    snapshot::restore(state, &[single_member::member()], &scratch.join(StoreKind::Embedded.dir()))?;
    let pki = Pki::at(&scratch.join(PKI));
    pki.list().context("the PKI is damaged")?;
    if let Some(missing) = pki.shared().iter().find(|file| !file.is_file()) {
        bail!("{} is missing in the PKI", missing.display());
    }
    Ok(())
}

/// Returns the files of a backup other than the store.
fn files(data_dir: &Path, command: &[String]) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let pki = data_dir.join(PKI);
    let listed = std::fs::read_dir(&pki).with_context(|| format!("failed to list {}", pki.display()))?;
    for file in listed {
        let file = file?.path();
        if let Some(name) = file.file_name().filter(|_| file.is_file()) {
            entries.push((Path::new(PKI).join(name), file));
        }
    }
    for name in DATA_FILES {
        entries.push((Path::new(DATA).join(name), data_dir.join(name)));
    }
    let config = Path::new(settings::FILE);
    let mut host = vec![config.to_owned()];
    let drop_ins = std::fs::read_dir(config.with_file_name(settings::DROP_INS)).into_iter().flatten().flatten();
    host.extend(
        drop_ins.map(|file| file.path()).filter(|file| file.extension().is_some_and(|ending| ending == "yaml")),
    );
    host.extend(named_files(command));
    entries.extend(host.into_iter().filter_map(|file| {
        let below = file.strip_prefix("/").ok()?.to_owned();
        Some((Path::new(HOST).join(below), file))
    }));
    entries.retain(|(_, file)| file.is_file());
    entries.sort();
    entries.dedup();
    Ok(entries)
}

/// Returns the files that flags of the API server name, such as the encryption configuration. Without them, a restored
/// cluster could not start or could not read its Secrets.
fn named_files(command: &[String]) -> Vec<PathBuf> {
    let configured = settings::configured(&crate::cli(), Path::new(settings::FILE)).unwrap_or_default();
    let configured = match configured.get("kube-apiserver-arg").map(|setting| &setting.value) {
        Some(settings::FlagValue::Texts(texts)) => texts.clone(),
        _ => Vec::new(),
    };
    let values = configured.iter().chain(command).filter_map(|argument| argument.rsplit_once('='));
    values.map(|(_, value)| PathBuf::from(value)).filter(|path| path.is_absolute() && path.is_file()).collect()
}

/// Returns the arguments of the process that runs the cluster.
fn command(data_dir: &Path) -> Vec<String> {
    let Ok(Some(process)) = Instance::holder(data_dir) else { return Vec::new() };
    let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty()).skip(1);
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// Returns the name of this node from the certificate of its kubelet.
fn node_name(data_dir: &Path) -> String {
    let certificate = Pki::at(&data_dir.join(PKI)).certificate_of("kubelet");
    let name = certificate.and_then(|seen| Some(seen.common_name.strip_prefix("system:node:")?.to_owned()));
    name.unwrap_or_else(preflight::host_name)
}

/// A directory for unfinished files, removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn create(path: &Path) -> Result<Self> {
        let context = || format!("failed to create {}", path.display());
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            sys::create_dirs(parent, 0o700).with_context(context)?;
        }
        // A backup that was killed left the directory.
        sys::remove_tree(path).with_context(context)?;
        sys::create_dirs(path, 0o700).with_context(context)?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = sys::remove_tree(&self.0) {
            tracing::warn!(dir = %self.0.display(), %error, "failed to remove the unfinished files of a backup");
        }
    }
}

#[cfg(test)]
mod tests;

//! The archive of a backup: a compressed tar file with a description, a snapshot of the store, the PKI and settings.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, ensure};
use apimachinery::{Value, json, value};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use crate::backup_encryption::{ContentKey, Decryptor, Encryptor, HEADER_BYTES, MAGIC};

const DESCRIPTION: &str = "backup.json";
/// The snapshot of the store.
pub(super) const SNAPSHOT: &str = "store.snap";
/// Files of the directory `pki`.
pub(super) const PKI: &str = "pki";
/// Files of the data directory.
pub(super) const DATA: &str = "data";
/// Files of the host by their absolute paths: settings, and files that flags name.
pub(super) const HOST: &str = "host";
/// Modes of extracted files and directories: they contain keys.
const MODE_FILE: u32 = 0o600;
const MODE_DIR: u32 = 0o700;

/// The kind of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    /// The store of `knarr up`.
    Embedded,
    /// A member of a replicated store.
    Member,
}

impl StoreKind {
    /// Returns the directory of the store in a data directory.
    pub(super) const fn dir(self) -> &'static str {
        match self {
            Self::Embedded => "store",
            Self::Member => "etcd",
        }
    }
}

/// The description of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Description {
    pub store: StoreKind,
    pub node_name: String,
    /// Time of the backup in RFC 3339.
    pub time: String,
    pub revision: i64,
    pub keys: i64,
    /// Hash of the store's keys and values.
    pub hash: i64,
    /// Arguments of the process that ran the cluster.
    pub command: Vec<String>,
}

impl Description {
    fn text(&self) -> String {
        let command = self.command.iter().map(|word| Value::from(word.as_str())).collect::<Vec<_>>();
        json::to_string_pretty(&value!({
            "version": 1, "store": (self.store.dir()), "nodeName": (self.node_name.as_str()),
            "time": (self.time.as_str()), "revision": (self.revision), "keys": (self.keys), "hash": (self.hash),
            "command": command,
        }))
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let value = json::parse(text).ok()?;
        let number = |key: &str| value.get(key)?.as_int();
        let text = |key: &str| value.str_at(&[key]).map(str::to_owned);
        let dir = text("store")?;
        Some(Self {
            store: [StoreKind::Embedded, StoreKind::Member].into_iter().find(|kind| kind.dir() == dir)?,
            node_name: text("nodeName")?,
            time: text("time")?,
            revision: number("revision")?,
            keys: number("keys")?,
            hash: number("hash")?,
            command: value
                .get("command")?
                .as_array()?
                .iter()
                .filter_map(|word| Some(word.as_str()?.to_owned()))
                .collect(),
        })
    }
}

/// A file of an archive: its name there, and its source.
pub(super) type Entry = (PathBuf, PathBuf);

/// Writes an archive that only its owner can read, encrypted if there is a key.
pub(super) fn write(path: &Path, description: &Description, entries: &[Entry], key: Option<&ContentKey>) -> Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(MODE_FILE).open(path)?;
    let file = match key {
        None => fill(file, description, entries)?,
        Some(key) => fill(Encryptor::new(file, key)?, description, entries)?.finish()?,
    };
    Ok(file.sync_all()?)
}

fn fill<W: Write>(out: W, description: &Description, entries: &[Entry]) -> Result<W> {
    let mut archive = tar::Builder::new(GzEncoder::new(out, Compression::fast()));
    let text = description.text();
    let mut header = tar::Header::new_gnu();
    header.set_size(text.len() as u64);
    header.set_mode(MODE_FILE);
    archive.append_data(&mut header, DESCRIPTION, text.as_bytes())?;
    for (name, source) in entries {
        let mut file = File::open(source).with_context(|| format!("failed to read {}", source.display()))?;
        archive.append_file(name, &mut file).with_context(|| format!("failed to add {}", source.display()))?;
    }
    Ok(archive.into_inner()?.finish()?)
}

/// The key of an encrypted archive.
#[derive(Clone, Copy)]
pub(super) enum Key<'a> {
    None,
    /// The key with which the archive was just written.
    Content(&'a ContentKey),
    /// The text of a private key.
    Secret(&'a str),
}

/// Extracts an archive into a directory and returns its description. The complete archive is verified.
pub(super) fn extract(path: &Path, key: Key<'_>, into: &Path) -> Result<Description> {
    let mut file = File::open(path).with_context(|| format!("failed to read {}", path.display()))?;
    let mut header = Vec::new();
    (&mut file).take(HEADER_BYTES as u64).read_to_end(&mut header)?;
    let is_encrypted = header.starts_with(MAGIC);
    let read = match (is_encrypted, key) {
        (false, _) => {
            file.seek(SeekFrom::Start(0))?;
            unpack(file, into)
        }
        (true, Key::None) => {
            anyhow::bail!("{} is encrypted; give the private key with --key", path.display())
        }
        (true, Key::Content(key)) => unpack(Decryptor::new(file, key)?, into),
        (true, Key::Secret(secret)) => unpack(Decryptor::new(file, &ContentKey::from_header(&header, secret)?)?, into),
    };
    read.with_context(|| format!("{} is damaged or not a backup", path.display()))?;
    let text = std::fs::read(into.join(DESCRIPTION));
    let description = text.ok().as_deref().and_then(Description::parse);
    description.with_context(|| format!("{} has no valid {DESCRIPTION}", path.display()))
}

fn unpack(input: impl Read, into: &Path) -> Result<()> {
    let mut archive = tar::Archive::new(GzDecoder::new(input));
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = entry.path()?.into_owned();
        let is_plain = name.components().all(|part| matches!(part, Component::Normal(_)));
        ensure!(is_plain && entry.header().entry_type().is_file(), "{} is not a plain file", name.display());
        let target = into.join(name);
        if let Some(dir) = target.parent() {
            sys::create_dirs(dir, MODE_DIR)?;
        }
        let mut out = OpenOptions::new().write(true).create_new(true).mode(MODE_FILE).open(&target)?;
        io::copy(&mut entry, &mut out)?;
    }
    // The checksums of the archive follow its last entry.
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::backup_encryption::new_key_pair;

    fn description() -> Description {
        Description {
            store: StoreKind::Member,
            node_name: "n".to_owned(),
            time: "2026-11-19T00:00:00Z".to_owned(),
            revision: 7,
            keys: 3,
            hash: 0xffff_ffff,
            command: vec!["up".to_owned()],
        }
    }

    #[test]
    fn archive_is_extracted_and_a_damaged_one_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("source"), vec![1; 200_000]).unwrap();
        let entries = [(PathBuf::from("host/etc/x"), at("source"))];
        let (secret, public) = new_key_pair().unwrap();
        let content = ContentKey::for_recipient(&public).unwrap();
        write(&at("plain"), &description(), &entries, None).unwrap();
        write(&at("sealed"), &description(), &entries, Some(&content)).unwrap();
        for (number, (file, key)) in
            [("plain", Key::None), ("sealed", Key::Content(&content)), ("sealed", Key::Secret(&secret))]
                .iter()
                .enumerate()
        {
            assert_eq!(std::fs::metadata(at(file)).unwrap().permissions().mode() & 0o777, 0o600);
            let into = at(&number.to_string());
            assert_eq!(extract(&at(file), *key, &into).unwrap(), description(), "{file}");
            assert_eq!(std::fs::read(into.join("host/etc/x")).unwrap(), vec![1; 200_000]);
            assert_eq!(std::fs::metadata(into.join("host/etc/x")).unwrap().permissions().mode() & 0o777, 0o600);

            let bytes = std::fs::read(at(file)).unwrap();
            std::fs::write(at("short"), &bytes[..bytes.len() - 1]).unwrap();
            let error = extract(&at("short"), *key, &at(&format!("{number}-short"))).unwrap_err();
            assert!(format!("{error:#}").contains("is damaged"), "{error:#}");
        }
        let error = extract(&at("sealed"), Key::None, &at("none")).unwrap_err().to_string();
        assert!(error.contains("give the private key with --key"), "{error}");
        assert!(extract(&at("source"), Key::None, &at("other")).is_err());
    }
}

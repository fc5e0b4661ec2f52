//! Fuzzing of hostile layers beside a canary tree that must stay unchanged.
//!
//! This is the body of the fuzz target `unpack` and of the test that replays its corpus. Random bytes are almost never
//! an archive. An input whose first byte is even is unpacked unchanged. Any other input is a program of entries, which
//! becomes an archive with valid headers. Names and links consist of a few parts, among them `..`, whiteouts and the
//! path of the canary tree. Entries therefore often replace each other and pass through links.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tar::{Builder, EntryType, Header};

use crate::digest::Digest;
use crate::layers::Layers;

/// Parts of names; the last one stands for the path of the canary tree.
const PARTS: &[&str] = &["a", "b", "c", "..", ".", "", ".wh.a", ".wh..wh..opq", "canary", "\0"];
const KINDS: &[EntryType] = &[
    EntryType::Directory,
    EntryType::Regular,
    EntryType::Symlink,
    EntryType::Link,
    EntryType::Fifo,
    EntryType::Char,
    EntryType::Block,
    EntryType::Regular,
];
/// Maximum number of entries; more do not increase coverage.
const ENTRIES_MAX: usize = 64;

/// Unpacks and publishes `input` as a layer on top of another one, beside a canary tree.
///
/// Panics if anything outside of the layers has changed. A rejected archive is not a failure.
pub fn check(input: &[u8]) {
    let dir = tempfile::tempdir().expect("there is room for a directory");
    let (canary, root) = (dir.path().join("canary"), dir.path().join("layers"));
    make(&canary).expect("there is room for a few files");
    let layers = Layers::open(&root).expect("there is room for layers");
    let before = picture(dir.path(), &root);
    let lower = archive(&[1, 0, 2, 0, 1, 0, 0, 2, 0, 8, 0, 0, 1, 1, 0], &canary);
    let upper = match input.split_first() {
        Some((first, program)) if first % 2 == 1 => archive(program, &canary),
        _ => input.to_vec(),
    };
    let mut chain = Vec::new();
    for archive in [lower, upper] {
        chain.push(Digest::of(&archive));
        let blob = tempfile::NamedTempFile::new().expect("there is room for a file");
        fs::write(blob.path(), &archive).expect("there is room for an archive");
        let prepared = layers.prepare(blob.path(), chain.last().expect("it was just added"));
        let done = prepared.and_then(|prepared| layers.publish(prepared, &chain));
        if done.is_err() {
            break;
        }
    }
    assert_eq!(picture(dir.path(), &root), before, "a layer changed files outside of its tree");
}

/// Creates the canary tree: directories and files with the same names as those of the archives.
fn make(canary: &Path) -> io::Result<()> {
    fs::create_dir(canary)?;
    fs::set_permissions(canary, fs::Permissions::from_mode(0o751))?;
    for dir in ["a", "b"] {
        fs::create_dir(canary.join(dir))?;
        fs::write(canary.join(dir).join("c"), "canary")?;
    }
    Ok(())
}

/// The properties of a file that must not change.
#[derive(Debug, PartialEq, Eq)]
struct Facts {
    mode: u32,
    owner: (u32, u32),
    changed: (i64, i64),
    content: Vec<u8>,
}

/// Records everything below a directory except the tree `without`.
fn picture(dir: &Path, without: &Path) -> BTreeMap<PathBuf, Facts> {
    let mut seen = BTreeMap::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(path) = waiting.pop() {
        let stat = fs::symlink_metadata(&path).expect("listed files still exist");
        // The directory itself changes when entries are created in it.
        if path != dir {
            let content = if stat.is_file() { fs::read(&path).expect("it can be read") } else { Vec::new() };
            let (owner, changed) = ((stat.uid(), stat.gid()), (stat.ctime(), stat.ctime_nsec()));
            let facts = Facts { mode: stat.mode(), owner, changed, content };
            seen.insert(path.clone(), facts);
        }
        if stat.is_dir() {
            let entries = fs::read_dir(&path).expect("it can be listed").flatten().map(|entry| entry.path());
            waiting.extend(entries.filter(|entry| entry != without));
        }
    }
    seen
}

/// Builds the archive of a program: for each entry a type, the parts of its name, and those of its link or content.
fn archive(program: &[u8], canary: &Path) -> Vec<u8> {
    let mut bytes = program.iter().copied();
    let mut builder = Builder::new(Vec::new());
    for _ in 0..ENTRIES_MAX {
        let Some(kind) = bytes.next() else { break };
        let kind = KINDS[usize::from(kind) % KINDS.len()];
        let (name, text) = (path(&mut bytes, canary), path(&mut bytes, canary));
        let is_link = matches!(kind, EntryType::Symlink | EntryType::Link);
        let content = if kind == EntryType::Regular { text.as_slice() } else { &[] };
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o6777);
        header.set_uid(4321);
        header.set_gid(4321);
        header.set_mtime(1);
        header.set_size(content.len() as u64);
        let gnu = header.as_gnu_mut().expect("it was made so");
        // The builder itself would reject hostile names.
        fill(&mut gnu.name, &name);
        if is_link {
            fill(&mut gnu.linkname, &text);
        }
        header.set_cksum();
        builder.append(&header, content).expect("writing to memory cannot fail");
    }
    builder.into_inner().expect("writing to memory cannot fail")
}

fn path(bytes: &mut impl Iterator<Item = u8>, canary: &Path) -> Vec<u8> {
    let count = bytes.next().unwrap_or(0) % 4 + 1;
    let parts: Vec<&str> = (0..count).map(|_| PARTS[usize::from(bytes.next().unwrap_or(0)) % PARTS.len()]).collect();
    let canary = canary.to_str().unwrap_or_default();
    parts.join("/").replace('\0', canary).into_bytes()
}

fn fill(field: &mut [u8], text: &[u8]) {
    let length = text.len().min(field.len());
    field[..length].copy_from_slice(&text[..length]);
}

//! The tar archives of `kubectl cp`. An archive from a pod is untrusted: it must not write outside of the destination.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use apimachinery::go;
use tar::{Archive, Builder, EntryType, Header};

use super::paths::{is_within, join, remote};

/// Maximum size of an entry's header with its long names, which are held in memory.
const HEADER_BYTES_MAX: u64 = 1 << 20;

/// Writes a file or a directory to an archive under another name.
pub(super) fn pack(source: &Path, name: &str, to: impl Write) -> io::Result<()> {
    let mut archive = Builder::new(to);
    pack_entry(source, name, &mut archive)?;
    archive.into_inner()?.flush()
}

fn pack_entry(source: &Path, name: &str, archive: &mut Builder<impl Write>) -> io::Result<()> {
    let metadata = fs::symlink_metadata(source)?;
    let mut header = Header::new_gnu();
    header.set_metadata(&metadata);
    let kind = metadata.file_type();
    if kind.is_dir() {
        let mut entries: Vec<_> = fs::read_dir(source)?.collect::<io::Result<_>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        if entries.is_empty() {
            header.set_size(0);
            return archive.append_data(&mut header, format!("{name}/"), io::empty());
        }
        for entry in entries {
            let child = join(name, &entry.file_name().to_string_lossy());
            pack_entry(&entry.path(), &child, archive)?;
        }
        return Ok(());
    }
    if kind.is_symlink() {
        header.set_size(0);
        return archive.append_link(&mut header, name, fs::read_link(source)?);
    }
    if !kind.is_file() {
        if kind.is_fifo() {
            header.set_size(0);
            return archive.append_data(&mut header, name, io::empty());
        }
        return Err(io::Error::other("archive/tar: sockets not supported"));
    }
    // The header states the size, so a file that grows or shrinks meanwhile must not change it.
    let size = metadata.len();
    archive.append_data(&mut header, name, File::open(source)?.chain(io::repeat(0)).take(size))
}

/// Options for unpacking an archive.
pub(super) struct Unpacking<'a> {
    /// The prefix of the names in the archive.
    pub prefix: &'a str,
    /// The local file or directory that replaces the prefix.
    pub destination: &'a str,
    /// The command that copies symbolic links, for a warning.
    pub alternative: &'a str,
}

/// Writes the files of an archive. Symbolic links and entries outside of the destination are skipped with a warning.
pub(super) fn unpack(from: impl Read, unpacking: &Unpacking<'_>, mut warn: impl FnMut(String)) -> Result<(), String> {
    let allowance = Arc::new(AtomicU64::new(HEADER_BYTES_MAX));
    let mut archive = Archive::new(LimitedReader { inner: from, allowance: Arc::clone(&allowance) });
    let mut entries = archive.entries().map_err(|error| message(&error))?;
    let mut warned = false;
    loop {
        allowance.store(HEADER_BYTES_MAX, Ordering::Relaxed);
        let Some(entry) = entries.next() else { return Ok(()) };
        let mut entry = entry.map_err(|error| message(&error))?;
        allowance.store(u64::MAX, Ordering::Relaxed);
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let Some(rest) = name.strip_prefix(unpacking.prefix) else { return Err("tar contents corrupted".to_owned()) };
        let path = join(unpacking.destination, &remote(rest));
        if is_within(unpacking.destination, &path) {
            let kind = entry.header().entry_type();
            if kind == EntryType::Symlink {
                let target = entry.link_name_bytes().unwrap_or_default();
                let mut text = format!(
                    "warning: skipping symlink: {} -> {}",
                    go::quote(&path),
                    go::quote(&String::from_utf8_lossy(&target))
                );
                if !std::mem::replace(&mut warned, true) {
                    text.push_str(&format!(" (consider using {:?})", Raw(unpacking.alternative)));
                }
                warn(text);
            } else {
                write_entry(&mut entry, kind, &path, &name).map_err(|error| message(&error))?;
            }
        } else {
            warn(format!("warning: file {} is outside target destination, skipping", go::quote(&path)));
        }
        // The next header is read with the allowance of a header, not of a file.
        io::copy(&mut entry, &mut io::sink()).map_err(|error| message(&error))?;
    }
}

/// A text in quotes without escapes.
struct Raw<'a>(&'a str);

impl std::fmt::Debug for Raw<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "\"{}\"", self.0)
    }
}

fn write_entry(entry: &mut impl Read, kind: EntryType, path: &str, name: &str) -> io::Result<()> {
    if let Some(parent) = Path::new(path).parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent).map_err(|error| at("mkdir", &parent.to_string_lossy(), &error))?;
    }
    if kind == EntryType::Directory || name.ends_with('/') {
        return fs::create_dir_all(path).map_err(|error| at("mkdir", path, &error));
    }
    let mut file = File::create(path).map_err(|error| at("open", path, &error))?;
    io::copy(entry, &mut file)?;
    Ok(())
}

/// Adds operation and path to an error, as Go does.
fn at(operation: &str, path: &str, error: &io::Error) -> io::Error {
    io::Error::other(format!("{operation} {path}: {}", crate::failure::go_io_error(error)))
}

/// Returns Go's message of a broken archive.
fn message(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "unexpected EOF".to_owned(),
        _ => crate::failure::go_io_error(error),
    }
}

/// A reader that fails after a number of bytes.
struct LimitedReader<R> {
    inner: R,
    allowance: Arc<AtomicU64>,
}

impl<R: Read> Read for LimitedReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.allowance.load(Ordering::Relaxed);
        if left == 0 {
            return Err(io::Error::other("archive/tar: header field too long"));
        }
        let most = usize::try_from(left).map_or(into.len(), |left| left.min(into.len()));
        let count = self.inner.read(&mut into[..most])?;
        if left != u64::MAX {
            self.allowance.store(left - count as u64, Ordering::Relaxed);
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests;

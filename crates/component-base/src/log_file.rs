//! Rotated log file with a limited number of backups.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ::audit::log::rotation::{CleanupAction, Rotation, RotationDecision, backup_name};
use apimachinery::time::Time;
use flate2::Compression;
use flate2::write::GzEncoder;

/// A log file to which lines are appended. The path `-` is standard output.
pub struct LogFile {
    path: PathBuf,
    rotation: Rotation,
    open: Option<(File, u64)>,
}

impl LogFile {
    /// Creates a log file that is opened with the first line.
    pub fn new(path: &Path, rotation: Rotation) -> Self {
        Self { path: path.to_owned(), rotation, open: None }
    }

    /// Opens the file now, so that a path that cannot be written is an error at startup.
    pub fn open(&mut self) -> io::Result<()> {
        self.open = Some(open(&self.path)?);
        Ok(())
    }

    /// Appends a line. After a failure the file is opened again.
    pub fn append_line(&mut self, line: &str) -> io::Result<()> {
        self.append_bytes(line.as_bytes())
    }

    fn append_bytes(&mut self, line: &[u8]) -> io::Result<()> {
        if self.path == Path::new("-") {
            return io::stdout().lock().write_all(line);
        }
        let written = self.append(line);
        if written.is_err() {
            self.open = None;
        }
        written
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let bytes = line.len() as u64;
        let before = match &self.open {
            Some((_, size)) => self.rotation.before_write(*size, bytes).map_err(io::Error::other)?,
            None => {
                let size = fs::metadata(&self.path).map_or(0, |metadata| metadata.len());
                self.rotation.before_first_write(size, bytes)
            }
        };
        if before == RotationDecision::Rotate {
            self.rotate()?;
        }
        let (file, size) = match &mut self.open {
            Some(open) => open,
            None => self.open.insert(open(&self.path)?),
        };
        file.write_all(line)?;
        *size += bytes;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.open = None;
        let (dir, name) = (self.dir(), self.name());
        if self.path.exists() {
            fs::rename(&self.path, dir.join(backup_name(&name, now())))?;
        }
        let listing: Vec<String> =
            fs::read_dir(&dir)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        for clean in self.rotation.clean(&name, listing.iter().map(String::as_str), now()) {
            match clean {
                CleanupAction::Remove(name) => fs::remove_file(dir.join(name))?,
                CleanupAction::Compress(name) => compress(&dir.join(name))?,
            }
        }
        Ok(())
    }

    fn dir(&self) -> PathBuf {
        self.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
    }

    fn name(&self) -> String {
        self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

/// Each write must be a complete line; a line is never split between two files.
impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.append_bytes(line).map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.open.as_mut().map_or(Ok(()), |(file, _)| file.flush())
    }
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_unix(i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos())
}

fn open(path: &Path) -> io::Result<(File, u64)> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    // Mode 0600: audit events are confidential.
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

fn compress(path: &Path) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".gz");
    let target = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(name)?;
    let mut packed = GzEncoder::new(target, Compression::default());
    io::copy(&mut File::open(path)?, &mut packed)?;
    packed.finish()?.sync_all()?;
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_file_is_rotated_and_old_backups_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logs/audit.log");
        let rotation = Rotation { megabytes_max: 1, backups_max: 1, ..Rotation::default() };
        let mut file = LogFile::new(&path, rotation);
        let line = format!("{}\n", "x".repeat(600 * 1024));
        for _ in 0..3 {
            file.append_line(&line).unwrap();
        }
        let mut names: Vec<String> = fs::read_dir(dir.path().join("logs"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names.len(), 2, "{names:?}");
        assert_eq!(names[1], "audit.log");
        assert_eq!(fs::metadata(&path).unwrap().len(), line.len() as u64);
        assert!(file.append_line(&"y".repeat(2 << 20)).is_err());
    }

    #[test]
    fn existing_file_is_appended_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        fs::write(&path, "before\n").unwrap();
        LogFile::new(&path, Rotation::default()).append_line("after\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "before\nafter\n");
    }
}

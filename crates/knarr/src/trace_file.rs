//! Trace file: the stage records of a node's components, which `knarr trace` reads.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use audit::log::rotation::Rotation;
use component_base::{LogFile, clock};
use diagnostics::chain::{NodeStage, Record};

/// Name of the file in the data directory of a node. Its backup has a time after the stem.
const NAME: &str = "trace.log";
const BACKUP_PREFIX: &str = "trace-";
/// Older records are rarely relevant, so one backup is enough.
const ROTATION: Rotation = Rotation { megabytes_max: 8, days_max: 0, backups_max: 1, compress: false };
/// Maximum bytes that are read from a file: more than the rotation leaves.
const READ_MAX: u64 = 16 << 20;

/// The records that components of this process append.
pub(crate) struct TraceFile(Mutex<LogFile>);

impl TraceFile {
    /// Opens the file of a data directory.
    pub(crate) fn open(data_dir: &Path) -> io::Result<Self> {
        let mut file = LogFile::new(&data_dir.join(NAME), ROTATION);
        file.open()?;
        Ok(Self(Mutex::new(file)))
    }

    /// Records that a stage is complete now. A failure is only logged, because the component works without its records.
    pub(crate) fn record(&self, stage: NodeStage) {
        let line = Record { at: clock::now(), stage }.line();
        let written = self.0.lock().unwrap_or_else(PoisonError::into_inner).append_line(&line);
        if let Err(error) = written {
            tracing::warn!(%error, "failed to write a trace record");
        }
    }

    /// Returns the records of a data directory, oldest first. A node that has not started has none.
    pub(crate) fn read(data_dir: &Path) -> io::Result<Vec<Record>> {
        let entries = match fs::read_dir(data_dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.retain(|name| name.starts_with(BACKUP_PREFIX) && name.ends_with(".log"));
        names.sort_unstable();
        names.push(NAME.to_owned());
        let mut records = Vec::new();
        for name in names {
            match read(&data_dir.join(name)) {
                // The file is rotated at this moment, or there is none yet.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                text => records.extend(text?.lines().filter_map(Record::parse)),
            }
        }
        Ok(records)
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(READ_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn rules(ip: &str) -> NodeStage {
        NodeStage::ServiceRules { cluster_ips: vec![ip.to_owned()] }
    }

    fn stages(data_dir: &Path) -> Vec<NodeStage> {
        TraceFile::read(data_dir).expect("readable").into_iter().map(|record| record.stage).collect()
    }

    #[test]
    fn records_are_read_in_order_and_survive_a_restart_and_a_torn_line() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(stages(&dir.path().join("absent")), []);
        assert_eq!(stages(dir.path()), []);
        TraceFile::open(dir.path()).expect("a file").record(rules("10.96.0.1"));
        // A crash leaves half a line.
        let mut file = fs::OpenOptions::new().append(true).open(dir.path().join(NAME)).expect("the file");
        file.write_all(b"{\"at\":\"2026\n").expect("written");
        TraceFile::open(dir.path()).expect("a file").record(rules("10.96.0.2"));
        assert_eq!(stages(dir.path()), [rules("10.96.0.1"), rules("10.96.0.2")]);
    }

    #[test]
    fn records_of_the_backup_precede_those_of_the_file() {
        let dir = tempfile::tempdir().expect("a directory");
        TraceFile::open(dir.path()).expect("a file").record(rules("10.96.0.1"));
        let backup = audit::log::rotation::backup_name(NAME, clock::now());
        assert!(backup.starts_with(BACKUP_PREFIX) && backup.ends_with(".log"), "{backup}");
        fs::rename(dir.path().join(NAME), dir.path().join(backup)).expect("renamed");
        TraceFile::open(dir.path()).expect("a file").record(rules("10.96.0.2"));
        assert_eq!(stages(dir.path()), [rules("10.96.0.1"), rules("10.96.0.2")]);
    }
}

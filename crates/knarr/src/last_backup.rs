//! The record of the last good backup, for `knarr doctor` and the metrics.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use apimachinery::time::Time;
use apimachinery::{json, value};

/// File in the data directory with the last good backup.
const FILE: &str = "last-backup.json";
/// The metric of the last good backup.
const METRIC: &str = "knarr_backup_last_success_timestamp_seconds";

/// A backup that was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub time: Time,
    pub file: PathBuf,
    pub bytes: u64,
    pub revision: i64,
    /// Interval of scheduled backups.
    pub every: Option<Duration>,
}

impl Record {
    /// Returns the record of a data directory, or `None` if no backup was made.
    pub(crate) fn read(data_dir: &Path) -> Option<Self> {
        let value = json::parse(&std::fs::read(data_dir.join(FILE)).ok()?).ok()?;
        let number = |key: &str| value.get(key).and_then(apimachinery::Value::as_int);
        let every = number("everySeconds").and_then(|seconds| u64::try_from(seconds).ok()).filter(|it| *it > 0);
        Some(Self {
            time: Time::parse(value.str_at(&["time"])?).ok()?,
            file: value.str_at(&["file"])?.into(),
            bytes: u64::try_from(number("bytes")?).ok()?,
            revision: number("revision")?,
            every: every.map(Duration::from_secs),
        })
    }

    pub(crate) fn write(&self, data_dir: &Path) -> Result<()> {
        let Self { time, file, bytes, revision, every } = self;
        let every = every.map_or(0, |every| i64::try_from(every.as_secs()).unwrap_or(i64::MAX));
        let record = value!({
            "time": (time.to_string()), "file": (file.display().to_string()), "revision": (*revision),
            "bytes": (i64::try_from(*bytes).unwrap_or(i64::MAX)), "everySeconds": every,
        });
        Ok(sys::replace_file(&data_dir.join(FILE), json::to_string(&record).as_bytes(), 0o600)?)
    }
}

/// Returns the metric of a data directory in Prometheus' text format. Without a backup its value is 0.
pub(crate) fn metric(data_dir: &Path) -> String {
    let seconds = Record::read(data_dir).map_or(0, |record| record.time.unix_seconds());
    format!(
        "# HELP {METRIC} Time of the last backup that was verified, in seconds since 1970; 0 if there is none.\n\
         # TYPE {METRIC} gauge\n{METRIC} {seconds}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_read_again_and_is_the_value_of_the_metric() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Record::read(dir.path()), None);
        assert!(metric(dir.path()).ends_with("\nknarr_backup_last_success_timestamp_seconds 0\n"));
        let every = Some(Duration::from_secs(60));
        let record = Record { time: Time::from_unix(100, 0), file: "/b".into(), bytes: 5, revision: 7, every };
        record.write(dir.path()).unwrap();
        assert_eq!(Record::read(dir.path()), Some(record));
        assert!(metric(dir.path()).ends_with("\nknarr_backup_last_success_timestamp_seconds 100\n"));
    }
}

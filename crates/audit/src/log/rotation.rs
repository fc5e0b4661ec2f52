//! Audit log rotation: renames full files and removes old ones (`--audit-log-maxsize`, `-maxage`, `-maxbackup`,
//! `-compress`).

use std::cmp::Reverse;
use std::collections::BTreeSet;

use apimachinery::time::{Duration, Time};

const MEGABYTE: u64 = 1024 * 1024;
/// The default size limit of a file.
const MEGABYTES_DEFAULT: u64 = 100;
const COMPRESSED: &str = ".gz";
const DAY_SECONDS: i64 = 24 * 60 * 60;

/// Rotation settings. Zero means no limit, except for the size, where it means 100 megabytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// The size at which a file is renamed.
    pub megabytes_max: u64,
    /// Maximum age of backups.
    pub days_max: u32,
    /// Maximum number of backups.
    pub backups_max: usize,
    /// Whether backups are compressed.
    pub compress: bool,
}

/// The action before a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotationDecision {
    /// None: the line fits.
    Append,
    /// Rename the file to [`backup_name`], open a new one, and clean up old ones.
    Rotate,
}

/// The line exceeds the maximum file size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write length {length} exceeds maximum file size {max}")]
pub struct TooLong {
    length: u64,
    max: u64,
}

/// A cleanup action on a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CleanupAction {
    Remove(String),
    /// Compress the file to the same name with `.gz`, then delete it.
    Compress(String),
}

impl Rotation {
    /// Returns the action before a line of `line_bytes` is written to a file of `file_bytes`.
    pub fn before_write(&self, file_bytes: u64, line_bytes: u64) -> Result<RotationDecision, TooLong> {
        let max = self.bytes_max();
        if line_bytes > max {
            return Err(TooLong { length: line_bytes, max });
        }
        Ok(if file_bytes + line_bytes > max { RotationDecision::Rotate } else { RotationDecision::Append })
    }

    /// Returns the action before the first line is written to a file that existed at startup.
    pub const fn before_first_write(&self, file_bytes: u64, line_bytes: u64) -> RotationDecision {
        if file_bytes + line_bytes >= self.bytes_max() { RotationDecision::Rotate } else { RotationDecision::Append }
    }

    /// Returns the cleanup actions for a directory listing. Files that are not backups of `log_name` are ignored.
    pub fn clean<'a>(
        &self,
        log_name: &str,
        listing: impl IntoIterator<Item = &'a str>,
        now: Time,
    ) -> Vec<CleanupAction> {
        if self.backups_max == 0 && self.days_max == 0 && !self.compress {
            return Vec::new();
        }
        let mut old: Vec<(Time, &str)> =
            listing.into_iter().filter_map(|name| Some((backup_time(log_name, name)?, name))).collect();
        old.sort_by_key(|(time, name)| (Reverse(*time), *name));
        let oldest = now.plus(Duration::from_seconds(-DAY_SECONDS * i64::from(self.days_max)));
        let mut counted = BTreeSet::new();
        let mut actions = Vec::new();
        let mut compress = Vec::new();
        for (time, name) in old {
            // A file and its partially written compressed copy count as one backup.
            let is_compressed = name.ends_with(COMPRESSED);
            counted.insert(name.strip_suffix(COMPRESSED).unwrap_or(name));
            let too_many = self.backups_max > 0 && counted.len() > self.backups_max;
            let too_old = self.days_max > 0 && time < oldest;
            if too_many || too_old {
                actions.push(CleanupAction::Remove(name.to_owned()));
            } else if self.compress && !is_compressed {
                compress.push(CleanupAction::Compress(name.to_owned()));
            }
        }
        actions.extend(compress);
        actions
    }

    const fn bytes_max(&self) -> u64 {
        let megabytes = if self.megabytes_max == 0 { MEGABYTES_DEFAULT } else { self.megabytes_max };
        megabytes.saturating_mul(MEGABYTE)
    }
}

/// Returns the name of a backup: `audit-2026-11-16T01-02-03.500.log`.
pub fn backup_name(log_name: &str, now: Time) -> String {
    let (stem, extension) = split(log_name);
    let seconds = now.to_seconds().to_string();
    let seconds = seconds.strip_suffix('Z').unwrap_or(&seconds).replace(':', "-");
    format!("{stem}-{seconds}.{:03}{extension}", now.nanos() / 1_000_000)
}

/// Parses the rotation time in a backup's name.
fn backup_time(log_name: &str, name: &str) -> Option<Time> {
    let (stem, extension) = split(log_name);
    let name = name.strip_suffix(COMPRESSED).filter(|name| name.ends_with(extension)).unwrap_or(name);
    let time = name.strip_prefix(stem)?.strip_prefix('-')?.strip_suffix(extension)?;
    // For example 2026-11-16T01-02-03.500
    let (date, clock) = time.split_once('T')?;
    let (clock, millis) = clock.split_once('.')?;
    let sound = millis.len() == 3 && clock.len() == 8;
    if !sound {
        return None;
    }
    Time::parse(&format!("{date}T{}.{millis}Z", clock.replace('-', ":"))).ok()
}

/// Splits a name into stem and extension with its dot.
fn split(log_name: &str) -> (&str, &str) {
    log_name.rfind('.').map_or((log_name, ""), |dot| log_name.split_at(dot))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_unix(1_794_790_923, 500_000_000);

    fn rotation(days_max: u32, backups_max: usize, compress: bool) -> Rotation {
        Rotation { megabytes_max: 1, days_max, backups_max, compress }
    }

    #[test]
    fn file_is_rotated_before_it_exceeds_the_maximum_size() {
        let rotation = rotation(0, 0, false);
        assert_eq!(rotation.before_write(MEGABYTE - 10, 10), Ok(RotationDecision::Append));
        assert_eq!(rotation.before_write(MEGABYTE - 10, 11), Ok(RotationDecision::Rotate));
        assert_eq!(rotation.before_first_write(MEGABYTE - 10, 10), RotationDecision::Rotate);
        assert_eq!(
            rotation.before_write(0, MEGABYTE + 1).unwrap_err().to_string(),
            "write length 1048577 exceeds maximum file size 1048576"
        );
        assert_eq!(Rotation::default().before_write(99 * MEGABYTE, MEGABYTE), Ok(RotationDecision::Append));
    }

    #[test]
    fn backup_name_contains_its_rotation_time() {
        let check = |log: &str, expect: &str| {
            let name = backup_name(log, NOW);
            assert_eq!(name, expect);
            assert_eq!(backup_time(log, &name), Some(NOW));
            assert_eq!(backup_time(log, &format!("{name}.gz")), Some(NOW));
        };
        check("audit.log", "audit-2026-11-16T01-02-03.500.log");
        check("audit", "audit-2026-11-16T01-02-03.500");
        check("a.b.log", "a.b-2026-11-16T01-02-03.500.log");
        for other in [
            "audit.log",
            "audit-x.log",
            "audit-2026-11-16T01-02-03.500.txt",
            "audit-2026-11-16.log",
            "b-2026-11-16T01-02-03.500.log",
        ] {
            assert_eq!(backup_time("audit.log", other), None, "{other}");
        }
    }

    #[test]
    fn old_backups_are_removed_by_count_and_age() {
        let listing = [
            "audit.log",
            "other.txt",
            "audit-2026-11-15T00-00-00.000.log",
            "audit-2026-11-14T00-00-00.000.log.gz",
            "audit-2026-11-14T00-00-00.000.log",
            "audit-2026-11-13T00-00-00.000.log",
            "audit-2026-11-01T00-00-00.000.log",
        ];
        let check = |rotation: Rotation, removed: &[&str], compressed: &[&str]| {
            let expect: Vec<CleanupAction> = removed
                .iter()
                .map(|day| CleanupAction::Remove(format!("audit-2026-11-{day}")))
                .chain(compressed.iter().map(|day| CleanupAction::Compress(format!("audit-2026-11-{day}"))))
                .collect();
            assert_eq!(rotation.clean("audit.log", listing, NOW), expect, "{rotation:?}");
        };
        check(rotation(0, 0, false), &[], &[]);
        check(rotation(0, 2, false), &["13T00-00-00.000.log", "01T00-00-00.000.log"], &[]);
        check(rotation(7, 0, false), &["01T00-00-00.000.log"], &[]);
        check(
            rotation(7, 9, true),
            &["01T00-00-00.000.log"],
            &["15T00-00-00.000.log", "14T00-00-00.000.log", "13T00-00-00.000.log"],
        );
    }
}

//! Scheduled backups of a server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use apimachinery::time::Time;
use component_base::clock;

use super::{DIR, Request, default_file, make};
use crate::last_backup::Record;
use crate::up::plan::Running;
use crate::up::schedule::Schedule;

/// Delay before a failed backup is repeated.
const RETRY: Duration = Duration::from_secs(300);

/// Makes backups until the future is dropped. Without a schedule it only waits. A failed backup is logged and retried.
pub(crate) fn keep(schedule: Schedule, data_dir: PathBuf) -> Running {
    Box::pin(repeat(schedule, data_dir))
}

async fn repeat(schedule: Schedule, data_dir: PathBuf) -> Result<()> {
    let Some(every) = schedule.backup_every else { return std::future::pending().await };
    let dir = schedule.backup_dir.clone().unwrap_or_else(|| data_dir.join(DIR));
    let mut wait = due_in(Record::read(&data_dir).map(|record| record.time), every, clock::now());
    loop {
        tokio::time::sleep(wait).await;
        let request = Request {
            data_dir: data_dir.clone(),
            to: default_file(&dir),
            encrypt_to: schedule.backup_encrypt_to.clone(),
        };
        wait = match run(&request, &dir, every, usize::from(schedule.backup_keep)).await {
            Ok(record) => {
                tracing::info!(file = %record.file.display(), bytes = record.bytes, revision = record.revision, "saved a backup");
                every
            }
            Err(error) => {
                tracing::error!("the scheduled backup failed and is repeated in {RETRY:?}: {error:#}");
                RETRY.min(every)
            }
        };
    }
}

async fn run(request: &Request, dir: &Path, every: Duration, count: usize) -> Result<Record> {
    let record = Record { every: Some(every), ..make(request).await? };
    record.write(&request.data_dir)?;
    let names = std::fs::read_dir(dir).with_context(|| format!("failed to list {}", dir.display()))?;
    let names = names.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    for name in obsolete(names, count) {
        std::fs::remove_file(dir.join(&name)).with_context(|| format!("failed to remove the old backup {name}"))?;
    }
    ensure!(request.to.is_file(), "{} was removed", request.to.display());
    Ok(record)
}

/// Returns the time until the next backup.
fn due_in(last: Option<Time>, every: Duration, now: Time) -> Duration {
    let Some(last) = last else { return Duration::ZERO };
    let passed = now.unix_seconds().saturating_sub(last.unix_seconds());
    // A clock that was set back does not delay the backup.
    u64::try_from(passed).map_or(Duration::ZERO, |passed| every.saturating_sub(Duration::from_secs(passed)))
}

/// Returns the names of the backups to remove: all but the newest ones. Files with other names are kept.
fn obsolete(mut names: Vec<String>, count: usize) -> Vec<String> {
    names.retain(|name| name.starts_with("knarr-") && name.ends_with(".backup"));
    names.sort();
    names.truncate(names.len().saturating_sub(count));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_backups_and_other_files_are_kept() {
        let names = ["knarr-3.backup", "mine.backup", "knarr-1.backup", "knarr-2.backup", "knarr-0.txt"];
        let names = || names.map(str::to_owned).to_vec();
        assert_eq!(obsolete(names(), 2), ["knarr-1.backup"]);
        assert_eq!(obsolete(names(), 3), [""; 0]);
        assert_eq!(obsolete(names(), 1), ["knarr-1.backup", "knarr-2.backup"]);
    }

    #[test]
    fn next_backup_is_due_an_interval_after_the_last_good_one() {
        let (hour, at) = (Duration::from_secs(3600), |seconds| Time::from_unix(seconds, 0));
        assert_eq!(due_in(None, hour, at(5000)), Duration::ZERO);
        assert_eq!(due_in(Some(at(4000)), hour, at(5000)), Duration::from_secs(2600));
        assert_eq!(due_in(Some(at(0)), hour, at(5000)), Duration::ZERO);
        assert_eq!(due_in(Some(at(9000)), hour, at(5000)), Duration::ZERO, "the clock was set back");
    }
}

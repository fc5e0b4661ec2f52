//! The schedule of backups of a server.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::backup_encryption::ContentKey;
use crate::component;

/// Minimum interval, so that a mistyped unit does not keep the disk busy.
const EVERY_MIN: Duration = Duration::from_secs(60);

/// Scheduled backups.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// Interval of backups of the store, the PKI and the settings, such as 12h [default: none].
    #[arg(long, value_name = "DURATION", value_parser = every)]
    pub backup_every: Option<Duration>,
    /// Number of scheduled backups to keep.
    #[arg(long, alias = "keep", value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub backup_keep: u16,
    /// Directory of scheduled backups [default: `backups` in the data directory].
    #[arg(long, value_name = "DIR")]
    pub backup_dir: Option<PathBuf>,
    /// Public key of `knarr backup key` for scheduled backups.
    #[arg(long, value_name = "PUBLIC-KEY", value_parser = public_key)]
    pub backup_encrypt_to: Option<String>,
}

fn every(text: &str) -> Result<Duration, String> {
    let every = component::duration(text)?;
    if every < EVERY_MIN { Err("must be at least 1m".to_owned()) } else { Ok(every) }
}

fn public_key(text: &str) -> Result<String, String> {
    ContentKey::for_recipient(text).map(|_| text.to_owned()).map_err(|error| format!("{error:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_has_a_minimum() {
        assert_eq!(every("12h"), Ok(Duration::from_secs(12 * 3600)));
        assert!(every("12s").unwrap_err().contains("at least 1m"));
        assert!(public_key("x").unwrap_err().contains("backup-public:HEX"));
    }
}

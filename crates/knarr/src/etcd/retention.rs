//! Retention of automatic compaction, parsed from etcd's flags.

use std::time::Duration;

use ::store::etcd::compactor::Retention;
use anyhow::{Context, Result, bail};

/// Parses mode and retention. `None` disables automatic compaction.
pub(super) fn parse(mode: &str, retention: &str) -> Result<Option<Retention>> {
    let wrong = || format!("--auto-compaction-retention: {retention:?} is invalid with --auto-compaction-mode {mode}");
    match mode {
        "periodic" => {
            // A number without a unit is in hours.
            let period = match retention.parse::<u64>() {
                Ok(hours) => Duration::from_secs(hours.checked_mul(3600).with_context(wrong)?),
                Err(_) => duration(retention).with_context(wrong)?,
            };
            Ok((!period.is_zero()).then_some(Retention::Period(period)))
        }
        "revision" => {
            let revisions = retention.parse::<i64>().with_context(wrong)?;
            Ok((revisions > 0).then_some(Retention::Revisions(revisions)))
        }
        _ => bail!("--auto-compaction-mode must be `periodic` or `revision`, not {mode:?}"),
    }
}

/// Parses a Go duration such as `1h30m` or `500ms`.
pub(super) fn duration(text: &str) -> Result<Duration> {
    let wrong = || format!("{text:?} is not a duration such as 1h30m or 500ms");
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).with_context(wrong)?;
        let number: u32 = rest[..digits].parse().with_context(wrong)?;
        rest = &rest[digits..];
        let unit = rest.find(|letter: char| letter.is_ascii_digit()).unwrap_or(rest.len());
        let one = match &rest[..unit] {
            "h" => Duration::from_secs(3600),
            "m" => Duration::from_secs(60),
            "s" => Duration::from_secs(1),
            "ms" => Duration::from_millis(1),
            _ => bail!(wrong()),
        };
        total = one.checked_mul(number).and_then(|part| total.checked_add(part)).with_context(wrong)?;
        rest = &rest[unit..];
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(mode: &str, retention: &str, expect: Option<Option<Retention>>) {
        assert_eq!(parse(mode, retention).ok(), expect, "{mode} {retention}");
    }

    #[test]
    fn retention_is_a_duration_or_a_revision_count() {
        let seconds = |seconds| Some(Some(Retention::Period(Duration::from_secs(seconds))));
        check("periodic", "0", Some(None));
        check("periodic", "5m", seconds(300));
        check("periodic", "2", seconds(7200));
        check("periodic", "1h30m", seconds(5400));
        check("periodic", "x", None);
        check("revision", "1000", Some(Some(Retention::Revisions(1000))));
        check("revision", "0", Some(None));
        check("revision", "5m", None);
        check("sometimes", "1", None);
    }
}

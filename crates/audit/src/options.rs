//! Validation of the audit log and webhook flags, with upstream's messages.

use crate::batch::Config;
use crate::truncate::Limits;

/// `--audit-*-mode`: whether a request waits until its events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Requests do not wait; events are batched.
    Batch,
    /// Requests wait, and continue if writing fails.
    Blocking,
    /// Requests wait, and fail if the RequestReceived event cannot be written.
    BlockingStrict,
}

/// Reasons why a flag is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    #[error("invalid audit {backend} mode {mode}, allowed modes are \"batch,blocking,blocking-strict\"")]
    Mode {
        /// `log` or `webhook`.
        backend: &'static str,
        mode: String,
    },
    #[error("invalid audit log format {0}, allowed formats are \"legacy,json\"")]
    Format(String),
    /// A batch setting is not positive.
    #[error("invalid audit batch {backend} {what} {value}, must be a positive number")]
    Batch {
        /// `log` or `webhook`.
        backend: &'static str,
        /// The name of the setting.
        what: &'static str,
        value: String,
    },
    #[error("invalid audit truncate {backend} max event size {value}, must be a positive number")]
    EventSize {
        /// `log` or `webhook`.
        backend: &'static str,
        value: usize,
    },
    #[error("invalid audit truncate {backend} max batch size {batch}, must be greater than max event size ({event})")]
    BatchSize {
        /// `log` or `webhook`.
        backend: &'static str,
        /// The maximum batch size.
        batch: usize,
        /// The maximum event size.
        event: usize,
    },
    /// A rotation limit is negative.
    #[error("--audit-log-{what} {value} can't be a negative number")]
    Negative {
        /// `maxage`, `maxbackup` or `maxsize`.
        what: &'static str,
        value: i64,
    },
}

impl Mode {
    /// Parses the mode of a backend.
    pub fn parse(backend: &'static str, mode: &str) -> Result<Self, Error> {
        match mode {
            "batch" => Ok(Self::Batch),
            "blocking" => Ok(Self::Blocking),
            "blocking-strict" => Ok(Self::BlockingStrict),
            _ => Err(Error::Mode { backend, mode: mode.to_owned() }),
        }
    }
}

impl crate::log::Format {
    /// Parses the format of log lines.
    pub fn parse(format: &str) -> Result<Self, Error> {
        match format {
            "json" => Ok(Self::Json),
            "legacy" => Ok(Self::Legacy),
            _ => Err(Error::Format(format.to_owned())),
        }
    }
}

/// Validates batch settings; only used with [`Mode::Batch`].
pub fn check_batch(backend: &'static str, config: &Config) -> Result<(), Error> {
    let error = |what, value: String| Err(Error::Batch { backend, what, value });
    if config.buffer_size == 0 {
        return error("buffer size", config.buffer_size.to_string());
    }
    if config.batch_size_max == 0 {
        return error("max batch size", config.batch_size_max.to_string());
    }
    match config.throttle {
        Some(throttle) if throttle.per_second <= 0.0 => error("throttle QPS", throttle.per_second.to_string()),
        Some(throttle) if throttle.burst == 0 => error("throttle burst", throttle.burst.to_string()),
        _ => Ok(()),
    }
}

/// Validates truncation limits.
pub const fn check_limits(backend: &'static str, limits: &Limits) -> Result<(), Error> {
    let (event, batch) = (limits.event_bytes_max, limits.batch_bytes_max);
    if event == 0 {
        return Err(Error::EventSize { backend, value: event });
    }
    if batch < event {
        return Err(Error::BatchSize { backend, batch, event });
    }
    Ok(())
}

/// Validates a rotation limit: `maxage`, `maxbackup` or `maxsize`.
pub fn check_rotation(what: &'static str, value: i64) -> Result<u32, Error> {
    u32::try_from(value).map_err(|_| Error::Negative { what, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Throttle;
    use crate::log::Format;

    #[test]
    fn invalid_flags_have_upstreams_messages() {
        let check = |error: Error, expect: &str| assert_eq!(error.to_string(), expect);
        check(
            Mode::parse("log", "async").unwrap_err(),
            r#"invalid audit log mode async, allowed modes are "batch,blocking,blocking-strict""#,
        );
        check(Format::parse("xml").unwrap_err(), r#"invalid audit log format xml, allowed formats are "legacy,json""#);
        let webhook = Config::webhook();
        let none = Config { buffer_size: 0, ..webhook };
        check(
            check_batch("webhook", &none).unwrap_err(),
            "invalid audit batch webhook buffer size 0, must be a positive number",
        );
        let throttle = Some(Throttle { per_second: 0.0, burst: 1 });
        check(
            check_batch("webhook", &Config { throttle, ..webhook }).unwrap_err(),
            "invalid audit batch webhook throttle QPS 0, must be a positive number",
        );
        assert_eq!(check_batch("webhook", &webhook), Ok(()));
        let limits = Limits { event_bytes_max: 5, batch_bytes_max: 4 };
        check(
            check_limits("log", &limits).unwrap_err(),
            "invalid audit truncate log max batch size 4, must be greater than max event size (5)",
        );
        assert_eq!(check_limits("log", &Limits::default()), Ok(()));
        check(check_rotation("maxage", -1).unwrap_err(), "--audit-log-maxage -1 can't be a negative number");
    }
}

//! The options of the log and webhook backends, and what is wrong with them, in upstream's words.

use crate::batch::Config;
use crate::truncate::Limits;

/// Whether a request waits until its events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It does not: events are gathered.
    Batch,
    /// It does, and goes on if that fails.
    Blocking,
    /// It does, and fails if the event of its arrival cannot be written.
    BlockingStrict,
}

/// What is wrong with an option.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// There is no such mode.
    #[error("invalid audit {backend} mode {mode}, allowed modes are \"batch,blocking,blocking-strict\"")]
    Mode {
        /// `log` or `webhook`.
        backend: &'static str,
        /// The mode.
        mode: String,
    },
    /// There is no such format.
    #[error("invalid audit log format {0}, allowed formats are \"legacy,json\"")]
    Format(String),
    /// A number of a batch is not positive.
    #[error("invalid audit batch {backend} {what} {value}, must be a positive number")]
    Batch {
        /// `log` or `webhook`.
        backend: &'static str,
        /// Which number.
        what: &'static str,
        /// What it is.
        value: String,
    },
    /// Events would have to be empty.
    #[error("invalid audit truncate {backend} max event size {value}, must be a positive number")]
    EventSize {
        /// `log` or `webhook`.
        backend: &'static str,
        /// The size.
        value: usize,
    },
    /// A batch has no room for an event.
    #[error("invalid audit truncate {backend} max batch size {batch}, must be greater than max event size ({event})")]
    BatchSize {
        /// `log` or `webhook`.
        backend: &'static str,
        /// The size of a batch.
        batch: usize,
        /// The size of an event.
        event: usize,
    },
    /// A limit of the log files is negative.
    #[error("--audit-log-{what} {value} can't be a negative number")]
    Negative {
        /// Which limit.
        what: &'static str,
        /// What it is.
        value: i64,
    },
}

impl Mode {
    /// Reads the mode of a backend.
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
    /// Reads the format of log lines.
    pub fn parse(format: &str) -> Result<Self, Error> {
        match format {
            "json" => Ok(Self::Json),
            "legacy" => Ok(Self::Legacy),
            _ => Err(Error::Format(format.to_owned())),
        }
    }
}

/// Checks how events are gathered; of no meaning in other modes than [`Mode::Batch`].
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

/// Checks how events are cut.
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

/// Checks a limit of the log files: `maxage`, `maxbackup` or `maxsize`.
pub fn check_rotation(what: &'static str, value: i64) -> Result<u32, Error> {
    u32::try_from(value).map_err(|_| Error::Negative { what, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Throttle;
    use crate::log::Format;

    #[test]
    fn wrong_options_are_told_as_upstream_tells_them() {
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

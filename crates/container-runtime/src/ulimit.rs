//! Process resource limits of all containers, such as `nofile=1024:4096`.

use std::str::FromStr;

use serde_json::{Value, json};

/// Resource names of the OCI specification without `RLIMIT_`.
const NAMES: [&str; 16] = [
    "AS",
    "CORE",
    "CPU",
    "DATA",
    "FSIZE",
    "LOCKS",
    "MEMLOCK",
    "MSGQUEUE",
    "NICE",
    "NOFILE",
    "NPROC",
    "RSS",
    "RTPRIO",
    "RTTIME",
    "SIGPENDING",
    "STACK",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ulimit {
    name: &'static str,
    soft: u64,
    hard: u64,
}

/// A limit is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UlimitError {
    /// The text is not `name=soft:hard` or `name=limit`.
    #[error("{0:?} is not NAME=SOFT[:HARD]")]
    Form(String),
    #[error("unknown limit {0:?}")]
    Name(String),
    /// The soft limit must not exceed the hard limit.
    #[error("the soft limit {soft} is above the hard limit {hard}")]
    Order { soft: u64, hard: u64 },
}

impl FromStr for Ulimit {
    type Err = UlimitError;

    fn from_str(text: &str) -> Result<Ulimit, UlimitError> {
        let form = || UlimitError::Form(text.to_owned());
        let (name, limits) = text.split_once('=').ok_or_else(form)?;
        let (soft, hard) = limits.split_once(':').unwrap_or((limits, limits));
        // The maximum value means unlimited to the kernel.
        let number = |text: &str| if matches!(text, "-1" | "unlimited") { Some(u64::MAX) } else { text.parse().ok() };
        let (soft, hard) = (number(soft).ok_or_else(form)?, number(hard).ok_or_else(form)?);
        let known = NAMES.into_iter().find(|known| known.eq_ignore_ascii_case(name));
        let name = known.ok_or_else(|| UlimitError::Name(name.to_owned()))?;
        if soft > hard {
            return Err(UlimitError::Order { soft, hard });
        }
        Ok(Ulimit { name, soft, hard })
    }
}

impl Ulimit {
    /// Returns the limit for the OCI specification.
    pub fn to_oci(&self) -> Value {
        json!({"type": format!("RLIMIT_{}", self.name), "soft": self.soft, "hard": self.hard})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_parsed_as_in_other_runtimes() {
        let check = |text: &str, expect: Value| assert_eq!(text.parse::<Ulimit>().unwrap().to_oci(), expect, "{text}");
        check("nofile=1024:4096", json!({"type": "RLIMIT_NOFILE", "soft": 1024, "hard": 4096}));
        check("CORE=0", json!({"type": "RLIMIT_CORE", "soft": 0, "hard": 0}));
        check("memlock=1:-1", json!({"type": "RLIMIT_MEMLOCK", "soft": 1, "hard": u64::MAX}));
        let check_error =
            |text: &str, expect: &str| assert_eq!(text.parse::<Ulimit>().unwrap_err().to_string(), expect);
        check_error("nofile", "\"nofile\" is not NAME=SOFT[:HARD]");
        check_error("files=1", "unknown limit \"files\"");
        check_error("nofile=2:1", "the soft limit 2 is above the hard limit 1");
    }
}

//! Limits of processes that every container has: `nofile=1024:4096`.

use std::str::FromStr;

use serde_json::{Value, json};

/// What the kernel limits, as the OCI runtime specification has it without `RLIMIT_`.
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

/// One limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ulimit {
    name: &'static str,
    soft: u64,
    hard: u64,
}

/// Why a text is no limit.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UlimitError {
    /// It is not `name=soft:hard` or `name=limit`.
    #[error("{0:?} is not NAME=SOFT[:HARD]")]
    Form(String),
    /// Nothing is called so.
    #[error("there is no limit {0:?}")]
    Name(String),
    /// The soft one is the one that is met first.
    #[error("the soft limit {soft} is above the hard limit {hard}")]
    Order {
        /// The soft one.
        soft: u64,
        /// The hard one.
        hard: u64,
    },
}

impl FromStr for Ulimit {
    type Err = UlimitError;

    fn from_str(text: &str) -> Result<Ulimit, UlimitError> {
        let form = || UlimitError::Form(text.to_owned());
        let (name, limits) = text.split_once('=').ok_or_else(form)?;
        let (soft, hard) = limits.split_once(':').unwrap_or((limits, limits));
        // The largest number is what the kernel calls unlimited.
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
    /// For a container's description.
    pub fn shown(&self) -> Value {
        json!({"type": format!("RLIMIT_{}", self.name), "soft": self.soft, "hard": self.hard})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_other_runtimes_have_them() {
        let check = |text: &str, expect: Value| assert_eq!(text.parse::<Ulimit>().unwrap().shown(), expect, "{text}");
        check("nofile=1024:4096", json!({"type": "RLIMIT_NOFILE", "soft": 1024, "hard": 4096}));
        check("CORE=0", json!({"type": "RLIMIT_CORE", "soft": 0, "hard": 0}));
        check("memlock=1:-1", json!({"type": "RLIMIT_MEMLOCK", "soft": 1, "hard": u64::MAX}));
        let refused = |text: &str, expect: &str| assert_eq!(text.parse::<Ulimit>().unwrap_err().to_string(), expect);
        refused("nofile", "\"nofile\" is not NAME=SOFT[:HARD]");
        refused("files=1", "there is no limit \"files\"");
        refused("nofile=2:1", "the soft limit 2 is above the hard limit 1");
    }
}

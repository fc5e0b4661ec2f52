//! Max-in-flight limits, for a server without API priority and fairness.

use apimachinery::Str;

/// Requests of this group are always admitted.
const PRIVILEGED: &str = "system:masters";

/// Limits of concurrent requests; zero means unlimited. Long-running requests are not counted.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    /// Maximum non-mutating requests.
    pub read_only_max: u32,
    /// Maximum mutating requests.
    pub mutating_max: u32,
    read_only: u32,
    mutating: u32,
}

/// The limits would admit no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid configuration: MaxRequestsInFlight={read_only} and MaxMutatingRequestsInFlight={mutating}; they must add up to something positive"
)]
pub struct NothingFits {
    read_only: i64,
    mutating: i64,
}

/// An admitted request. The caller must pass it to [`InFlight::finish`].
#[derive(Debug, PartialEq, Eq)]
pub struct Pass {
    counted: Option<Kind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    ReadOnly,
    Mutating,
}

/// Retry-After for rejected requests.
pub const RETRY_AFTER_SECONDS: u32 = 1;

/// Returns the sum of the limits: the total seats with API priority and fairness.
pub fn total_concurrency(read_only: i64, mutating: i64) -> Result<u32, NothingFits> {
    let sum = u32::try_from(read_only.saturating_add(mutating)).ok();
    sum.filter(|sum| *sum > 0).ok_or(NothingFits { read_only, mutating })
}

impl InFlight {
    pub const fn new(read_only_max: u32, mutating_max: u32) -> Self {
        Self { read_only_max, mutating_max, read_only: 0, mutating: 0 }
    }

    /// Admits or rejects a request.
    pub fn arrive(&mut self, verb: &str, groups: &[Str]) -> Option<Pass> {
        let kind = if matches!(verb, "get" | "list" | "watch") { Kind::ReadOnly } else { Kind::Mutating };
        let (used, max) = self.side(kind);
        if max == 0 {
            return Some(Pass { counted: None });
        }
        if *used < max {
            *used += 1;
            return Some(Pass { counted: Some(kind) });
        }
        groups.iter().any(|group| group == PRIVILEGED).then_some(Pass { counted: None })
    }

    #[expect(clippy::needless_pass_by_value, reason = "a pass is released once")]
    pub fn finish(&mut self, pass: Pass) {
        if let Some(kind) = pass.counted {
            let (used, _) = self.side(kind);
            *used = used.saturating_sub(1);
        }
    }

    /// Returns the number of non-mutating and of mutating requests.
    pub const fn current(&self) -> (u32, u32) {
        (self.read_only, self.mutating)
    }

    const fn side(&mut self, kind: Kind) -> (&mut u32, u32) {
        match kind {
            Kind::ReadOnly => (&mut self.read_only, self.read_only_max),
            Kind::Mutating => (&mut self.mutating, self.mutating_max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_have_separate_limits() {
        let mut limits = InFlight::new(1, 1);
        let read = limits.arrive("list", &[]).unwrap();
        assert!(limits.arrive("get", &[]).is_none());
        assert!(limits.arrive("create", &[]).is_some());
        assert!(limits.arrive("create", &["system:masters".into()]).is_some());
        assert!(limits.arrive("delete", &["system:authenticated".into()]).is_none());
        limits.finish(read);
        assert!(limits.arrive("get", &[]).is_some());
        assert_eq!(limits.current(), (1, 1));
    }

    #[test]
    fn limit_of_zero_means_unlimited() {
        let mut limits = InFlight::new(0, 1);
        assert!((0..1000).all(|_| limits.arrive("get", &[]).is_some()));
        assert_eq!(limits.current(), (0, 0));
    }

    #[test]
    fn limits_add_up_to_the_seats_of_the_server() {
        assert_eq!(total_concurrency(400, 200), Ok(600));
        assert_eq!(
            total_concurrency(0, 0).unwrap_err().to_string(),
            "invalid configuration: MaxRequestsInFlight=0 and MaxMutatingRequestsInFlight=0; they must add up to something positive"
        );
        assert!(total_concurrency(-1, 0).is_err());
    }
}

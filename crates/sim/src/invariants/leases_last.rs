//! Invariant: leases expire with their keys, but not before their TTL after the last renewal.

use std::collections::BTreeMap;

use mvcc::LeaseId;

use super::Violation;

const NAME: &str = "leases last and end";

/// The earliest valid expiry of each lease.
#[derive(Debug, Default)]
pub struct LeasesLast {
    until_ms: BTreeMap<LeaseId, u64>,
    expired: BTreeMap<LeaseId, u64>,
}

impl LeasesLast {
    /// Records a grant, or a renewal by a request started at `began_ms`.
    pub fn lasts(&mut self, lease: LeaseId, began_ms: u64, ttl_seconds: i64) {
        let until = began_ms + ttl_seconds.unsigned_abs() * 1000;
        let known = self.until_ms.entry(lease).or_default();
        *known = until.max(*known);
    }

    /// Records that a member applied the end of a lease.
    pub fn ends(&mut self, lease: LeaseId, now_ms: u64) -> Result<(), Violation> {
        if self.expired.contains_key(&lease) {
            return Ok(());
        }
        self.expired.insert(lease, now_ms);
        match self.until_ms.get(&lease) {
            Some(until) if now_ms < *until => {
                Err((NAME, format!("lease {lease} ended at {now_ms} ms, {} ms early", until - now_ms)))
            }
            _ => Ok(()),
        }
    }

    /// Checks that no lease, and no key attached to one, is left at the end of a run.
    pub fn check_expired(&self, left: &[LeaseId], keys: i64) -> Result<(), Violation> {
        if left.is_empty() && keys == 0 {
            return Ok(());
        }
        Err((NAME, format!("leases {left:?} never ended, and {keys} keys of leases are left")))
    }
}

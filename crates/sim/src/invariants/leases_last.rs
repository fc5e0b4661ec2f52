//! A lease ends no earlier than its time to live after its last renewal, whoever leads, and it does end, and its keys with it.

use std::collections::BTreeMap;

use mvcc::LeaseId;

use super::Broken;

const NAME: &str = "leases last and end";

/// Until when each lease must last.
#[derive(Debug, Default)]
pub struct LeasesLast {
    until_ms: BTreeMap<LeaseId, u64>,
    ended: BTreeMap<LeaseId, u64>,
}

impl LeasesLast {
    /// A lease was granted, or renewed by a request that began at this time.
    pub fn lasts(&mut self, lease: LeaseId, began_ms: u64, ttl_seconds: i64) {
        let until = began_ms + ttl_seconds.unsigned_abs() * 1000;
        let known = self.until_ms.entry(lease).or_default();
        *known = until.max(*known);
    }

    /// Some member applied the end of a lease.
    pub fn ends(&mut self, lease: LeaseId, now_ms: u64) -> Result<(), Broken> {
        if self.ended.contains_key(&lease) {
            return Ok(());
        }
        self.ended.insert(lease, now_ms);
        match self.until_ms.get(&lease) {
            Some(until) if now_ms < *until => {
                Err((NAME, format!("lease {lease} ended at {now_ms} ms, {} ms early", until - now_ms)))
            }
            _ => Ok(()),
        }
    }

    /// After the quiet end of a run no lease is left, and no key that one held.
    pub fn check_ended(&self, left: &[LeaseId], keys: i64) -> Result<(), Broken> {
        if left.is_empty() && keys == 0 {
            return Ok(());
        }
        Err((NAME, format!("leases {left:?} never ended, and {keys} keys of leases are left")))
    }
}

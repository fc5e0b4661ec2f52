//! Leader election record in a Lease: holder, times and number of transitions.

use std::time::Duration;

use apimachinery::time::Time;
use apimachinery::{Key, Object, Value, value};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Empty if the lease is free.
    pub holder: String,
    duration_seconds: i64,
    acquired: Option<Time>,
    renewed: Option<Time>,
    transitions: i64,
}

impl Record {
    /// Returns the record of a new lease.
    pub(super) fn new(holder: &str, duration: Duration, now: Time) -> Self {
        Self {
            holder: holder.to_owned(),
            duration_seconds: duration.as_secs().try_into().unwrap_or(i64::MAX),
            acquired: Some(now),
            renewed: Some(now),
            transitions: 0,
        }
    }

    pub(super) fn of(lease: &Value) -> Self {
        let field = |name| lease.at(&["spec", name]);
        let time = |name| field(name).and_then(Value::as_str).and_then(|text| Time::parse(text).ok());
        let int = |name| field(name).and_then(Value::as_int).unwrap_or(0);
        Self {
            holder: field("holderIdentity").and_then(Value::as_str).unwrap_or_default().to_owned(),
            duration_seconds: int("leaseDurationSeconds"),
            acquired: time("acquireTime"),
            renewed: time("renewTime"),
            transitions: int("leaseTransitions"),
        }
    }

    /// Returns the lease duration.
    pub(super) fn duration(&self) -> Duration {
        Duration::from_secs(self.duration_seconds.max(0).unsigned_abs())
    }

    /// Renews the lease, or takes it over.
    pub(super) fn renew(&mut self, holder: &str, duration: Duration, now: Time) {
        if self.holder == holder {
            self.duration_seconds = duration.as_secs().try_into().unwrap_or(i64::MAX);
            self.renewed = Some(now);
        } else {
            *self = Self { transitions: self.transitions + 1, ..Self::new(holder, duration, now) };
        }
    }

    /// Releases the lease: no holder, and the duration of one second that upstream writes.
    pub(super) fn release(&mut self, now: Time) {
        *self = Self { transitions: self.transitions, ..Self::new("", Duration::from_secs(1), now) };
    }

    /// Returns the lease with this record.
    pub(super) fn into_lease(self, mut lease: Value) -> Value {
        let Some(object) = lease.as_object_mut() else { return lease };
        let spec = object.get_or_insert_with("spec", Value::object);
        if spec.as_object().is_none() {
            *spec = Value::Object(Object::new());
        }
        let Some(spec) = spec.as_object_mut() else { return lease };
        spec.insert("holderIdentity", self.holder);
        spec.insert("leaseDurationSeconds", self.duration_seconds);
        spec.insert("leaseTransitions", self.transitions);
        for (name, time) in [("acquireTime", self.acquired), ("renewTime", self.renewed)] {
            match time {
                Some(time) => drop(spec.insert(name, time.micro().to_string())),
                None => drop(spec.remove(name)),
            }
        }
        lease
    }
}

/// Returns a lease without a record.
pub(super) fn blank(key: &Key) -> Value {
    value!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": (key.namespace.clone()), "name": (key.name.clone())}, "spec": {},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: Duration = Duration::from_secs(15);

    #[test]
    fn record_is_transferred_as_upstream_writes_it() {
        let key = Key::new("kube-system", "kcm");
        let at = |seconds| Time::from_unix(seconds, 0);
        let first = Record::new("a", TERM, at(100)).into_lease(blank(&key));
        let spec = |lease: &Value| lease["spec"].to_string();
        assert_eq!(
            spec(&first),
            r#"{"acquireTime":"1970-01-01T00:01:40.000000Z","holderIdentity":"a","leaseDurationSeconds":15,"leaseTransitions":0,"renewTime":"1970-01-01T00:01:40.000000Z"}"#
        );
        let mut record = Record::of(&first);
        record.renew("a", TERM, at(102));
        let renewed = record.clone().into_lease(first);
        assert_eq!(renewed.str_at(&["spec", "acquireTime"]), Some("1970-01-01T00:01:40.000000Z"));
        assert_eq!(renewed.str_at(&["spec", "renewTime"]), Some("1970-01-01T00:01:42.000000Z"));
        record.renew("b", TERM, at(200));
        assert_eq!(record, Record { transitions: 1, ..Record::new("b", TERM, at(200)) });
        record.release(at(300));
        let released = record.into_lease(renewed);
        assert_eq!(released["spec"]["holderIdentity"], "".into());
        assert_eq!(released["spec"]["leaseDurationSeconds"], 1.into());
        assert_eq!(released["spec"]["leaseTransitions"], 1.into());
    }

    #[test]
    fn malformed_lease_has_no_holder() {
        let record = Record::of(&value!({"spec": {"holderIdentity": 3, "renewTime": "soon"}}));
        assert_eq!(record.holder, "");
        assert_eq!(record.duration(), Duration::ZERO);
    }
}

//! EventRateLimit: limits the rate of Events per server, namespace, user, or source and object.

use std::collections::BTreeMap;
use std::sync::Mutex;

use apimachinery::Value;
use apimachinery::status::{Reason, Status};
use apimachinery::time::Time;

use super::{Attributes, Notes, Operation, Plugin, View};

/// Default number of keys kept per limit.
const KEYS_MAX: usize = 4096;

#[derive(Default)]
pub(crate) struct EventRateLimit {
    limits: Vec<Limit>,
}

struct Limit {
    ty: String,
    per_second: f64,
    burst: f64,
    keys_max: usize,
    buckets: Mutex<BTreeMap<String, Bucket>>,
}

#[derive(Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Time,
}

impl EventRateLimit {
    /// Parses the plugin's `Configuration`.
    pub(crate) fn of(config: &Value) -> Self {
        let number = |limit: &Value, field: &str| limit[field].as_float().unwrap_or(0.0);
        let limit = |limit: &Value| Limit {
            ty: limit.text_at(&["type"]).to_owned(),
            per_second: number(limit, "qps"),
            burst: number(limit, "burst"),
            keys_max: limit["cacheSize"]
                .as_int()
                .and_then(|size| size.try_into().ok())
                .filter(|size| *size > 0)
                .unwrap_or(KEYS_MAX),
            buckets: Mutex::default(),
        };
        Self { limits: config.list_at(&["limits"]).iter().map(limit).collect() }
    }
}

impl Plugin for EventRateLimit {
    fn validate(&self, attributes: &Attributes<'_>, event: &Value, _: &dyn View, _: &mut Notes) -> Result<(), Status> {
        let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
        if !writes || attributes.kind.kind != "Event" || attributes.dry_run {
            return Ok(());
        }
        let mut wrong = Vec::new();
        for limit in &self.limits {
            let key = key(&limit.ty, attributes, event);
            if !limit.take(&key, attributes.now) {
                wrong.push(format!("limit reached on type {} for key {key}", limit.ty));
            }
        }
        match wrong.as_slice() {
            [] => Ok(()),
            [one] => Err(Status::failure(Reason::TooManyRequests, one)),
            many => Err(Status::failure(Reason::TooManyRequests, format!("[{}]", many.join(", ")))),
        }
    }
}

fn key(ty: &str, attributes: &Attributes<'_>, event: &Value) -> String {
    match ty {
        "Namespace" => attributes.namespace.to_owned(),
        "User" => attributes.user.name.to_string(),
        "SourceAndObject" => {
            let (source, object) = (&event["source"], &event["involvedObject"]);
            let of_source = ["component", "host"].map(|field| source.text_at(&[field]));
            let of_object = ["kind", "namespace", "name", "uid", "apiVersion"].map(|field| object.text_at(&[field]));
            [&of_source[..], &of_object[..]].concat().concat()
        }
        _ => String::new(),
    }
}

impl Limit {
    /// Takes a token if one is available.
    fn take(&self, key: &str, now: Time) -> bool {
        let mut buckets = self.buckets.lock().expect("counting does not panic");
        if !buckets.contains_key(key) && buckets.len() >= self.keys_max {
            // The least recently used bucket is evicted: it is full again, or nearly so.
            let oldest = buckets.iter().min_by_key(|(_, bucket)| bucket.at).map(|(key, _)| key.clone());
            buckets.remove(&oldest.unwrap_or_default());
        }
        let bucket = buckets.entry(key.to_owned()).or_insert(Bucket { tokens: self.burst, at: now });
        let seconds = now.since(bucket.at).nanos().max(0) as f64 / 1e9;
        bucket.tokens = (bucket.tokens + seconds * self.per_second).min(self.burst);
        bucket.at = now;
        let some = bucket.tokens >= 1.0;
        if some {
            bucket.tokens -= 1.0;
        }
        some
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::{Value, value};

    use super::*;
    use crate::testing::{Cluster, attributes};

    #[test]
    fn burst_is_admitted_and_then_the_configured_rate() {
        let plugin = EventRateLimit::of(&value!({"limits": [{"type": "Namespace", "qps": 1, "burst": 2}]}));
        let (kind, user) = (api::core::event::kind(), auth::User::default());
        let at = |second: i64| {
            let now = Time::from_unix(second, 0);
            let attributes = Attributes { now, ..attributes(&kind, &user, Operation::Create) };
            plugin.validate(&attributes, &Value::object(), &Cluster::default(), &mut Notes::default())
        };
        assert_eq!((at(0), at(0)), (Ok(()), Ok(())));
        assert_eq!(at(0).unwrap_err().message, "limit reached on type Namespace for key n");
        assert_eq!(at(1), Ok(()));
        assert!(at(1).is_err());
    }
}

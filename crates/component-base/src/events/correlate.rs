//! Event correlation, as in client-go: an occurrence creates an event, increments an existing one, or is dropped.
//!
//! An equal occurrence increments the event's count. Ten different messages for the same reason within ten minutes are
//! aggregated into one event. Each object has a budget of 25 events, refilled by one every five minutes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use apimachinery::time::Time;
use apimachinery::{Key, Object, Value, value};
use controller::{EventType, Regarding};

/// Maximum remembered events, reasons and objects.
const REMEMBERED_MAX: usize = 4096;
/// Different messages for the same reason before they are aggregated.
const SIMILAR_MAX: usize = 10;
/// Time after the last message during which messages are aggregated.
const SIMILAR_SECONDS: i64 = 600;
/// Burst of events per object, and the seconds per additional event.
const BUDGET_MAX: f64 = 25.0;
const BUDGET_SECONDS: f64 = 300.0;

/// An occurrence to be reported as an Event of an object.
#[derive(Clone, Debug)]
pub(super) struct Occurrence {
    pub regarding: Regarding,
    pub kind: EventType,
    pub reason: String,
    pub message: String,
    pub at: Time,
}

/// The result of correlation.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CorrelationResult {
    /// The rate limit of the object is exceeded.
    Drop,
    /// Create this event.
    Create(Value),
    /// Increment an event: the patch, and the complete event in case it has expired.
    Patch { event: Value, patch: Value },
}

/// Remembers recent events.
pub(super) struct Correlator {
    component: String,
    recent_events: Recent<Value>,
    similar: Recent<Similar>,
    budgets: Recent<Budget>,
}

struct Similar {
    messages: BTreeSet<String>,
    last: Time,
}

struct Budget {
    left: f64,
    at: Time,
}

impl Correlator {
    pub(super) fn new(component: String) -> Self {
        Self { component, recent_events: Recent::default(), similar: Recent::default(), budgets: Recent::default() }
    }

    pub(super) fn correlate(&mut self, it: &Occurrence) -> CorrelationResult {
        let (object, group) = (object_key(&it.regarding), group_key(it));
        let (message, key) = self.combine(it, &group);
        let verdict = match self.recent_events.get(&key) {
            Some(event) => again(event, &message, it.at),
            None => {
                let event = self.event(it, &message);
                self.recent_events.insert(key.clone(), event.clone());
                CorrelationResult::Create(event)
            }
        };
        if let CorrelationResult::Patch { event, .. } = &verdict {
            self.recent_events.insert(key, event.clone());
        }
        if self.spend(&object, it.at) { verdict } else { CorrelationResult::Drop }
    }

    /// Removes an event that the API server rejected.
    pub(super) fn remove_event(&mut self, event: &Value) {
        let key = Key::of(event);
        self.recent_events.retain(|have| Key::of(have) != key);
    }

    /// Returns the message and the key of the event that reports the occurrence.
    fn combine(&mut self, it: &Occurrence, group: &str) -> (String, String) {
        let fresh = || Similar { messages: BTreeSet::new(), last: it.at };
        let similar = self.similar.get_or_insert_with(group, fresh);
        if it.at.since(similar.last).whole_seconds() > SIMILAR_SECONDS {
            similar.messages.clear();
        }
        similar.last = it.at;
        similar.messages.insert(it.message.clone());
        if similar.messages.len() < SIMILAR_MAX {
            return (it.message.clone(), format!("{group}\0{}", it.message));
        }
        similar.messages.pop_first();
        (format!("(combined from similar events): {}", it.message), group.to_owned())
    }

    fn spend(&mut self, object: &str, now: Time) -> bool {
        let budget = self.budgets.get_or_insert_with(object, || Budget { left: BUDGET_MAX, at: now });
        let gained = now.since(budget.at).whole_seconds().max(0) as f64 / BUDGET_SECONDS;
        budget.left = (budget.left + gained).min(BUDGET_MAX);
        budget.at = now;
        let enough = budget.left >= 1.0;
        if enough {
            budget.left -= 1.0;
        }
        enough
    }

    fn event(&self, it: &Occurrence, message: &str) -> Value {
        let regarding = &it.regarding;
        // Upstream's event names: the object's name and the time in nanoseconds.
        let nanos = i128::from(it.at.unix_seconds()) * 1_000_000_000 + i128::from(it.at.nanos());
        let name = format!("{}.{nanos:x}", regarding.key.name);
        let namespace = if regarding.key.namespace.is_empty() { "default" } else { regarding.key.namespace.as_str() };
        let mut about = Object::new();
        let fields = [
            ("apiVersion", &regarding.api_version),
            ("kind", &regarding.kind),
            ("namespace", &regarding.key.namespace),
            ("name", &regarding.key.name),
            ("uid", &regarding.uid),
            ("resourceVersion", &regarding.resource_version),
            ("fieldPath", &regarding.field_path),
        ];
        for (field, text) in fields.into_iter().filter(|(_, text)| !text.is_empty()) {
            about.insert(field, text.clone());
        }
        let kind = match it.kind {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        };
        let (at, component) = (it.at.to_string(), self.component.as_str());
        value!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"namespace": namespace, "name": name},
            "involvedObject": about,
            "type": kind, "reason": (it.reason.as_str()), "message": message, "count": 1,
            "firstTimestamp": (at.as_str()), "lastTimestamp": at,
            "source": {"component": component}, "reportingComponent": component, "reportingInstance": "",
        })
    }
}

fn again(event: &Value, message: &str, at: Time) -> CorrelationResult {
    let mut event = event.clone();
    let count = event.get("count").and_then(Value::as_int).unwrap_or(0) + 1;
    let at = at.to_string();
    let patch = value!({"count": count, "lastTimestamp": (at.as_str()), "message": message});
    if let Some(event) = event.as_object_mut() {
        event.insert("count", count);
        event.insert("lastTimestamp", at);
        event.insert("message", message);
    }
    CorrelationResult::Patch { event, patch }
}

fn object_key(regarding: &Regarding) -> String {
    format!("{}\0{}\0{}\0{}", regarding.api_version, regarding.kind, regarding.key, regarding.uid)
}

fn group_key(it: &Occurrence) -> String {
    format!("{}\0{}\0{:?}\0{}", object_key(&it.regarding), it.regarding.field_path, it.kind, it.reason)
}

/// The most recently used entries, up to a bound.
struct Recent<V> {
    entries: HashMap<String, (u64, V)>,
    by_use: BTreeMap<u64, String>,
    uses: u64,
}

impl<V> Default for Recent<V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), by_use: BTreeMap::new(), uses: 0 }
    }
}

impl<V> Recent<V> {
    fn get(&mut self, key: &str) -> Option<&V> {
        self.touch(key);
        self.entries.get(key).map(|(_, value)| value)
    }

    fn insert(&mut self, key: String, value: V) {
        self.uses += 1;
        self.by_use.insert(self.uses, key.clone());
        if let Some((old, _)) = self.entries.insert(key, (self.uses, value)) {
            self.by_use.remove(&old);
        }
        while self.entries.len() > REMEMBERED_MAX
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.entries.remove(&oldest);
        }
    }

    fn get_or_insert_with(&mut self, key: &str, make: impl FnOnce() -> V) -> &mut V {
        if self.entries.contains_key(key) {
            self.touch(key);
        } else {
            self.insert(key.to_owned(), make());
        }
        &mut self.entries.get_mut(key).expect("the entry was touched or inserted").1
    }

    fn retain(&mut self, keep: impl Fn(&V) -> bool) {
        let by_use = &mut self.by_use;
        self.entries.retain(|_, (used, value)| {
            let keep = keep(value);
            if !keep {
                by_use.remove(used);
            }
            keep
        });
    }

    fn touch(&mut self, key: &str) {
        if let Some((used, _)) = self.entries.get_mut(key)
            && let Some(key) = self.by_use.remove(used)
        {
            self.uses += 1;
            *used = self.uses;
            self.by_use.insert(self.uses, key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn occurrence(object: &str, message: &str, seconds: i64) -> Occurrence {
        let regarding = Regarding { kind: "Pod".into(), key: Key::new("a", object), ..Regarding::default() };
        let (reason, message) = ("Failed".to_owned(), message.to_owned());
        Occurrence { regarding, kind: EventType::Warning, reason, message, at: Time::from_unix(seconds, 7) }
    }

    /// Formats the result: `+name` a new event, `name×n` an increment, `-` none; with the message.
    fn format_result(correlator: &mut Correlator, it: &Occurrence) -> String {
        match correlator.correlate(it) {
            CorrelationResult::Drop => "-".to_owned(),
            CorrelationResult::Create(event) => format!("+ {}", event.str_at(&["message"]).unwrap()),
            CorrelationResult::Patch { event, patch } => {
                assert_eq!(event["count"], patch["count"]);
                format!("×{} {}", patch["count"], patch.str_at(&["message"]).unwrap())
            }
        }
    }

    #[test]
    fn equal_occurrences_are_counted() {
        let mut correlator = Correlator::new("kcm".into());
        assert_eq!(format_result(&mut correlator, &occurrence("x", "no", 1)), "+ no");
        assert_eq!(format_result(&mut correlator, &occurrence("x", "no", 2)), "×2 no");
        assert_eq!(format_result(&mut correlator, &occurrence("x", "not so", 3)), "+ not so");
        assert_eq!(format_result(&mut correlator, &occurrence("y", "no", 3)), "+ no");
        assert_eq!(format_result(&mut correlator, &occurrence("x", "no", 4)), "×3 no");
    }

    #[test]
    fn events_equal_upstreams() {
        let mut correlator = Correlator::new("kcm".into());
        let CorrelationResult::Create(event) = correlator.correlate(&occurrence("x", "no", 255)) else {
            panic!("a new event")
        };
        assert_eq!(event.str_at(&["metadata", "name"]), Some("x.3b5f2f3607"));
        assert_eq!(event["involvedObject"], value!({"kind": "Pod", "namespace": "a", "name": "x"}));
        assert_eq!(event["source"], value!({"component": "kcm"}));
        assert_eq!(event["firstTimestamp"], "1970-01-01T00:04:15Z".into());
    }

    #[test]
    fn ten_messages_for_one_reason_are_aggregated() {
        let mut correlator = Correlator::new("kcm".into());
        for number in 0..9 {
            assert!(format_result(&mut correlator, &occurrence("x", &format!("no {number}"), 1)).starts_with('+'));
        }
        let combined = "(combined from similar events):";
        assert_eq!(format_result(&mut correlator, &occurrence("x", "no 9", 2)), format!("+ {combined} no 9"));
        assert_eq!(format_result(&mut correlator, &occurrence("x", "no 10", 3)), format!("×2 {combined} no 10"));
        assert_eq!(format_result(&mut correlator, &occurrence("x", "no 11", 3000)), "+ no 11", "that was long ago");
    }

    #[test]
    fn events_per_object_are_rate_limited() {
        let mut correlator = Correlator::new("kcm".into());
        let formatted: Vec<_> = (0..30).map(|_| format_result(&mut correlator, &occurrence("x", "no", 1))).collect();
        assert_eq!(formatted.iter().filter(|formatted| *formatted != "-").count(), 25);
        assert_eq!(format_result(&mut correlator, &occurrence("y", "no", 1)), "+ no", "a separate event");
        assert!(format_result(&mut correlator, &occurrence("x", "no", 302)).starts_with('×'), "one more after a while");
        assert_eq!(format_result(&mut correlator, &occurrence("x", "no", 303)), "-");
    }

    #[test]
    fn memory_is_bounded() {
        let mut correlator = Correlator::new("kcm".into());
        for number in 0..20_000 {
            correlator.correlate(&occurrence(&number.to_string(), "no", 1));
        }
        assert_eq!(correlator.recent_events.entries.len(), REMEMBERED_MAX);
        assert_eq!(correlator.recent_events.by_use.len(), REMEMBERED_MAX);
        assert_eq!(correlator.budgets.entries.len(), REMEMBERED_MAX);
    }
}

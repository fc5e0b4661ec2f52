//! Causal trace (`knarr trace`): the steps that an object caused, in order.
//!
//! Most API timestamps have a resolution of one second, in which an entire rollout can happen. A step with such a time
//! is sorted within its second, after the steps that must precede it. For example, an object comes after its owner, and
//! a container after its sandbox.

mod record;
mod related;
mod steps;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use api::resources::versioned;
use apimachinery::meta::Meta;
use apimachinery::time::{Duration, Time};
use apimachinery::{Resource, Value, value};

pub use record::{NodeStage, Record};
pub use steps::Stage;
use steps::StageEvent;

/// Kinds that may be owned by other objects, and the Services of EndpointSlices: the `objects` of [`chain`].
pub static RELATED: &[&Resource] = &[
    &versioned::REPLICA_SETS,
    &versioned::CONTROLLER_REVISIONS,
    &versioned::JOBS,
    &versioned::PODS,
    &versioned::PERSISTENT_VOLUME_CLAIMS,
    &versioned::SERVICES,
    &versioned::ENDPOINT_SLICES,
];
/// The kind of the `events` of [`chain`].
pub static EVENTS: &Resource = &versioned::EVENTS_K8S_IO;
/// The namespace of the events of cluster-scoped objects.
pub const CLUSTER_EVENTS_NAMESPACE: &str = "default";

/// The longest offset within the second of a coarse timestamp.
const WITHIN_SECOND: Duration = Duration::from_nanos(999_999_999);

/// An event in the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// The recorded time.
    pub at: Time,
    /// Whether the time has a resolution of microseconds instead of seconds.
    pub precise: bool,
    /// The object: `Pod/web-1`.
    pub object: String,
    pub what: String,
    /// The component; empty if unknown.
    pub by: String,
    pub stage: Stage,
}

impl TraceEvent {
    /// Returns the event as JSON.
    pub fn to_value(&self) -> Value {
        value!({
            "at": (self.at.micro().to_string()),
            "precise": (self.precise),
            "object": (self.object.as_str()),
            "what": (self.what.as_str()),
            "by": (self.by.as_str()),
            "stage": (self.stage.name()),
        })
    }
}

/// The records of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRecords {
    /// The component that made the records, such as `kube-proxy on b`.
    pub by: String,
    /// In the order of their times.
    pub records: Vec<Record>,
}

/// Returns the trace of an object, of everything it owns directly or indirectly, and of the endpoints of its pods.
///
/// `objects` may contain unrelated objects, which are ignored.
pub fn chain(root: &Value, objects: &[Value], events: &[Value], records: &[NodeRecords]) -> Vec<TraceEvent> {
    let related = related::of(root, objects);
    let mut events_by_uid: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for event in events {
        events_by_uid.entry(event.text_at(&["regarding", "uid"])).or_default().push(event);
    }
    let mut floors: BTreeMap<&str, Floors> = BTreeMap::new();
    let mut placed: Vec<(Time, TraceEvent)> = Vec::new();
    for one in &related.objects {
        let meta = Meta::of(one.object);
        let mut found = steps::of_object(one.object, related.first_made(meta.uid()));
        found.extend(steps::of_events(events_by_uid.get(meta.uid()).into_iter().flatten().copied()));
        if let Some(addresses) = related.addresses(one.object) {
            found.extend(steps::of_records(records, &addresses, meta.creation_timestamp()));
        }
        let name = format!("{}/{}", one.object.str_at(&["kind"]).unwrap_or("Object"), meta.name());
        let start = one.causes.iter().filter_map(|cause| floors.get(cause.uid)).map(|floors| floors.written).max();
        let ready = one.causes.iter().filter_map(|cause| floors.get(cause.uid)).filter_map(|floors| floors.ready).max();
        let floor = assign_times(steps::distinct(found), &name, start, ready, &mut placed);
        floors.insert(meta.uid(), floor);
    }
    // The sort is stable: equal times keep the causal order.
    placed.sort_by_key(|(at, _)| *at);
    placed.into_iter().map(|(_, step)| step).collect()
}

/// Formats the steps as a table.
pub fn table(steps: &[TraceEvent]) -> String {
    let Some(first) = steps.first() else { return String::new() };
    let width = steps.iter().map(|step| step.object.chars().count()).max().unwrap_or_default();
    let mut out = String::new();
    for step in steps {
        let text = step.at.micro().to_string();
        let (clock, after) = if step.precise {
            (text.get(11..23), step.at.since(first.at))
        } else {
            (text.get(11..19), step.at.to_seconds().since(first.at.to_seconds()))
        };
        let after = if step.precise && first.precise {
            format!("+{:.3} s", after.nanos() as f64 / 1e9)
        } else {
            format!("+{} s", after.whole_seconds().max(0))
        };
        let by = if step.by.is_empty() { String::new() } else { format!(" ({})", step.by) };
        out.push_str(&format!(
            "{:<12}  {after:>9}  {:<width$}  {}{by}\n",
            clock.unwrap_or(&text),
            step.object,
            step.what
        ));
    }
    out
}

/// Earliest times for the steps that follow.
struct Floors {
    written: Time,
    ready: Option<Time>,
}

/// Assigns a sort time to each step of an object: no earlier than its cause and the preceding stage.
fn assign_times(
    mut found: Vec<StageEvent>,
    name: &str,
    start: Option<Time>,
    ready: Option<Time>,
    placed: &mut Vec<(Time, TraceEvent)>,
) -> Floors {
    found.sort_by_key(|found| (found.stage, found.at));
    let start_time = start.unwrap_or(Time::from_unix(0, 0));
    let mut floors = Floors { written: start_time, ready: None };
    let mut floor = start_time;
    for StageEvent { stage, at, precise, what, by, .. } in found {
        if stage == Stage::Published {
            floor = floor.max(ready.unwrap_or(floor));
        }
        let least = if stage.is_ordered() { floor } else { start_time };
        let fits = !precise && least > at && least <= at.plus(WITHIN_SECOND);
        let sorted_by = if fits { least } else { at };
        if stage.is_ordered() {
            floor = floor.max(sorted_by);
        }
        match stage {
            Stage::Written => floors.written = sorted_by,
            Stage::Ready => floors.ready = Some(sorted_by),
            _ => {}
        }
        placed.push((sorted_by, TraceEvent { at, precise, object: name.to_owned(), what, by, stage }));
    }
    floors
}

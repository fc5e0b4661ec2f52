//! What an object set in motion, step by step, in the order in which it happened.
//!
//! Most times of the API have a resolution of a second, in which a whole deployment happens. A step with such a time is put after the
//! steps that it cannot have come before, as far as its second allows: an object after its owner, a container after its sandbox.

mod record;
mod related;
mod steps;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use machinery::Value;
use machinery::meta::Meta;
use machinery::time::{Duration, Time};

pub use record::{Record, records};
use steps::{Found, Stage};

/// The longest time that is still within the second that a coarse time names.
const WITHIN_SECOND: Duration = Duration::from_nanos(999_999_999);

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// When, as it is written down.
    pub at: Time,
    /// Whether that is known to the microsecond, and not only to the second.
    pub precise: bool,
    /// To which object: `Pod/web-1`.
    pub object: String,
    /// What.
    pub what: String,
    /// By whom; empty if nobody says.
    pub by: String,
}

/// The chain of an object, of what it owns however indirectly, and of the endpoints that came of its pods.
///
/// `objects` may be all there are; those that have nothing to do with `root` are left out.
pub fn chain(root: &Value, objects: &[Value], events: &[Value], records: &[Record]) -> Vec<Step> {
    let related = related::of(root, objects);
    let mut said: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for event in events {
        said.entry(event.str_at(&["regarding", "uid"]).unwrap_or_default()).or_default().push(event);
    }
    let mut floors: BTreeMap<&str, Floors> = BTreeMap::new();
    let mut placed: Vec<(Time, Step)> = Vec::new();
    for one in &related.objects {
        let meta = Meta::of(one.object);
        let mut found = steps::of_object(one.object, related.first_made(meta.uid()));
        found.extend(steps::of_events(said.get(meta.uid()).into_iter().flatten().copied()));
        if let Some(addresses) = related.addresses(one.object) {
            found.extend(steps::of_records(records, &addresses, meta.creation_timestamp()));
        }
        let name = format!("{}/{}", one.object.str_at(&["kind"]).unwrap_or("Object"), meta.name());
        let start = one.causes.iter().filter_map(|cause| floors.get(cause.uid)).map(|floors| floors.written).max();
        let ready = one.causes.iter().filter_map(|cause| floors.get(cause.uid)).filter_map(|floors| floors.ready).max();
        let floor = place(steps::distinct(found), &name, start, ready, &mut placed);
        floors.insert(meta.uid(), floor);
    }
    // Equal times stay in the order of causes.
    placed.sort_by_key(|(at, _)| *at);
    placed.into_iter().map(|(_, step)| step).collect()
}

/// As a table for people.
pub fn table(steps: &[Step]) -> String {
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

/// When what others follow from happened.
struct Floors {
    written: Time,
    ready: Option<Time>,
}

/// Gives each step of one object a time to sort by: no earlier than its cause and the stage before it.
fn place(
    mut found: Vec<Found>,
    name: &str,
    start: Option<Time>,
    ready: Option<Time>,
    placed: &mut Vec<(Time, Step)>,
) -> Floors {
    found.sort_by_key(|found| (found.stage, found.at));
    let begin = start.unwrap_or(Time::from_unix(0, 0));
    let mut floors = Floors { written: begin, ready: None };
    let mut floor = begin;
    for Found { stage, at, precise, what, by, .. } in found {
        if stage == Stage::Published {
            floor = floor.max(ready.unwrap_or(floor));
        }
        let least = if stage.is_ordered() { floor } else { begin };
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
        placed.push((sorted_by, Step { at, precise, object: name.to_owned(), what, by }));
    }
    floors
}

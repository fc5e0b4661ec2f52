//! Steps derived from an object, its events and the records of nodes.

use std::collections::BTreeMap;

use api::view::{Endpoint, EndpointSlice, SERVICE_NAME};
use apimachinery::Value;
use apimachinery::meta::Meta;
use apimachinery::time::{Duration, Time};

use super::NodeRecords;
use super::record::{NodeStage, Record};

/// Maximum length of a message; longer ones are truncated to keep one line per step.
const NOTE_MAX: usize = 160;

/// Stage of an object. All stages except `Other` follow each other in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Written,
    Seen,
    Bound,
    Sandbox,
    Image,
    Created,
    Started,
    Initialized,
    Ready,
    Published,
    Rules,
    Other,
}

/// A step without a sort time.
#[derive(Clone, Debug)]
pub(super) struct StageEvent {
    pub stage: Stage,
    /// Distinguishes steps of one stage; empty if they are duplicates regardless of their source.
    pub which: String,
    pub at: Time,
    pub precise: bool,
    pub what: String,
    pub by: String,
}

/// Conditions that are steps when true: kind, condition type, stage, text and component. An empty component stands for
/// the manager of the status.
const CONDITIONS: &[(&str, &str, Stage, &str, &str)] = &[
    ("Pod", "PodScheduled", Stage::Bound, "bound", "kube-scheduler"),
    ("Pod", "PodReadyToStartContainers", Stage::Sandbox, "sandbox ready", "kubelet"),
    ("Pod", "Initialized", Stage::Initialized, "init containers done", "kubelet"),
    ("Pod", "Ready", Stage::Ready, "ready", "kubelet"),
    ("Deployment", "Progressing", Stage::Seen, "seen by the deployment controller", ""),
    ("Deployment", "Available", Stage::Ready, "available", ""),
    ("Job", "Complete", Stage::Ready, "complete", ""),
    ("Job", "Failed", Stage::Ready, "failed", ""),
];

/// Events that belong to a stage; all others are included unchanged.
const REASONS: &[(&str, Stage)] = &[
    ("ScalingReplicaSet", Stage::Seen),
    ("SuccessfulCreate", Stage::Seen),
    ("Scheduled", Stage::Bound),
    ("Pulling", Stage::Image),
    ("Pulled", Stage::Image),
    ("Created", Stage::Created),
    ("Started", Stage::Started),
];

impl Stage {
    /// Whether steps of this stage follow those of all earlier stages.
    pub(super) fn is_ordered(self) -> bool {
        self != Self::Other
    }

    /// Returns the name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Written => "Written",
            Self::Seen => "Seen",
            Self::Bound => "Bound",
            Self::Sandbox => "Sandbox",
            Self::Image => "Image",
            Self::Created => "Created",
            Self::Started => "Started",
            Self::Initialized => "Initialized",
            Self::Ready => "Ready",
            Self::Published => "Published",
            Self::Rules => "Rules",
            Self::Other => "Other",
        }
    }
}

/// Returns the steps of an object itself. `first_made` is the creation time of the first object that it caused.
pub(super) fn of_object(object: &Value, first_made: Option<Time>) -> Vec<StageEvent> {
    let kind = object.text_at(&["kind"]);
    let mut found: Vec<StageEvent> = written(object).into_iter().collect();
    // The step that lists the endpoints reports a change of an EndpointSlice.
    if kind != "EndpointSlice" {
        found.extend(changes(object));
    }
    found.extend(conditions(kind, object, first_made));
    for field in ["initContainerStatuses", "containerStatuses"] {
        found.extend(object.list_at(&["status", field]).iter().flat_map(container));
    }
    if kind == "EndpointSlice" {
        found.extend(published(object));
    }
    found.extend(deletion(object));
    found
}

/// Returns the steps from an object's events.
pub(super) fn of_events<'a>(events: impl Iterator<Item = &'a Value>) -> Vec<StageEvent> {
    events.filter_map(event).collect()
}

/// Returns the times when a service's rules were applied on each node: the first after the write, and the last.
pub(super) fn of_records(nodes: &[NodeRecords], addresses: &[String], since: Option<Time>) -> Vec<StageEvent> {
    let is_affected = |record: &&Record| {
        let NodeStage::ServiceRules { cluster_ips } = &record.stage;
        cluster_ips.iter().any(|ip| addresses.contains(ip))
    };
    // A record is more precise than the object's time, which may be up to one second earlier.
    let is_later = |record: &&Record| since.is_none_or(|since| record.at >= since);
    let step = |record: &Record, what: &str, by: &str| StageEvent {
        stage: Stage::Rules,
        which: format!("{what} by {by}"),
        at: record.at,
        precise: true,
        what: format!("{what} for {}", addresses.join(", ")),
        by: by.to_owned(),
    };
    let of_node = |node: &NodeRecords| {
        let mut relevant = node.records.iter().filter(is_affected).filter(is_later);
        let first = relevant.next().map(|record| step(record, "rules in place", &node.by));
        let last = relevant.next_back().map(|record| step(record, "rules last changed", &node.by));
        [first, last]
    };
    nodes.iter().flat_map(of_node).flatten().collect()
}

/// Removes duplicates and keeps the most precise.
pub(super) fn distinct(found: Vec<StageEvent>) -> Vec<StageEvent> {
    let mut retained: Vec<StageEvent> = Vec::with_capacity(found.len());
    let mut places: BTreeMap<(Stage, String), usize> = BTreeMap::new();
    for one in found {
        let is_unique = matches!(one.stage, Stage::Other | Stage::Seen);
        match places.get(&(one.stage, one.which.clone())) {
            Some(position) if !is_unique => {
                if one.precise && !retained[*position].precise {
                    retained[*position] = one;
                }
            }
            _ => {
                places.insert((one.stage, one.which.clone()), retained.len());
                retained.push(one);
            }
        }
    }
    retained
}

fn written(object: &Value) -> Option<StageEvent> {
    let meta = Meta::of(object);
    let at = meta.creation_timestamp()?;
    let first = own_entries(meta).filter_map(entry_time).min_by_key(|(at, _)| *at);
    let by = first.filter(|(first, _)| *first <= at).map_or_else(String::new, |(_, by)| by.to_owned());
    let owner = meta.controller().map(|owner| format!(" for {}/{}", owner.kind(), owner.name()));
    Some(coarse(Stage::Written, at, format!("written{}", owner.unwrap_or_default()), by))
}

/// Returns later writes; the object keeps the last one of each field manager.
fn changes(object: &Value) -> Vec<StageEvent> {
    let meta = Meta::of(object);
    let Some(created) = meta.creation_timestamp() else { return Vec::new() };
    let later = own_entries(meta).filter_map(entry_time).filter(|(at, _)| *at > created);
    later.map(|(at, by)| coarse(Stage::Other, at, "changed", by)).collect()
}

/// Returns the managedFields entries of the object itself, without subresources.
fn own_entries(meta: Meta<'_>) -> impl Iterator<Item = &Value> {
    meta.managed_fields().iter().filter(|entry| entry.text_at(&["subresource"]).is_empty())
}

fn entry_time(entry: &Value) -> Option<(Time, &str)> {
    Some((Time::parse(entry.str_at(&["time"])?).ok()?, entry.text_at(&["manager"])))
}

fn conditions(kind: &str, object: &Value, first_made: Option<Time>) -> Vec<StageEvent> {
    let meta = Meta::of(object);
    let status = meta.managed_fields().iter().find(|entry| entry.str_at(&["subresource"]) == Some("status"));
    let manager = status.and_then(|entry| entry.str_at(&["manager"])).unwrap_or_default();
    let read = |condition: &Value| {
        let name = condition.str_at(&["type"])?;
        let at = Time::parse(condition.str_at(&["lastTransitionTime"])?).ok()?;
        let row = CONDITIONS.iter().find(|row| row.0 == kind && row.1 == name);
        let (stage, text, by) = row.map_or((Stage::Other, name, manager), |row| (row.2, row.3, row.4));
        let by = if by.is_empty() { manager } else { by };
        // A controller that created an object has observed its cause, even if it reports that later.
        let at = first_made.filter(|made| stage == Stage::Seen && *made < at).unwrap_or(at);
        match condition.str_at(&["status"])? {
            // A pod without init containers is Initialized before anything ran.
            "True" if stage == Stage::Initialized && object.list_at(&["spec", "initContainers"]).is_empty() => None,
            "True" if row.is_none() && kind == "Pod" => None,
            "True" => Some(coarse(stage, at, describe(text, kind, stage, object), by)),
            _ => {
                let message =
                    condition.str_at(&["message"]).or_else(|| condition.str_at(&["reason"])).unwrap_or_default();
                Some(coarse(Stage::Other, at, cut(&format!("not {name}: {message}")), by))
            }
        }
    };
    object.list_at(&["status", "conditions"]).iter().filter_map(read).collect()
}

/// Returns the description of a condition for this object.
fn describe(text: &str, kind: &str, stage: Stage, object: &Value) -> String {
    match (kind, stage) {
        ("Pod", Stage::Bound) => {
            format!("{text} to node {}", object.text_at(&["spec", "nodeName"]))
        }
        _ => text.to_owned(),
    }
}

fn container(status: &Value) -> Vec<StageEvent> {
    let name = status.text_at(&["name"]);
    let mut found = Vec::new();
    let time = |keys: &[&str]| status.str_at(keys).and_then(|text| Time::parse(text).ok());
    let restarts = status.get("restartCount").and_then(Value::as_int).unwrap_or_default();
    let started = |at| {
        let again = if restarts > 0 { format!(" (restart {restarts})") } else { String::new() };
        let stage = if restarts > 0 { Stage::Other } else { Stage::Started };
        StageEvent {
            which: name.to_owned(),
            ..coarse(stage, at, format!("container {name} started{again}"), "kubelet")
        }
    };
    found.extend(time(&["state", "running", "startedAt"]).map(started));
    found.extend(time(&["state", "terminated", "startedAt"]).map(started));
    for state in ["lastState", "state"] {
        let Some(at) = time(&[state, "terminated", "finishedAt"]) else { continue };
        let code = status.int_at(&[state, "terminated", "exitCode"]).unwrap_or_default();
        found.push(coarse(Stage::Other, at, format!("container {name} exited with code {code}"), "kubelet"));
    }
    found
}

fn published(slice: &Value) -> Option<StageEvent> {
    let meta = Meta::of(slice);
    let last = own_entries(meta).filter_map(entry_time).max_by_key(|(at, _)| *at);
    let (at, by) = last.or_else(|| meta.creation_timestamp().map(|at| (at, "")))?;
    let addresses: Vec<&str> = EndpointSlice(slice).ready_endpoints().filter_map(Endpoint::address).collect();
    if addresses.is_empty() {
        return None;
    }
    let service = meta.label(SERVICE_NAME).unwrap_or_default();
    let what = cut(&format!("endpoints of service {service} published: {}", addresses.join(", ")));
    Some(coarse(Stage::Published, at, what, by))
}

fn deletion(object: &Value) -> Option<StageEvent> {
    let meta = Meta::of(object);
    let grace = meta.deletion_grace_period_seconds().unwrap_or_default();
    let requested_at = meta.deletion_timestamp()?.plus(Duration::from_seconds(grace.saturating_neg()));
    Some(coarse(Stage::Other, requested_at, "deletion requested", ""))
}

fn event(event: &Value) -> Option<StageEvent> {
    let precise = event.str_at(&["eventTime"]).and_then(|text| Time::parse_micro(text).ok());
    let coarse = |field| event.str_at(&[field]).and_then(|text| Time::parse(text).ok());
    let at = precise.or_else(|| coarse("deprecatedFirstTimestamp")).or_else(|| coarse("deprecatedLastTimestamp"))?;
    let reason = event.text_at(&["reason"]);
    let stage = REASONS.iter().find(|(name, _)| *name == reason).map_or(Stage::Other, |(_, stage)| *stage);
    let field_path = event.text_at(&["regarding", "fieldPath"]);
    let container = field_path.split_once('{').and_then(|(_, name)| name.strip_suffix('}')).unwrap_or_default();
    let which = match stage {
        Stage::Image => format!("{reason} {container}"),
        _ => container.to_owned(),
    };
    let counted = |keys: &[&str]| event.at(keys).and_then(Value::as_int);
    let count = counted(&["series", "count"]).or_else(|| counted(&["deprecatedCount"])).unwrap_or(1);
    let times = if count > 1 { format!(" ({count} times)") } else { String::new() };
    let by = [&["reportingController"][..], &["deprecatedSource", "component"]];
    let by = by.iter().find_map(|keys| event.str_at(keys).filter(|by| !by.is_empty())).unwrap_or_default();
    Some(StageEvent {
        stage,
        which,
        at,
        precise: precise.is_some(),
        what: format!("{}{times}", cut(&format!("{reason}: {}", event.text_at(&["note"])))),
        by: by.to_owned(),
    })
}

fn coarse(stage: Stage, at: Time, what: impl Into<String>, by: impl Into<String>) -> StageEvent {
    StageEvent { stage, which: String::new(), at, precise: false, what: what.into(), by: by.into() }
}

fn cut(text: &str) -> String {
    let line = text.replace('\n', " ");
    match line.char_indices().nth(NOTE_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

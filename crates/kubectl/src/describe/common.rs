//! Parts that several descriptions have in common: labels, annotations, tolerations, conditions and events.

use apimachinery::labels::{self, format_selector};
use apimachinery::meta::Meta;
use apimachinery::{Object, Value};

use super::read::{Read, name, namespace};
use super::writer::{Writer, line};
use crate::generate::last_applied::ANNOTATION as LAST_APPLIED;

/// The length from which the values of annotations are printed on separate lines and cut.
const ANNOTATION_LENGTH: usize = 140;

/// Writes `Name` and `Namespace`.
pub fn identity(w: &mut Writer<'_>, object: &Value) {
    line!(w, 0, "Name:\t{}", name(object));
    line!(w, 0, "Namespace:\t{}", namespace(object));
}

/// Writes `Labels` and `Annotations`.
pub fn metadata(w: &mut Writer<'_>, object: &Value) {
    labels(w, "Labels", object.map("metadata.labels"));
    annotations(w, "Annotations", object.map("metadata.annotations"));
}

/// Writes a map with one entry per line.
pub fn labels(w: &mut Writer<'_>, title: &str, labels: &Object) {
    labels_indented(w, "", title, labels);
}

pub fn labels_indented(w: &mut Writer<'_>, indent: &str, title: &str, labels: &Object) {
    let lines: Vec<_> =
        labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    w.write(0, format_args!("{indent}{title}:\t"));
    multiline(w, indent, &lines);
}

/// Writes one entry per line, aligned in the second column; `<none>` if there is none.
pub fn multiline(w: &mut Writer<'_>, indent: &str, lines: &[String]) {
    if lines.is_empty() {
        w.write(0, "<none>\n");
    }
    for (index, line) in lines.iter().enumerate() {
        if index > 0 {
            w.write(0, indent);
            w.write(0, "\t");
        }
        w.write(0, format_args!("{line}\n"));
    }
}

pub fn annotations(w: &mut Writer<'_>, title: &str, annotations: &Object) {
    w.write(0, format_args!("{title}:\t"));
    let visible = || annotations.iter().filter(|(key, _)| *key != LAST_APPLIED);
    if visible().next().is_none() {
        w.write(0, "<none>\n");
    }
    for (index, (key, value)) in visible().enumerate() {
        if index > 0 {
            w.write(0, "\t");
        }
        let value = value.as_str().unwrap_or_default();
        let value = value.strip_suffix('\n').unwrap_or(value);
        if value.len() + key.len() + 2 > ANNOTATION_LENGTH || value.contains('\n') {
            w.write(0, format_args!("{key}:\n"));
            for part in value.split('\n') {
                w.write(0, format_args!("\t  {}\n", shorten(part, ANNOTATION_LENGTH - 2)));
            }
        } else {
            w.write(0, format_args!("{key}: {value}\n"));
        }
    }
}

/// Cuts a text after `length` bytes and marks the cut.
pub fn shorten(text: &str, length: usize) -> String {
    if text.len() <= length {
        return text.to_owned();
    }
    format!("{}...", String::from_utf8_lossy(&text.as_bytes()[..length]))
}

/// Writes the controller of an object, if it has one.
pub fn controlled_by(w: &mut Writer<'_>, object: &Value) {
    if let Some(owner) = Meta::of(object).controller() {
        line!(w, 0, "Controlled By:\t{}/{}", owner.kind(), owner.name());
    }
}

pub fn taints(w: &mut Writer<'_>, taints: &[Value]) {
    let mut taints: Vec<&Value> = taints.iter().collect();
    taints.sort_by_key(|taint| format!("{},{}", taint.text("effect"), taint.text("key")));
    let lines: Vec<_> = taints.into_iter().map(taint).collect();
    w.write(0, "Taints:\t");
    multiline(w, "", &lines);
}

/// Formats a taint: `key=value:effect`.
pub fn taint(taint: &Value) -> String {
    let (key, value, effect) = (taint.text("key"), taint.text("value"), taint.text("effect"));
    let value = if value.is_empty() { String::new() } else { format!("={value}") };
    let effect = if effect.is_empty() { String::new() } else { format!(":{effect}") };
    format!("{key}{value}{effect}")
}

pub fn tolerations(w: &mut Writer<'_>, title: &str, tolerations: &[Value]) {
    let mut tolerations: Vec<&Value> = tolerations.iter().collect();
    tolerations.sort_by_key(|toleration| toleration.text("key"));
    let lines: Vec<_> = tolerations.into_iter().map(toleration).collect();
    w.write(0, format_args!("{title}:\t"));
    multiline(w, "", &lines);
}

fn toleration(toleration: &Value) -> String {
    let (key, value, effect) = (toleration.text("key"), toleration.text("value"), toleration.text("effect"));
    let mut out = key.to_owned();
    if !value.is_empty() {
        out.push_str(&format!("={value}"));
    }
    if !effect.is_empty() {
        out.push_str(&format!(":{effect}"));
    }
    if toleration.text("operator") == "Exists" && value.is_empty() {
        // An operator alone tolerates everything.
        out.push_str(if key.is_empty() && effect.is_empty() { "op=Exists" } else { " op=Exists" });
    }
    if toleration.has("tolerationSeconds") {
        out.push_str(&format!(" for {}s", toleration.int("tolerationSeconds")));
    }
    out
}

/// Writes conditions with type, status and reason.
pub fn conditions(w: &mut Writer<'_>, object: &Value) {
    let conditions = object.list("status.conditions");
    if conditions.is_empty() {
        return;
    }
    line!(w, 0, "Conditions:\n  Type\tStatus\tReason");
    line!(w, 1, "----\t------\t------");
    for condition in conditions {
        let [kind, status, reason] = ["type", "status", "reason"].map(|field| condition.text(field));
        line!(w, 1, "{kind} \t{status}\t{reason}");
    }
}

/// Writes conditions with type, status, transition time, reason and message.
pub fn dated_conditions(w: &mut Writer<'_>, conditions: &[Value]) {
    line!(w, 0, "Conditions:");
    line!(w, 1, "Type\tStatus\tLastTransitionTime\tReason\tMessage");
    line!(w, 1, "----\t------\t------------------\t------\t-------");
    for condition in conditions {
        let [kind, status, reason, message] =
            ["type", "status", "reason", "message"].map(|field| condition.text(field));
        let time = w.clock.rfc1123(condition.text("lastTransitionTime"));
        line!(w, 1, "{kind}\t{status}\t{time}\t{reason}\t{message}");
    }
}

/// Writes `Status`: the phase, or for how long a deleted object has been terminating.
pub fn phase(w: &mut Writer<'_>, object: &Value) {
    match object.text("metadata.deletionTimestamp") {
        "" => line!(w, 0, "Status:\t{}", object.text("status.phase")),
        deleted => {
            let since = w.clock.since(deleted);
            line!(w, 0, "Status:\tTerminating (lasts {since})");
        }
    }
}

/// Writes a time of the status, if it is present.
pub fn time(w: &mut Writer<'_>, title: &str, timestamp: &str) {
    let time = w.clock.rfc1123(timestamp);
    line!(w, 0, "{title}:\t{time}");
}

/// Returns the label selector of a query for the objects that `selector` selects.
pub fn selector(selector: &Value) -> Result<String, String> {
    let selector = (!selector.is_null()).then_some(selector);
    labels::from_object(selector).map(|selector| selector.to_string()).map_err(|error| error.to_string())
}

/// Formats a label selector for a line; `<none>` if it is empty.
pub fn describe_selector(selector: &Value) -> String {
    format_selector((!selector.is_null()).then_some(selector))
}

pub const fn capital_bool(flag: bool) -> &'static str {
    if flag { "True" } else { "False" }
}

/// Formats an optional boolean.
pub fn optional_bool(value: &Value) -> &'static str {
    value.as_bool().map_or("<unset>", capital_bool)
}

/// Writes the events of an object in the order of their last occurrence.
pub fn events(w: &mut Writer<'_>, events: &[Value]) {
    if events.is_empty() {
        line!(w, 0, "Events:\t<none>");
        return;
    }
    w.flush();
    let mut events: Vec<&Value> = events.iter().collect();
    // DEVIATION: kubectl shuffles more than twelve events of the same second; here they keep the order of the server.
    events.sort_by_key(|event| super::clock::parse(event.text("lastTimestamp")));
    line!(w, 0, "Events:\n  Type\tReason\tAge\tFrom\tMessage");
    line!(w, 1, "----\t------\t----\t----\t-------");
    for event in events {
        let age = age(w, event);
        let source = match event.text("source.component") {
            "" => event.text("reportingComponent"),
            component => component,
        };
        let message = event.text("message").trim();
        let message = match event.text("involvedObject.fieldPath") {
            "" => message.to_owned(),
            path => format!("{path}: {message}"),
        };
        line!(w, 1, "{}\t{}\t{age}\t{source}\t{message}", event.text("type"), event.text("reason"));
    }
}

/// Formats when an event occurred first, or how often and for how long it has occurred.
fn age(w: &Writer<'_>, event: &Value) -> String {
    let first = match event.text("eventTime") {
        "" => w.clock.since(event.text("firstTimestamp")),
        time => w.clock.since(time),
    };
    let (last, count) = if event.has("series") {
        (event.text("series.lastObservedTime"), event.int("series.count"))
    } else if event.int("count") > 1 {
        (event.text("lastTimestamp"), event.int("count"))
    } else {
        return first;
    };
    format!("{} (x{count} over {first})", w.clock.since(last))
}

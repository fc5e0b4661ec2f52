//! Event: an occurrence related to an object. Core and events.k8s.io serve the same objects with different field names.

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::name_is_path_segment;
use apimachinery::table::{self, Column};
use apimachinery::time::Time;
use apimachinery::{At, Errors, GroupVersion, Path, Str, Value, names};

use crate::catalogue;
use crate::core::object_meta;
use crate::field_rules::{IMMUTABLE, column, immutable, immutable_with_value, looks, wide_column};
use crate::go_form;
use crate::kind::{Context, Kind, Persistence, Rules, Selectable, UpdateChecks, name_column, names as strings};

/// Maximum length of reason, action and reportingInstance.
const WORD_MAX: usize = 128;
/// Maximum length of the note.
const NOTE_MAX: usize = 1024;

pub fn kind() -> Kind {
    Kind {
        selectable: selectable("involvedObject", "reportingComponent"),
        // For core Events upstream validates only the metadata that storage requires.
        name_rule: name_is_path_segment,
        qualified_finalizers: false,
        update_checks: UpdateChecks { whole: 0, change: 0 },
        rules: Arc::new(Event { newer: false }),
        ..row("")
    }
}

/// Returns the properties shared by both groups.
pub fn row(group: &str) -> Kind {
    Kind {
        short_names: strings(&["ev"]),
        persistence: Persistence::Stored {
            prefix: "events".into(),
            version: GroupVersion { group: "".into(), version: "v1".into() },
            expires: true,
        },
        create_on_update: true,
        validates_metadata: true,
        ..Kind::stored(group, "v1", "Event", "events")
    }
    .with_columns(&columns())
}

/// The rules of both groups, which validate the stored form.
#[derive(Debug)]
pub struct Event {
    /// Whether the request uses events.k8s.io, which has stricter rules.
    pub newer: bool,
}

impl Rules for Event {
    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        self.validate_common(&root, errors);
        if !self.newer {
            return;
        }
        object_meta::validate_as_new(object, errors);
        series(&root, errors);
        if root.get("eventTime").is_absent() {
            errors.push(root.get("eventTime").required(""));
        }
        let ty = root.get("type");
        if !["Normal", "Warning"].contains(&ty.str()) {
            errors.push(Error::invalid(ty.path(), "", format!("has invalid value: {}", ty.str())));
        }
        let source = root.get("source");
        let is_set = [
            ("firstTimestamp", root.get("firstTimestamp").is_present()),
            ("lastTimestamp", root.get("lastTimestamp").is_present()),
            ("count", root.get("count").int() != 0),
            ("source", !source.get("component").is_empty() || !source.get("host").is_empty()),
        ];
        for (field, _) in is_set.into_iter().filter(|(_, set)| *set) {
            errors.push(Error::invalid(root.get(field).path(), "", "needs to be unset"));
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let (root, before) = (At::root(object), At::root(old));
        self.validate_common(&root, errors);
        if !self.newer {
            return;
        }
        object_meta::created(object, errors);
        if root.get("series").value() != before.get("series").value() {
            series(&root, errors);
        }
        let schema = catalogue::schema(&apimachinery::GroupVersionKind::of("", "v1", "Event"));
        let reference = |field: &str, errors: &mut Errors| {
            let at = root.get(field);
            immutable_with_value(
                &at,
                &before.get(field),
                || schema.map_or_else(|| at.value().into(), |schema| go_form::bad_value_at(&at, schema, &[field])),
                errors,
            );
        };
        let plain = |field: &str, errors: &mut Errors| immutable(&root.get(field), &before.get(field), errors);
        let text = |field: &str, errors: &mut Errors| {
            if root.get(field).str() != before.get(field).str() {
                // Error paths use the events.k8s.io names, as upstream does.
                let field_name = if field == "reportingComponent" { "reportingController" } else { field };
                errors.push(Error::invalid(root.get(field_name).path(), root.get(field).str(), IMMUTABLE));
            }
        };
        reference("involvedObject", errors);
        text("reason", errors);
        text("message", errors);
        reference("source", errors);
        plain("firstTimestamp", errors);
        plain("lastTimestamp", errors);
        if root.get("count").int() != before.get("count").int() {
            errors.push(Error::invalid(root.get("count").path(), root.get("count").int(), IMMUTABLE));
        }
        text("reason", errors);
        text("type", errors);
        plain("eventTime", errors);
        text("action", errors);
        reference("related", errors);
        text("reportingComponent", errors);
        text("reportingInstance", errors);
    }
}

impl Event {
    fn validate_common(&self, root: &At<'_>, errors: &mut Errors) {
        let (metadata, involved) = (root.get("metadata"), root.get("involvedObject"));
        let (namespace, at) = (metadata.get("namespace"), involved.get("namespace"));
        let timed = root.get("eventTime").is_present();
        let fits = match (at.str(), timed) {
            ("", false) => ["", "default"].contains(&namespace.str()),
            ("", true) => ["default", "kube-system"].contains(&namespace.str()),
            (other, false) => other == namespace.str(),
            (_, true) => true,
        };
        if !fits {
            errors.push(Error::invalid(at.path(), at.str(), "does not match event.namespace"));
        }
        if timed {
            validate_required_fields(root, errors);
        }
        let wrong = names::dns1123_subdomain(namespace.str());
        errors.extend(
            wrong.into_iter().map(|message| Error::invalid(root.get("namespace").path(), namespace.str(), message)),
        );
    }
}

/// Validates the fields that are required if `eventTime` is set.
fn validate_required_fields(root: &At<'_>, errors: &mut Errors) {
    // The error path uses the events.k8s.io name, as upstream does.
    let controller = At::new(root.get("reportingComponent").value(), Path::of("reportingController"));
    if controller.is_empty() {
        errors.push(controller.required(""));
    }
    looks(&controller, names::qualified_name, errors);
    let limited = |at: &At<'_>, max: usize, errors: &mut Errors| {
        if at.len() > max {
            errors.push(Error::invalid(at.path(), "", format!("can have at most {max} characters")));
        }
    };
    for field in ["reportingInstance", "action", "reason"] {
        if root.get(field).is_empty() {
            errors.push(root.get(field).required(""));
        }
        limited(&root.get(field), WORD_MAX, errors);
    }
    limited(&root.get("message"), NOTE_MAX, errors);
}

fn series(root: &At<'_>, errors: &mut Errors) {
    let series = root.get("series");
    if series.is_present() {
        if series.get("count").int() < 2 {
            errors.push(Error::invalid(series.get("count").path(), "", "should be at least 2"));
        }
        if series.get("lastObservedTime").is_absent() {
            errors.push(series.get("lastObservedTime").required(""));
        }
    }
}

/// Returns the selectable fields; `reference` is the name of the field that refers to the object.
pub fn selectable(reference: &str, controller: &str) -> Vec<Selectable> {
    let of = |field: &str| format!("{reference}.{field}");
    vec![
        Selectable::new(&of("kind"), |event| involved(event, "kind")),
        Selectable::new(&of("namespace"), |event| involved(event, "namespace")),
        Selectable::new(&of("name"), |event| involved(event, "name")),
        Selectable::new(&of("uid"), |event| involved(event, "uid")),
        Selectable::new(&of("apiVersion"), |event| involved(event, "apiVersion")),
        Selectable::new(&of("resourceVersion"), |event| involved(event, "resourceVersion")),
        Selectable::new(&of("fieldPath"), |event| involved(event, "fieldPath")),
        Selectable::new("reason", |event| event.text_at(&["reason"]).into()),
        Selectable::new(controller, |event| either(event, "reportingComponent", "reportingController").into()),
        Selectable::new("source", |event| match source(event, "component") {
            "" => either(event, "reportingComponent", "reportingController").into(),
            component => component.into(),
        }),
        Selectable::new("type", |event| event.text_at(&["type"]).into()),
    ]
}

fn columns() -> Vec<Column> {
    vec![
        column("Last Seen", "string", "Time of the last occurrence.", |event, now| last_seen(event, now).into()),
        column("Type", "string", "Normal or Warning.", |event, _| event.text_at(&["type"]).into()),
        column("Reason", "string", "Reason of the event.", |event, _| event.text_at(&["reason"]).into()),
        column("Object", "string", "Object that the event is about.", |event, _| object(event).into()),
        wide_column("Subobject", "string", "Field of the object that the event is about.", |event, _| {
            involved(event, "fieldPath").into()
        }),
        wide_column("Source", "string", "Component that reported the event.", |event, _| reporter(event).into()),
        column("Message", "string", "Message of the event.", |event, _| either(event, "message", "note").trim().into()),
        wide_column("First Seen", "string", "Time of the first occurrence.", |event, now| {
            first_seen(event, now).into()
        }),
        wide_column("Count", "string", "Number of occurrences.", |event, _| count(event)),
        Column { priority: 1, ..name_column() },
    ]
}

/// Returns a string field by its core name, or else by its events.k8s.io name.
fn either<'a>(event: &'a Value, core: &str, newer: &str) -> &'a str {
    event.str_at(&[core]).or_else(|| event.str_at(&[newer])).unwrap_or_default()
}

fn involved(event: &Value, field: &str) -> Str {
    let found = event.str_at(&["involvedObject", field]).or_else(|| event.str_at(&["regarding", field]));
    found.unwrap_or_default().into()
}

fn source<'a>(event: &'a Value, field: &str) -> &'a str {
    event.str_at(&["source", field]).or_else(|| event.str_at(&["deprecatedSource", field])).unwrap_or_default()
}

fn object(event: &Value) -> String {
    let kind = involved(event, "kind").to_lowercase();
    match involved(event, "name").as_str() {
        "" => kind.into(),
        name => format!("{kind}/{name}"),
    }
}

fn reporter(event: &Value) -> String {
    let (mut component, mut host) = (source(event, "component"), source(event, "host"));
    if component.is_empty() {
        component = either(event, "reportingComponent", "reportingController");
        host = event.text_at(&["reportingInstance"]);
    }
    if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") }
}

fn count(event: &Value) -> Value {
    let count = event.at(&["series", "count"]).or_else(|| event.get("count")).or_else(|| event.get("deprecatedCount"));
    Value::Int(count.and_then(Value::as_int).filter(|count| *count != 0).unwrap_or(1))
}

fn first_seen(event: &Value, now: Time) -> String {
    let first = either(event, "firstTimestamp", "deprecatedFirstTimestamp");
    match Time::parse(first) {
        Ok(time) => table::age(Some(time), now),
        Err(_) => table::age(Time::parse_micro(event.text_at(&["eventTime"])).ok(), now),
    }
}

fn last_seen(event: &Value, now: Time) -> String {
    if let Some(observed) = event.str_at(&["series", "lastObservedTime"]) {
        return table::age(Time::parse_micro(observed).ok(), now);
    }
    match Time::parse(either(event, "lastTimestamp", "deprecatedLastTimestamp")) {
        Ok(time) => table::age(Some(time), now),
        Err(_) => first_seen(event, now),
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn event_source_falls_back_to_the_reporting_controller() {
        let check = |event: &Value, expect: &str| {
            for fields in
                [selectable("involvedObject", "reportingComponent"), selectable("regarding", "reportingController")]
            {
                let field = fields.iter().find(|field| field.name == "source").expect("events have a source");
                assert_eq!(field.of(event), expect, "{event}");
            }
        };
        check(&value!({"source": {"component": "kubelet"}, "reportingComponent": "other"}), "kubelet");
        check(&value!({"source": {}, "reportingComponent": "k8s.io/controller"}), "k8s.io/controller");
        check(&value!({"reportingComponent": "k8s.io/controller"}), "k8s.io/controller");
        check(&value!({"deprecatedSource": {"component": "kubelet"}, "reportingController": "other"}), "kubelet");
        check(&value!({"reportingController": "k8s.io/controller"}), "k8s.io/controller");
        check(&value!({}), "");
    }
}

//! Descriptions of recorded objects, compared with the output of kubectl 1.36.

use apimachinery::fields;
use apimachinery::labels::Selector;
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{Value, json};
use jiff::tz::TimeZone;

use super::query::{Events, Query};
use super::read::{Read, name, namespace};
use super::{Clock, RelatedObjects, find, render};

/// All objects of a cluster, one per line.
const OBJECTS: &str = include_str!("tests/objects.jsonl");
/// The output for some of them. A header has API version, kind, namespace, name, time, and whether events are shown.
const EXPECTED: &str = include_str!("tests/expected.txt");

/// Answers a query from the recorded objects.
fn response(objects: &[Value], query: &Query) -> Vec<Value> {
    let labels = Selector::parse(&query.label_selector).unwrap();
    let has_field = |object: &Value, term: &str| match term.split_once("!=") {
        Some((path, value)) => object.text(path) != value,
        None => term.split_once('=').is_none_or(|(path, value)| object.text(path) == value),
    };
    let matches = |object: &&Value| {
        object.text("kind") == query.resource.kind.as_str()
            && (query.namespace.is_empty() || namespace(object) == query.namespace.as_str())
            && (query.name.is_empty() || name(object) == query.name.as_str())
            && labels.matches_object(object)
            && query.field_selector.split(',').filter(|term| !term.is_empty()).all(|term| has_field(object, term))
    };
    objects.iter().filter(matches).cloned().collect()
}

fn describe(objects: &[Value], header: &str) -> String {
    let [version, kind, space, wanted, now, events] = header.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let space = if space == "-" { "" } else { space };
    let is_selected = |object: &&Value| {
        (object.text("apiVersion"), object.text("kind")) == (version, kind)
            && (namespace(object), name(object)) == (space, wanted)
    };
    let object = objects.iter().find(is_selected).unwrap_or_else(|| panic!("no object {header}"));
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let row = find(group, kind);
    let mut related = RelatedObjects::default();
    for query in row.map_or(Ok(Vec::new()), |row| (row.related)(object)).unwrap() {
        let found = response(objects, &query);
        let missing = !query.name.is_empty() && found.is_empty();
        let response = if missing { Err(format!("{} {:?} not found", query.resource, query.name)) } else { Ok(found) };
        related.responses.push((query, response));
    }
    let event_source = row.map_or(Events::Object, |row| row.events);
    if events == "yes" && event_source != Events::None {
        related.events = Some(event_source.queries(object).iter().flat_map(|query| response(objects, query)).collect());
    }
    let clock = Clock { now: Time::parse(now).unwrap(), zone: TimeZone::UTC };
    render(row, object, &related, &clock).unwrap()
}

#[test]
fn descriptions_are_equal_to_those_of_kubectl() {
    let objects: Vec<Value> = OBJECTS.lines().map(|line| json::parse(line.as_bytes()).unwrap()).collect();
    let mut count = 0;
    for section in EXPECTED.split("### ").skip(1) {
        let (header, expected) = section.split_once('\n').unwrap();
        let actual = describe(&objects, header);
        let differing = expected.lines().zip(actual.lines()).find(|(a, b)| a != b);
        assert!(expected == actual, "{header}: {differing:?}\n{actual}");
        count += 1;
    }
    assert!(count > 70, "only {count} descriptions were compared");
}

#[test]
fn every_query_for_events_is_a_valid_field_selector() {
    let object = json::parse(br#"{"kind": "Node", "metadata": {"name": "n", "uid": "u"}}"#).unwrap();
    assert_eq!(Meta::of(&object).name(), "n");
    for events in [Events::Object, Events::Pod, Events::Node] {
        for query in events.queries(&object) {
            assert!(fields::Selector::parse(&query.field_selector).is_ok(), "{}", query.field_selector);
        }
    }
}

//! `kubectl events`: events in the order of their time.

use std::io::Write;
use std::time::Duration;

use apimachinery::table::age;
use apimachinery::time::Time;
use apimachinery::{Resource, Value, value};
use client::{Event, ListOptions, Target, WatchOptions};
use tokio::time::Instant;

use crate::command::{Command, Flag, Group};
use crate::print::format::PrinterKind;
use crate::print::tabwriter::TabWriter;
use crate::print::{Format, Formats, Printer, escape_terminal};
use crate::{Context, Failure, Invocation, Mapping, flags};

pub(super) static COMMAND: Command = Command {
    name: "events",
    group: Group::Troubleshooting,
    summary: "List events, ordered by time",
    description: "List the events of a namespace, of all namespaces or of one object, with the latest at the end. \
         With --watch, print events as they arrive.",
    examples: "  # List the events of the current namespace
  kubectl events

  # List the warnings of all namespaces
  kubectl events --all-namespaces --types=Warning

  # Watch what happens to the Deployment web
  kubectl events --for deployment/web --watch

  # Print the events of the namespace data as YAML
  kubectl events -n data -o yaml",
    usage: "kubectl events [(-o|--output=)json|yaml|kyaml|name|go-template|go-template-file|template|templatefile|jsonpath|jsonpath-as-json|jsonpath-file] [--for TYPE/NAME] [--watch] [--types=Normal,Warning] [options]",
    flags: &[
        flags::OUTPUT,
        flags::ALL_NAMESPACES,
        &[
            Flag::int(
                "chunk-size",
                "500",
                "Number of objects per request for large lists; 0 requests all objects in one request.",
            ),
            Flag::text("for", "", "Show only the events of one object, as TYPE/NAME."),
            Flag::bool("no-headers", "Leave out the header of the table."),
            Flag::list("types", "Show only events of these types: Normal, Warning."),
            Flag::bool("watch", "Keep printing events as they arrive.").short('w'),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

static EVENTS: Resource = Resource::namespaced("", "v1", "events", "Event");

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let field_selector = field_selector(context, invocation).await?;
    let types = invocation.list("types");
    if types.iter().any(|kind| !kind.eq_ignore_ascii_case("Normal") && !kind.eq_ignore_ascii_case("Warning")) {
        return Err(Failure::new("valid --types are Normal or Warning"));
    }
    let all = invocation.bool("all-namespaces");
    let namespace = context.namespace()?.name;
    let target = Target::within(&EVENTS, if all { "" } else { namespace.as_str() });
    let mut lines = Lines {
        printer: Format::of(invocation, Formats::Common).printer()?,
        tabs: TabWriter::for_tables(),
        headers: !invocation.bool("no-headers"),
        all,
    };
    let is_selected = |event: &Value| {
        let have = event.str_at(&["type"]).unwrap_or_default();
        types.is_empty() || types.iter().any(|kind| kind.eq_ignore_ascii_case(have))
    };
    let client = context.client()?;
    if invocation.bool("watch") {
        let options = WatchOptions { field_selector, ..WatchOptions::default() };
        let mut watch = client.watch(&target, &options).await?;
        // The timeout of requests also limits watches.
        let far = Duration::from_secs(365 * 24 * 3600);
        let deadline = Instant::now() + context.request_timeout()?.unwrap_or(far);
        while let Ok(Some(event)) = tokio::time::timeout_at(deadline, watch.next()).await {
            if let Event::Added(event) | Event::Modified(event) = event?
                && is_selected(&event)
            {
                context.out().write_all(lines.print(&event, now())?.as_bytes())?;
                context.out().flush()?;
            }
        }
        return Ok(());
    }
    let limit = invocation.int("chunk-size").try_into().unwrap_or(0);
    let options = ListOptions { field_selector, limit, ..ListOptions::default() };
    let mut events = client.list_all(&target, &options).await?.items;
    events.retain(is_selected);
    if events.is_empty() {
        if all {
            writeln!(context.err(), "No events found.")?;
        } else {
            writeln!(context.err(), "No events found in {namespace} namespace.")?;
        }
        return Ok(());
    }
    events.sort_by_key(time);
    let list = value!({"kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": events});
    context.out().write_all(lines.print(&list, now())?.as_bytes())?;
    Ok(())
}

async fn field_selector(context: &Context, invocation: &Invocation) -> Result<String, Failure> {
    let object = invocation.text("for");
    if object.is_empty() {
        return Ok(String::new());
    }
    let Some((kind, name)) = object.split_once('/') else {
        return Err(Failure::new("--for must be in resource/name form"));
    };
    if name.contains('/') {
        return Err(Failure::new("arguments in resource/name form may not have more than one slash"));
    }
    let kind = kind.to_lowercase();
    let found = context.mapper().await?.resources(&kind).await?;
    let Some(Mapping { resource, .. }) = found.first() else {
        return Err(Failure::plain(format!("the server doesn't have a resource type {kind:?}")));
    };
    let (kind, version) = (&resource.kind, resource.api_version());
    Ok(format!("involvedObject.kind={kind},involvedObject.apiVersion={version},involvedObject.name={name}"))
}

struct Lines {
    printer: Printer,
    tabs: TabWriter,
    /// Whether the headers are still to be printed.
    headers: bool,
    all: bool,
}

impl Lines {
    fn print(&mut self, events: &Value, now: Time) -> Result<String, Failure> {
        // kubectl prints no names of a list of events.
        if matches!(self.printer.kind(), PrinterKind::Name) && events.get("items").is_some() {
            return Ok(String::new());
        }
        if !self.printer.is_human() {
            return Ok(self.printer.print(events)?);
        }
        let mut text = String::new();
        if std::mem::take(&mut self.headers) {
            text.push_str(if self.all { "NAMESPACE\t" } else { "" });
            text.push_str("LAST SEEN\tTYPE\tREASON\tOBJECT\tMESSAGE\n");
        }
        for event in crate::print::items(events) {
            let field = |keys: &[&str]| escape_terminal(event.str_at(keys).unwrap_or_default()).into_owned();
            if self.all {
                text.push_str(&format!("{}\t", field(&["metadata", "namespace"])));
            }
            let (kind, name) = (field(&["involvedObject", "kind"]), field(&["involvedObject", "name"]));
            let (event_type, reason, message) = (field(&["type"]), field(&["reason"]), field(&["message"]));
            let message = message.trim();
            text.push_str(&format!("{}\t{event_type}\t{reason}\t{kind}/{name}\t{message}\n", interval(event, now)));
        }
        Ok(self.tabs.format(&text))
    }
}

/// Returns when an event was last seen, and how often.
fn interval(event: &Value, now: Time) -> String {
    let since = |keys: &[&str]| age(at(event, keys), now);
    let first = if at(event, &["eventTime"]).is_some() { since(&["eventTime"]) } else { since(&["firstTimestamp"]) };
    let count = |keys: &[&str]| event.at(keys).and_then(Value::as_int).unwrap_or(0);
    if event.get("series").is_some_and(|series| !series.is_null()) {
        let times = count(&["series", "count"]);
        return format!("{} (x{times} over {first})", since(&["series", "lastObservedTime"]));
    }
    match count(&["count"]) {
        times if times > 1 => format!("{} (x{times} over {first})", since(&["lastTimestamp"])),
        _ => first,
    }
}

fn time(event: &Value) -> Option<Time> {
    if event.get("series").is_some_and(|series| !series.is_null()) {
        return at(event, &["series", "lastObservedTime"]);
    }
    at(event, &["lastTimestamp"]).or_else(|| at(event, &["eventTime"]))
}

fn at(event: &Value, keys: &[&str]) -> Option<Time> {
    let text = event.str_at(keys)?;
    Time::parse_micro(text).or_else(|_| Time::parse(text)).ok()
}

fn now() -> Time {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Time::from_unix(since.as_secs().try_into().unwrap_or(i64::MAX), since.subsec_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_the_number_of_occurrences() {
        let now = Time::parse("2026-01-01T01:00:00Z").unwrap();
        let check = |event: Value, expect: &str| assert_eq!(interval(&event, now), expect);
        check(value!({"firstTimestamp": "2026-01-01T00:59:00Z", "count": 1}), "60s");
        check(
            value!({"firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:59:50Z", "count": 3}),
            "10s (x3 over 60m)",
        );
        check(
            value!({"eventTime": "2026-01-01T00:50:00.000000Z",
                "series": {"count": 2, "lastObservedTime": "2026-01-01T00:59:55.000000Z"}}),
            "5s (x2 over 10m)",
        );
        check(value!({}), "<unknown>");
    }
}

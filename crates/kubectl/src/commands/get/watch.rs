//! `--watch`: the state, and then each change of it.

use std::io::Write;

use apimachinery::{Value, value};

use super::table::{accept, options, table_of};
use super::{builder, path};
use crate::print::table::TablePrinter;
use crate::print::tabwriter::TabWriter;
use crate::print::{Printer, items};
use crate::request::{self, Events, Path};
use crate::resources::Item;
use crate::{Context, Failure, Invocation, Mapping};

/// Prints objects and events in the selected format.
struct Lines<'a> {
    context: &'a Context,
    printer: Printer,
    table: TablePrinter,
    tabs: TabWriter,
    with_events: bool,
}

pub(super) async fn run(context: &Context, invocation: &Invocation, printer: Printer) -> Result<(), Failure> {
    let builder = builder(context, invocation)?.single_type();
    let (items, failures, _) = builder.items().await?;
    Failure::all(failures)?;
    let [item] = items.as_slice() else {
        return Err(Failure::new("you may only watch a single resource or type of resource at a time"));
    };
    let mapping = match item {
        Item::Selected { mapping, .. } => mapping,
        Item::Object(info) | Item::Named(info) => &info.mapping,
    };
    let mut lines = Lines::new(context, invocation, printer, mapping);
    match item {
        Item::Selected { mapping, namespace } => {
            let target = client::Target::within(&mapping.resource, namespace.as_str());
            let path = path(&target)?
                .with_text("labelSelector", invocation.text("selector"))
                .with_text("fieldSelector", invocation.text("field-selector"));
            collection(context, invocation, path, &mut lines).await
        }
        Item::Object(info) | Item::Named(info) => {
            let done = single(context, invocation, info, &mut lines).await;
            match done {
                Err(failure) if failure.is_not_found() && invocation.bool("ignore-not-found") => Ok(()),
                done => done,
            }
        }
    }
}

async fn collection(
    context: &Context,
    invocation: &Invocation,
    path: Path,
    lines: &mut Lines<'_>,
) -> Result<(), Failure> {
    let client = context.client()?;
    let accept = if lines.printer.is_human() { accept(invocation) } else { request::JSON };
    let list = request::get(&client, path.clone(), accept).await?;
    let version = list.str_at(&["metadata", "resourceVersion"]).unwrap_or_default().to_owned();
    if !invocation.bool("watch-only") {
        lines.list(list)?;
    } else if lines.printer.is_human() {
        lines.remember(&list);
    }
    let mut events = Events::open(&client, path.with_text("resourceVersion", &version), accept)
        .await?
        .ending_after(context.request_timeout()?);
    while let Some((event, object)) = events.next().await? {
        if event != "BOOKMARK" {
            lines.one(object, &event)?;
        }
    }
    log_end(context, &events);
    Ok(())
}

async fn single(
    context: &Context,
    invocation: &Invocation,
    info: &crate::resources::Info,
    lines: &mut Lines<'_>,
) -> Result<(), Failure> {
    let client = context.client()?;
    let accept = if lines.printer.is_human() { accept(invocation) } else { request::JSON };
    let object = request::get(&client, path(&info.target())?, accept).await?;
    if !invocation.bool("watch-only") {
        lines.one(object, "ADDED")?;
    } else if lines.printer.is_human() {
        lines.remember(&object);
    }
    let path = path(&info.collection())?
        .with("fieldSelector", format_args!("metadata.name={}", info.name))
        .with("resourceVersion", "0");
    let mut events = Events::open(&client, path, accept).await?.ending_after(context.request_timeout()?);
    let mut first = true;
    while let Some((event, object)) = events.next().await? {
        // The first event repeats the current state.
        if event == "BOOKMARK" || std::mem::take(&mut first) {
            lines.remember(&object);
            continue;
        }
        lines.one(object, &event)?;
    }
    log_end(context, &events);
    Ok(())
}

impl<'a> Lines<'a> {
    fn new(context: &'a Context, invocation: &Invocation, printer: Printer, mapping: &Mapping) -> Self {
        let table = TablePrinter::new(options(invocation, &printer, mapping, false));
        let with_events = invocation.bool("output-watch-events");
        Self { context, printer, table, tabs: TabWriter::for_tables(), with_events }
    }

    fn list(&mut self, list: Value) -> Result<(), Failure> {
        if self.printer.is_human() {
            return self.one(list, "ADDED");
        }
        let kind = list.str_at(&["kind"]).unwrap_or_default().trim_end_matches("List").to_owned();
        let version = list.str_at(&["apiVersion"]).unwrap_or_default().to_owned();
        for item in items(&list) {
            let mut item = item.clone();
            if let Some(item) = item.as_object_mut() {
                item.get_or_insert_with("kind", || kind.as_str().into());
                item.get_or_insert_with("apiVersion", || version.as_str().into());
            }
            self.one(item, "ADDED")?;
        }
        Ok(())
    }

    fn one(&mut self, object: Value, event: &str) -> Result<(), Failure> {
        let text = if self.printer.is_human() {
            let event = self.with_events.then_some(event);
            let rows = self.table.rows(&table_of(object), event);
            self.tabs.format(&rows)
        } else {
            let object = if self.with_events { value!({"type": event, "object": object}) } else { object };
            self.printer.print(&object)?
        };
        let mut out = self.context.out();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }

    /// Takes over the columns of a table without printing its rows.
    fn remember(&mut self, table: &Value) {
        if self.printer.is_human()
            && let Some(columns) =
                table.get("columnDefinitions").filter(|columns| columns.as_array().is_some_and(|it| !it.is_empty()))
        {
            let _ = self.table.rows(&value!({"columnDefinitions": (columns.clone()), "rows": []}), None);
        }
    }
}

/// Logs that a watch ended because of `--request-timeout`.
fn log_end(context: &Context, events: &Events) {
    const LEVEL: i64 = 5;
    if events.timed_out() && context.globals().verbosity >= LEVEL {
        let cause = "context deadline exceeded (Client.Timeout or context cancellation while reading body)";
        let text = format!("\"Unable to decode an event from the watch stream\" err=\"{cause}\"\n");
        let _ = context.err().write_all(text.as_bytes());
    }
}

//! Tables: the server prints the columns, the client aligns them.

use std::io::Write;

use apimachinery::status::Reason;
use apimachinery::time::Time;
use apimachinery::{Resource, Value};

use super::{builder, path};
use crate::print::Printer;
use crate::print::format::PrinterKind;
use crate::print::sort::{SortError, sort_table};
use crate::print::table::{TableOptions, TablePrinter, of_objects};
use crate::print::tabwriter::TabWriter;
use crate::request::{self, Path};
use crate::resources::Item;
use crate::{Context, Failure, Invocation, Mapping};

/// A table of the server, or part of one.
struct Page {
    mapping: Mapping,
    table: Value,
}

pub(super) async fn run(context: &Context, invocation: &Invocation, printer: &Printer) -> Result<(), Failure> {
    let ignores = invocation.bool("ignore-not-found");
    let (mut pages, mut failures) = pages(context, invocation).await?;
    if ignores {
        failures.retain(|failure| !failure.is_not_found());
    }
    let sort_by = invocation.text("sort-by");
    if !sort_by.is_empty() {
        pages = sorted(pages, sort_by)?;
    }
    let text = print(invocation, printer, &pages);
    context.out().write_all(text.as_bytes())?;
    if text.is_empty() && !ignores && failures.is_empty() {
        let namespaced = pages.iter().all(|page| page.mapping.namespaced());
        if namespaced && !invocation.bool("all-namespaces") {
            writeln!(context.err(), "No resources found in {} namespace.", context.namespace()?.name)?;
        } else {
            writeln!(context.err(), "No resources found")?;
        }
    }
    Failure::all(failures)
}

/// Sorts the rows of each table. A single table without the field is omitted without a message, as in kubectl.
// DEVIATION: kubectl cannot sort tables of several types or names. Here each is sorted.
fn sorted(mut pages: Vec<Page>, field: &str) -> Result<Vec<Page>, Failure> {
    let single = pages.len() == 1;
    for page in &mut pages {
        match sort_table(&mut page.table, field) {
            Ok(()) => {}
            Err(SortError::NotFound(_) | SortError::ParseTable(_)) if single => return Ok(Vec::new()),
            Err(error) => return Err(Failure::new(error.to_string())),
        }
    }
    Ok(pages)
}

async fn pages(context: &Context, invocation: &Invocation) -> Result<(Vec<Page>, Vec<Failure>), Failure> {
    let subresource = invocation.text("subresource");
    let builder = builder(context, invocation)?.subresource(subresource);
    let (items, mut failures, _) = builder.items().await?;
    let mut pages = Vec::new();
    for item in items {
        let done = match item {
            Item::Selected { mapping, namespace } => list(context, invocation, &mapping, &namespace, &mut pages).await,
            Item::Object(info) | Item::Named(info) => {
                let target = info.target().subresource(subresource);
                match get(context, invocation, path(&target)?, &info.namespace).await {
                    Ok(table) => {
                        pages.push(Page { mapping: info.mapping.clone(), table });
                        Ok(())
                    }
                    Err(failure) => Err(failure),
                }
            }
        };
        failures.extend(done.err());
    }
    Ok((pages, failures))
}

/// Requests one object. If neither it nor its namespace exists, the failure names the namespace.
async fn get(context: &Context, invocation: &Invocation, path: Path, namespace: &str) -> Result<Value, Failure> {
    const NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces", "Namespace");
    let client = context.client()?;
    match request::get(&client, decorated(invocation, path), accept(invocation)).await {
        Ok(response) => Ok(table_of(response)),
        Err(failure) if failure.is(&Reason::NotFound) && !matches!(namespace, "" | "default") => {
            match client.get(&client::Target::named(&NAMESPACES, "", namespace)).await {
                Err(missing) if missing.is_not_found() => Err(missing.into()),
                _ => Err(failure),
            }
        }
        Err(failure) => Err(failure),
    }
}

/// Requests a list, in pages.
async fn list(
    context: &Context,
    invocation: &Invocation,
    mapping: &Mapping,
    namespace: &str,
    pages: &mut Vec<Page>,
) -> Result<(), Failure> {
    let client = context.client()?;
    let limit = if invocation.text("sort-by").is_empty() { invocation.int("chunk-size") } else { 0 };
    let mut token = String::new();
    let options = client::ListOptions {
        label_selector: invocation.text("selector").to_owned(),
        field_selector: invocation.text("field-selector").to_owned(),
        ..client::ListOptions::default()
    };
    loop {
        let target = client::Target::within(&mapping.resource, namespace);
        let mut path = path(&target)?
            .with_text("labelSelector", invocation.text("selector"))
            .with_text("fieldSelector", invocation.text("field-selector"))
            .with_text("continue", &token);
        if limit > 0 {
            path = path.with("limit", limit);
        }
        let response = request::get(&client, decorated(invocation, path), accept(invocation)).await;
        let response = response.map_err(|failure| failure.listing(&mapping.resource, &options))?;
        token = response.str_at(&["metadata", "continue"]).unwrap_or_default().to_owned();
        pages.push(Page { mapping: mapping.clone(), table: table_of(response) });
        if token.is_empty() {
            return Ok(());
        }
    }
}

/// Requests complete objects in the rows if they are sorted by a field.
fn decorated(invocation: &Invocation, path: Path) -> Path {
    if invocation.text("sort-by").is_empty() { path } else { path.with("includeObject", "Object") }
}

pub(super) fn accept(invocation: &Invocation) -> &'static str {
    if invocation.bool("server-print") { request::TABLE } else { request::JSON }
}

/// Returns the table of a response. A server without tables returns objects.
pub(super) fn table_of(response: Value) -> Value {
    if response.str_at(&["kind"]) == Some("Table") { response } else { of_objects(&response, now()) }
}

fn now() -> Time {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Time::from_unix(since.as_secs().try_into().unwrap_or(i64::MAX), since.subsec_nanos())
}

/// Prints tables, with an empty line between types.
fn print(invocation: &Invocation, printer: &Printer, pages: &[Page]) -> String {
    let several = pages.iter().any(|page| page.mapping.resource != pages[0].mapping.resource);
    let mut out = String::new();
    let groups = pages.chunk_by(|a, b| a.mapping.resource == b.mapping.resource);
    for group in groups {
        let mut options = options(invocation, printer, &group[0].mapping, several);
        options.with_namespace = invocation.bool("all-namespaces") && group[0].mapping.namespaced();
        let mut table = TablePrinter::new(options);
        let rows: String = group.iter().map(|page| table.rows(&page.table, None)).collect();
        if rows.is_empty() {
            continue;
        }
        if !out.is_empty() && !invocation.bool("no-headers") {
            out.push('\n');
        }
        out.push_str(&TabWriter::for_tables().format(&rows));
    }
    out
}

pub(super) fn options(invocation: &Invocation, printer: &Printer, mapping: &Mapping, with_kind: bool) -> TableOptions {
    let resource = &mapping.resource;
    let kind = if resource.group.is_empty() {
        resource.kind.to_lowercase().to_string()
    } else {
        format!("{}.{}", resource.kind.to_lowercase(), resource.group)
    };
    TableOptions {
        no_headers: invocation.bool("no-headers"),
        wide: matches!(printer.kind(), PrinterKind::Wide),
        with_namespace: invocation.bool("all-namespaces"),
        show_labels: invocation.bool("show-labels"),
        label_columns: invocation.list("label-columns"),
        kind: (with_kind || invocation.bool("show-kind")).then_some(kind),
    }
}

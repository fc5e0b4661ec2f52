//! The default output and `-o wide`: the server's table, with the columns that kubectl adds.

use apimachinery::table::{Cell, Column as ObjectColumn, IncludeObject, age_cell, name_cell, table};
use apimachinery::time::Time;
use apimachinery::{Value, go};

use super::escape_terminal;
use super::tabwriter::TabWriter;

/// Options of a table.
#[derive(Clone, Debug, Default)]
pub struct TableOptions {
    pub no_headers: bool,
    /// Show the columns of lower priority.
    pub wide: bool,
    /// Start with the namespace.
    pub with_namespace: bool,
    /// End with all labels.
    pub show_labels: bool,
    /// Labels with a separate column each.
    pub label_columns: Vec<String>,
    /// The prefix of names: `deployment.apps`.
    pub kind: Option<String>,
}

/// Prints tables sequentially. Headers are printed again only if the columns change.
#[derive(Clone, Debug)]
pub struct TablePrinter {
    options: TableOptions,
    columns: Vec<Column>,
    printed_headers: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Column {
    name: String,
    is_name: bool,
    priority: i64,
}

impl TablePrinter {
    pub const fn new(options: TableOptions) -> Self {
        Self { options, columns: Vec::new(), printed_headers: false }
    }

    /// Returns the lines of a table, with cells separated by tabs. `event` is the type of a watch event, for a first
    /// column.
    pub fn rows(&mut self, table: &Value, event: Option<&str>) -> String {
        let definitions = table.get("columnDefinitions").and_then(Value::as_array).unwrap_or_default();
        let rows = table.get("rows").and_then(Value::as_array).unwrap_or_default();
        let columns: Vec<_> = definitions.iter().map(Column::of).collect();
        let same = columns.is_empty() || columns == self.columns;
        let hide_headers = self.options.no_headers || self.printed_headers && same;
        if !same {
            self.columns = columns;
            self.printed_headers = false;
        }
        self.printed_headers |= !rows.is_empty();
        let mut out = String::new();
        if !hide_headers && !rows.is_empty() {
            push_line(&self.headers(event), &mut out);
        }
        for row in rows {
            push_line(&self.cells(row, event), &mut out);
        }
        out
    }

    /// Returns the aligned lines of a table.
    pub fn print(&mut self, writer: &mut TabWriter, table: &Value) -> String {
        writer.format(&self.rows(table, None))
    }

    fn headers(&self, event: Option<&str>) -> Vec<String> {
        let mut out: Vec<String> = Vec::new();
        out.extend(event.map(|_| "EVENT".to_owned()));
        out.extend(self.options.with_namespace.then(|| "NAMESPACE".to_owned()));
        let visible = self.columns.iter().filter(|column| self.shows(column));
        out.extend(visible.map(|column| column.name.to_uppercase()));
        let labels = self.options.label_columns.iter();
        out.extend(labels.map(|label| label.rsplit('/').next().unwrap_or(label).to_uppercase()));
        out.extend(self.options.show_labels.then(|| "LABELS".to_owned()));
        out
    }

    fn cells(&self, row: &Value, event: Option<&str>) -> Vec<String> {
        let object = row.get("object").filter(|object| object.get("metadata").is_some());
        let mut out = Vec::new();
        out.extend(event.map(event_cell));
        let namespace = object.and_then(|object| object.str_at(&["metadata", "namespace"])).unwrap_or_default();
        out.extend(self.options.with_namespace.then(|| escape_terminal(namespace).into_owned()));
        let cells = row.get("cells").and_then(Value::as_array).unwrap_or_default();
        let name_column = self.columns.iter().position(|column| column.is_name);
        for (at, (cell, column)) in cells.iter().zip(&self.columns).enumerate() {
            if !self.shows(column) {
                continue;
            }
            let text = cell_text(cell);
            out.push(match &self.options.kind {
                Some(kind) if name_column == Some(at) => format!("{}/{text}", kind.to_lowercase()),
                _ => text,
            });
        }
        let Some(object) = object else { return out };
        let labels = |key: &str| object.str_at(&["metadata", "labels", key]).unwrap_or_default();
        out.extend(self.options.label_columns.iter().map(|key| escape_terminal(labels(key)).into_owned()));
        out.extend(self.options.show_labels.then(|| escape_terminal(&label_set(object)).into_owned()));
        out
    }

    const fn shows(&self, column: &Column) -> bool {
        self.options.wide || column.priority == 0
    }
}

impl Column {
    fn of(definition: &Value) -> Self {
        let text = |key: &str| definition.get(key).and_then(Value::as_str).unwrap_or_default();
        Self {
            name: text("name").to_owned(),
            is_name: text("format") == "name" && text("type") == "string",
            priority: definition.get("priority").and_then(Value::as_int).unwrap_or(0),
        }
    }
}

/// Builds the table of objects that the server did not return as a table: name and age.
pub fn of_objects(object: &Value, now: Time) -> Value {
    let mut name = ObjectColumn::new("Name", "string", "", Cell::Function(name_cell));
    name.format = "name".to_owned();
    let age = ObjectColumn::new("Age", "string", "", Cell::Function(age_cell));
    table(&[name, age], object, IncludeObject::Object, now)
}

/// Builds the table of a `Status`.
pub fn of_status(status: &Value) -> Value {
    let text = |key: &str| Value::from(status.get(key).and_then(Value::as_str).unwrap_or_default());
    let column = |name: &str| apimachinery::value!({"name": name, "type": "string"});
    apimachinery::value!({
        "columnDefinitions": [(column("Status")), (column("Reason")), (column("Message"))],
        "rows": [{"cells": [(text("status")), (text("reason")), (text("message"))]}]
    })
}

/// Formats labels as `a=b,c=d`, or `<none>`.
pub fn label_set(object: &Value) -> String {
    let labels = object.at(&["metadata", "labels"]).and_then(Value::as_object);
    let pairs = labels.into_iter().flat_map(apimachinery::Object::iter);
    let pairs: Vec<_> = pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

fn push_line(cells: &[String], out: &mut String) {
    out.push_str(&cells.join("\t"));
    out.push('\n');
}

/// Formats a cell on one line.
fn cell_text(cell: &Value) -> String {
    match cell {
        Value::Null => String::new(),
        Value::String(text) => match text.find(['\u{c}', '\n', '\r']) {
            Some(end) => format!("{}...", escape_terminal(&text[..end])),
            None => escape_terminal(text).into_owned(),
        },
        _ => escape_terminal(&go::display(cell)).into_owned(),
    }
}

/// Formats the type of a watch event with a constant width.
fn event_cell(event: &str) -> String {
    match event {
        "ADDED" | "MODIFIED" | "DELETED" | "ERROR" => format!("{event:<8}"),
        _ => event.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::json;

    use super::*;

    fn pods() -> Value {
        json::parse(include_bytes!("table/pods.json")).unwrap()
    }

    #[test]
    fn tables_are_printed_like_kubectl() {
        let check = |options: TableOptions, expect: &str| {
            let mut printer = TablePrinter::new(options.clone());
            assert_eq!(printer.print(&mut TabWriter::for_tables(), &pods()), expect, "{options:?}");
        };
        let default = TableOptions::default;
        check(
            default(),
            "NAME                 READY   AGE\nweb-1                1/1     5d\na-much-longer-name   3       line...\nc                    1.5     1s\n",
        );
        check(
            TableOptions { wide: true, ..default() },
            "NAME                 READY   IP         AGE\nweb-1                1/1     10.0.0.1   5d\na-much-longer-name   3                  line...\nc                    1.5     x          1s\n",
        );
        check(
            TableOptions { no_headers: true, ..default() },
            "web-1                1/1   5d\na-much-longer-name   3     line...\nc                    1.5   1s\n",
        );
        check(
            TableOptions { with_namespace: true, ..default() },
            "NAMESPACE     NAME                 READY   AGE\ndefault       web-1                1/1     5d\nkube-system   a-much-longer-name   3       line...\nkube-system   c                    1.5     1s\n",
        );
        check(
            TableOptions { show_labels: true, ..default() },
            "NAME                 READY   AGE       LABELS\nweb-1                1/1     5d        app=web,example.com/tier=front\na-much-longer-name   3       line...   <none>\nc                    1.5     1s        app=^[[31m\n",
        );
        check(
            TableOptions { label_columns: vec!["app".to_owned(), "example.com/tier".to_owned()], ..default() },
            "NAME                 READY   AGE       APP      TIER\nweb-1                1/1     5d        web      front\na-much-longer-name   3       line...            \nc                    1.5     1s        ^[[31m   \n",
        );
        check(
            TableOptions { kind: Some("Deployment.apps".to_owned()), ..default() },
            "NAME                                 READY   AGE\ndeployment.apps/web-1                1/1     5d\ndeployment.apps/a-much-longer-name   3       line...\ndeployment.apps/c                    1.5     1s\n",
        );
        check(
            TableOptions {
                with_namespace: true,
                show_labels: true,
                wide: true,
                label_columns: vec!["app".to_owned()],
                ..default()
            },
            "NAMESPACE     NAME                 READY   IP         AGE       APP      LABELS\ndefault       web-1                1/1     10.0.0.1   5d        web      app=web,example.com/tier=front\nkube-system   a-much-longer-name   3                  line...            <none>\nkube-system   c                    1.5     x          1s        ^[[31m   app=^[[31m\n",
        );
    }

    #[test]
    fn headers_are_printed_once_for_the_same_columns() {
        let mut printer = TablePrinter::new(TableOptions::default());
        let mut pods = pods();
        assert!(printer.rows(&pods, Some("ADDED")).starts_with("EVENT\tNAME\tREADY\tAGE\nADDED   \tweb-1"));
        pods.as_object_mut().unwrap().remove("columnDefinitions");
        assert!(printer.rows(&pods, Some("DELETED")).starts_with("DELETED \tweb-1\t1/1\t"));
    }

    #[test]
    fn objects_without_a_table_show_name_and_age() {
        let object = apimachinery::value!({"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"}});
        let now = Time::parse("2026-01-01T00:05:00Z").unwrap();
        let mut printer = TablePrinter::new(TableOptions::default());
        assert_eq!(printer.rows(&of_objects(&object, now), None), "NAME\tAGE\na\t5m\n");
    }
}

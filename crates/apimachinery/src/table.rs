//! `Table` and `PartialObjectMetadata`: the alternative forms of lists.

use crate::jsonpath::{self, JsonPath};
use crate::meta::Meta;
use crate::time::{Duration, Time};
use crate::{Object, Value};

/// A column definition with its cell function.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub ty: String,
    /// A refinement of the type, such as `name`; usually empty.
    pub format: String,
    pub description: String,
    /// 0 is always printed, higher values only in wide output.
    pub priority: i32,
    pub cell: Cell,
}

/// The source of a cell's value.
#[derive(Clone, Debug)]
pub enum Cell {
    Function(fn(&Value, Time) -> Value),
    /// A path from the printer columns of a CRD.
    Path(JsonPath),
}

/// The part of each object that a row contains in addition to its cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

/// The `apiVersion` of the forms in this module.
pub const API_VERSION: &str = "meta.k8s.io/v1";

impl Column {
    /// Creates a column with priority 0.
    pub fn new(name: &str, ty: &str, description: &str, cell: Cell) -> Self {
        let [name, ty, description] = [name, ty, description].map(str::to_owned);
        Self { name, ty, format: String::new(), description, priority: 0, cell }
    }

    pub fn cell(&self, object: &Value, now: Time) -> Value {
        match &self.cell {
            Cell::Function(make) => make(object, now),
            Cell::Path(path) => path.first(object).map_or(Value::Null, |found| self.converted(found, now)),
        }
    }

    /// Converts the result of a path to the column type; `null` if that is impossible.
    fn converted(&self, found: &Value, now: Time) -> Value {
        match (self.ty.as_str(), found) {
            ("string", _) => jsonpath::print(found).into(),
            ("number", Value::Int(int)) => Value::Float(*int as f64),
            ("integer", Value::Float(float)) => Value::Int(*float as i64),
            ("integer", Value::Int(_)) | ("number", Value::Float(_)) | ("boolean", Value::Bool(_)) => found.clone(),
            ("date", Value::String(text)) => match Time::parse(text) {
                Ok(time) => age(Some(time), now).into(),
                Err(_) if text.is_empty() || text == "null" => age(None, now).into(),
                Err(_) => "<invalid>".into(),
            },
            _ => Value::Null,
        }
    }

    fn definition(&self) -> Value {
        let mut out = Object::with_capacity(5);
        out.insert("name", self.name.as_str());
        out.insert("type", self.ty.as_str());
        out.insert("format", self.format.as_str());
        out.insert("description", self.description.as_str());
        out.insert("priority", self.priority);
        Value::Object(out)
    }
}

/// Builds a table of the items of `list`, or of the single object if there are no `items`. `list` supplies the
/// metadata.
pub fn table(columns: &[Column], list: &Value, include: IncludeObject, now: Time) -> Value {
    let mut out = Object::with_capacity(5);
    out.insert("kind", "Table");
    out.insert("apiVersion", API_VERSION);
    out.insert("metadata", list_metadata(list));
    out.insert("columnDefinitions", columns.iter().map(Column::definition).collect::<Vec<_>>());
    let rows = items(list).iter().map(|object| row(columns, object, include, now));
    out.insert("rows", rows.collect::<Vec<_>>());
    Value::Object(out)
}

pub fn row(columns: &[Column], object: &Value, include: IncludeObject, now: Time) -> Value {
    let mut out = Object::with_capacity(2);
    out.insert("cells", columns.iter().map(|column| column.cell(object, now)).collect::<Vec<_>>());
    match include {
        // Upstream's field has no omitempty: it is written as null.
        IncludeObject::None => out.insert("object", Value::Null),
        IncludeObject::Metadata => out.insert("object", partial_metadata(object)),
        IncludeObject::Object => out.insert("object", object.clone()),
    };
    Value::Object(out)
}

/// Returns an object's `PartialObjectMetadata`.
pub fn partial_metadata(object: &Value) -> Value {
    let mut out = Object::with_capacity(3);
    out.insert("kind", "PartialObjectMetadata");
    out.insert("apiVersion", API_VERSION);
    out.insert("metadata", object.get("metadata").cloned().unwrap_or_else(Value::object));
    Value::Object(out)
}

/// Returns a list's `PartialObjectMetadataList`.
pub fn partial_metadata_list(list: &Value) -> Value {
    let mut out = Object::with_capacity(4);
    out.insert("kind", "PartialObjectMetadataList");
    out.insert("apiVersion", API_VERSION);
    out.insert("metadata", list_metadata(list));
    out.insert("items", items(list).iter().map(partial_metadata).collect::<Vec<_>>());
    Value::Object(out)
}

pub fn name_cell(object: &Value, _now: Time) -> Value {
    Meta::of(object).name().into()
}

pub fn age_cell(object: &Value, now: Time) -> Value {
    age(Meta::of(object).creation_timestamp(), now).into()
}

/// Formats the time since `since`: `5d3h`, or `<unknown>`.
pub fn age(since: Option<Time>, now: Time) -> String {
    since.map_or_else(|| "<unknown>".to_owned(), |since| human_duration(now.since(since)))
}

/// Formats a duration with two or three significant figures. Negative durations below two seconds are tolerated as
/// clock skew.
pub fn human_duration(duration: Duration) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let seconds = duration.whole_seconds();
    let two = |unit: i64, name: char, rest: i64, rest_name: char| match seconds % unit / rest {
        0 => format!("{}{name}", seconds / unit),
        left => format!("{}{name}{left}{rest_name}", seconds / unit),
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        _ if seconds < 2 * MINUTE => format!("{seconds}s"),
        _ if seconds < 10 * MINUTE => two(MINUTE, 'm', 1, 's'),
        _ if seconds < 3 * HOUR => format!("{}m", seconds / MINUTE),
        _ if seconds < 8 * HOUR => two(HOUR, 'h', MINUTE, 'm'),
        _ if seconds < 2 * DAY => format!("{}h", seconds / HOUR),
        _ if seconds < 8 * DAY => two(DAY, 'd', HOUR, 'h'),
        _ if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        _ if seconds < 8 * YEAR => two(YEAR, 'y', DAY, 'd'),
        _ => format!("{}y", seconds / YEAR),
    }
}

/// Returns the items of a list; an object without `items` is the only item.
fn items(list: &Value) -> &[Value] {
    match list.get("items") {
        Some(items) => items.as_array().unwrap_or_default(),
        None => std::slice::from_ref(list),
    }
}

fn list_metadata(list: &Value) -> Object {
    let fields = ["resourceVersion", "continue", "remainingItemCount"];
    let is_list = list.get("items").is_some();
    let meta = Meta::of(list);
    let retained = fields.iter().take(if is_list { 3 } else { 1 });
    retained.filter_map(|field| meta.value(field).map(|value| (*field, value.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    const NOW: Time = Time::from_unix(1_800_000_000, 0);

    #[test]
    fn human_durations_are_rounded() {
        let check = |seconds: i64, text: &str| assert_eq!(human_duration(Duration::from_seconds(seconds)), text);
        let (minute, hour, day, year) = (60, 3600, 86_400, 31_536_000);
        check(-2, "<invalid>");
        check(-1, "0s");
        check(0, "0s");
        check(119, "119s");
        check(2 * minute, "2m");
        check(2 * minute + 1, "2m1s");
        check(10 * minute + 1, "10m");
        check(179 * minute, "179m");
        check(3 * hour, "3h");
        check(3 * hour + 5 * minute, "3h5m");
        check(8 * hour + minute, "8h");
        check(47 * hour, "47h");
        check(2 * day, "2d");
        check(5 * day + 3 * hour, "5d3h");
        check(8 * day + hour, "8d");
        check(729 * day, "729d");
        check(2 * year, "2y");
        check(2 * year + 10 * day, "2y10d");
        check(8 * year + 10 * day, "8y");
    }

    #[test]
    fn unknown_age_prints_unknown() {
        assert_eq!(age(None, NOW), "<unknown>");
        assert_eq!(age_cell(&value!({"metadata": {"creationTimestamp": "2027-01-15T07:59:00Z"}}), NOW), value!("60s"));
    }

    #[test]
    fn path_cells_are_converted_to_the_column_type() {
        let object = value!({"i": 3, "f": (Value::Float(1.5)), "b": true, "s": "x", "n": null,
            "d": "2027-01-15T07:59:00Z", "m": {"k": [1]}});
        let check = |ty: &str, path: &str, cell: Value| {
            let path = Cell::Path(JsonPath::parse(path).unwrap());
            assert_eq!(Column::new("C", ty, "", path).cell(&object, NOW), cell, "{ty}");
        };
        check("integer", ".i", value!(3));
        check("integer", ".f", value!(1));
        check("integer", ".s", Value::Null);
        check("number", ".i", Value::Float(3.0));
        check("number", ".f", Value::Float(1.5));
        check("boolean", ".b", value!(true));
        check("boolean", ".s", Value::Null);
        check("string", ".i", value!("3"));
        check("string", ".m", value!("{\"k\":[1]}"));
        check("string", ".n", value!("<no value>"));
        check("string", ".x", Value::Null);
        check("date", ".d", value!("60s"));
        check("date", ".s", value!("<invalid>"));
    }

    #[test]
    fn list_becomes_a_table_with_the_metadata_of_each_object() {
        let list = value!({"kind": "PodList", "metadata": {"resourceVersion": "7", "continue": "c", "remainingItemCount": 5},
            "items": [{"metadata": {"name": "a", "uid": "1"}, "spec": {}}]});
        let mut column = Column::new("Name", "string", "N", Cell::Function(name_cell));
        column.format = "name".into();
        let expect = value!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": "7", "continue": "c", "remainingItemCount": 5},
            "columnDefinitions": [{"name": "Name", "type": "string", "format": "name", "description": "N", "priority": 0}],
            "rows": [{"cells": ["a"], "object": {
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a", "uid": "1"}
            }}]
        });
        assert_eq!(table(std::slice::from_ref(&column), &list, IncludeObject::Metadata, NOW), expect);
        let one = table(&[column], &list["items"][0], IncludeObject::None, NOW);
        assert_eq!(one["rows"], value!([{"cells": ["a"], "object": null}]));
        let partial = partial_metadata_list(&list);
        assert_eq!(partial["items"][0]["metadata"], value!({"name": "a", "uid": "1"}));
    }
}

//! Objects as rows of a table and as bare metadata: the forms that clients ask for when they only list.

use crate::jsonpath::{self, JsonPath};
use crate::meta::Meta;
use crate::time::{Duration, Time};
use crate::{Object, Value};

/// A column: its heading, and what stands in it.
#[derive(Clone, Debug)]
pub struct Column {
    /// The heading.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub ty: String,
    /// A narrower type, such as `name`; mostly empty.
    pub format: String,
    /// What the column says, for people.
    pub description: String,
    /// Zero is always shown, more only where there is room.
    pub priority: i32,
    /// How a cell is made.
    pub cell: Cell,
}

/// How a cell is made from an object.
#[derive(Clone, Debug)]
pub enum Cell {
    /// By a function of the object and the time.
    Function(fn(&Value, Time) -> Value),
    /// By a path that a CRD names.
    Path(JsonPath),
}

/// What of each object a row carries beside its cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// Its metadata.
    #[default]
    Metadata,
    /// All of it.
    Object,
}

/// The group and version of the forms here.
pub const API_VERSION: &str = "meta.k8s.io/v1";

impl Column {
    /// A column that is always shown.
    pub fn new(name: &str, ty: &str, description: &str, cell: Cell) -> Self {
        let [name, ty, description] = [name, ty, description].map(str::to_owned);
        Self { name, ty, format: String::new(), description, priority: 0, cell }
    }

    /// The cell of `object` in this column.
    pub fn cell(&self, object: &Value, now: Time) -> Value {
        match &self.cell {
            Cell::Function(make) => make(object, now),
            Cell::Path(path) => path.first(object).map_or(Value::Null, |found| self.converted(found, now)),
        }
    }

    /// What a path found as the type of the column says; `null` if it cannot be.
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

/// A table of objects, or of the one object in a list that has no `items`. `list` gives the table its metadata.
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

/// One row of a table.
pub fn row(columns: &[Column], object: &Value, include: IncludeObject, now: Time) -> Value {
    let mut out = Object::with_capacity(2);
    out.insert("cells", columns.iter().map(|column| column.cell(object, now)).collect::<Vec<_>>());
    match include {
        // The field has no omitempty upstream: it is there, and says that nothing is.
        IncludeObject::None => out.insert("object", Value::Null),
        IncludeObject::Metadata => out.insert("object", partial_metadata(object)),
        IncludeObject::Object => out.insert("object", object.clone()),
    };
    Value::Object(out)
}

/// Only the metadata of an object.
pub fn partial_metadata(object: &Value) -> Value {
    let mut out = Object::with_capacity(3);
    out.insert("kind", "PartialObjectMetadata");
    out.insert("apiVersion", API_VERSION);
    out.insert("metadata", object.get("metadata").cloned().unwrap_or_else(Value::object));
    Value::Object(out)
}

/// Only the metadata of each object of a list.
pub fn partial_metadata_list(list: &Value) -> Value {
    let mut out = Object::with_capacity(4);
    out.insert("kind", "PartialObjectMetadataList");
    out.insert("apiVersion", API_VERSION);
    out.insert("metadata", list_metadata(list));
    out.insert("items", items(list).iter().map(partial_metadata).collect::<Vec<_>>());
    Value::Object(out)
}

/// A cell for the name of an object.
pub fn name_cell(object: &Value, _now: Time) -> Value {
    Meta::of(object).name().into()
}

/// A cell for the time since an object was created.
pub fn age_cell(object: &Value, now: Time) -> Value {
    age(Meta::of(object).creation_timestamp(), now).into()
}

/// How long ago something was: `5d3h`, or `<unknown>`.
pub fn age(since: Option<Time>, now: Time) -> String {
    since.map_or_else(|| "<unknown>".to_owned(), |since| human_duration(now.since(since)))
}

/// A duration with two or three significant figures. Clocks may differ by less than two seconds.
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

/// The objects of a list; an object that is no list is its own only item.
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
    let kept = fields.iter().take(if is_list { 3 } else { 1 });
    kept.filter_map(|field| meta.value(field).map(|value| (*field, value.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    const NOW: Time = Time::from_unix(1_800_000_000, 0);

    #[test]
    fn durations_are_rounded_for_people() {
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
    fn an_age_that_is_not_known_says_so() {
        assert_eq!(age(None, NOW), "<unknown>");
        assert_eq!(age_cell(&value!({"metadata": {"creationTimestamp": "2027-01-15T07:59:00Z"}}), NOW), value!("60s"));
    }

    #[test]
    fn the_cells_of_a_path_follow_the_type_of_their_column() {
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
    fn a_list_becomes_a_table_with_the_metadata_of_each_object() {
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

//! `--sort-by`.

use std::cmp::Ordering;

use apimachinery::jsonpath::{EvalError, MissingKeys, ParseError, Template};
use apimachinery::quantity::Quantity;
use apimachinery::{Value, go};

use super::jsonpath::{RelaxedError, relaxed};

/// Objects cannot be sorted by a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SortError {
    #[error(transparent)]
    Relaxed(#[from] RelaxedError),
    #[error(transparent)]
    Parse(#[from] ParseError),
    #[error("sorting error: {0}")]
    ParseTable(ParseError),
    #[error(transparent)]
    Eval(#[from] EvalError),
    #[error("couldn't find any field with path {} in the list of objects", go::quote(.0))]
    NotFound(String),
    #[error("Field {field} in {holder} is an unsortable type: interface, err: {reason}")]
    Unsortable {
        field: String,
        /// Go's name of the type that holds the field.
        holder: &'static str,
        reason: String,
    },
}

/// Sorts objects by the field that a relaxed JSONPath selects. Objects without the field come first.
pub fn sort_objects(objects: &mut Vec<Value>, field: &str) -> Result<(), SortError> {
    if objects.is_empty() {
        return Ok(());
    }
    let field = relaxed(field)?;
    let path = Template::parse(&field, MissingKeys::Allow)?;
    let order = order(&path, &field, objects.iter(), "*unstructured.Unstructured")?;
    *objects = order.into_iter().map(|at| objects[at].take()).collect();
    Ok(())
}

/// Sorts the rows of a table by a field of their objects.
pub fn sort_table(table: &mut Value, field: &str) -> Result<(), SortError> {
    let Some(rows) = table.get_mut("rows").and_then(Value::as_array_mut).filter(|rows| rows.len() > 1) else {
        return Ok(());
    };
    let field = relaxed(field).unwrap_or_else(|_| field.to_owned());
    let path = Template::parse(&field, MissingKeys::Allow).map_err(SortError::ParseTable)?;
    let objects = rows.iter().map(|row| row.get("object").unwrap_or(&Value::Null));
    let order = order(&path, &field, objects, "[][][]reflect.Value")?;
    *rows = order.into_iter().map(|at| rows[at].take()).collect();
    Ok(())
}

/// Returns the indexes of the objects in the order of their fields.
fn order<'a>(
    path: &'a Template,
    field: &str,
    objects: impl Iterator<Item = &'a Value>,
    holder: &'static str,
) -> Result<Vec<usize>, SortError> {
    let mut keys = Vec::new();
    for object in objects {
        keys.push(path.find(object)?.first().and_then(|values| values.first()).copied());
    }
    if keys.iter().all(Option::is_none) {
        return Err(SortError::NotFound(field.to_owned()));
    }
    let mut failure = None;
    let mut is_less = |a: usize, b: usize| match (keys[a], keys[b]) {
        (None, _) => true,
        (_, None) => false,
        (Some(a), Some(b)) => is_less(a, b).unwrap_or_else(|reason| {
            failure.get_or_insert(reason);
            false
        }),
    };
    let mut order: Vec<usize> = (0..keys.len()).collect();
    if order.len() <= INSERTION_MAX {
        insertion_sort(&mut order, &mut is_less);
    } else {
        // DEVIATION: kubectl leaves objects with equal fields in an arbitrary order.
        order.sort_by(|a, b| match (keys[*a], keys[*b]) {
            (None, None) => Ordering::Equal,
            _ if is_less(*a, *b) => Ordering::Less,
            _ if is_less(*b, *a) => Ordering::Greater,
            _ => Ordering::Equal,
        });
    }
    match failure {
        Some(reason) => Err(SortError::Unsortable { field: field.to_owned(), holder, reason }),
        None => Ok(order),
    }
}

/// Up to this length Go's `sort.Sort` is an insertion sort, which decides where objects without the field are printed.
const INSERTION_MAX: usize = 12;

fn insertion_sort(order: &mut [usize], is_less: &mut impl FnMut(usize, usize) -> bool) {
    for start in 1..order.len() {
        let mut at = start;
        while at > 0 && is_less(order[at], order[at - 1]) {
            order.swap(at, at - 1);
            at -= 1;
        }
    }
}

/// Compares two fields; texts that are quantities compare by amount. Fails for fields that have no order.
fn is_less(a: &Value, b: &Value) -> Result<bool, String> {
    match (a, b) {
        (Value::Null, Value::Null) | (_, Value::Null) => Ok(false),
        (Value::Null, _) => Ok(true),
        (Value::Int(a), Value::Int(b)) => Ok(a < b),
        (Value::Float(a), Value::Float(b)) => Ok(a < b),
        (Value::String(a), Value::String(b)) => Ok(match (a.parse::<Quantity>(), b.parse::<Quantity>()) {
            (Ok(a), Ok(b)) => a < b,
            _ => a < b,
        }),
        (Value::Int(_) | Value::Float(_) | Value::String(_), _) => Err("unsortable interface: interface".to_owned()),
        _ => Err(format!("unsortable type: {}", go::type_name(a))),
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::json;

    use super::*;

    fn sorted(field: &str) -> Result<Vec<String>, SortError> {
        let mut objects = json::parse(include_bytes!("sort/objects.json")).unwrap();
        let objects = objects.as_array_mut().unwrap();
        sort_objects(objects, field)?;
        Ok(objects.iter().map(|object| object.str_at(&["metadata", "name"]).unwrap().to_owned()).collect())
    }

    #[test]
    fn objects_are_sorted_like_kubectl() {
        let check = |field: &str, expect: &str| {
            let names = sorted(field).map_or_else(|error| format!("error: {error}"), |names| names.join(" "));
            assert_eq!(names, expect, "{field}");
        };
        // The expected results are those of kubectl v1.36.
        let cases = json::parse(include_bytes!("sort/cases.json")).unwrap();
        for case in cases.as_array().unwrap() {
            check(case[0].as_str().unwrap(), case[1].as_str().unwrap());
        }
    }

    #[test]
    fn fields_without_an_order_are_errors() {
        let expect = "Field {.metadata} in *unstructured.Unstructured is an unsortable type: interface, err: unsortable \
                      type: map[string]interface {}";
        assert_eq!(sorted(".metadata").unwrap_err().to_string(), expect);
    }

    #[test]
    fn long_lists_are_sorted_too() {
        let object = |n: i64| apimachinery::value!({"n": n});
        let mut objects: Vec<_> = (0..50).map(|n| object(n * 37 % 50)).chain([Value::object()]).collect();
        sort_objects(&mut objects, ".n").unwrap();
        assert_eq!(objects[0], Value::object());
        assert!(objects[1..].iter().enumerate().all(|(at, found)| *found == object(at as i64)));
    }

    #[test]
    fn rows_are_sorted_by_their_objects() {
        let mut table = json::parse(include_bytes!("table/pods.json")).unwrap();
        sort_table(&mut table, "metadata.name").unwrap();
        assert_eq!(table["rows"][0]["cells"][0].as_str(), Some("a-much-longer-name"));
        assert_eq!(sort_table(&mut table, "{.a").unwrap_err().to_string(), "sorting error: unclosed action");
    }
}

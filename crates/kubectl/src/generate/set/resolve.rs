//! `set env --list --resolve`: the values of references.

use apimachinery::quantity::Quantity;
use apimachinery::{Object, Value, go, names};

use crate::generate::Error;

/// Returns the value of a field of the object that has the container: `metadata.name`, `metadata.labels['key']`.
pub fn field(object: &Value, path: &str) -> Result<String, Error> {
    let map = |name: &str| object.at(&["metadata", name]).and_then(Value::as_object);
    if let Some((base, key)) =
        path.strip_suffix("']").and_then(|path| path.split_once("['")).filter(|(base, _)| !base.is_empty())
    {
        let (name, checked) = match base {
            "metadata.annotations" => ("annotations", key.to_lowercase()),
            "metadata.labels" => ("labels", key.to_owned()),
            _ => return Err(Error::new(format!("fieldPath {} does not support subscript", go::quote(path)))),
        };
        let faults = names::qualified_name(&checked);
        if !faults.is_empty() {
            return Err(Error::new(format!("invalid key subscript in {path}: {}", faults.join(";"))));
        }
        return Ok(map(name).and_then(|map| map.get(key)).and_then(Value::as_str).unwrap_or_default().to_owned());
    }
    let metadata = |field| object.str_at(&["metadata", field]).unwrap_or_default().to_owned();
    match path {
        "metadata.annotations" => Ok(lines(map("annotations"))),
        "metadata.labels" => Ok(lines(map("labels"))),
        "metadata.name" => Ok(metadata("name")),
        "metadata.namespace" => Ok(metadata("namespace")),
        "metadata.uid" => Ok(metadata("uid")),
        other => Err(Error::new(format!("unsupported fieldPath: {other}"))),
    }
}

/// Returns a request or limit of a container in units of the divisor, rounded up.
pub fn resource(container: &Value, reference: &Value) -> Result<String, Error> {
    let name = reference.str_at(&["resource"]).unwrap_or_default();
    let unsupported = || Error::new(format!("Unsupported container resource : {name}"));
    let (list, resource) = name.split_once('.').ok_or_else(unsupported)?;
    let known = matches!(resource, "cpu" | "memory" | "ephemeral-storage") || resource.starts_with("hugepages-");
    if !known || !matches!(list, "limits" | "requests") {
        return Err(unsupported());
    }
    let parse = |text: &str| text.parse::<Quantity>().unwrap_or(Quantity::ZERO);
    let amount = container.str_at(&["resources", list, resource]).map_or(Quantity::ZERO, parse);
    let divisor = reference.str_at(&["divisor"]).map(parse).filter(|divisor| !divisor.is_zero());
    let divisor = divisor.unwrap_or_else(|| parse("1"));
    let unit = |quantity: Quantity| if resource == "cpu" { quantity.milli_value() } else { quantity.value() };
    let (amount, divisor) = (unit(amount), unit(divisor).max(1));
    Ok((amount / divisor + i64::from(amount % divisor > 0)).to_string())
}

/// Formats a map as sorted lines `key="value"`.
fn lines(map: Option<&Object>) -> String {
    let line = |(key, value): (&str, &Value)| format!("{key}={}", go::quote(value.as_str().unwrap_or_default()));
    map.into_iter().flat_map(Object::iter).map(line).collect::<Vec<_>>().join("\n")
}

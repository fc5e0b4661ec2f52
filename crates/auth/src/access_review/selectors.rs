//! Selectors of an access review: raw strings, or lists of requirements.

use apimachinery::field::{Error, Errors};
use apimachinery::{Path, Str, Value, fields, labels, names};

/// Validates the selectors of a review. An unknown operator is valid: omitting its requirement requests broader access
/// than the client needs, which is safe.
pub(super) fn validate(resource: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_one(resource, "fieldSelector", path, errors, |requirement, at, errors| {
        if requirement.text_at(&["key"]).is_empty() {
            errors.push(Error::required(&at.field("key"), "must be specified"));
        }
    });
    validate_one(resource, "labelSelector", path, errors, |requirement, at, errors| {
        let key = requirement.text_at(&["key"]);
        errors.extend(names::qualified_name(key).into_iter().map(|wrong| Error::invalid(&at.field("key"), key, wrong)));
        let values_at = at.field("values");
        for (index, value) in values(requirement).into_iter().enumerate() {
            let wrong = names::label_value(&value);
            errors.extend(wrong.into_iter().map(|wrong| Error::invalid(&values_at.index(index), value.clone(), wrong)));
        }
    });
}

/// Parses the requirements of both selectors. Adds an entry to `ignored` for those that cannot be interpreted.
pub(super) fn read(
    resource: &Value,
    ignored: &mut Vec<&'static str>,
) -> (Vec<fields::Requirement>, Vec<labels::Requirement>) {
    let (of_fields, all_fields) = resource.get("fieldSelector").map(read_fields).unwrap_or((Vec::new(), true));
    match (all_fields, of_fields.is_empty()) {
        (true, _) => {}
        (false, true) => ignored.push("spec.resourceAttributes.fieldSelector ignored due to parse error"),
        (false, false) => ignored.push("spec.resourceAttributes.fieldSelector partially ignored due to parse error"),
    }
    let (of_labels, all_labels) = resource.get("labelSelector").map(read_labels).unwrap_or((Vec::new(), true));
    match (all_labels, of_labels.is_empty()) {
        (true, _) => {}
        (false, true) => ignored.push("spec.resourceAttributes.labelSelector ignored due to parse error"),
        (false, false) => ignored.push("spec.resourceAttributes.labelSelector partially ignored due to parse error"),
    }
    (of_fields, of_labels)
}

fn validate_one(
    resource: &Value,
    name: &str,
    path: &Path<'_>,
    errors: &mut Errors,
    rule: impl Fn(&Value, &Path<'_>, &mut Errors),
) {
    let Some(selector) = resource.get(name).filter(|selector| !selector.is_null()) else { return };
    let at = path.field(name);
    let (raw, requirements) = (raw(selector), requirements(selector));
    if !raw.is_empty() && !requirements.is_empty() {
        let detail = "may not specified at the same time as requirements";
        errors.push(Error::invalid(&at.field("rawSelector"), raw, detail));
    }
    if raw.is_empty() && requirements.is_empty() {
        let detail = format!("when {at} is specified, requirements or rawSelector is required");
        errors.push(Error::required(&at.field("requirements"), detail));
    }
    let list = at.field("requirements");
    for (index, requirement) in requirements.iter().enumerate() {
        let at = list.index(index);
        match (requirement.text_at(&["operator"]), values(requirement).is_empty()) {
            ("In" | "NotIn", true) => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(Error::required(&at.field("values"), detail));
            }
            ("Exists" | "DoesNotExist", false) => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(Error::forbidden(&at.field("values"), detail));
            }
            _ => {}
        }
        rule(requirement, &at, errors);
    }
}

/// Returns the requirements, and whether all could be interpreted.
fn read_fields(selector: &Value) -> (Vec<fields::Requirement>, bool) {
    let list = requirements(selector);
    if list.is_empty() {
        return match fields::Selector::parse(raw(selector)) {
            Ok(parsed) => (parsed.requirements().to_vec(), true),
            Err(_) => (Vec::new(), false),
        };
    }
    let read: Vec<_> = list.iter().filter_map(read_field).collect();
    let all = read.len() == list.len();
    (read, all)
}

fn read_field(requirement: &Value) -> Option<fields::Requirement> {
    let operator = match requirement.str_at(&["operator"])? {
        "In" => fields::Operator::Equals,
        "NotIn" => fields::Operator::NotEquals,
        _ => return None,
    };
    let [value] = values(requirement).try_into().ok()?;
    Some(fields::Requirement { field: requirement.str_at(&["key"])?.to_owned(), operator, value: value.into() })
}

/// Returns the requirements, and whether all could be interpreted.
fn read_labels(selector: &Value) -> (Vec<labels::Requirement>, bool) {
    let list = requirements(selector);
    if list.is_empty() {
        return match labels::Selector::parse(raw(selector)) {
            Ok(parsed) => (parsed.requirements().unwrap_or_default().to_vec(), true),
            Err(_) => (Vec::new(), false),
        };
    }
    let read: Vec<_> = list.iter().filter_map(read_label).collect();
    let all = read.len() == list.len();
    (read, all)
}

fn read_label(requirement: &Value) -> Option<labels::Requirement> {
    let operator = match requirement.str_at(&["operator"])? {
        "In" => labels::Operator::In,
        "NotIn" => labels::Operator::NotIn,
        "Exists" => labels::Operator::Exists,
        "DoesNotExist" => labels::Operator::DoesNotExist,
        _ => return None,
    };
    let key = requirement.text_at(&["key"]);
    labels::Requirement::new(key, operator, values(requirement), &Path::ROOT).ok()
}

fn raw(selector: &Value) -> &str {
    selector.text_at(&["rawSelector"])
}

fn requirements(selector: &Value) -> &[Value] {
    selector.list_at(&["requirements"])
}

fn values(requirement: &Value) -> Vec<Str> {
    let values = requirement.list_at(&["values"]);
    values.iter().map(|value| value.as_str().unwrap_or_default().into()).collect()
}

//! Match conditions: CEL expressions that select the requests sent to a webhook or policy.

use std::collections::BTreeSet;

use apimachinery::field::Error;
use apimachinery::{At, Errors, names};
use cel::Type;

use super::expressions::Expressions;
use crate::field_rules::looks;

const CONDITIONS_MAX: usize = 64;

pub(super) fn validate(conditions: &At<'_>, expressions: &Expressions<'_>, errors: &mut Errors) {
    if conditions.len() > CONDITIONS_MAX {
        errors.push(Error::too_many(conditions.path(), conditions.len(), CONDITIONS_MAX));
    }
    let mut seen = BTreeSet::new();
    for condition in conditions.items() {
        let (expression, name) = (condition.get("expression"), condition.get("name"));
        match expression.str().trim() {
            "" => errors.push(expression.required("")),
            source => expressions.check(source, &[Type::Bool], &expression, errors),
        }
        if name.is_empty() {
            errors.push(name.required(""));
            continue;
        }
        looks(&name, names::qualified_name, errors);
        if !seen.insert(name.str().to_owned()) {
            errors.push(name.duplicate());
        }
    }
}

//! Scale: how many replicas there are and shall be, for every kind that has some.
//!
//! It is not stored: what kinds can be scaled give and take it in their `scale` subresource.

use machinery::table::Column;
use machinery::{At, Errors, Value};

use crate::field_rules::{column, non_negative};
use crate::kind::{age_column, name_column};
use crate::workload::int_cell;

/// What is wrong with a Scale, beyond its metadata.
pub fn validate(scale: &Value, errors: &mut Errors) {
    non_negative(&At::root(scale).get("spec").get("replicas"), errors);
}

/// What is printed of a Scale.
pub fn columns() -> Vec<Column> {
    let name = Column { format: String::new(), ..name_column() };
    vec![
        name,
        column("Desired", "integer", "Wanted replicas.", |object, _| int_cell(object, &["spec", "replicas"])),
        column("Available", "integer", "Replicas there are.", |object, _| int_cell(object, &["status", "replicas"])),
        age_column(),
    ]
}

#[cfg(test)]
mod tests {
    use machinery::value;

    use super::*;

    #[test]
    fn nobody_has_fewer_replicas_than_none() {
        let check = |scale: Value, expect: &[&str]| {
            let mut errors = Errors::new();
            validate(&scale, &mut errors);
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), expect);
        };
        check(value!({"spec": {}}), &[]);
        check(
            value!({"spec": {"replicas": (-1)}}),
            &["spec.replicas: Invalid value: -1: must be greater than or equal to 0"],
        );
    }
}

//! What a pod made from a template will be: the part that every workload shares.
//!
//! A pod's own rules and those of a template are the same but for what only exists once there is a pod.

use machinery::{At, Errors, Value};

/// Fills in what a `PodTemplateSpec` leaves out.
pub fn default(_template: &mut Value) {}

/// What is wrong with a `PodTemplateSpec`.
pub fn validate(_template: &At<'_>, _errors: &mut Errors) {}

/// What a client should know about a `PodTemplateSpec`. Paths in the texts start at the template's own.
pub fn warnings(_template: &At<'_>, _old: Option<&At<'_>>) -> Vec<String> {
    Vec::new()
}

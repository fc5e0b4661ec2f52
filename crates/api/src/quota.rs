//! Resource quota evaluation: usage of an object, and scopes.

pub mod scopes;
pub mod usage;

use apimachinery::Value;

fn spec(object: &Value) -> &Value {
    &object["spec"]
}

//! Test helpers: run a kind's rules and return the error messages that clients see.

use apimachinery::Value;
use apimachinery::time::Time;

use crate::kind::{Context, Kind, Requester};

/// Defaults and validates an object that is created, and returns the errors.
pub(crate) fn create(kind: &Kind, object: &Value) -> Vec<String> {
    let mut object = object.clone();
    kind.rules.default(&mut object, &kind.versions[0].name);
    let mut errors = Vec::new();
    kind.rules.validate(&object, &context(kind, "", &Requester::default()), &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

/// Prepares and validates a write to an object or a subresource, and returns the result with the errors.
pub(crate) fn update(kind: &Kind, subresource: &str, object: &Value, old: &Value) -> (Value, Vec<String>) {
    let requester = Requester::default();
    let context = context(kind, subresource, &requester);
    let (mut object, mut old) = (object.clone(), old.clone());
    for one in [&mut object, &mut old] {
        kind.rules.default(one, &kind.versions[0].name);
    }
    kind.rules.prepare_update(&mut object, &old, &context);
    let mut errors = Vec::new();
    kind.rules.validate_update(&object, &old, &context, &mut errors);
    (object, errors.iter().map(ToString::to_string).collect())
}

fn context<'a>(kind: &'a Kind, subresource: &'a str, requester: &'a Requester) -> Context<'a> {
    Context { version: &kind.versions[0], subresource, now: Time::from_unix(1_700_000_000, 0), requester }
}

//! Conditions of statuses.

use apimachinery::time::Time;
use apimachinery::{Value, value};

/// Maximum length of a condition's message.
const MESSAGE_BYTES_MAX: usize = 2000;

/// A condition without its times, which depend on the observed status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub name: &'static str,
    pub status: bool,
    pub reason: &'static str,
    pub message: String,
}

impl Condition {
    /// Returns a true condition whose reason is its type.
    pub(super) fn holds(name: &'static str) -> Self {
        Self { name, status: true, reason: name, message: String::new() }
    }

    pub(super) fn fails(name: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { name, status: false, reason, message: message.into() }
    }

    /// Returns a condition that fails with the first problem, or holds.
    pub(super) fn from_result(name: &'static str, result: Result<(), (&'static str, String)>) -> Self {
        result.map_or_else(|(reason, message)| Self::fails(name, reason, message), |()| Self::holds(name))
    }
}

/// Returns the conditions as values. A condition keeps its observed time if its status is the same. Observed conditions
/// with a domain prefix belong to other controllers and are kept.
pub(super) fn render(observed: &[Value], desired: &[Condition], generation: i64, now: Time) -> Value {
    let mut rendered: Vec<Value> = Vec::new();
    for condition in desired {
        let status = if condition.status { "True" } else { "False" };
        let known = observed.iter().find(|one| one.str_at(&["type"]) == Some(condition.name));
        let same = known.filter(|one| one.str_at(&["status"]) == Some(status));
        let time = same.and_then(|one| one.str_at(&["lastTransitionTime"])).map(str::to_owned);
        rendered.push(value!({
            "type": (condition.name),
            "status": status,
            "reason": (condition.reason),
            "message": (shortened(&condition.message)),
            "observedGeneration": generation,
            "lastTransitionTime": (time.unwrap_or_else(|| now.to_string())),
        }));
    }
    rendered
        .extend(observed.iter().filter(|one| one.str_at(&["type"]).is_some_and(|name| name.contains('/'))).cloned());
    Value::Array(rendered)
}

fn shortened(message: &str) -> String {
    let mut end = message.len().min(MESSAGE_BYTES_MAX);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_changes_only_with_the_status() {
        let (then, now) = (Time::from_unix(1, 0), Time::from_unix(2, 0));
        let before = render(&[], &[Condition::holds("Accepted"), Condition::holds("Programmed")], 1, then);
        let foreign = value!({"type": "example.com/Checked", "status": "True"});
        let observed = [before.as_array().unwrap(), std::slice::from_ref(&foreign)].concat();
        let desired = [Condition::holds("Accepted"), Condition::fails("Programmed", "Invalid", "no")];
        let after = render(&observed, &desired, 2, now);
        let seen: Vec<_> = after.as_array().unwrap().iter().map(|one| one.str_at(&["lastTransitionTime"])).collect();
        assert_eq!(seen, [Some("1970-01-01T00:00:01Z"), Some("1970-01-01T00:00:02Z"), None]);
        assert_eq!(after.as_array().unwrap().last(), Some(&foreign));
    }
}

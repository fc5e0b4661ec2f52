//! Event in events.k8s.io: the same objects as core Events, with other field names.

use std::sync::Arc;

use apimachinery::Value;

use crate::core::event::{self, Event};
use crate::kind::{Convert, Kind};

/// Field names in events.k8s.io and in the core group.
const RENAMED: [(&str, &str); 7] = [
    ("deprecatedCount", "count"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedSource", "source"),
    ("note", "message"),
    ("regarding", "involvedObject"),
    ("reportingController", "reportingComponent"),
];

pub fn kind() -> Kind {
    let mut kind = Kind {
        selectable: event::selectable("regarding", "reportingController"),
        rules: Arc::new(Event { newer: true }),
        ..event::row("events.k8s.io")
    };
    for version in &mut kind.versions {
        version.convert = Some(Convert { to_stored, from_stored });
    }
    kind
}

fn to_stored(object: &mut Value) {
    rename(object, |(newer, core)| (newer, core));
}

fn from_stored(object: &mut Value) {
    rename(object, |(newer, core)| (core, newer));
}

fn rename(object: &mut Value, direction: fn((&'static str, &'static str)) -> (&'static str, &'static str)) {
    let Some(object) = object.as_object_mut() else { return };
    for pair in RENAMED {
        let (from, to) = direction(pair);
        if let Some(value) = object.remove(from) {
            object.insert(to, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn event_survives_conversion_to_the_stored_form() {
        let sent = value!({"note": "n", "regarding": {"kind": "Pod"}, "reportingController": "a/b", "type": "Normal",
            "deprecatedCount": 1, "deprecatedSource": {"component": "c"}});
        let mut object = sent.clone();
        to_stored(&mut object);
        let stored = value!({"message": "n", "involvedObject": {"kind": "Pod"}, "reportingComponent": "a/b",
            "type": "Normal", "count": 1, "source": {"component": "c"}});
        assert_eq!(object, stored);
        from_stored(&mut object);
        assert_eq!(object, sent);
    }
}

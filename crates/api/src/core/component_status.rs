//! ComponentStatus: health of a control plane component.

use apimachinery::Value;

use crate::field_rules::column;
use crate::kind::{Kind, Verb, VirtualKind, name_column, names};

pub fn kind() -> Kind {
    let mut kind = Kind {
        short_names: names(&["cs"]),
        verbs: &[Verb::Get, Verb::List],
        ..Kind::question("", "v1", "ComponentStatus", "componentstatuses", VirtualKind::ComponentStatus)
    }
    .with_columns(&[
        name_column(),
        column("Status", "string", "Health of the component.", |object, _| {
            let status = healthy(object).map_or("Unknown", |condition| match condition.str_at(&["status"]) {
                Some("True") => "Healthy",
                _ => "Unhealthy",
            });
            status.into()
        }),
        column("Message", "string", "Message of the condition.", |object, _| condition_text(object, "message")),
        column("Error", "string", "Error of the component.", |object, _| condition_text(object, "error")),
    ]);
    kind.versions[0].deprecation = Some("v1 ComponentStatus is deprecated in v1.19+".into());
    kind
}

fn healthy(object: &Value) -> Option<&Value> {
    let conditions = object.list_at(&["conditions"]);
    conditions.iter().find(|condition| condition.str_at(&["type"]) == Some("Healthy"))
}

fn condition_text(object: &Value, field: &str) -> Value {
    healthy(object).and_then(|condition| condition.str_at(&[field])).unwrap_or_default().into()
}

//! Lists in manifests: `kind: List`, and lists of a kind, such as `PodList`.

use crate::Value;

/// An object has no kind.
#[derive(Debug, thiserror::Error)]
#[error("kind not set")]
pub struct KindMissing(pub Value);

/// Appends an object, or the items of a list, also of nested lists. An item of `PodList` is a `Pod` unless it names
/// another kind. The items before one that has no kind are appended.
pub fn flatten(mut object: Value, out: &mut Vec<Value>) -> Result<(), KindMissing> {
    let kind = object.text_at(&["kind"]).to_owned();
    if kind.is_empty() {
        return Err(KindMissing(object));
    }
    let is_list = object.get("items").is_some_and(|items| items.as_array().is_some());
    if !is_list {
        out.push(object);
        return Ok(());
    }
    let api_version = object.text_at(&["apiVersion"]).to_owned();
    let items = match object.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    for mut item in items {
        if let (Some(item), Some(item_kind)) =
            (item.as_object_mut(), kind.strip_suffix("List").filter(|kind| !kind.is_empty()))
        {
            item.get_or_insert_with("kind", || item_kind.into());
            item.get_or_insert_with("apiVersion", || api_version.as_str().into());
        }
        flatten(item, out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    #[test]
    fn lists_are_replaced_by_their_items() {
        let pods = value!({"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "a"}}]});
        let list = value!({"apiVersion": "v1", "kind": "List", "items": [{"kind": "Secret"}, pods, {}]});
        let mut out = Vec::new();
        assert_eq!(flatten(list, &mut out).unwrap_err().0, Value::object());
        let kinds: Vec<&str> = out.iter().map(|object| object.text_at(&["kind"])).collect();
        assert_eq!(kinds, ["Secret", "Pod"]);
    }
}

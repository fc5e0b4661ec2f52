//! `-o name`, and the message after a change: `deployment.apps/web scaled`.

use apimachinery::Value;

use super::{escape_terminal, items};

/// Prints `resource.group/name` for the object or for each item of a list.
pub fn print(object: &Value) -> String {
    items(object).iter().map(|item| format!("{}\n", qualified(item))).collect()
}

/// Prints `resource.group/name operation`. Names of RBAC objects may contain control characters.
pub fn print_operation(object: &Value, operation: &str) -> String {
    items(object).iter().map(|item| format!("{} {operation}\n", escape_terminal(&qualified(item)))).collect()
}

/// Returns `kind.group/name` of one object, with the kind in lower case.
pub fn qualified(object: &Value) -> String {
    let text = |keys: &[&str]| object.str_at(keys).filter(|text| !text.is_empty());
    let kind = text(&["kind"]).unwrap_or("<unknown>").to_lowercase();
    let name = text(&["metadata", "name"]).unwrap_or("<unknown>");
    match text(&["apiVersion"]).and_then(|version| version.split_once('/')) {
        Some((group, _)) => format!("{kind}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn names_are_qualified_with_kind_and_group() {
        let pod = value!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}});
        let list = value!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}},
            {"apiVersion": "v1", "kind": "Service", "metadata": {}}
        ]});
        assert_eq!(print(&pod), "pod/a\n");
        assert_eq!(print(&list), "deployment.apps/web\nservice/<unknown>\n");
        assert_eq!(print_operation(&pod, "created"), "pod/a created\n");
    }

    #[test]
    fn operations_on_hostile_names_do_not_control_the_terminal() {
        let role = value!({"apiVersion": "v1", "kind": "Role", "metadata": {"name": "\u{1b}[2J"}});
        assert_eq!(print_operation(&role, "created"), "role/^[[2J created\n");
    }
}

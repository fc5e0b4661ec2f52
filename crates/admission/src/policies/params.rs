//! Parameter objects of policy bindings.

use apimachinery::Value;
use apimachinery::labels::from_object;

use crate::pods::spec;
use crate::{Attributes, View};

/// Returns the parameters of a binding, one evaluation each; `None` if the policy takes no parameters. The result is
/// empty if there is nothing to evaluate.
pub(super) fn of(
    policy: &Value,
    binding: &Value,
    attributes: &Attributes<'_>,
    view: &dyn View,
) -> Result<Vec<Option<Value>>, String> {
    let (Some(kind), Some(reference)) = (spec(policy).get("paramKind"), spec(binding).get("paramRef")) else {
        return Ok(vec![None]);
    };
    let api_version = kind.text_at(&["apiVersion"]);
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let Some((plural, namespaced)) = view.plural(group, kind.text_at(&["kind"])) else {
        let kind = kind.text_at(&["kind"]);
        return Err(format!("failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'"));
    };
    let namespace = param_namespace(reference, attributes, namespaced)?;
    let found: Vec<Value> = if let Some(selector) = reference.get("selector") {
        let selector = from_object(Some(selector)).map_err(|error| error.to_string())?;
        let all = view.stored(group, &plural, namespace, "");
        all.into_iter().filter(|object| selector.matches_object(object)).collect()
    } else {
        view.stored(group, &plural, namespace, reference.text_at(&["name"]))
    };
    if found.is_empty() && reference.text_at(&["parameterNotFoundAction"]) != "Allow" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    Ok(found.into_iter().map(Some).collect())
}

fn param_namespace<'a>(reference: &'a Value, attributes: &Attributes<'a>, namespaced: bool) -> Result<&'a str, String> {
    let named = reference.text_at(&["namespace"]);
    match (namespaced, named, attributes.namespace) {
        (false, "", _) => Ok(""),
        (false, _, _) => Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned()),
        (true, "", "") => {
            Err("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".to_owned())
        }
        (true, "", own) => Ok(own),
        (true, named, _) => Ok(named),
    }
}

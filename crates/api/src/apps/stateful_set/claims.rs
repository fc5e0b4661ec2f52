//! StatefulSet volumeClaimTemplates and the pod template volumes derived from them.

use std::collections::BTreeMap;

use apimachinery::{At, Errors, Value, value};

use crate::core::persistent_volume_claim;
use crate::field_rules::{default_empty_to, default_to};

pub(super) fn default(claim: &mut Value) {
    let Some(fields) = claim.as_object_mut() else { return };
    fields.insert("apiVersion", "v1");
    fields.insert("kind", "PersistentVolumeClaim");
    for field in ["metadata", "spec", "status"] {
        default_to(claim, field, Value::object());
    }
    if let Some(spec) = claim.get_mut("spec") {
        persistent_volume_claim::default_spec(spec);
        default_to(spec, "resources", Value::object());
    }
    if let Some(status) = claim.get_mut("status") {
        default_empty_to(status, "phase", "Pending");
    }
}

pub(super) fn validate(claim: &At<'_>, errors: &mut Errors) {
    persistent_volume_claim::validate_spec(&claim.get("spec"), errors);
}

/// Returns the pod template with a volume per claim template and without fields that are set for each pod.
pub(super) fn with_volumes(spec: &At<'_>) -> Value {
    let mut template = spec.get("template").value().clone();
    let claims = spec.get("volumeClaimTemplates");
    let name = |of: &Value, path: &[&str]| of.text_at(path).to_owned();
    let names: BTreeMap<_, _> = claims.list().iter().map(|claim| (name(claim, &["metadata", "name"]), ())).collect();
    let Some(fields) = template.get_mut("spec").and_then(Value::as_object_mut) else { return template };
    fields.remove("hostname");
    fields.remove("subdomain");
    if names.is_empty() {
        return template;
    }
    let own = fields.remove("volumes").unwrap_or_default();
    let own =
        own.as_array().unwrap_or_default().iter().filter(|own| !names.contains_key(&name(own, &["name"]))).cloned();
    let made = names
        .keys()
        .map(|name| value!({"name": (name.as_str()), "persistentVolumeClaim": {"claimName": (name.as_str())}}));
    let volumes: Vec<Value> = made.chain(own).collect();
    fields.insert("volumes", volumes);
    template
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_template_replaces_the_volume_of_the_same_name() {
        let spec = value!({
            "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
            "template": {"spec": {"hostname": "h", "volumes": [{"name": "data", "emptyDir": {}}, {"name": "tmp"}]}}
        });
        let expect = value!({"spec": {"volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "tmp"}
        ]}});
        assert_eq!(with_volumes(&At::root(&spec)), expect);
    }

    #[test]
    fn claim_template_requires_access_mode_and_size() {
        let mut errors = Errors::new();
        let claim = value!({"spec": {}});
        validate(&At::root(&claim), &mut errors);
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        let expect = [
            "spec.accessModes: Required value: at least 1 access mode is required",
            "spec.resources[storage]: Required value",
        ];
        assert_eq!(texts, expect);
    }
}

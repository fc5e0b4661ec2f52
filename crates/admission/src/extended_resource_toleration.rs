//! ExtendedResourceToleration: a pod that requests an extended resource tolerates the taint of nodes that provide it.

use std::collections::BTreeSet;

use api::resources::PODS;
use apimachinery::status::Status;
use apimachinery::{Object, Value, value};

use super::pods::{containers, list_mut, spec, spec_mut};
use super::{Attributes, Notes, Plugin, View};

pub(crate) struct ExtendedResourceToleration;

impl Plugin for ExtendedResourceToleration {
    fn admit(&self, attributes: &Attributes<'_>, pod: &mut Value, _: &dyn View, _: &mut Notes) -> Result<(), Status> {
        if !attributes.writes(PODS) {
            return Ok(());
        }
        let mut devices = BTreeSet::new();
        for container in containers(spec(pod), &["containers", "initContainers"]) {
            let requests = container.at(&["resources", "requests"]).and_then(Value::as_object);
            devices.extend(
                requests.into_iter().flat_map(Object::keys).filter(|name| is_extended(name)).map(str::to_owned),
            );
        }
        let Some(fields) = spec_mut(pod) else { return Ok(()) };
        for device in devices {
            let list = list_mut(fields, "tolerations");
            let has = |toleration: &Value| {
                toleration.text_at(&["key"]) == device
                    && toleration.text_at(&["operator"]) == "Exists"
                    && toleration.text_at(&["effect"]).is_empty()
            };
            if !list.iter().any(has) {
                list.push(value!({"key": device, "operator": "Exists"}));
            }
        }
        Ok(())
    }
}

fn is_extended(name: &str) -> bool {
    let Some((domain, _)) = name.split_once('/') else { return false };
    !name.starts_with("requests.") && domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io")
}

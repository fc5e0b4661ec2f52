//! AlwaysPullImages: a pod without pull credentials cannot use an image that is cached on the node.

use api::resources::PODS;
use apimachinery::status::Status;
use apimachinery::{At, Errors, Value, field};

use super::pods::{CONTAINER_LISTS, containers, spec, spec_mut};
use super::{Attributes, Notes, Operation, Plugin, View};

pub(crate) struct AlwaysPullImages;

impl Plugin for AlwaysPullImages {
    fn admit(&self, attributes: &Attributes<'_>, pod: &mut Value, _: &dyn View, _: &mut Notes) -> Result<(), Status> {
        if !has_new_images(attributes, pod) {
            return Ok(());
        }
        let Some(fields) = spec_mut(pod) else { return Ok(()) };
        for list in CONTAINER_LISTS {
            let listed = fields.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
            for container in listed.filter_map(Value::as_object_mut) {
                container.insert("imagePullPolicy", "Always");
            }
        }
        for volume in fields.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(Value::Object(image)) = volume.get_mut("image") {
                image.insert("pullPolicy", "Always");
            }
        }
        Ok(())
    }

    fn validate(&self, attributes: &Attributes<'_>, pod: &Value, _: &dyn View, _: &mut Notes) -> Result<(), Status> {
        if !has_new_images(attributes, pod) {
            return Ok(());
        }
        let mut errors = Errors::new();
        let root = At::root(pod);
        let spec = root.get("spec");
        for list in CONTAINER_LISTS {
            for container in spec.get(list).items() {
                let policy = container.get("imagePullPolicy");
                if policy.str() != "Always" {
                    errors.push(policy.not_supported(&["Always"]));
                }
            }
        }
        match field::aggregate(&errors) {
            Some(wrong) => Err(attributes.forbidden(pod, wrong)),
            None => Ok(()),
        }
    }
}

/// Whether the pod's images are new; updates of other fields must not fail because of existing images.
fn has_new_images(attributes: &Attributes<'_>, pod: &Value) -> bool {
    if !attributes.writes(PODS) {
        return false;
    }
    let images = |pod: &Value| -> Vec<String> {
        let volumes =
            spec(pod).list_at(&["volumes"]).iter().filter_map(|volume| volume.str_at(&["image", "reference"]));
        let containers = containers(spec(pod), &CONTAINER_LISTS).map(|container| container.text_at(&["image"]));
        containers.chain(volumes).map(str::to_owned).collect()
    };
    match (attributes.operation, attributes.old) {
        (Operation::Update, Some(old)) => {
            let before = images(old);
            images(pod).iter().any(|image| !before.contains(image))
        }
        _ => true,
    }
}

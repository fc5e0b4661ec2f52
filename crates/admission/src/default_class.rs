//! DefaultStorageClass and DefaultIngressClass: set the default class on objects without one.

use api::resources::{INGRESS_CLASSES, INGRESSES, PERSISTENT_VOLUME_CLAIMS, STORAGE_CLASSES};
use apimachinery::Value;
use apimachinery::meta::Meta;
use apimachinery::status::Status;

use super::pods::{spec, spec_mut};
use super::{Attributes, CachedObject, Notes, Plugin, View};

/// Sets the StorageClass of PersistentVolumeClaims.
pub(crate) struct DefaultStorageClass;
/// Sets the IngressClass of Ingresses.
pub(crate) struct DefaultIngressClass;

impl Plugin for DefaultStorageClass {
    fn admit(
        &self,
        attributes: &Attributes<'_>,
        claim: &mut Value,
        view: &dyn View,
        _: &mut Notes,
    ) -> Result<(), Status> {
        let named = Meta::of(claim).annotation("volume.beta.kubernetes.io/storage-class").is_some();
        if attributes.creates(PERSISTENT_VOLUME_CLAIMS) && !named {
            let marks =
                ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
            set(claim, "storageClassName", view.objects(STORAGE_CLASSES, ""), &marks);
        }
        Ok(())
    }
}

impl Plugin for DefaultIngressClass {
    fn admit(
        &self,
        attributes: &Attributes<'_>,
        ingress: &mut Value,
        view: &dyn View,
        _: &mut Notes,
    ) -> Result<(), Status> {
        let named = Meta::of(ingress).annotation("kubernetes.io/ingress.class").is_some();
        if attributes.creates(INGRESSES) && !named {
            let marks = ["ingressclass.kubernetes.io/is-default-class"];
            set(ingress, "ingressClassName", view.objects(INGRESS_CLASSES, ""), &marks);
        }
        Ok(())
    }
}

/// Sets the default class. Of several defaults the newest wins, so that a default can be replaced by another.
fn set(object: &mut Value, field: &str, classes: Vec<CachedObject>, marks: &[&str]) {
    if spec(object).get(field).is_some_and(|name| !name.is_null()) {
        return;
    }
    let is_default = |class: &Value| marks.iter().any(|mark| Meta::of(class).annotation(mark) == Some("true"));
    let mut defaults: Vec<CachedObject> = classes.into_iter().filter(|class| is_default(class)).collect();
    let made = |class: &Value| Meta::of(class).creation_timestamp();
    defaults.sort_by(|a, b| made(b).cmp(&made(a)).then_with(|| Meta::of(a).name().cmp(Meta::of(b).name())));
    if let (Some(class), Some(fields)) = (defaults.first(), spec_mut(object)) {
        fields.insert(field, Meta::of(class).name());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use apimachinery::collection::Entry;
    use apimachinery::json;

    use super::*;

    #[test]
    fn newest_default_class_is_set_and_an_explicit_class_is_preserved() {
        let class = |name: &str, made: &str, default: &str| {
            let text = format!(
                r#"{{"metadata":{{"name":"{name}","creationTimestamp":"{made}","annotations":{{"d":"{default}"}}}}}}"#
            );
            CachedObject::from(Arc::new(Entry::of(
                json::parse(text.as_bytes()).unwrap(),
                apimachinery::time::Time::from_unix(0, 0),
            )))
        };
        let classes = vec![
            class("old", "2020-01-01T00:00:00Z", "true"),
            class("new", "2021-01-01T00:00:00Z", "true"),
            class("no", "2022-01-01T00:00:00Z", "false"),
        ];
        let check = |object: &str, expect: Option<&str>| {
            let mut object = json::parse(object.as_bytes()).unwrap();
            set(&mut object, "c", classes.clone(), &["d"]);
            assert_eq!(object.str_at(&["spec", "c"]), expect);
        };
        check(r#"{"spec":{}}"#, Some("new"));
        check(r#"{"spec":{"c":""}}"#, Some(""));
        check(r#"{"spec":{"c":"x"}}"#, Some("x"));
    }
}

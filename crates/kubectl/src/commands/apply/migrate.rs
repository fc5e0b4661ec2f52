//! Migration of field managers from client-side to server-side apply.
//!
//! Client-side apply owns fields as the manager of updates. Without migration, server-side apply could never remove
//! these fields, since another manager would still own them.

use apimachinery::apply::{Element, FieldSet};
use apimachinery::{Value, value};
use client::{Client, Patch, WriteOptions};

use super::SERVER_SIDE;
use crate::Failure;
use crate::generate::last_applied::ANNOTATION as LAST_APPLIED;
use crate::resources::Info;

/// The manager of the last-applied annotation, which keeps the annotation for a return to client-side apply.
const ANNOTATION_MANAGER: &str = "kubectl-last-applied";
const RETRIES_MAX: usize = 5;

/// Migrates one object after it was applied.
pub(super) struct Migration<'a> {
    pub client: &'a Client,
    pub options: &'a WriteOptions,
}

impl Migration<'_> {
    /// Migrates the managers if necessary and applies again. Returns a warning if that failed.
    pub(super) async fn run(&self, info: &mut Info, patch: &Patch, options: &WriteOptions) -> Option<String> {
        const RETRY: &str = "This is non-fatal and will be retried next time you apply. Error:";
        if let Err(failure) = self.save_annotation(info).await {
            let what = "failed to migrate kubectl.kubernetes.io/last-applied-configuration for Server-Side Apply.";
            return Some(format!("Warning: {what} {RETRY} {}\n", text(&failure)));
        }
        match self.migrate(info).await {
            Ok(false) => None,
            Ok(true) => match self.client.patch(&info.target(), patch, options).await {
                Ok(object) => {
                    info.refresh(object);
                    None
                }
                Err(error) => {
                    let what = "failed to re-apply configuration after performing Server-Side Apply migration.";
                    Some(format!("Warning: {what} {RETRY} {}\n", text(&error.into())))
                }
            },
            Err(failure) => {
                let what = "server rejected managed fields migration to Server-Side Apply.";
                Some(format!("Warning: {what} {RETRY} {}\n", text(&failure)))
            }
        }
    }

    /// Applies the last-applied annotation with a separate manager, so that it is not removed.
    async fn save_annotation(&self, info: &mut Info) -> Result<(), Failure> {
        if self.options.field_manager != SERVER_SIDE {
            return Ok(());
        }
        let Some(text) = info.object.str_at(&["metadata", "annotations", LAST_APPLIED]) else { return Ok(()) };
        if owners(&info.object, "Apply").next().is_some() {
            return Ok(());
        }
        let resource = &info.mapping.resource;
        let version = resource.group_version().to_string();
        let mut metadata = value!({"name": (info.name.as_str()), "annotations": {}});
        if let Value::Object(metadata) = &mut metadata {
            if info.namespaced() {
                metadata.insert("namespace", info.namespace.as_str());
            }
            let annotations: apimachinery::Object = [(LAST_APPLIED, text)].into_iter().collect();
            metadata.insert("annotations", annotations);
        }
        let object = value!({"apiVersion": version, "kind": (resource.kind.as_str()), "metadata": metadata});
        let options = WriteOptions { field_manager: ANNOTATION_MANAGER.to_owned(), ..self.options.clone() };
        let applied = self.client.patch(&info.target(), &Patch::Apply(object), &options).await?;
        info.refresh(applied);
        Ok(())
    }

    /// Merges the managers that wrote the annotation with updates into the manager of server-side apply. Returns
    /// whether anything changed.
    async fn migrate(&self, info: &mut Info) -> Result<bool, Failure> {
        let mut names: Vec<String> = owners(&info.object, "Update").map(|entry| text_of(entry, "manager")).collect();
        names.sort_unstable();
        names.dedup();
        for attempt in 1..=RETRIES_MAX {
            let Some(patch) = upgrade(&info.object, &names, &self.options.field_manager) else { return Ok(false) };
            match self.client.patch(&info.target(), &Patch::Json(patch), self.options).await {
                Ok(object) => {
                    info.refresh(object);
                    return Ok(true);
                }
                Err(error) if error.is_conflict() && attempt < RETRIES_MAX => {
                    info.fetch(self.client, "").await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }
}

fn text(failure: &Failure) -> String {
    failure.status().map_or_else(|| failure.message.clone(), |status| status.message.clone())
}

fn text_of(entry: &Value, field: &str) -> String {
    entry.str_at(&[field]).unwrap_or_default().to_owned()
}

fn annotation_path() -> [Element; 3] {
    [Element::field("metadata"), Element::field("annotations"), Element::field(LAST_APPLIED)]
}

fn managed_fields(object: &Value) -> &[Value] {
    object.at(&["metadata", "managedFields"]).and_then(Value::as_array).unwrap_or_default()
}

fn field_set(entry: &Value) -> FieldSet {
    entry.get("fieldsV1").and_then(|fields| FieldSet::from_value(fields).ok()).unwrap_or_default()
}

/// Returns the entries that own the last-applied annotation.
fn owners<'a>(object: &'a Value, operation: &'a str) -> impl Iterator<Item = &'a Value> {
    let owns = move |entry: &&Value| {
        entry.str_at(&["operation"]) == Some(operation) && field_set(entry).has(&annotation_path())
    };
    managed_fields(object).iter().filter(owns)
}

/// Returns the JSON patch that merges the update managers `names` into the apply manager `to`; [`None`] if there is
/// nothing to do.
fn upgrade(object: &Value, names: &[String], to: &str) -> Option<Value> {
    let mut entries = managed_fields(object).to_vec();
    for name in names {
        merge_manager(&mut entries, name, to);
    }
    if entries == managed_fields(object) {
        return None;
    }
    let version = object.str_at(&["metadata", "resourceVersion"]).unwrap_or_default();
    Some(value!([
        {"op": "replace", "path": "/metadata/managedFields", "value": entries},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
    ]))
}

fn merge_manager(entries: &mut Vec<Value>, from: &str, to: &str) {
    let is = |entry: &Value, manager: &str, operation: &str| {
        entry.str_at(&["manager"]) == Some(manager)
            && entry.str_at(&["operation"]) == Some(operation)
            && entry.str_at(&["subresource"]).is_none_or(str::is_empty)
    };
    let target = entries.iter().position(|entry| is(entry, to, "Apply"));
    let Some(target) = target.or_else(|| entries.iter().position(|entry| is(entry, from, "Update"))) else { return };
    let version = text_of(&entries[target], "apiVersion");
    let same_version = |entry: &&Value| is(entry, from, "Update") && text_of(entry, "apiVersion") == version;
    let mut fields = field_set(&entries[target]);
    if let Some(update) = entries.iter().find(same_version) {
        fields = fields.union(&field_set(update));
    }
    let fields = fields.difference(&FieldSet::of(annotation_path()));
    if let Value::Object(entry) = &mut entries[target] {
        entry.insert("manager", to);
        entry.insert("operation", "Apply");
        entry.insert("fieldsV1", fields.to_value());
    }
    entries.retain(|entry| !is(entry, from, "Update"));
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn manager_of_updates_becomes_that_of_server_side_apply() {
        let annotation = format!("f:{LAST_APPLIED}");
        let annotations: apimachinery::Object =
            [(annotation, Value::object()), ("f:b".into(), Value::object())].into_iter().collect();
        let object = value!({"metadata": {"resourceVersion": "7", "managedFields": [
            {"manager": "kubectl", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
             "fieldsV1": {"f:data": {"f:a": {}}}},
            {"manager": "kubectl-client-side-apply", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
             "fieldsV1": {"f:metadata": {"f:annotations": annotations}, "f:data": {"f:old": {}}}},
        ]}});
        assert_eq!(owners(&object, "Update").count(), 1);
        let patch = upgrade(&object, &["kubectl-client-side-apply".to_owned()], "kubectl").unwrap();
        let expect = value!([{"manager": "kubectl", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:a": {}, "f:old": {}}, "f:metadata": {"f:annotations": {"f:b": {}}}}}]);
        assert_eq!(patch[0]["value"], expect);
        assert_eq!(patch[1]["value"], "7".into());
        assert!(upgrade(&object, &[], "kubectl").is_none());
    }
}

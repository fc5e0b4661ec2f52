//! Executes a plan: applies and deletes objects. It decides nothing.

use std::collections::BTreeMap;

use apimachinery::{Object, Value, value};
use client::{Client, DeleteOptions, Error, FieldValidation, Patch, Target, WriteOptions, apply_set};

use crate::directory::FileVersion;
use crate::plan::{ADOPTED, Apply, FILE, ObjectId, Prune, Removal};
use crate::report::{self, MANAGER, Problem, Scope};

/// HTTP status codes of requests that fail again unless the file changes.
const PERMANENT: [u16; 3] = [400, 413, 422];

/// The effects of a plan.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The applied objects by file.
    pub applied: BTreeMap<String, usize>,
    /// One message for each removed object.
    pub removed: Vec<String>,
    pub problems: Vec<Problem>,
}

fn options() -> WriteOptions {
    // The files of root win over other managers of the same fields, as in k3s. `kubectl apply` fails instead.
    WriteOptions {
        field_manager: MANAGER.to_owned(),
        force: true,
        field_validation: Some(FieldValidation::Strict),
        ..WriteOptions::default()
    }
}

/// Applies the parent, and returns it.
pub(crate) async fn apply_parent(client: &Client, name: &str, scope: &Scope, text: &str) -> Result<Value, Error> {
    let (resource, key) = report::parent_of(name);
    client.patch(&Target::object(resource, &key), &Patch::Apply(report::parent(name, scope, text)), &options()).await
}

/// Applies objects in order, and records the versions of the files of those that were applied.
pub(crate) async fn apply(
    client: &Client,
    objects: Vec<Apply>,
    applied: &mut BTreeMap<ObjectId, FileVersion>,
    outcome: &mut Outcome,
) -> Result<(), Error> {
    for Apply { id, manifest } in objects {
        let target = Target::object(&manifest.resource, &id.key);
        match client.patch(&target, &Patch::Apply(manifest.object), &options()).await {
            Ok(_) => {
                tracing::info!(object = %id, file = manifest.file, "applied");
                applied.insert(id, manifest.version);
                *outcome.applied.entry(manifest.file).or_default() += 1;
            }
            Err(Error::Status(status)) => {
                let retry = !PERMANENT.contains(&status.code);
                let (file, line, object) = (manifest.file, manifest.line, id.to_string());
                applied.remove(&id);
                outcome.problems.push(Problem { file, line, object, message: status.message, retry });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Deletes, releases and hands over objects in order.
pub(crate) async fn prune(
    client: &Client,
    objects: Vec<Prune>,
    applied: &mut BTreeMap<ObjectId, FileVersion>,
    outcome: &mut Outcome,
) -> Result<(), Error> {
    for prune in objects {
        applied.remove(&prune.id);
        let target = Target::object(&prune.resource, &prune.id.key);
        let (done, result) = match &prune.how {
            Removal::Delete => {
                ("deleted", client.delete(&target, &DeleteOptions::of(prune.uid.as_str())).await.map(drop))
            }
            Removal::Release => ("released", set_part_of(client, &target, &prune.uid, None).await),
            Removal::HandOver(set) => ("handed over", set_part_of(client, &target, &prune.uid, Some(set)).await),
        };
        match result {
            Ok(()) => {
                tracing::info!(object = %prune.id, "{done}");
                outcome.removed.push(format!("{done} {}", prune.id));
            }
            // It was deleted, or replaced by another object of the same name.
            Err(error) if error.is_not_found() || error.is_conflict() => {}
            Err(Error::Status(status)) => {
                let message = format!("the object is in no file any more, but it was not {done}: {}", status.message);
                let object = prune.id.to_string();
                outcome.problems.push(Problem { file: String::new(), line: 0, object, message, retry: true });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Changes the set of an object. An object without a set also loses the annotations, and keeps all of its fields.
async fn set_part_of(client: &Client, target: &Target<'_>, uid: &str, set: Option<&str>) -> Result<(), Error> {
    let mut metadata = Object::from_iter([("uid", uid)]);
    metadata.insert("labels", Object::from_iter([(apply_set::PART_OF, set.map_or(Value::Null, Value::from))]));
    if set.is_none() {
        metadata.insert("annotations", Object::from_iter([FILE, ADOPTED].map(|name| (name, Value::Null))));
    }
    let options = WriteOptions { field_manager: MANAGER.to_owned(), ..WriteOptions::default() };
    client.patch(target, &Patch::Merge(value!({"metadata": metadata})), &options).await.map(drop)
}

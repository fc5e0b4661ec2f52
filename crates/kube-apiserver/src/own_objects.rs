//! Objects that the server creates by itself, without admission.

use api::core::service::allocation::RandomSource;
use api::kind::{Context, Requester};
use api_registry::decode;
use api_registry::strategy;
use apimachinery::field_validation::FieldValidation;
use apimachinery::meta::Meta;
use apimachinery::status::Status;
use apimachinery::{GroupVersionKind, Value};
use client::clock::now;

use crate::allocations;
use crate::ids::generate_ids;
use crate::storage::Storage;
use crate::transaction::ObjectKey;

/// Creates an object unless an object of that name exists.
pub(crate) async fn create_missing(storage: &Storage, object: Value) -> Result<(), Status> {
    let gvk = GroupVersionKind::of_object(&object).map_err(Status::internal_error)?;
    let table = storage.table();
    let kind = table.kinds.iter().find(|kind| kind.group == gvk.group && kind.kind == gvk.kind);
    let kind = kind.ok_or_else(|| Status::internal_error(format!("{gvk} is not served")))?;
    let version = kind.version(&gvk.version).ok_or_else(|| Status::internal_error(format!("{gvk} is not served")))?;
    let meta = Meta::of(&object);
    let (namespace, name) = (meta.namespace().to_owned(), meta.name().to_owned());
    let key = if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") };
    if storage.cache.kind_cache(kind).get(&key).is_some() {
        return Ok(());
    }
    let mut object = decode::again(object, kind, version, FieldValidation::Ignore)?.object;
    let requester = Requester { name: "system:apiserver".into(), ..Requester::default() };
    let context = Context { version, subresource: "", now: now(), requester: &requester };
    let target = strategy::Target {
        kind,
        version,
        namespace: &namespace,
        name: &name,
        subresource: "",
        manager: "kube-apiserver",
    };
    object = strategy::own(&target, None, object, context.now);
    let claims = allocations::plan(storage, kind, &mut object, None, RandomSource::Seed(allocations::seed()))?;
    strategy::create(kind, &mut object, &generate_ids(), &context)?;
    let created = ObjectKey::new(storage, kind, &namespace, &name).create(&object).with_allocations(&claims, &object);
    // A conflict is harmless: another API server created the object.
    created.submit().await.map(drop)
}

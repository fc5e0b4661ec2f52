//! What every cluster starts with: its namespaces, roles and bindings. Only what is missing is made.

use std::time::Duration;

use api::kind::{Context, Requester};
use machinery::field_validation::FieldValidation;
use machinery::meta::Meta;
use machinery::status::{Reason, Status};
use machinery::{GroupVersionKind, Object, Value};
use registry::body;
use registry::write;

use crate::state::{State, draw, now};
use crate::storage;

/// The namespaces of every cluster.
const NAMESPACES: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "default"];

/// Makes what is missing, and tries again until the store has it.
pub async fn run(state: &State) {
    while let Err(status) = make_all(state).await {
        tracing::warn!(message = %status.message, "what a cluster starts with is not made yet");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn make_all(state: &State) -> Result<(), Status> {
    state.catch_up().await?;
    for name in NAMESPACES {
        make(state, namespace(name)).await?;
    }
    for object in auth::rbac::bootstrap::objects() {
        make(state, object).await?;
    }
    Ok(())
}

/// Creates an object, unless there is one of that name.
async fn make(state: &State, object: Value) -> Result<(), Status> {
    let gvk = GroupVersionKind::of_object(&object).map_err(Status::internal_error)?;
    let table = state.table();
    let kind = table.kinds.iter().find(|kind| kind.group == gvk.group && kind.kind == gvk.kind);
    let kind = kind.ok_or_else(|| Status::internal_error(format!("{gvk} is not served")))?;
    let version = kind.version(&gvk.version).ok_or_else(|| Status::internal_error(format!("{gvk} is not served")))?;
    let meta = Meta::of(&object);
    let (namespace, name) = (meta.namespace().to_owned(), meta.name().to_owned());
    let key = if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") };
    if state.cache.shelf(kind).get(&key).is_some() {
        return Ok(());
    }
    let mut object = body::again(object, kind, version, FieldValidation::Ignore)?.object;
    let requester = Requester { name: "system:apiserver".into(), ..Requester::default() };
    let context = Context { version, subresource: "", now: now(), requester: &requester };
    let target =
        write::Target { kind, version, namespace: &namespace, name: &name, subresource: "", manager: "kube-apiserver" };
    object = write::own(&target, None, object, context.now);
    write::create(kind, &mut object, &draw(), &context)?;
    let key = state.layout.key(kind, &namespace, &name);
    match state.submit(storage::create(key, storage::encode(&object), 0)).await {
        Err(status) if !status.is(&Reason::AlreadyExists) => Err(status),
        _ => Ok(()),
    }
}

fn namespace(name: &str) -> Value {
    let mut metadata = Object::new();
    metadata.insert("name", name);
    let mut namespace = Object::new();
    namespace.insert("apiVersion", "v1");
    namespace.insert("kind", "Namespace");
    namespace.insert("metadata", Value::Object(metadata));
    Value::Object(namespace)
}

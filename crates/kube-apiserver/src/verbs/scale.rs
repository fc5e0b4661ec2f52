//! The `scale` subresource: reads and writes the replica count as a `Scale`.

use api::kind::{ReplicaPaths, Verb, age_column};
use api_registry::decode::{self, DecodedObject};
use api_registry::options::{WriteKind, WriteOptions};
use api_registry::scale;
use apimachinery::apply::scale::{owners_after_scale, owners_of_scale};
use apimachinery::apply::{self, FieldSet, OneVersion, Owners};
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::patch::{Patch, PatchType};
use apimachinery::status::{GroupName, Status};
use apimachinery::table::{Cell, Column};
use apimachinery::time::Time;
use apimachinery::{GroupVersionKind, Schema, Value};

use super::patch::{PatchRequest, patch_status, unapplied};
use super::write::Write;
use super::{Call, Current, render};
use crate::response::HttpResponse;

const API_VERSION: &str = "autoscaling/v1";

/// Reads or writes the scale of the object in the URL.
pub(super) async fn serve(call: &Call<'_>, paths: &ReplicaPaths, verb: Verb) -> Result<HttpResponse, Status> {
    let name = &call.resource.name;
    let current = call.current(name).await?.ok_or_else(|| call.not_found(name))?;
    let object = match verb {
        Verb::Update => put(call, paths, current).await?,
        Verb::Patch => patch(call, paths, current).await?,
        _ => current.object,
    };
    render::formed(call, 200, &scale::of(&object, paths), &columns())
}

async fn put(call: &Call<'_>, paths: &ReplicaPaths, current: Current) -> Result<Value, Status> {
    let options = WriteOptions::of(&call.request.query, WriteKind::Update)?;
    let DecodedObject { object: sent, warnings } =
        decode::plain(&call.body, call.media()?, &gvk(), options.field_validation)?;
    let is_conditional = !Meta::of(&sent).resource_version().is_empty();
    let manager = options.manager(call.request.user_agent());
    let make = |live: Option<&Value>, now: Time| {
        replace(call, paths, live, &manager, now, |write, old| {
            check_version(call, &sent, old)?;
            let written = write.update(Some(old), sent.clone()).map_err(|error| unapplied(&error))?;
            Ok((written, warnings.clone()))
        })
    };
    Write { call, options: &options, is_conditional }.run(Some(current), make).await
}

async fn patch(call: &Call<'_>, paths: &ReplicaPaths, current: Current) -> Result<Value, Status> {
    let PatchRequest { sort, options } = PatchRequest::of(call)?;
    let manager = options.manager(call.request.user_agent());
    let config = (sort == PatchType::Apply).then(|| decode::Config::read(&call.body)).transpose()?;
    let make = |live: Option<&Value>, now: Time| {
        replace(call, paths, live, &manager, now, |write, old| {
            if let Some(config) = &config {
                let applied = write.apply(Some(old), &config.tree, options.force).map_err(|error| unapplied(&error))?;
                return Ok((applied.object, config.check_duplicates(options.field_validation)?));
            }
            let (patch, _) = Patch::decode(sort, &call.body).map_err(|error| patch_status(&error))?;
            let mut plain = old.clone();
            if let Some(mut meta) = MetaMut::of(&mut plain) {
                meta.remove("managedFields");
            }
            let mut changed = patch.apply(plain, Some(schema())).map_err(|error| patch_status(&error))?;
            apimachinery::conform::conform(&mut changed, schema())
                .map_err(|error| Status::bad_request(error.to_string()))?;
            check_version(call, &changed, old)?;
            let written = write.update(Some(old), changed).map_err(|error| unapplied(&error))?;
            Ok((written, Vec::new()))
        })
    };
    Write { call, options: &options, is_conditional: false }.run(Some(current), make).await
}

/// Returns the parent with the scale that `make` returns (and warnings for the client), and with updated managedFields
/// of its replica count.
fn replace(
    call: &Call<'_>,
    paths: &ReplicaPaths,
    live: Option<&Value>,
    manager: &str,
    now: Time,
    make: impl Fn(&apply::Write<'_>, &Value) -> Result<(Value, Vec<String>), Status>,
) -> Result<DecodedObject, Status> {
    let live = live.expect("only existing objects are scaled");
    let owners = Owners::of(live).unwrap_or_default();
    let parent_version = live.str_at(&["apiVersion"]).unwrap_or_default().to_owned();
    let replicas = scale::owned_paths(&call.kind);
    let mut old = scale::of(live, paths);
    owners_of_scale(&owners, &replicas).write(&mut old);
    let schema = schema();
    let reset_fields = FieldSet::of_fields(&["status"]);
    let versions = OneVersion { api_version: API_VERSION, schema, reset_fields, empty: apply::zero(schema) };
    let write = apply::Write {
        versions: &versions,
        api_version: API_VERSION,
        kind: "Scale",
        subresource: "scale",
        manager,
        now,
    };
    let (scaled, warnings) = make(&write, &old)?;
    scale::validate(&scaled)?;
    let mut object = live.clone();
    scale::write(&mut object, &scaled, paths);
    let scaled_owners = Owners::of(&scaled).unwrap_or_default();
    owners_after_scale(&owners, &scaled_owners, &parent_version, &replicas).write(&mut object);
    Ok(DecodedObject { object, warnings })
}

fn check_version(call: &Call<'_>, sent: &Value, old: &Value) -> Result<(), Status> {
    let (sent, old) = (Meta::of(sent), Meta::of(old));
    if !sent.uid().is_empty() && sent.uid() != old.uid() {
        let cause =
            format!("Precondition failed: UID in precondition: {}, UID in object meta: {}", sent.uid(), old.uid());
        return Err(Status::conflict(GroupName::new(&call.kind.group, &call.kind.plural), old.name(), cause));
    }
    if !sent.resource_version().is_empty() && sent.resource_version() != old.resource_version() {
        return Err(api_registry::strategy::modified(&call.kind, old.name()));
    }
    Ok(())
}

fn gvk() -> GroupVersionKind {
    GroupVersionKind { group: "autoscaling".into(), version: "v1".into(), kind: "Scale".into() }
}

fn schema() -> Schema<'static> {
    api::catalogue::schema(&gvk()).expect("the catalogue has Scale")
}

fn columns() -> Vec<Column> {
    fn desired_replicas(scale: &Value, _: Time) -> Value {
        Value::Int(scale.at(&["spec", "replicas"]).and_then(Value::as_int).unwrap_or_default())
    }
    fn available(scale: &Value, _: Time) -> Value {
        Value::Int(scale.at(&["status", "replicas"]).and_then(Value::as_int).unwrap_or_default())
    }
    let name = Column { format: String::new(), ..api::kind::name_column() };
    let number = |name, description, cell| Column::new(name, "integer", description, Cell::Function(cell));
    vec![
        name,
        number("Desired", "How many replicas are wanted.", desired_replicas),
        number("Available", "How many replicas there are.", available),
        age_column(),
    ]
}

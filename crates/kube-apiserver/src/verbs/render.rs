//! Response forms: the object itself, a Table, or PartialObjectMetadata.

use api::kind::{Kind, Shape, Version};
use api_registry::conversion::from_stored;
use api_registry::negotiate::{Encoding, Form, ResponseFormat, include_object};
use apimachinery::meta::MetaMut;
use apimachinery::status::Status;
use apimachinery::table::{self, Column, IncludeObject};
use apimachinery::{Object, Value};

use super::Call;
use crate::response::{self, HttpResponse};
use client::clock::now;

/// Returns the response for an object in the storage version.
pub(super) fn one(call: &Call<'_>, code: u16, mut object: Value) -> Result<HttpResponse, Status> {
    from_stored(&mut object, &call.kind, call.version());
    let ResponseFormat { encoding, form, .. } = call.accepted;
    if call.request.want_shared.is_some() && encoding == Encoding::Json && form == Form::Object {
        return Ok(response::shared_object(code, object));
    }
    formed(call, code, &object, &call.version().columns)
}

/// Returns the response for an object in the request's version, with its table columns.
pub(super) fn formed(call: &Call<'_>, code: u16, object: &Value, columns: &[Column]) -> Result<HttpResponse, Status> {
    let accepted = call.accepted;
    let mut value = match accepted.form {
        Form::Object => return Ok(response::encoded(code, object, accepted, None)),
        Form::Table => table::table(columns, object, include(call)?, now()),
        Form::Metadata => table::partial_metadata(object),
        Form::MetadataList => return Err(Status::not_acceptable(&api_registry::decode::MEDIA_TYPES)),
    };
    hide_field_annotations(&call.kind, &mut value);
    Ok(response::encoded(code, &value, accepted, None))
}

/// Returns the response for a list of objects in the request's version.
pub(super) fn many(call: &Call<'_>, mut items: Vec<Value>, metadata: Object) -> Result<HttpResponse, Status> {
    let (kind, version) = (&*call.kind, call.version());
    // Items in a list of a built-in kind have no apiVersion and kind.
    if call.accepted.form == Form::Object && matches!(version.shape, Shape::BuiltIn(_)) {
        for fields in items.iter_mut().filter_map(Value::as_object_mut) {
            fields.remove("apiVersion");
            fields.remove("kind");
        }
    }
    let list = list_of(kind, version, items, metadata);
    let mut value = match call.accepted.form {
        Form::Object => list,
        Form::Table => table::table(&version.columns, &list, include(call)?, now()),
        Form::MetadataList => table::partial_metadata_list(&list),
        Form::Metadata => return Err(Status::not_acceptable(&api_registry::decode::MEDIA_TYPES)),
    };
    if call.accepted.form != Form::Object {
        hide_field_annotations(kind, &mut value);
    }
    Ok(response::encoded(200, &value, call.accepted, None))
}

/// Parses the `includeObject` parameter.
pub(super) fn include(call: &Call<'_>) -> Result<IncludeObject, Status> {
    let word = call.request.query.text("includeObject");
    include_object(word).ok_or_else(|| Status::bad_request(format!("unrecognized includeObject value: {word:?}")))
}

/// Removes annotations that represent fields from metadata-only objects, whether single, in a list, or in table rows.
pub(super) fn hide_field_annotations(kind: &Kind, rendered: &mut Value) {
    if kind.field_annotations.is_empty() {
        return;
    }
    let is_partial = |object: &Value| object.str_at(&["kind"]) == Some("PartialObjectMetadata");
    let hide = |object: &mut Value| {
        if let Some(mut meta) = MetaMut::of(object) {
            kind.field_annotations.iter().for_each(|name| meta.remove_annotation(name));
        }
    };
    if is_partial(rendered) {
        return hide(rendered);
    }
    for list in ["items", "rows"] {
        for item in rendered.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let object = if list == "rows" { item.get_mut("object") } else { Some(item) };
            object.filter(|object| is_partial(object)).into_iter().for_each(hide);
        }
    }
}

/// Returns a list object of a kind in a version.
pub(super) fn list_of(kind: &Kind, version: &Version, items: Vec<Value>, metadata: Object) -> Value {
    let mut list = Object::new();
    list.insert("apiVersion", kind.gvk(&version.name).api_version());
    list.insert("kind", kind.list_kind.clone());
    list.insert("metadata", Value::Object(metadata));
    list.insert("items", items);
    Value::Object(list)
}

//! Update: PUT of an object.

use api_registry::decode::{self, DecodedObject};
use api_registry::options::{WriteKind, WriteOptions};
use api_registry::strategy;
use apimachinery::Value;
use apimachinery::meta::Meta;
use apimachinery::status::Status;
use apimachinery::time::Time;

use super::write::Write;
use super::{Call, render};
use crate::response::HttpResponse;

/// Replaces the object in the URL, or creates it if its kind allows that.
pub(super) async fn serve(call: &Call<'_>) -> Result<HttpResponse, Status> {
    let options = WriteOptions::of(&call.request.query, WriteKind::Update)?;
    let DecodedObject { object: mut sent, warnings } =
        decode::object(&call.body, call.media()?, &call.kind, call.version(), options.field_validation)?;
    call.warn(warnings);
    let manager = options.manager(call.request.user_agent());
    let target = call.target(&manager);
    strategy::address(&target, &mut sent)?;
    let current = call.current(&call.resource.name).await?;
    let creates = current.is_none();
    if creates && !(call.kind.create_on_update && call.resource.subresource.is_empty()) {
        return Err(call.not_found(&call.resource.name));
    }
    let is_conditional = !matches!(Meta::of(&sent).resource_version(), "" | "0");
    let make = |live: Option<&Value>, now: Time| {
        let object = strategy::own(&target, live, sent.clone(), now);
        Ok(DecodedObject { object, warnings: Vec::new() })
    };
    let object = Write { call, options: &options, is_conditional }.run(current, make).await?;
    render::one(call, if creates { 201 } else { 200 }, object)
}

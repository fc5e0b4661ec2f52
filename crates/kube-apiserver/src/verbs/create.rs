//! Create: POST of an object.

use api_registry::decode::{self, DecodedObject};
use api_registry::options::{WriteKind, WriteOptions};
use api_registry::strategy;
use apimachinery::Value;
use apimachinery::status::Status;
use apimachinery::time::Time;

use super::write::Write;
use super::{Call, render};
use crate::response::HttpResponse;

/// Creates the object in the body.
pub(super) async fn serve(call: &Call<'_>) -> Result<HttpResponse, Status> {
    let options = WriteOptions::of(&call.request.query, WriteKind::Create)?;
    let DecodedObject { object: sent, warnings } =
        decode::object(&call.body, call.media()?, &call.kind, call.version(), options.field_validation)?;
    call.warn(warnings);
    let manager = options.manager(call.request.user_agent());
    let make = |_: Option<&Value>, now: Time| {
        let (target, mut object) = (call.target(&manager), sent.clone());
        strategy::address(&target, &mut object)?;
        let object = strategy::own(&target, None, object, now);
        Ok(DecodedObject { object, warnings: Vec::new() })
    };
    let object = Write { call, options: &options, is_conditional: false }.run(None, make).await?;
    render::one(call, 201, object)
}

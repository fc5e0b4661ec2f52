//! TokenRequest: the `token` subresource of a service account.

use admission::{CachedObject, Notes, Operation};
use api::resources::{NODES, PODS, SECRETS};
use api_registry::decode;
use api_registry::options::{WriteKind, WriteOptions};
use apimachinery::field_validation::FieldValidation;
use apimachinery::status::{GroupName, Status};
use apimachinery::{GroupVersionKind, Value, apply};
use auth::service_account::request::{self, Kind, Reference};

use super::{Call, render, subresource};
use crate::ids::generate_ids;
use crate::response::HttpResponse;
use client::clock::now;

/// Issues a token of the service account in the URL.
pub(super) async fn serve(call: &Call<'_>) -> Result<HttpResponse, Status> {
    let options = WriteOptions::of(&call.request.query, WriteKind::Create)?;
    let gvk = GroupVersionKind::of("authentication.k8s.io", "v1", "TokenRequest");
    let received = decode::plain(&call.body, call.media()?, &gvk, FieldValidation::Ignore)?;
    let mut token_request = received.object;
    request::set_defaults(&mut token_request);
    let (namespace, name) = (call.namespace(), call.resource.name.as_str());
    request::check_path(&token_request, namespace, name)?;
    token_request = own(call, &options, token_request);
    subresource::admit(call, &call.kind, name, "token", &mut token_request, Operation::Create).await?;
    let account = call.current(name).await?.ok_or_else(|| call.not_found(name))?.object;
    let issuer = call.state.filters.authenticators.service_accounts.as_ref();
    let issuer = issuer.ok_or_else(|| Status::internal_error("no key to sign service account tokens is configured"))?;
    request::prepare(&mut token_request, &account, &issuer.config.audiences, now())?;
    let reference = request::reference(&token_request)?;
    call.state.storage.catch_up().await?;
    let bound = reference.as_ref().map(|reference| Ok((reference, find(call, reference)?))).transpose()?;
    let node = bound.as_ref().filter(|(reference, _)| reference.kind == Kind::Pod).and_then(|(_, pod)| {
        let node = request::node_of(pod)?;
        call.state.storage.object(NODES, "", node)
    });
    let bound = bound.as_ref().map(|(reference, object)| (*reference, &**object));
    let claims = request::claims(&account, bound, node.as_deref(), &generate_ids().uid)?;
    let issued = request::issue_token(&mut token_request, claims, &issuer.key, &issuer.config, now())
        .map_err(|error| Status::internal_error(format!("failed to generate token: {error}")))?;
    let audit = issued.annotations.into_iter().map(|(key, text)| (key.to_owned(), text)).collect();
    call.note(Notes { warnings: issued.warnings, audit });
    render::formed(call, 201, &token_request, &[])
}

fn find(call: &Call<'_>, reference: &Reference) -> Result<CachedObject, Status> {
    let (resource, namespace) = match reference.kind {
        Kind::Pod => (PODS, call.namespace()),
        Kind::Secret => (SECRETS, call.namespace()),
        Kind::Node => (NODES, ""),
    };
    let found = call.state.storage.object(resource, namespace, &reference.name);
    found.ok_or_else(|| Status::not_found(GroupName::new(resource.group, resource.plural), &reference.name))
}

fn own(call: &Call<'_>, options: &WriteOptions, token_request: Value) -> Value {
    let api_version = "authentication.k8s.io/v1";
    let gvk = GroupVersionKind::of("authentication.k8s.io", "v1", "TokenRequest");
    let schema = api::catalogue::schema(&gvk).expect("the catalogue has TokenRequest");
    let versions =
        apply::OneVersion { api_version, schema, reset_fields: apply::FieldSet::EMPTY, empty: apply::zero(schema) };
    let manager = options.manager(call.request.user_agent());
    let write = apply::Write {
        versions: &versions,
        api_version,
        kind: "TokenRequest",
        subresource: "token",
        manager: &manager,
        now: now(),
    };
    write.update_or_keep(None, token_request)
}

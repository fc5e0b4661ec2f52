//! Review kinds (SubjectAccessReview, TokenReview, …): the object is not stored, and the result is returned in its
//! status.

use api::kind::{Verb, VirtualKind};
use api_registry::decode;
use api_registry::options::{WriteKind, WriteOptions};
use api_registry::strategy;
use apimachinery::Value;
use apimachinery::status::Status;
use auth::access_review::{self, Kind as Review};
use auth::{Authorizer, rules_review, token_review};

use super::{Call, authorized_verb, bind, component_status, method_not_allowed, render};
use crate::response::HttpResponse;
use client::clock::now;

/// Evaluates the review in the body.
pub(super) async fn serve(call: &Call<'_>, question: VirtualKind) -> Result<HttpResponse, Status> {
    if question == VirtualKind::ComponentStatus {
        return component_status::serve(call).await;
    }
    if authorized_verb(call) != Some(Verb::Create) || call.resource.in_url || !call.resource.subresource.is_empty() {
        return Err(method_not_allowed());
    }
    let options = WriteOptions::of(&call.request.query, WriteKind::Create)?;
    let received = decode::object(&call.body, call.media()?, &call.kind, call.version(), options.field_validation)?;
    let mut object = received.object;
    if question == VirtualKind::Binding {
        return bind::serve(call, &options, &object).await;
    }
    let manager = options.manager(call.request.user_agent());
    let target = call.target(&manager);
    // A local review applies to the namespace in its URL: its creator was authorized for that namespace only.
    strategy::address(&target, &mut object)?;
    let sent = object.clone();
    let mut object = strategy::own(&target, None, object, now());
    let status = match question {
        VirtualKind::SelfSubjectReview => {
            let api_version = call.kind.gvk(&call.resource.version).api_version();
            let review = token_review::self_subject_review(&api_version, &call.user, now());
            return render::formed(call, 201, &review, &call.version().columns);
        }
        VirtualKind::SubjectAccessReview => access(call, Review::Subject, &sent)?,
        VirtualKind::LocalSubjectAccessReview => access(call, Review::LocalSubject, &sent)?,
        VirtualKind::SelfSubjectAccessReview => access(call, Review::SelfSubject, &sent)?,
        VirtualKind::SelfSubjectRulesReview => rules(call, &sent)?,
        VirtualKind::TokenReview => token(call, &sent).await?,
        VirtualKind::Binding | VirtualKind::ComponentStatus => return Err(method_not_allowed()),
    };
    if let Value::Object(fields) = &mut object {
        fields.insert("status", status);
    }
    call.warn(received.warnings);
    render::formed(call, 201, &object, &call.version().columns)
}

fn access(call: &Call<'_>, kind: Review, sent: &Value) -> Result<Value, Status> {
    let review = access_review::read(kind, sent, &call.user)?;
    let decision = call.state.filters.authorization.authorize(&review.question.attributes());
    Ok(access_review::status(&review, &decision))
}

fn rules(call: &Call<'_>, sent: &Value) -> Result<Value, Status> {
    let namespace = rules_review::namespace(sent)?;
    let policy = call.state.filters.authorization.policy().map(|policy| policy.read().expect("no holder panics"));
    let (rules, errors) = policy.as_ref().map(|policy| policy.rules_for(&call.user, namespace)).unwrap_or_default();
    let incomplete = policy.is_none() || auth::node::Node::hides_rules_of(&call.user);
    Ok(rules_review::status(&rules_review::UserRules { rules, errors, incomplete }))
}

async fn token(call: &Call<'_>, sent: &Value) -> Result<Value, Status> {
    let request = token_review::read(sent, call.state.filters.authenticators.audiences())?;
    let found =
        call.state.filters.authenticators.by_token(&request.token, &request.audiences, &call.state.storage).await;
    token_review::status(&request, found.map(Some))
}

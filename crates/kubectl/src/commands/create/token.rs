//! `kubectl create token`.

use client::{Target, WriteOptions};

use super::creation;
use crate::changes::{self, DryRun, Form, Results};
use crate::command::{Command, Flag};
use crate::generate::token::{self, Options};
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "token",
    summary: "Request a token for a service account",
    description: "Request a token with which to authenticate as a service account, and print it. The token expires, \
                  and can be bound to the lifetime of an object.",
    examples: "  # Request a token for a service account in another namespace
  kubectl create token worker -n jobs
  
  # Request a token that is valid for one hour and for one audience
  kubectl create token worker --duration=1h --audience=https://vault.example
  
  # Request a token that becomes invalid when a pod is deleted
  kubectl create token worker --bound-object-kind=Pod --bound-object-name=worker-0",
    usage: "kubectl create token SERVICE_ACCOUNT_NAME [options]",
    flags: &[
        flags::OUTPUT,
        &[
            Flag::array("audience", "Audience of the token, which defaults to the API server; can be repeated."),
            Flag::text(
                "bound-object-kind",
                "",
                "Kind of the object to bind the token to: Node, Pod, or Secret; requires --bound-object-name.",
            ),
            Flag::text(
                "bound-object-name",
                "",
                "Name of the object whose deletion invalidates the token; requires --bound-object-kind.",
            ),
            Flag::text(
                "bound-object-uid",
                "",
                "UID of the object to bind the token to, which defaults to that of the existing object.",
            ),
            Flag::duration(
                "duration",
                "0s",
                "Requested lifetime, which the server may change; 0 leaves the choice to the server.",
            ),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let name = creation::name(invocation)?;
    let namespace = context.namespace()?.name;
    let mut results = Results::new(context, invocation, DryRun::None, Form::Typed)?;
    let request = token::token_request(Options {
        name,
        namespace: &namespace,
        audiences: &invocation.list("audience"),
        duration: invocation.duration("duration"),
        negative_duration: invocation.text("duration").starts_with('-'),
        bound_kind: invocation.text("bound-object-kind"),
        bound_name: invocation.text("bound-object-name"),
        bound_uid: invocation.text("bound-object-uid"),
    })?;
    let target = Target::named(&creation::SERVICE_ACCOUNTS, namespace.as_str(), name).subresource("token");
    let fail = |failure: &Failure| Failure::new(format!("failed to create token: {}", changes::inner_message(failure)));
    let answer = context.client()?.create(&target, &request, &WriteOptions::default()).await;
    let answer = answer.map_err(|error| fail(&error.into()))?;
    let secret = answer.str_at(&["status", "token"]).unwrap_or_default();
    if secret.is_empty() {
        return Err(Failure::new("failed to create token: no token in server response"));
    }
    if invocation.is_set("output") {
        return results.print(&answer, "created");
    }
    let end = if context.out().is_terminal() { "\n" } else { "" };
    results.write(&format!("{secret}{end}"))
}

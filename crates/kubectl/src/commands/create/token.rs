//! `kubectl create token`.

use client::{Target, WriteOptions};

use super::creation;
use crate::changes::{self, DryRun, Form, Results};
use crate::command::{Command, Flag};
use crate::generate::token::{self, Options};
use crate::{Context, Failure, Invocation, flags};

pub static COMMAND: Command = Command {
    name: "token",
    summary: "Request a service account token",
    description: "Request a service account token.",
    examples: r#"  # Request a token to authenticate to the kube-apiserver as the service account "myapp" in the current namespace
  kubectl create token myapp
  
  # Request a token for a service account in a custom namespace
  kubectl create token myapp --namespace myns
  
  # Request a token with a custom expiration
  kubectl create token myapp --duration 10m
  
  # Request a token with a custom audience
  kubectl create token myapp --audience https://example.com
  
  # Request a token bound to an instance of a Secret object
  kubectl create token myapp --bound-object-kind Secret --bound-object-name mysecret
  
  # Request a token bound to an instance of a Secret object with a specific UID
  kubectl create token myapp --bound-object-kind Secret --bound-object-name mysecret --bound-object-uid 0d4691ed-659b-4935-a832-355f77ee47cc"#,
    usage: "kubectl create token SERVICE_ACCOUNT_NAME [options]",
    flags: &[
        flags::OUTPUT,
        &[
            Flag::array(
                "audience",
                "Audience of the requested token. If unset, defaults to requesting a token for use with the Kubernetes API server. May be repeated to request a token valid for multiple audiences.",
            ),
            Flag::text(
                "bound-object-kind",
                "",
                "Kind of an object to bind the token to. Supported kinds are Node, Pod, Secret. If set, --bound-object-name must be provided.",
            ),
            Flag::text(
                "bound-object-name",
                "",
                "Name of an object to bind the token to. The token will expire when the object is deleted. Requires --bound-object-kind.",
            ),
            Flag::text(
                "bound-object-uid",
                "",
                "UID of an object to bind the token to. Requires --bound-object-kind and --bound-object-name. If unset, the UID of the existing object is used.",
            ),
            Flag::duration(
                "duration",
                "0s",
                "Requested lifetime of the issued token. If not set or if set to 0, the lifetime will be determined by the server automatically. The server may return a token with a longer or shorter lifetime.",
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

//! `kubectl auth whoami`.

use std::io::Write;

use apimachinery::{Object, Resource, Value, go, value};
use client::{Target, WriteOptions};

use crate::changes::typed_json;
use crate::command::Command;
use crate::print::format::PrinterKind;
use crate::print::tabwriter::TabWriter;
use crate::print::{Format, Formats};
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "whoami",
    summary: "Show the current user and its attributes",
    description: "Show the user name, groups, and extra attributes under which the API server knows you. This helps \
        to check authentication by tokens, proxies, or OpenID Connect, and impersonation with --as.",
    examples: "  # Show who you are
  kubectl auth whoami

  # Print only your groups
  kubectl auth whoami -o jsonpath='{.status.userInfo.groups}'

  # Show the attributes of an impersonated user
  kubectl auth whoami --as=dana --as-group=ops -o yaml",
    usage: "kubectl auth whoami [options]",
    flags: &[flags::OUTPUT],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let client = context.client()?;
    let mut printer = Format::of(invocation, Formats::Common).printer()?;
    let mut response = Err(Failure::new("the selfsubjectreviews API is not enabled in the cluster"));
    for version in ["v1", "v1beta1", "v1alpha1"] {
        let resource = Resource::cluster("authentication.k8s.io", version, "selfsubjectreviews", "SelfSubjectReview");
        let review = value!({"apiVersion": (resource.api_version()), "kind": "SelfSubjectReview"});
        match client.create(&Target::all(&resource), &review, &WriteOptions::default()).await {
            Ok(review) => {
                response = Ok(review);
                break;
            }
            Err(error) if error.is_not_found() => {}
            Err(error) if error.is_forbidden() => {
                response = Err(Failure::new(
                    "the selfsubjectreviews API is not enabled in the cluster or you do not have permission to call it",
                ));
                break;
            }
            Err(error) => return Err(error.into()),
        }
    }
    let review = response?;
    if invocation.is_set("output") {
        return match printer.kind() {
            PrinterKind::Json => Ok(context.out().write_all(typed_json(&review).as_bytes())?),
            _ => printer.write(&review, &mut context.out()),
        };
    }
    Ok(context.out().write_all(TabWriter::for_tables().format(&table(&review)).as_bytes())?)
}

fn table(review: &Value) -> String {
    let mut text = "ATTRIBUTE\tVALUE\n".to_owned();
    let user = review.at(&["status", "userInfo"]).unwrap_or(&Value::Null);
    for (name, key) in [("Username", "username"), ("UID", "uid")] {
        if let Some(value) = user.str_at(&[key]).filter(|value| !value.is_empty()) {
            text.push_str(&format!("{name}\t{value}\n"));
        }
    }
    if let Some(groups) = user.get("groups").filter(|groups| groups.as_array().is_some_and(|groups| !groups.is_empty()))
    {
        text.push_str(&format!("Groups\t{}\n", go::display(groups)));
    }
    for (key, values) in user.get("extra").and_then(Value::as_object).into_iter().flat_map(Object::iter) {
        text.push_str(&format!("Extra: {key}\t{}\n", go::display(values)));
    }
    text
}

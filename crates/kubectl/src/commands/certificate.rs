//! `kubectl certificate`: approves and denies certificate signing requests.

use std::io::Write;
use std::time::SystemTime;

use apimachinery::time::Time;
use apimachinery::{Object, Resource, Value, go};
use client::{Target, WriteOptions};

use crate::command::{Command, Flag, Group};
use crate::print::{Format, Formats, Printer};
use crate::resources::{Builder, Info};
use crate::{Context, Failure, Invocation, commands, flags, help};

pub(super) static COMMAND: Command = Command {
    name: "certificate",
    group: Group::ClusterManagement,
    summary: "Decide on certificate signing requests",
    description: "Approve or deny certificate signing requests (CSRs).",
    usage: "kubectl certificate SUBCOMMAND [options]",
    commands: &[&APPROVE, &DENY],
    run: Some(|context, invocation| Box::pin(show_help(context, invocation))),
    ..Command::EMPTY
};
static APPROVE: Command = Command {
    name: "approve",
    summary: "Approve certificate signing requests",
    description: "Approve certificate signing requests, so that their signer issues the certificates. A certificate \
        can let its owner act as the requested user and groups: review each request before you approve it.",
    examples: "  # Approve a request by name
  kubectl certificate approve worker-2-client

  # Approve the requests in a file, and print their names
  kubectl certificate approve -f requests.yaml -o name",
    usage: "kubectl certificate approve (-f FILENAME | NAME) [options]",
    flags: &[
        flags::OUTPUT,
        flags::DIRECTORY,
        &[
            flags::filename("Files, directories, or URLs that identify the requests to approve."),
            Flag::bool("force", "Update a request even if it is approved already."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(approve(context, invocation))),
    ..Command::EMPTY
};
static DENY: Command = Command {
    name: "deny",
    summary: "Deny certificate signing requests",
    description: "Deny certificate signing requests, so that their signer does not issue certificates. A request \
        that is approved already cannot be denied.",
    examples: "  # Deny a request by name
  kubectl certificate deny worker-2-client

  # Deny the requests in a file
  kubectl certificate deny -f requests.yaml",
    usage: "kubectl certificate deny (-f FILENAME | NAME) [options]",
    flags: &[
        flags::OUTPUT,
        flags::DIRECTORY,
        &[
            flags::filename("Files, directories, or URLs that identify the requests to deny."),
            Flag::bool("force", "Update a request even if it is denied already."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(deny(context, invocation))),
    ..Command::EMPTY
};

static REQUESTS: Resource =
    Resource::cluster("certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest");

/// Maximum number of attempts if other clients change the object at the same time.
const ATTEMPTS: usize = 10;

/// A decision about a request.
#[derive(Clone, Copy, Debug)]
struct Decision {
    condition: &'static str,
    /// The opposite decision, which cannot be revoked.
    opposite: &'static str,
    reason: &'static str,
    message: &'static str,
    done: &'static str,
}

/// Unlike most commands with subcommands, this one succeeds without any, or with one that does not exist.
async fn show_help(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let text = help::help(&commands::path(&invocation.path), &[]);
    Ok(context.out().write_all(text.as_bytes())?)
}

async fn approve(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let decision = Decision {
        condition: "Approved",
        opposite: "Denied",
        reason: "KubectlApprove",
        message: "This CSR was approved by kubectl certificate approve.",
        done: "approved",
    };
    decide(context, invocation, decision).await
}

async fn deny(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let decision = Decision {
        condition: "Denied",
        opposite: "Approved",
        reason: "KubectlDeny",
        message: "This CSR was denied by kubectl certificate deny.",
        done: "denied",
    };
    decide(context, invocation, decision).await
}

async fn decide(context: &Context, invocation: &Invocation, decision: Decision) -> Result<(), Failure> {
    let mut printer = Format::of(invocation, Formats::Common).printer()?;
    let has_files = !invocation.list("filename").is_empty() || !invocation.text("kustomize").is_empty();
    if invocation.args.is_empty() && !has_files {
        return Err(Failure::new("one or more CSRs must be specified as <name> or -f <filename>"));
    }
    let builder = Builder::new(context)
        .namespace(&context.namespace()?)
        .filenames(invocation)
        .names("certificatesigningrequests", &invocation.args)
        .latest();
    let found = builder.found().await?;
    let mut failures = found.failures;
    if found.infos.is_empty() && failures.is_empty() {
        writeln!(context.out(), "No resources found")?;
    }
    for info in &found.infos {
        failures.extend(decide_one(context, invocation, info, decision, &mut printer).await.err());
    }
    Failure::all(failures)
}

async fn decide_one(
    context: &Context,
    invocation: &Invocation,
    info: &Info,
    decision: Decision,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let resource = &info.mapping.resource;
    if resource.kind != REQUESTS.kind || resource.group != REQUESTS.group {
        let suffix = if resource.group.is_empty() { String::new() } else { format!(".{}", resource.group) };
        return Err(Failure::new(format!(
            "can only handle CertificateSigningRequest.certificates.k8s.io objects, got {}{suffix}",
            resource.kind
        )));
    }
    let client = context.client()?;
    let target = Target::named(&REQUESTS, "", info.name.as_str());
    for attempt in 0.. {
        let mut request = client.get(&target).await?;
        let has_condition = add_condition(&mut request, decision, now())?;
        if has_condition && !invocation.bool("force") {
            break;
        }
        let target = target.clone().subresource("approval");
        match client.update(&target, &request, &WriteOptions::default()).await {
            Ok(_) => break,
            Err(error) if error.is_conflict() && attempt < ATTEMPTS => {}
            Err(error) => return Err(error.into()),
        }
    }
    printer.write_operation(&info.object, decision.done, &mut context.out())
}

/// Adds the condition of a decision; returns whether the request had it before.
fn add_condition(request: &mut Value, decision: Decision, now: Time) -> Result<bool, Failure> {
    let conditions = request.at(&["status", "conditions"]).and_then(Value::as_array).unwrap_or_default();
    let has = |ty: &str| conditions.iter().any(|condition| condition.str_at(&["type"]) == Some(ty));
    if has(decision.opposite) {
        let name = go::quote(request.str_at(&["metadata", "name"]).unwrap_or_default());
        let problem = format!("certificate signing request {name} is already {}", decision.opposite);
        return Err(Failure::new(problem));
    }
    if has(decision.condition) {
        return Ok(true);
    }
    let mut conditions = conditions.to_vec();
    let fields = [
        ("type", decision.condition),
        ("status", "True"),
        ("reason", decision.reason),
        ("message", decision.message),
        ("lastUpdateTime", &now.to_string()),
    ];
    conditions.push(Value::Object(fields.into_iter().collect::<Object>()));
    if let Some(request) = request.as_object_mut()
        && let Some(status) = request.get_or_insert_with("status", Value::object).as_object_mut()
    {
        status.insert("conditions", conditions);
    }
    Ok(false)
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Time::from_unix(i64::try_from(since.as_secs()).unwrap_or_default(), since.subsec_nanos())
}

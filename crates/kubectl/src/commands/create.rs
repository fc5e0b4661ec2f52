//! `kubectl create`: creates objects from files, or from options by its subcommands.

mod clusterrole;
mod clusterrolebinding;
mod configmap;
mod creation;
mod cronjob;
mod deployment;
mod ingress;
mod job;
mod namespace;
mod poddisruptionbudget;
mod priorityclass;
mod quota;
mod role;
mod rolebinding;
mod secret;
mod service;
mod serviceaccount;
mod token;

use std::io::Write;
use std::path::Path;

use apimachinery::status::Status;
use apimachinery::{Value, json};
use bytes::Bytes;
use client::{FieldValidation, TransportError, WriteOptions};
use http::Request;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt;

use super::edit;
use crate::changes::{self, DryRun, Form, RECORD, Results};
use crate::command::{Command, Flag, Group};
use crate::generate::{last_applied, sources};
use crate::resources::{Builder, Found, Info};
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "create",
    group: Group::BasicBeginner,
    summary: "Create objects from files or standard input",
    description: "Create the objects that JSON or YAML manifests describe. The command fails for an object that \
                  already exists. Subcommands create objects of common types without a manifest.",
    examples: "  # Create the objects in a manifest
  kubectl create -f web.yaml
  
  # Create the objects in all manifests below a directory
  kubectl create -R -f manifests/
  
  # Read the manifest from standard input and let the server check it without storing anything
  cat db.json | kubectl create --dry-run=server -f -
  
  # Change the manifest as JSON in an editor before the object is created
  kubectl create --edit -o json -f worker.yaml",
    usage: "kubectl create -f FILENAME [options]",
    flags: &[
        flags::SAVE_CONFIG,
        RECORD,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        flags::SELECTOR,
        flags::DIRECTORY,
        &[
            Flag::bool("edit", "Open the objects in an editor before they are created."),
            flags::field_manager("kubectl-create"),
            flags::filename("Files, directories, or URLs that contain the objects to create."),
            Flag::text("raw", "", "Path on the API server that receives the file as a POST request."),
            Flag::bool(
                "windows-line-endings",
                "With --edit, use Windows line endings instead of those of the platform.",
            ),
        ],
    ],
    commands: &[
        &clusterrole::COMMAND,
        &clusterrolebinding::COMMAND,
        &configmap::COMMAND,
        &cronjob::COMMAND,
        &deployment::COMMAND,
        &ingress::COMMAND,
        &job::COMMAND,
        &namespace::COMMAND,
        &poddisruptionbudget::COMMAND,
        &priorityclass::COMMAND,
        &quota::COMMAND,
        &role::COMMAND,
        &rolebinding::COMMAND,
        &secret::COMMAND,
        &service::COMMAND,
        &serviceaccount::COMMAND,
        &token::COMMAND,
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    if !invocation.args.is_empty() {
        let args = invocation.args.join(" ");
        return Err(Failure::usage(&invocation.name(), format_args!("Unexpected args: [{args}]")));
    }
    let dry_run = DryRun::of(context, invocation)?;
    let validation = changes::field_validation(invocation)?;
    let mut results = Results::new(context, invocation, dry_run, Form::Untyped)?;
    require_files(invocation)?;
    if !invocation.text("raw").is_empty() {
        return post(context, invocation).await;
    }
    if invocation.bool("edit") {
        return edit::before_create(context, invocation).await;
    }
    let builder = Builder::new(context)
        .namespace(&context.namespace()?)
        .filenames(invocation)
        .validate(validation != FieldValidation::Ignore)
        .selector(invocation.text("selector"));
    let Found { infos, failures: unreadable, .. } = builder.found().await?;
    let mut failures = Vec::new();
    let options = changes::write_options(invocation, dry_run)?;
    let mut count = 0;
    for mut info in infos {
        if invocation.bool("save-config") || last_applied::is_saved(&info.object) {
            last_applied::save_untyped(&mut info.object);
        }
        changes::record(invocation, &mut info.object);
        if dry_run != DryRun::Client {
            match create(context, &info, &options).await {
                Ok(object) => info.refresh(object),
                Err(failure) => {
                    failures.push(failure.when("creating", &info.source));
                    continue;
                }
            }
        }
        count += 1;
        results.print(&info.object, "created")?;
    }
    failures.extend(unreadable);
    Failure::all(failures)?;
    if count == 0 {
        return Err(Failure::new("no objects passed to create"));
    }
    Ok(())
}

/// Creates an object. Its resource version is ignored.
pub(super) async fn create(context: &Context, info: &Info, options: &WriteOptions) -> Result<Value, Failure> {
    let mut object = info.object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
    Ok(context.client()?.create(&info.collection(), &object, options).await?)
}

/// Fails unless `-f` or `-k` is given.
pub(super) fn require_files(invocation: &Invocation) -> Result<(), Failure> {
    let (files, kustomize) = (invocation.list("filename"), invocation.text("kustomize"));
    if files.is_empty() && kustomize.is_empty() {
        return Err(Failure::new("must specify one of -f and -k"));
    }
    if !files.is_empty() && !kustomize.is_empty() {
        return Err(Failure::new("only one of -f or -k can be specified"));
    }
    Ok(())
}

/// Sends a file to a path, and prints the response.
async fn post(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let raw = invocation.text("raw");
    let files = invocation.list("filename");
    let problem = if invocation.bool("edit") {
        "--raw and --edit are mutually exclusive"
    } else if files.len() != 1 {
        "--raw can only use a single local file or stdin"
    } else if files[0].starts_with("http://") || files[0].starts_with("https://") {
        "--raw cannot read from a url"
    } else if invocation.bool("recursive") {
        "--raw and --recursive are mutually exclusive"
    } else if !invocation.text("selector").is_empty() {
        "--raw and --selector (-l) are mutually exclusive"
    } else if !invocation.text("output").is_empty() {
        "--raw and --output are mutually exclusive"
    } else {
        ""
    };
    if !problem.is_empty() {
        return Err(Failure::new(problem));
    }
    if !raw.starts_with('/') {
        let fault = format!("--raw must be a valid URL path: parse {raw:?}: invalid URI for request");
        return Err(Failure::new(fault));
    }
    let body = match files[0].as_str() {
        "-" => context.read_stdin()?,
        path => sources::read(Path::new(path))?,
    };
    let request = Request::post(raw).header(CONTENT_TYPE, "application/json").body(Bytes::from(body));
    let answer = context.client()?.raw(request.map_err(client::Error::from)?).await?;
    let success = answer.status().is_success();
    let bytes = answer.into_body().collect().await.map_err(TransportError::Broken)?.to_bytes();
    if !success && let Some(status) = json::parse(&bytes).ok().and_then(|value| Status::from_value(&value)) {
        return Err(Failure::from_status(status));
    }
    context.out().write_all(&bytes)?;
    Ok(())
}

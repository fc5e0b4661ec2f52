//! `kubectl patch`: changes fields of objects with a patch.

use std::path::Path;

use apimachinery::patch::json::{Error, Fault};
use apimachinery::patch::{self, PatchType, apply_patch, merge};
use apimachinery::status::{Reason, Status};
use apimachinery::{GroupVersionKind, Value, go, json, yaml};
use client::Patch;

use crate::changes::{self, DryRun, Form, RECORD, Results};
use crate::command::{Command, Flag, Group};
use crate::failure::chain;
use crate::generate::sources;
use crate::resources::{Builder, Found, Info};
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "patch",
    group: Group::Advanced,
    summary: "Change fields of objects with a patch",
    description: "Change fields of objects with a patch in JSON or YAML. The patch is a strategic merge patch unless \
        --type says otherwise; custom resources support only the types json and merge.",
    examples: r#"  # Pause a deployment
  kubectl patch deployment web -p '{"spec":{"paused":true}}'

  # Change the image of a container, which its name identifies
  kubectl patch deployment web --patch-file=image.yaml

  # Remove a list item by its position with a JSON patch
  kubectl patch service db --type=json -p '[{"op":"remove","path":"/spec/ports/1"}]'

  # Scale through the scale subresource with a merge patch
  kubectl patch statefulset db --subresource=scale --type=merge -p '{"spec":{"replicas":3}}'

  # Patch a file without the server, and print the result
  kubectl patch -f web.yaml --local -p '{"metadata":{"labels":{"tier":"front"}}}' -o yaml"#,
    usage: "kubectl patch (-f FILENAME | TYPE NAME) [-p PATCH|--patch-file FILE] [options]",
    flags: &[
        RECORD,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::DIRECTORY,
        &[
            flags::field_manager("kubectl-patch"),
            flags::filename("Files, directories, or URLs that identify the objects to patch."),
            Flag::bool("local", "Patch the contents of the file instead of the object on the server."),
            Flag::text("patch", "", "The patch, in JSON or YAML.").short('p'),
            Flag::text("patch-file", "", "File with the patch, in JSON or YAML."),
            Flag::text("subresource", "", "Subresource to patch instead of the object itself."),
            Flag::text("type", "strategic", "Type of the patch: json, merge, or strategic."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let dry_run = DryRun::of(context, invocation)?;
    let local = invocation.bool("local");
    // The message of this command does not mention a dry run.
    let mut results = Results::new(context, invocation, DryRun::None, Form::Untyped)?;
    let patch_type = validate(invocation, dry_run)?;
    let patch = read(invocation)?;
    let namespace = context.namespace()?;
    let builder = Builder::new(context)
        .local(local)
        .namespace(&namespace)
        .filenames(invocation)
        .subresource(invocation.text("subresource"))
        .types_or_names(false, &invocation.args);
    let Found { infos, mut failures, .. } = builder.found().await?;
    let count = infos.len();
    for info in infos {
        let patched = if local || dry_run == DryRun::Client {
            apply(&info, patch_type, &patch)
        } else {
            send(context, invocation, &info, patch_type, &patch, dry_run).await
        };
        match patched {
            Ok(object) => {
                let operation = if object == info.object { "patched (no change)" } else { "patched" };
                results.print(&object, operation)?;
            }
            Err(failure) => failures.push(failure),
        }
    }
    Failure::all(failures)?;
    if count == 0 {
        return Err(Failure::new("no objects passed to patch"));
    }
    Ok(())
}

fn validate(invocation: &Invocation, dry_run: DryRun) -> Result<PatchType, Failure> {
    let (patch, file) = (invocation.text("patch"), invocation.text("patch-file"));
    let local = invocation.bool("local");
    let problem = if !patch.is_empty() && !file.is_empty() {
        "cannot specify --patch and --patch-file together"
    } else if patch.is_empty() && file.is_empty() {
        "must specify --patch or --patch-file containing the contents of the patch"
    } else if local && !invocation.args.is_empty() {
        "cannot specify --local and server resources"
    } else if local && dry_run == DryRun::Server {
        "cannot specify --local and --dry-run=server - did you mean --dry-run=client?"
    } else {
        return match invocation.text("type").to_lowercase().as_str() {
            "json" => Ok(PatchType::Json),
            "merge" => Ok(PatchType::Merge),
            "" | "strategic" => Ok(PatchType::Strategic),
            _ => {
                let given = go::quote(invocation.text("type"));
                Err(Failure::new(format!("--type must be one of [json merge strategic], not {given}")))
            }
        };
    };
    Err(Failure::new(problem))
}

/// Returns the patch as JSON. A text that starts like JSON is not parsed here.
fn read(invocation: &Invocation) -> Result<Vec<u8>, Failure> {
    let file = invocation.text("patch-file");
    let text = if file.is_empty() {
        invocation.text("patch").to_owned()
    } else {
        let bytes = std::fs::read(file).map_err(|error| {
            Failure::new(format!("unable to read patch file: {}", sources::path_fault(Path::new(file), &error)))
        })?;
        String::from_utf8_lossy(&bytes).into_owned()
    };
    if text.trim_start().starts_with('{') {
        return Ok(text.into_bytes());
    }
    match yaml::parse(&text) {
        Ok(patch) => Ok(json::to_vec(&patch)),
        Err(error) => {
            let patch = go::quote(invocation.text("patch"));
            Err(Failure::new(format!("unable to parse {patch}: {}", chain(&error))))
        }
    }
}

/// Patches an object without the server.
fn apply(info: &Info, patch_type: PatchType, patch: &[u8]) -> Result<Value, Failure> {
    let kind = GroupVersionKind::of_object(&info.object).map_err(|error| Failure::new(error.to_string()))?;
    let schema = api::catalogue::schema(&kind);
    if patch_type == PatchType::Strategic && schema.is_none() {
        let kind = kind_text(&kind);
        return Err(Failure::new(format!(
            "strategic merge patch is not supported for {kind} locally, try --type merge"
        )));
    }
    match apply_patch(patch_type, info.object.clone(), patch, schema) {
        Ok(object) => Ok(object),
        Err(patch::Error::Syntax(error)) => Err(Failure::new(error.to_string())),
        Err(patch::Error::Json(Error::Failed { op, fault: fault @ Fault::Absent { .. }, .. })) => {
            Err(Failure::new(format!("{op} operation does not apply: {fault}")))
        }
        Err(patch::Error::Json(Error::Failed { op, path, fault, .. })) => {
            Err(Failure::new(format!("error in {op} for path: '{path}': {fault}")))
        }
        Err(error) => Err(Failure::new(chain(&error))),
    }
}

async fn send(
    context: &Context,
    invocation: &Invocation,
    info: &Info,
    patch_type: PatchType,
    patch: &[u8],
    dry_run: DryRun,
) -> Result<Value, Failure> {
    let client = context.client()?;
    let target = info.target().subresource(invocation.text("subresource"));
    let options = changes::write_options(invocation, dry_run)?;
    let patch = json::parse(patch)
        .map_err(|error| Failure::from_status(Status::bad_request(format!("error decoding patch: {error}"))))?;
    let patch = match patch_type {
        PatchType::Json => Patch::Json(patch),
        PatchType::Merge => Patch::Merge(patch),
        PatchType::Strategic | PatchType::Apply => Patch::Strategic(patch),
    };
    let patched = client.patch(&target, &patch, &options).await.map_err(|error| {
        let failure = Failure::from(error);
        if !failure.is(&Reason::UnsupportedMediaType) {
            return failure;
        }
        let kind = kind_text(&info.mapping.resource.group_version_kind());
        let (patch_type, cause) = (patch_type.content_type(), changes::inner_message(&failure));
        Failure::new(format!("{patch_type} is not supported by {kind}: {cause}"))
    })?;
    let mut recorded = patched.clone();
    changes::record(invocation, &mut recorded);
    if recorded == patched {
        return Ok(patched);
    }
    let cause = Patch::Merge(merge::diff(&patched, &recorded));
    // As in kubectl, a failure to record is not a failure to patch.
    Ok(client.patch(&target, &cause, &options).await.unwrap_or(patched))
}

/// Formats a kind like Go: `stable.example.com/v1, Kind=CronTab`.
fn kind_text(kind: &GroupVersionKind) -> String {
    format!("{}, Kind={}", kind.api_version(), kind.kind)
}

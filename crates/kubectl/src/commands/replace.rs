//! `kubectl replace`: replaces objects by those of files; with `--force` deletes and creates them.

use std::time::Duration;

use apimachinery::Value;
use client::Target;
use http::Method;
use tokio::time::Instant;

use crate::changes::{DryRun, Form, RECORD, Results, field_validation, record, write_options};
use crate::command::{Command, Flag, Group};
use crate::commands::delete::{Deletion, delete_all, propagation};
use crate::commands::raw;
use crate::generate::last_applied;
use crate::resources::{Builder, Found, Info};
use crate::{Context, Failure, Invocation, flags, wait};

pub(super) static COMMAND: Command = Command {
    name: "replace",
    group: Group::Advanced,
    summary: "Replace objects with those in files",
    description: "Replace existing objects with the complete definitions in files; fields that a file omits are \
        removed or get their defaults. With --force, the objects are deleted and created again, which also changes \
        immutable fields.",
    examples: "  # Replace an object with the one in a file
  kubectl replace -f web.yaml

  # Replace an object from standard input
  kubectl get deployment web -o json | jq '.spec.replicas = 3' | kubectl replace -f -

  # Delete and recreate a job, with 10 seconds to stop
  kubectl replace -f worker.yaml --force --grace-period=10

  # Replace only the status of an object
  kubectl replace -f db-status.yaml --subresource=status",
    usage: "kubectl replace -f FILENAME [options]",
    flags: &[
        RECORD,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            Flag::text(
                "cascade",
                "background",
                "How to treat the dependents of a deleted object: \"background\", \"foreground\", or \"orphan\".",
            )
            .without_value("background"),
            flags::field_manager("kubectl-replace"),
            flags::filename("Files, directories, or URLs with the objects to replace."),
            Flag::bool("force", "Delete the objects and create them again instead of updating them."),
            Flag::int(
                "grace-period",
                "-1",
                "With --force, seconds that the old objects have to terminate; a negative value means the default \
                of their kind.",
            ),
            Flag::text("kustomize", "", "Directory of a kustomization to process; excludes -f and -R.").short('k'),
            Flag::text("raw", "", "Path on the API server to send the file to with a PUT request."),
            Flag::bool("recursive", "Also process the subdirectories of the directories in --filename.").short('R'),
            Flag::bool("save-config", "Store the configuration in the annotation that kubectl apply uses."),
            Flag::text("subresource", "", "Subresource to replace instead of the object itself."),
            Flag::duration("timeout", "0s", "With --force, maximum time to wait for the deletion; 0 means 5 minutes."),
            Flag::bool("wait", "With --force, wait until the old objects are removed, including their finalizers."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

/// The timeout of the deletion with `--force` and without `--timeout`.
const FORCE_TIMEOUT: Duration = Duration::from_secs(300);

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let dry_run = DryRun::of(context, invocation)?;
    let results = Results::new(context, invocation, dry_run, Form::Untyped)?;
    let files = invocation.list("filename");
    if files.is_empty() && invocation.text("kustomize").is_empty() {
        return Err(Failure::new("must specify one of -f and -k"));
    }
    check(invocation, dry_run)?;
    let path = invocation.text("raw");
    if !path.is_empty() {
        raw::check(invocation, true)?;
        return raw::send(context, Method::PUT, path, &files[0]).await;
    }
    let validates = field_validation(invocation)? != client::FieldValidation::Ignore;
    let builder = Builder::new(context).filenames(invocation).namespace(&context.namespace()?).validate(validates);
    let found = builder.found().await?;
    if invocation.bool("force") {
        return force(context, invocation, found, results).await;
    }
    replace(context, invocation, found, dry_run, results).await
}

fn check(invocation: &Invocation, dry_run: DryRun) -> Result<(), Failure> {
    let force = invocation.bool("force");
    if invocation.int("grace-period") >= 0 && !force {
        return Err(Failure::new("--grace-period must have --force specified"));
    }
    if !invocation.duration("timeout").is_zero() && !force {
        return Err(Failure::new("--timeout must have --force specified"));
    }
    if force && dry_run != DryRun::None {
        return Err(Failure::new("--dry-run can not be used when --force is set"));
    }
    Ok(())
}

async fn replace(
    context: &Context,
    invocation: &Invocation,
    found: Found,
    dry_run: DryRun,
    mut results: Results<'_>,
) -> Result<(), Failure> {
    let options = write_options(invocation, dry_run)?;
    let client = context.client()?;
    let mut failures = found.failures;
    for info in found.infos {
        let mut object = prepared(invocation, &info);
        if dry_run != DryRun::Client {
            let target = info.target().subresource(invocation.text("subresource"));
            set_version(&client, &target, &mut object).await;
            match client.update(&target, &object, &options).await {
                Ok(replaced) => object = replaced,
                Err(error) => {
                    failures.push(Failure::from(error).when("replacing", &info.source));
                    continue;
                }
            }
        }
        results.print(&object, "replaced")?;
    }
    Failure::all(failures)
}

/// Sets the version of the existing object if the new one has none, so that kinds which require it can be replaced.
async fn set_version(client: &client::Client, target: &Target<'_>, object: &mut Value) {
    if object.str_at(&["metadata", "resourceVersion"]).is_some_and(|version| !version.is_empty()) {
        return;
    }
    // The update itself reports the error.
    let Ok(current) = client.get(target).await else { return };
    let version = current.str_at(&["metadata", "resourceVersion"]).unwrap_or_default().to_owned();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion", version);
    }
}

async fn force(
    context: &Context,
    invocation: &Invocation,
    found: Found,
    mut results: Results<'_>,
) -> Result<(), Failure> {
    let mut grace = invocation.int("grace-period");
    let mut waits = invocation.bool("wait");
    if grace == 0 {
        grace = 1;
        waits = true;
    }
    let deletion = Deletion {
        grace_seconds: grace.try_into().ok(),
        propagation: propagation(context, invocation)?,
        dry_run: DryRun::None,
        ignore_not_found: true,
        wait: waits,
        timeout: invocation.duration("timeout"),
        names_only: invocation.text("output") == "name",
        warn_cluster_scope: false,
    };
    delete_all(context, &deletion, &found.infos, found.failures).await?;
    let timeout = invocation.duration("timeout");
    let deadline = Instant::now() + if timeout.is_zero() { FORCE_TIMEOUT } else { timeout };
    let client = context.client()?;
    for info in &found.infos {
        wait::deleted(&client, info, None, deadline).await.map_err(|failure| {
            if failure.status().is_some() { failure } else { Failure::new("timed out waiting for the condition") }
        })?;
    }
    let options = write_options(invocation, DryRun::None)?;
    let mut failures = Vec::new();
    for info in &found.infos {
        let target = Target::within(&info.mapping.resource, info.namespace.as_str());
        let object = without_resource_version(prepared(invocation, info));
        match client.create(&target, &object, &options).await {
            Ok(created) => results.print(&created, "replaced")?,
            Err(error) => failures.push(error.into()),
        }
    }
    Failure::all(failures)?;
    if found.infos.is_empty() { Err(Failure::new("no objects passed to replace")) } else { Ok(()) }
}

fn prepared(invocation: &Invocation, info: &Info) -> Value {
    let mut object = info.object.clone();
    if invocation.bool("save-config") || last_applied::is_saved(&object) {
        last_applied::save_untyped(&mut object);
    }
    record(invocation, &mut object);
    object
}

/// Removes the version of an object that was exported from a cluster. Its creation would be rejected.
fn without_resource_version(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
    object
}

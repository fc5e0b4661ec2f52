//! `kubectl delete`: deletes objects, and waits for their removal.

use std::collections::BTreeSet;
use std::io::{BufRead, Write};

use apimachinery::status::Reason;
use client::{DeleteOptions, Propagation};
use http::Method;
use tokio::time::Instant;

use crate::changes::DryRun;
use crate::command::{Command, Flag, Group};
use crate::commands::raw;
use crate::resources::{Builder, Info};
use crate::{Context, Failure, Invocation, flags, wait};

pub(super) static COMMAND: Command = Command {
    name: "delete",
    group: Group::BasicIntermediate,
    summary: "Delete objects by name, label, or file",
    description: "Delete objects by type and name, by type and selector, or those in files, and wait until they are \
        gone. Pods get a grace period to stop; --force skips it, so that their processes may still run when the \
        objects are gone, which can corrupt data of stateful applications. Resource versions are not checked: \
        concurrent updates are lost.",
    examples: "  # Delete a deployment and a service with the same name
  kubectl delete deployment,service web

  # Delete the objects of all manifests in a directory, without waiting
  kubectl delete -f deploy/ --wait=false

  # Delete jobs by label after confirmation
  kubectl delete jobs -l app=worker --interactive

  # Delete a stateful set, but keep its pods
  kubectl delete statefulset db --cascade=orphan

  # Remove a pod whose node is lost
  kubectl delete pod worker-3 --force",
    usage: "kubectl delete ([-f FILENAME] | [-k DIRECTORY] | TYPE [(NAME | -l label | --all)]) [options]",
    flags: &[
        flags::DRY_RUN,
        flags::SELECTOR,
        flags::ALL_NAMESPACES,
        &[
            Flag::bool("all", "Delete all objects of the given types in the namespace."),
            Flag::text(
                "cascade",
                "background",
                "How to treat the dependents of a deleted object: \"background\", \"foreground\", or \"orphan\".",
            )
            .without_value("background"),
            Flag::text(
                "field-selector",
                "",
                "Delete only objects whose fields match, such as status.phase=Failed; supports =, ==, and !=.",
            ),
            flags::filename("Files, directories, or URLs that identify the objects to delete."),
            Flag::bool(
                "force",
                "Remove objects from the API immediately, without confirmation that their processes have stopped.",
            ),
            Flag::int(
                "grace-period",
                "-1",
                "Seconds that objects have to terminate; a negative value means the default of their kind, and 0 \
                requires --force.",
            ),
            Flag::bool(
                "ignore-not-found",
                "Succeed if an object does not exist; the default is true with --all or a selector.",
            ),
            Flag::bool("interactive", "Ask for confirmation before the deletion.").short('i'),
            Flag::text("kustomize", "", "Directory of a kustomization to process; excludes -f and -R.").short('k'),
            Flag::bool("now", "Terminate within one second, as --grace-period=1."),
            Flag::text("output", "", "Output format: only \"name\" is supported, which prints resource/name.")
                .short('o'),
            Flag::text("raw", "", "Path on the API server to send a DELETE request to."),
            Flag::bool("recursive", "Also process the subdirectories of the directories in --filename.").short('R'),
            Flag::duration("timeout", "0s", "Maximum time to wait for the deletion; 0 means no limit."),
            Flag::bool("wait", "Wait until the objects are removed, including their finalizers.").default("true"),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

/// Options for the deletion of objects and for the output.
pub(super) struct Deletion {
    /// `None` for the default of the kind.
    pub grace_seconds: Option<u32>,
    pub propagation: Propagation,
    pub dry_run: DryRun,
    pub ignore_not_found: bool,
    pub wait: bool,
    /// Zero waits as long as necessary.
    pub timeout: std::time::Duration,
    /// Print `resource/name` instead of a sentence.
    pub names_only: bool,
    pub warn_cluster_scope: bool,
}

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let deletion = options(context, invocation)?;
    let path = invocation.text("raw");
    if !path.is_empty() {
        check_raw(invocation)?;
        let files = invocation.list("filename");
        return raw::send(context, Method::DELETE, path, files.first().map_or("", String::as_str)).await;
    }
    let all_namespaces = invocation.bool("all-namespaces");
    let found = Builder::new(context)
        .filenames(invocation)
        .namespace(&context.namespace()?)
        .selector(invocation.text("selector"))
        .field_selector(invocation.text("field-selector"))
        .select_all(invocation.bool("all"))
        .all_namespaces(all_namespaces)
        .types_or_names(false, &invocation.args)
        .without_objects()
        .found()
        .await?;
    let (mut infos, failures) = (found.infos, found.failures);
    if invocation.bool("interactive") {
        if infos.is_empty() {
            Failure::all(failures)?;
            return Ok(writeln!(context.out(), "No resources found")?);
        }
        if !confirm(context, &infos)? {
            return Ok(writeln!(context.out(), "deletion is cancelled")?);
        }
        let mut seen = BTreeSet::new();
        infos.retain(|info| seen.insert((info.display(), info.namespace.clone())));
    }
    delete_all(context, &deletion, &infos, failures).await
}

fn options(context: &Context, invocation: &Invocation) -> Result<Deletion, Failure> {
    let selects = invocation.bool("all")
        || !invocation.text("selector").is_empty()
        || !invocation.text("field-selector").is_empty();
    let force = invocation.bool("force");
    let mut grace = invocation.int("grace-period");
    if invocation.bool("now") {
        if grace != -1 {
            return Err(Failure::new("--now and --grace-period cannot be specified together"));
        }
        grace = 1;
    }
    // Zero without --force could lose data accidentally.
    if grace == 0 && !force {
        grace = 1;
    }
    if force && grace < 0 {
        grace = 0;
    }
    let dry_run = DryRun::of(context, invocation)?;
    let output = invocation.text("output");
    if !matches!(output, "" | "name") {
        return Err(Failure::new(format!("unexpected -o output mode: {output}. We only support '-o name'")));
    }
    if force && grace > 0 {
        return Err(Failure::new("--force and --grace-period greater than 0 cannot be specified together"));
    }
    if force {
        context.warn(
            "Immediate deletion does not wait for confirmation that the running resource has been terminated. The \
             resource may continue to run on the cluster indefinitely.",
        );
    }
    let ignore_not_found = invocation.bool("ignore-not-found") || selects && !invocation.is_set("ignore-not-found");
    Ok(Deletion {
        grace_seconds: grace.try_into().ok(),
        propagation: propagation(context, invocation)?,
        dry_run,
        ignore_not_found,
        wait: invocation.bool("wait"),
        timeout: invocation.duration("timeout"),
        names_only: output == "name",
        warn_cluster_scope: context.namespace()?.explicit && !invocation.bool("all-namespaces"),
    })
}

/// Reads `--cascade`.
pub(super) fn propagation(context: &Context, invocation: &Invocation) -> Result<Propagation, Failure> {
    let instead = |text: &str, instead: &str| {
        let notice =
            format!("--cascade={text} is deprecated (boolean value) and can be replaced with --cascade={instead}.");
        writeln!(context.err(), "warning: {notice}")
    };
    match invocation.text("cascade") {
        "background" => Ok(Propagation::Background),
        "foreground" => Ok(Propagation::Foreground),
        "orphan" => Ok(Propagation::Orphan),
        other => match flags::parse_bool(other) {
            Some(true) => {
                instead(other, "background")?;
                Ok(Propagation::Background)
            }
            Some(false) => {
                instead(other, "orphan")?;
                Ok(Propagation::Orphan)
            }
            None => Err(Failure::new(format!(
                "invalid cascade value ({other}). Must be \"background\", \"foreground\", or \"orphan\""
            ))),
        },
    }
}

fn check_raw(invocation: &Invocation) -> Result<(), Failure> {
    if invocation.bool("interactive") {
        return Err(Failure::new("--interactive can not be used with --raw"));
    }
    raw::check(invocation, false)
}

/// Deletes objects. Each failure is reported after the other objects are deleted.
pub(super) async fn delete_all(
    context: &Context,
    deletion: &Deletion,
    infos: &[Info],
    mut failures: Vec<Failure>,
) -> Result<(), Failure> {
    let client = context.client()?;
    let mut warns = deletion.warn_cluster_scope;
    let mut uids: Vec<Option<String>> = Vec::new();
    for info in infos {
        if !info.namespaced() && std::mem::take(&mut warns) {
            context.warn("deleting cluster-scoped resources, not scoped to the provided namespace");
        }
        uids.push(None);
        if deletion.dry_run == DryRun::Client {
            print(context, deletion, info)?;
            continue;
        }
        let options = DeleteOptions {
            grace_seconds: deletion.grace_seconds,
            propagation: Some(deletion.propagation),
            dry_run: deletion.dry_run == DryRun::Server,
            ..DeleteOptions::default()
        };
        match client.delete(&info.target(), &options).await {
            Ok(response) => {
                print(context, deletion, info)?;
                let uid = response.str_at(&["details", "uid"]).or(response.str_at(&["metadata", "uid"]));
                uids.pop();
                uids.push(uid.map(str::to_owned));
            }
            Err(error) => failures.push(Failure::from(error).when("deleting", &info.source)),
        }
    }
    if deletion.ignore_not_found {
        failures.retain(|failure| !failure.is_not_found());
    }
    Failure::all(failures)?;
    if infos.is_empty() {
        return Ok(writeln!(context.out(), "No resources found")?);
    }
    if !deletion.wait || deletion.dry_run != DryRun::None {
        return Ok(());
    }
    context.out().flush()?;
    let timeout = if deletion.timeout.is_zero() { wait::FOREVER } else { deletion.timeout };
    let deadline = Instant::now() + timeout;
    for (info, uid) in infos.iter().zip(&uids) {
        match wait::deleted(&client, info, uid.as_deref(), deadline).await {
            // A user who may delete an object may not necessarily watch it.
            Err(failure) if failure.is(&Reason::Forbidden) || failure.is(&Reason::MethodNotAllowed) => {}
            done => done?,
        }
    }
    Ok(())
}

fn print(context: &Context, deletion: &Deletion, info: &Info) -> Result<(), Failure> {
    let mut out = context.out();
    if deletion.names_only {
        return Ok(writeln!(out, "{}", info.display())?);
    }
    let mut operation = if deletion.grace_seconds == Some(0) { "force deleted" } else { "deleted" }.to_owned();
    if info.namespaced() {
        operation = format!("{operation} from {} namespace", info.namespace);
    }
    let kind = info.display();
    let kind = kind.split('/').next().unwrap_or_default();
    writeln!(out, "{kind} \"{}\" {}", info.name, deletion.dry_run.message(&operation))?;
    Ok(())
}

fn confirm(context: &Context, infos: &[Info]) -> Result<bool, Failure> {
    let mut out = context.out();
    writeln!(out, "You are about to delete the following {} resource(s):", infos.len())?;
    for info in infos {
        writeln!(out, "{}", info.display())?;
    }
    write!(out, "Do you want to continue? (y/N): ")?;
    out.flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim().eq_ignore_ascii_case("y"))
}

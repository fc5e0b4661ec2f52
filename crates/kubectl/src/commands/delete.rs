//! `kubectl delete`: deletes objects, and waits until they are gone.

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

pub static COMMAND: Command = Command {
    name: "delete",
    group: Group::BasicIntermediate,
    summary: "Delete resources by file names, stdin, resources and names, or by resources and label selector",
    description: r#"Delete resources by file names, stdin, resources and names, or by resources and label selector.

 JSON and YAML formats are accepted. Only one type of argument may be specified: file names, resources and names, or resources and label selector.

 Some resources, such as pods, support graceful deletion. These resources define a default period before they are forcibly terminated (the grace period) but you may override that value with the --grace-period flag, or pass --now to set a grace-period of 1. Because these resources often represent entities in the cluster, deletion may not be acknowledged immediately. If the node hosting a pod is down or cannot reach the API server, termination may take significantly longer than the grace period. To force delete a resource, you must specify the --force flag. Note: only a subset of resources support graceful deletion. In absence of the support, the --grace-period flag is ignored.

 IMPORTANT: Force deleting pods does not wait for confirmation that the pod's processes have been terminated, which can leave those processes running until the node detects the deletion and completes graceful deletion. If your processes use shared storage or talk to a remote API and depend on the name of the pod to identify themselves, force deleting those pods may result in multiple processes running on different machines using the same identification which may lead to data corruption or inconsistency. Only force delete pods when you are sure the pod is terminated, or if your application can tolerate multiple copies of the same pod running at once. Also, if you force delete pods, the scheduler may place new pods on those nodes before the node has released those resources and causing those pods to be evicted immediately.

 Note that the delete command does NOT do resource version checks, so if someone submits an update to a resource right when you submit a delete, their update will be lost along with the rest of the resource.

 After a CustomResourceDefinition is deleted, invalidation of discovery cache may take up to 6 hours. If you don't want to wait, you might want to run "kubectl api-resources" to refresh the discovery cache."#,
    examples: r#"  # Delete a pod using the type and name specified in pod.json
  kubectl delete -f ./pod.json
  
  # Delete resources from a directory containing kustomization.yaml - e.g. dir/kustomization.yaml
  kubectl delete -k dir
  
  # Delete resources from all files that end with '.json'
  kubectl delete -f '*.json'
  
  # Delete a pod based on the type and name in the JSON passed into stdin
  cat pod.json | kubectl delete -f -
  
  # Delete pods and services with same names "baz" and "foo"
  kubectl delete pod,service baz foo
  
  # Delete pods and services with label name=myLabel
  kubectl delete pods,services -l name=myLabel
  
  # Delete a pod with minimal delay
  kubectl delete pod foo --now
  
  # Force delete a pod on a dead node
  kubectl delete pod foo --force
  
  # Delete all pods
  kubectl delete pods --all
  
  # Delete all pods only if the user confirms the deletion
  kubectl delete pods --all --interactive"#,
    usage: "kubectl delete ([-f FILENAME] | [-k DIRECTORY] | TYPE [(NAME | -l label | --all)]) [options]",
    flags: &[flags::DRY_RUN, flags::SELECTOR, flags::ALL_NAMESPACES, &[
        Flag::bool("all", "Delete all resources, in the namespace of the specified resource types."),
        Flag::text("cascade", "background", r#"Must be "background", "orphan", or "foreground". Selects the deletion cascading strategy for the dependents (e.g. Pods created by a ReplicationController). Defaults to background."#).without_value("background"),
        Flag::text("field-selector", "", "Selector (field query) to filter on, supports '=', '==', and '!='.(e.g. --field-selector key1=value1,key2=value2). The server only supports a limited number of field queries per type."),
        flags::filename("containing the resource to delete."),
        Flag::bool("force", "If true, immediately remove resources from API and bypass graceful deletion. Note that immediate deletion of some resources may result in inconsistency or data loss and requires confirmation."),
        Flag::int("grace-period", "-1", "Period of time in seconds given to the resource to terminate gracefully. Ignored if negative. Set to 1 for immediate shutdown. Can only be set to 0 when --force is true (force deletion)."),
        Flag::bool("ignore-not-found", r#"Treat "resource not found" as a successful delete. Defaults to "true" when --all is specified."#),
        Flag::bool("interactive", "If true, delete resource only when user confirms.").short('i'),
        Flag::text("kustomize", "", "Process a kustomization directory. This flag can't be used together with -f or -R.").short('k'),
        Flag::bool("now", "If true, resources are signaled for immediate shutdown (same as --grace-period=1)."),
        Flag::text("output", "", r#"Output mode. Use "-o name" for shorter output (resource/name)."#).short('o'),
        Flag::text("raw", "", "Raw URI to DELETE to the server.  Uses the transport specified by the kubeconfig file."),
        Flag::bool("recursive", "Process the directory used in -f, --filename recursively. Useful when you want to manage related manifests organized within the same directory.").short('R'),
        Flag::duration("timeout", "0s", "The length of time to wait before giving up on a delete, zero means determine a timeout from the size of the object"),
        Flag::bool("wait", "If true, wait for resources to be gone before returning. This waits for finalizers.").default("true"),
    ]],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

/// Options for the deletion of objects and for the output.
pub struct Deletion {
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
    // Zero without --force would lose data by accident.
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
pub fn propagation(context: &Context, invocation: &Invocation) -> Result<Propagation, Failure> {
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
pub async fn delete_all(
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
            Ok(answer) => {
                print(context, deletion, info)?;
                let uid = answer.str_at(&["details", "uid"]).or(answer.str_at(&["metadata", "uid"]));
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

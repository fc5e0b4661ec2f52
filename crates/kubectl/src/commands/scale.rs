//! `kubectl scale`: sets the number of replicas.

use std::time::Duration;

use apimachinery::{Value, value};
use client::{Patch, Target, WriteOptions};
use tokio::time::{Instant, sleep};

use crate::changes::{self, DryRun, Form, RECORD, Results};
use crate::command::{Command, Flag, Group};
use crate::resources::{Builder, Info};
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "scale",
    group: Group::Deploy,
    summary: "Set the number of replicas of a workload",
    description: "Set the number of replicas of a Deployment, ReplicaSet, StatefulSet, ReplicationController, or \
        another type with a scale subresource. With --current-replicas or --resource-version, the change \
        is made only if the object still has that size or version.",
    examples: "  # Run five replicas of web
  kubectl scale deployment/web --replicas=5

  # Stop two StatefulSets
  kubectl scale statefulset/db statefulset/cache --replicas=0

  # Add a worker, but only if there are three
  kubectl scale deployment/worker --current-replicas=3 --replicas=4

  # Scale the objects of a file, and wait until the replicas exist
  kubectl scale -f worker.yaml --replicas=8 --timeout=2m",
    usage: "kubectl scale [--resource-version=version] [--current-replicas=count] --replicas=COUNT (-f FILENAME | TYPE NAME) [options]",
    flags: &[
        RECORD,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::SELECTOR,
        flags::DIRECTORY,
        &[
            Flag::bool("all", "Scale all objects of the given types in the namespace."),
            Flag::text("resource-version", "", "Scale only if the object has this resource version."),
            Flag::int("current-replicas", "-1", "Scale only if the object has this number of replicas; -1 means any."),
            Flag::int("replicas", "0", "Number of replicas to run (required)."),
            Flag::duration(
                "timeout",
                "0s",
                "Time to wait for the replicas, with a unit such as 1s, 2m, or 3h; zero means not to wait.",
            ),
            flags::filename("Files, directories, or URLs with the objects to scale."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

/// The interval of attempts and of polls of the replicas.
const DELAY: Duration = Duration::from_secs(1);
/// The time limit for retries of an update that conflicts with others.
const RETRY_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// The precondition of a change.
struct Precondition<'a> {
    /// -1 for any.
    replicas: i64,
    /// Empty for any.
    resource_version: &'a str,
}

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    changes::require(invocation, &["replicas"])?;
    let dry_run = DryRun::of(context, invocation)?;
    let mut results = Results::new(context, invocation, dry_run, Form::Untyped)?;
    let replicas = invocation.int("replicas");
    if replicas < 0 {
        let problem = "The --replicas=COUNT flag is required, and COUNT must be greater than or equal to 0";
        return Err(Failure::new(problem));
    }
    let condition = Precondition {
        replicas: invocation.int("current-replicas"),
        resource_version: invocation.text("resource-version"),
    };
    if condition.replicas < -1 {
        return Err(Failure::new("The --current-replicas must specify an integer of -1 or greater"));
    }
    let found = Builder::new(context)
        .namespace(&context.namespace()?)
        .filenames(invocation)
        .types_or_names(invocation.bool("all"), &invocation.args)
        .selector(invocation.text("selector"))
        .found()
        .await?;
    if !condition.resource_version.is_empty() && found.infos.len() > 1 {
        return Err(Failure::new("cannot use --resource-version with multiple resources"));
    }
    if found.infos.is_empty() {
        Failure::all(found.failures)?;
        return Err(Failure::new("no objects passed to scale"));
    }
    for mut info in found.infos {
        if dry_run == DryRun::Client {
            set_replicas(&mut info, replicas);
        } else {
            let actual = scale(context, &info, replicas, &condition, dry_run).await?;
            let timeout = invocation.duration("timeout");
            if !timeout.is_zero() && dry_run == DryRun::None {
                wait(context, &info, replicas, timeout).await?;
            }
            set_replicas(&mut info, actual);
            record(context, invocation, &mut info).await?;
        }
        results.print(&info.object, "scaled")?;
    }
    Failure::all(found.failures)
}

/// Sets the replicas through the `scale` subresource, and returns the number that the server stored.
async fn scale(
    context: &Context,
    info: &Info,
    replicas: i64,
    condition: &Precondition<'_>,
    dry_run: DryRun,
) -> Result<i64, Failure> {
    let client = context.client()?;
    let target = subresource(info);
    let options = WriteOptions { dry_run: dry_run == DryRun::Server, ..WriteOptions::default() };
    let give_up = Instant::now() + RETRY_TIMEOUT;
    loop {
        let updated = if condition.replicas == -1 && condition.resource_version.is_empty() {
            let patch = Patch::Merge(value!({"spec": {"replicas": replicas}}));
            client.patch(&target, &patch, &options).await
        } else {
            let mut scale = client.get(&target).await?;
            condition.check(&scale)?;
            if let Some(spec) = scale.get_mut("spec").and_then(Value::as_object_mut) {
                spec.insert("replicas", replicas);
            }
            client.update(&target, &scale, &options).await
        };
        match updated {
            Ok(scale) => return Ok(replicas_of(&scale, "spec")),
            Err(error) if error.is_conflict() && Instant::now() < give_up => sleep(DELAY).await,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until the object has the desired number of replicas, or that number changes.
async fn wait(context: &Context, info: &Info, replicas: i64, timeout: Duration) -> Result<(), Failure> {
    let give_up = Instant::now() + timeout;
    loop {
        let scale = context.client()?.get(&subresource(info)).await?;
        if replicas_of(&scale, "spec") != replicas || replicas_of(&scale, "status") == replicas {
            return Ok(());
        }
        if Instant::now() + DELAY > give_up {
            return Err(Failure::new(format!("timed out waiting for {:?} to be synced", info.name)));
        }
        sleep(DELAY).await;
    }
}

fn subresource(info: &Info) -> Target<'_> {
    info.target().subresource("scale")
}

fn replicas_of(scale: &Value, of: &str) -> i64 {
    scale.at(&[of, "replicas"]).and_then(Value::as_int).unwrap_or_default()
}

impl Precondition<'_> {
    fn check(&self, scale: &Value) -> Result<(), Failure> {
        let expected = |what: &str, expected: &str, actual: &str| {
            Err(Failure::new(format!("Expected {what} to be {expected}, was {actual}")))
        };
        let replicas = replicas_of(scale, "spec");
        if self.replicas != -1 && replicas != self.replicas {
            return expected("replicas", &self.replicas.to_string(), &replicas.to_string());
        }
        let version = scale.str_at(&["metadata", "resourceVersion"]).unwrap_or_default();
        if !self.resource_version.is_empty() && version != self.resource_version {
            return expected("resource version", self.resource_version, version);
        }
        Ok(())
    }
}

/// Sets the replicas of an object that is printed. Custom resources may have them elsewhere.
fn set_replicas(info: &mut Info, replicas: i64) {
    if !matches!(info.mapping.resource.group.as_str(), "" | "apps") {
        return;
    }
    if let Some(object) = info.object.as_object_mut()
        && let Some(spec) = object.get_or_insert_with("spec", Value::object).as_object_mut()
    {
        spec.insert("replicas", replicas);
    }
}

/// Annotates the object with the command line, if `--record` is given. A failure is ignored, as in kubectl.
async fn record(context: &Context, invocation: &Invocation, info: &mut Info) -> Result<(), Failure> {
    let before = info.object.clone();
    changes::record(invocation, &mut info.object);
    let patch = apimachinery::patch::merge::diff(&before, &info.object);
    if patch.as_object().is_some_and(|patch| !patch.is_empty()) {
        let _ = context.client()?.patch(&info.target(), &Patch::Merge(patch), &WriteOptions::default()).await;
    }
    Ok(())
}

//! `kubectl wait`: waits until objects fulfil conditions.

mod condition;

use std::io::Write;
use std::time::Duration;

use apimachinery::Value;
use tokio::time::{Instant, sleep};

use condition::Condition;

use crate::command::{Command, Flag, Group};
use crate::print::{Format, Formats, Printer, name};
use crate::resources::{Builder, Found, Info};
use crate::stream::terminal;
use crate::wait::{FOREVER, deleted, timed_out, until};
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "wait",
    group: Group::Advanced,
    summary: "Wait until objects meet a condition",
    description: "Wait until each of the given objects meets the conditions of --for: it exists, it is deleted, \
         its status has a condition, or a JSONPath expression has a value. Prints a line for each condition that \
         is met, and fails if --timeout passes first.",
    examples: "  # Wait up to 2 minutes until the Deployment web is available
  kubectl wait deployment/web --for=condition=Available --timeout=2m

  # Wait until all pods with the label app=worker are deleted
  kubectl wait pods -l app=worker --for=delete

  # Wait until the pod db exists and is ready
  kubectl wait pod/db --for=create --for=condition=Ready

  # Wait until a condition is false
  kubectl wait node/node-1 --for=condition=MemoryPressure=False

  # Wait until the Service web has an address outside of the cluster
  kubectl wait service/web --for=jsonpath='{.status.loadBalancer.ingress[0].ip}'",
    usage: "kubectl wait ([-f FILENAME] | resource.group/resource.name | resource.group [(-l label | --all)]) [--for=create|--for=delete|--for condition=available|--for=jsonpath='{}'[=value]] [options]",
    flags: &[
        flags::OUTPUT,
        flags::ALL_NAMESPACES,
        &[
            Flag::bool("all", "Select all objects of the given types in the namespace."),
            Flag::text(
                "field-selector",
                "",
                "Select objects by fields with '=', '==' and '!=', for example --field-selector status.phase=Running; \
                 each type supports only a few fields.",
            ),
            flags::filename("Files, directories or URLs of manifests with the objects to wait for."),
            Flag::array(
                "for",
                "What to wait for: create, delete, condition=NAME[=VALUE], where VALUE is true by default and its case \
                 is ignored, or jsonpath='{EXPRESSION}'[=VALUE]; if repeated, all are awaited in order, create first.",
            ),
            Flag::bool("local", "Use only the given files, with no requests to the server."),
            Flag::bool("recursive", "Also read the subdirectories of directories given with --filename.")
                .default("true")
                .short('R'),
            Flag::text(
                "selector",
                "",
                "Select objects by labels with '=', '==' and '!=', for example -l app=web,tier!=cache.",
            )
            .short('l'),
            Flag::duration(
                "timeout",
                "30s",
                "Time after which to give up; zero checks once, a negative value waits for a week.",
            ),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

/// The interval at which the creation of objects is checked.
const POLL: Duration = Duration::from_millis(500);

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let mut printer = Format::of(invocation, Formats::Common).printer()?;
    let conditions = condition::parse(&invocation.list("for"))?;
    let timeout = if invocation.text("timeout").starts_with('-') { FOREVER } else { invocation.duration("timeout") };
    let deadline = Instant::now() + timeout;
    if conditions.contains(&Condition::Create) {
        wait_for_creation(context, invocation, deadline).await?;
    }
    let for_delete = conditions.contains(&Condition::Delete);
    let Found { infos, mut failures, .. } = builder(context, invocation)?.found().await?;
    if for_delete {
        failures.retain(|failure| !failure.is_not_found());
    }
    if infos.is_empty() && failures.is_empty() && !for_delete {
        return Err(Failure::new("no matching resources found"));
    }
    let met = meet_all(context, &infos, &conditions, &mut printer, timeout, deadline);
    let mut unmet = terminal::interruptible(met).await?;
    unmet.append(&mut failures);
    Failure::all(unmet)
}

/// Waits for all objects and prints those that fulfil a condition. Returns a failure for each of the others, which are
/// awaited until the same deadline.
async fn meet_all(
    context: &Context,
    infos: &[Info],
    conditions: &[Condition],
    printer: &mut Printer,
    timeout: Duration,
    deadline: Instant,
) -> Result<Vec<Failure>, Failure> {
    let mut unmet = Vec::new();
    for info in infos {
        for condition in conditions {
            match meet(context, info, condition, timeout, deadline).await {
                Ok(object) => show(context, printer, &object)?,
                Err(failure) => {
                    unmet.push(failure);
                    break;
                }
            }
        }
    }
    Ok(unmet)
}

/// Prints an object that fulfils a condition.
fn show(context: &Context, printer: &mut Printer, object: &Value) -> Result<(), Failure> {
    let text = match printer.is_human() {
        true => name::print_operation(object, "condition met"),
        false => printer.print(object)?,
    };
    let mut out = context.out();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

fn builder<'a>(context: &'a Context, invocation: &Invocation) -> Result<Builder<'a>, Failure> {
    let local = invocation.bool("local");
    Ok(Builder::new(context)
        .files(invocation.list("filename"), String::new(), invocation.bool("recursive"))
        .namespace(&context.namespace()?)
        .all_namespaces(invocation.bool("all-namespaces"))
        .selector(invocation.text("selector"))
        .field_selector(invocation.text("field-selector"))
        .select_all(invocation.bool("all"))
        .types_or_names(false, &invocation.args)
        .local(local)
        .latest())
}

async fn wait_for_creation(context: &Context, invocation: &Invocation, deadline: Instant) -> Result<(), Failure> {
    loop {
        let Found { infos, failures, .. } = builder(context, invocation)?.found().await?;
        if failures.is_empty() && !infos.is_empty() {
            return Ok(());
        }
        Failure::all(failures.into_iter().filter(|failure| !failure.is_not_found()).collect())?;
        if Instant::now() + POLL > deadline {
            return Err(Failure::new("timed out waiting for the condition"));
        }
        sleep(POLL).await;
    }
}

/// Waits for a condition and returns the object that fulfils it.
async fn meet(
    context: &Context,
    info: &Info,
    condition: &Condition,
    timeout: Duration,
    deadline: Instant,
) -> Result<Value, Failure> {
    let client = context.client()?;
    let not_met = || Failure::new(format!("condition not met for {}/{}", info.mapping.resource.plural, info.name));
    match condition {
        Condition::Create => Ok(info.object.clone()),
        Condition::Delete if timeout.is_zero() => match client.get(&info.target()).await {
            Err(error) if error.is_not_found() => Ok(info.object.clone()),
            Err(error) => Err(error.into()),
            Ok(_) => Err(not_met()),
        },
        Condition::Delete => {
            deleted(&client, info, None, deadline).await?;
            Ok(info.object.clone())
        }
        Condition::Status { .. } | Condition::Path { .. } if timeout.is_zero() => {
            let object = client.get(&info.target()).await?;
            if condition.is_met(&object)? { Ok(object) } else { Err(not_met()) }
        }
        Condition::Status { .. } | Condition::Path { .. } => {
            let mut existed = false;
            let met = until(&client, info, deadline, |object| match object {
                Some(object) => {
                    existed = true;
                    Ok(condition.is_met(object)?.then(|| object.clone()))
                }
                // A deleted object may be created again. One that does not exist at all is an error.
                None if existed => Ok(None),
                None => Err(not_found(info)),
            });
            met.await?.ok_or_else(|| timed_out(info))
        }
    }
}

fn not_found(info: &Info) -> Failure {
    Failure::plain(format!("Error from server (NotFound): {} {:?} not found", info.mapping.resource, info.name))
}

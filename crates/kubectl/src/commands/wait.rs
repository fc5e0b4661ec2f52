//! `kubectl wait`: waits until objects fulfil conditions.

mod condition;

use std::io::Write;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use condition::Condition;

use crate::command::{Command, Flag, Group};
use crate::print::{Format, Formats, name};
use crate::resources::{Builder, Found, Info};
use crate::wait::{FOREVER, deleted, timed_out, until};
use crate::{Context, Failure, Invocation, flags};

pub static COMMAND: Command = Command {
    name: "wait",
    group: Group::Advanced,
    summary: "Wait for a specific condition on one or many resources",
    description: r#"Wait for a specific condition on one or many resources.

 The command takes multiple resources and waits until the specified condition is seen in the Status field of every given resource.

 Alternatively, the command can wait for the given set of resources to be created or deleted by providing the "create" or "delete" keyword as the value to the --for flag.

 A successful message will be printed to stdout indicating when the specified condition has been met. You can use -o option to change to output destination."#,
    examples: r#"  # Wait for the pod "busybox1" to contain the status condition of type "Ready"
  kubectl wait --for=condition=Ready pod/busybox1
  
  # The default value of status condition is true; you can wait for other targets after an equal delimiter (compared after Unicode simple case folding, which is a more general form of case-insensitivity)
  kubectl wait --for=condition=Ready=false pod/busybox1
  
  # Wait for the pod "busybox1" to contain the status phase to be "Running"
  kubectl wait --for=jsonpath='{.status.phase}'=Running pod/busybox1
  
  # Wait for pod "busybox1" to be Ready
  kubectl wait --for='jsonpath={.status.conditions[?(@.type=="Ready")].status}=True' pod/busybox1
  
  # Wait for the service "loadbalancer" to have ingress
  kubectl wait --for=jsonpath='{.status.loadBalancer.ingress}' service/loadbalancer
  
  # Wait for the secret "busybox1" to be created, with a timeout of 30s
  kubectl create secret generic busybox1
  kubectl wait --for=create secret/busybox1 --timeout=30s
  
  # Wait for the pod "busybox1" to be deleted, with a timeout of 60s, after having issued the "delete" command
  kubectl delete pod/busybox1
  kubectl wait --for=delete pod/busybox1 --timeout=60s
  
  # Wait for pod "busybox1" to be created AND reach the "Ready" status condition
  kubectl wait --for=condition=Ready --for=create pod/busybox1
  
  # Wait for pod "busybox1" to reach the "Ready" status OR for its containers to report a "False" readiness state
  until kubectl wait pod/busybox1 --for=condition=Ready --timeout=1s 2>/dev/null || \
  kubectl wait pod/busybox1 --for=condition=ContainersReady=False --timeout=1s 2>/dev/null; \
  do echo "Checking conditions..."; sleep 1; done"#,
    usage: "kubectl wait ([-f FILENAME] | resource.group/resource.name | resource.group [(-l label | --all)]) [--for=create|--for=delete|--for condition=available|--for=jsonpath='{}'[=value]] [options]",
    flags: &[flags::OUTPUT, flags::ALL_NAMESPACES, &[
        Flag::bool("all", "Select all resources in the namespace of the specified resource types"),
        Flag::text("field-selector", "", "Selector (field query) to filter on, supports '=', '==', and '!='.(e.g. --field-selector key1=value1,key2=value2). The server only supports a limited number of field queries per type."),
        flags::filename("identifying the resource."),
        Flag::array("for", "The condition to wait on: [create|delete|condition=condition-name[=condition-value]|jsonpath='{JSONPath expression}'=[JSONPath value]]. The default condition-value is true. Condition values are compared after Unicode simple case folding, which is a more general form of case-insensitivity. Multiple conditions are supported and AND'ed to each other in a sequential order. If --for=create is passed, it is always waited first."),
        Flag::bool("local", "If true, annotation will NOT contact api-server but run locally."),
        Flag::bool("recursive", "Process the directory used in -f, --filename recursively. Useful when you want to manage related manifests organized within the same directory.").default("true").short('R'),
        Flag::text("selector", "", "Selector (label query) to filter on, supports '=', '==', and '!='.(e.g. -l key1=value1,key2=value2)").short('l'),
        Flag::duration("timeout", "30s", "The length of time to wait before giving up. Zero means check once and don't wait, negative means wait for a week."),
    ]],
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
    Failure::all(failures)?;
    if infos.is_empty() && !for_delete {
        return Err(Failure::new("no matching resources found"));
    }
    for info in &infos {
        for condition in &conditions {
            let object = meet(context, info, condition, timeout, deadline).await?;
            let text = if printer.is_human() {
                name::print_operation(&object, "condition met")
            } else {
                printer.print(&object)?
            };
            let mut out = context.out();
            out.write_all(text.as_bytes())?;
            out.flush()?;
        }
    }
    Ok(())
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
) -> Result<apimachinery::Value, Failure> {
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

//! `kubectl logs`: prints the logs of containers.

mod request;

use std::io::Write;
use std::time::Duration;

use apimachinery::Value;
use apimachinery::go;
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::exec::pod_running_timeout;
use crate::command::{Command, Flag, Group};
use crate::pods::{self, ContainerKind, Order};
use crate::resources::{Builder, Info};
use crate::stream::terminal;
use crate::{Context, Failure, Invocation};

pub use request::{LogOptions, LogRequest};

pub static COMMAND: Command = Command {
    name: "logs",
    group: Group::Troubleshooting,
    summary: "Show the logs of the containers of pods",
    description: "Show what containers wrote to their standard output and standard error. The pods are given by \
         name, by an object that owns them such as a Deployment or a Job, or by a label selector. If a pod has \
         several containers, the default one is used unless --container or --all-containers is given.",
    examples: "  # Show the last 50 lines of the pod web, with their times
  kubectl logs web --tail=50 --timestamps

  # Follow all containers of the pods with the label app=worker
  kubectl logs -f -l app=worker --all-containers --max-log-requests=10

  # Show why the container postgres of the pod db stopped the last time
  kubectl logs db -c postgres --previous

  # Show the last 15 minutes of each pod of the Deployment web
  kubectl logs deployment/web --all-pods --since=15m

  # Show what the Job migrate wrote after a point in time
  kubectl logs job/migrate --since-time=2026-03-01T08:00:00Z",
    usage: "kubectl logs [-f] [-p] (POD | TYPE/NAME) [-c CONTAINER] [options]",
    flags: &[FLAGS],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::bool("all-containers", "Show the logs of all containers of each pod."),
    Flag::bool("all-pods", "Show the logs of all pods of the object, and turn on --prefix."),
    Flag::text("container", "", "Container whose log is shown.").short('c'),
    Flag::bool("follow", "Keep printing new lines as they are written.").short('f'),
    Flag::bool("ignore-errors", "Continue with the other logs if one of them fails while following."),
    Flag::bool(
        "insecure-skip-tls-verify-backend",
        "Do not verify the certificate of the kubelet, for example because it has expired; an attacker could then \
         forge the log.",
    ),
    Flag::int("limit-bytes", "0", "Maximum size of a log in bytes; 0 means no limit."),
    Flag::int("max-log-requests", "5", "Maximum number of logs to follow at the same time."),
    Flag::duration(
        "pod-running-timeout",
        "20s",
        "Time to wait for a running pod, such as 5s, 2m or 3h; must be greater than zero.",
    ),
    Flag::bool("prefix", "Start each line with the names of its pod and container."),
    Flag::bool("previous", "Show the log of the previous, terminated instance of the container.").short('p'),
    Flag::text(
        "selector",
        "",
        "Select pods by labels with '=', '==', '!=', 'in' and 'notin', for example -l app=web,tier!=cache; all \
         requirements must match.",
    )
    .short('l'),
    Flag::duration(
        "since",
        "0s",
        "Show only lines that are newer than a duration such as 5s, 2m or 3h; excludes --since-time.",
    ),
    Flag::text("since-time", "", "Show only lines that are newer than a time in RFC 3339 format; excludes --since."),
    Flag::int(
        "tail",
        "-1",
        "Number of lines to show from the end of the log; -1 means all, or 10 if a selector is given and this flag \
         is not.",
    ),
    Flag::bool("timestamps", "Start each line with its time."),
];

const USAGE: &str = "expected 'logs [-f] [-p] (POD | TYPE/NAME) [-c CONTAINER]'.\n\
    POD or TYPE/NAME is a required argument for the logs command";
/// The interval of attempts to follow a log.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Settings of all requests of a command.
struct Settings {
    options: LogOptions,
    all_containers: bool,
    all_pods: bool,
    prefix: bool,
    ignore_errors: bool,
    timeout: Duration,
}

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let selector = invocation.text("selector");
    let (resource, inline) = match invocation.args.as_slice() {
        [] if selector.is_empty() => return Err(Failure::usage(&invocation.name(), USAGE)),
        [] => (None, None),
        [_] if !selector.is_empty() => {
            return Err(Failure::usage(&invocation.name(), "only a selector (-l) or a POD name is allowed"));
        }
        [resource] => (Some(resource), None),
        [resource, container] => (Some(resource), Some(container)),
        _ => return Err(Failure::usage(&invocation.name(), USAGE)),
    };
    let settings = settings(invocation, inline)?;
    let infos = find(context, resource, selector).await?;
    validate(invocation, &settings.options)?;
    let client = context.client()?;
    let work = async {
        let requests = plan(context, &infos, &settings).await?;
        let most = invocation.int("max-log-requests");
        if settings.options.follow && requests.len() > 1 {
            if i64::try_from(requests.len()).is_ok_and(|count| count > most) {
                return Err(Failure::new(format!(
                    "you are attempting to follow {} log streams, but maximum allowed concurrency is {most}, use \
                     --max-log-requests to increase the limit",
                    requests.len()
                )));
            }
            let mut all: FuturesUnordered<_> =
                requests.iter().map(|request| consume(context, &client, request, &settings)).collect();
            while let Some(outcome) = all.next().await {
                outcome?;
            }
            return Ok(());
        }
        for request in &requests {
            consume(context, &client, request, &settings).await?;
        }
        Ok(())
    };
    terminal::interruptible(work).await
}

fn settings(invocation: &Invocation, inline: Option<&String>) -> Result<Settings, Failure> {
    let all_pods = invocation.bool("all-pods");
    let timeout = pod_running_timeout(invocation).map_err(Failure::new)?;
    Ok(Settings {
        options: LogOptions::of(invocation, inline.map(String::as_str)).map_err(Failure::new)?,
        all_containers: invocation.bool("all-containers"),
        all_pods,
        prefix: all_pods || invocation.bool("prefix"),
        ignore_errors: invocation.bool("ignore-errors"),
        timeout,
    })
}

async fn find(context: &Context, resource: Option<&String>, selector: &str) -> Result<Vec<Info>, Failure> {
    let namespace = context.namespace()?;
    let builder = Builder::new(context).namespace(&namespace).single_type();
    let builder = match resource {
        Some(resource) => builder.names("pods", std::slice::from_ref(resource)),
        None => builder.types_or_names(false, &["pods".to_owned()]).selector(selector),
    };
    let infos = match builder.infos().await {
        Err(failure) if failure.is_not_found() => {
            let message = failure.status().map(|status| status.message.clone()).unwrap_or_default();
            return Err(Failure::new(format!(
                "error from server (NotFound): {message} in namespace {}",
                go::quote(&namespace.name)
            )));
        }
        infos => infos?,
    };
    if resource.is_some() && infos.len() != 1 {
        return Err(Failure::new("expected a resource"));
    }
    if infos.is_empty() {
        writeln!(context.err(), "No resources found in {} namespace.", namespace.name)?;
    }
    Ok(infos)
}

fn validate(invocation: &Invocation, options: &LogOptions) -> Result<(), Failure> {
    let problem = if options.since_time.is_some() && options.since_seconds.is_some() {
        "at most one of `sinceTime` or `sinceSeconds` may be specified".to_owned()
    } else if invocation.bool("all-containers") && !options.container.is_empty() {
        format!("--all-containers=true should not be specified with container name {}", options.container)
    } else if invocation.is_set("container") && invocation.args.len() == 2 {
        "only one of -c or an inline [CONTAINER] arg is allowed".to_owned()
    } else if invocation.int("limit-bytes") < 0 {
        "--limit-bytes must be greater than 0".to_owned()
    } else if options.since_seconds.is_some_and(|seconds| seconds < 0) {
        "--since must be greater than 0".to_owned()
    } else if options.tail_lines.is_some_and(|lines| lines < -1) {
        "--tail must be greater than or equal to -1".to_owned()
    } else {
        return Ok(());
    };
    Err(Failure::new(problem))
}

/// Returns the requests for the logs of all objects.
async fn plan(context: &Context, infos: &[Info], settings: &Settings) -> Result<Vec<LogRequest>, Failure> {
    let mut requests = Vec::new();
    for info in infos {
        if pods::is_pod(info) {
            requests.extend(requests_of_pod(context, &info.object, settings)?);
            continue;
        }
        let selector = pods::selector_of(&info.object).map_err(|error| {
            Failure::new(format!("cannot get the logs from {}: {error}", pods::go_type(&info.object)))
        })?;
        let client = context.client()?;
        let order = Order::BestLogsFirst;
        let mut found = pods::list_pods(&client, &info.namespace, &selector, settings.timeout, order).await?;
        if found.len() > 1 && !settings.all_pods {
            let name = found[0].str_at(&["metadata", "name"]).unwrap_or_default();
            writeln!(context.err(), "Found {} pods, using pod/{name}", found.len())?;
            found.truncate(1);
        }
        for pod in &found {
            requests.extend(requests_of_pod(context, pod, settings)?);
        }
    }
    Ok(requests)
}

fn requests_of_pod(context: &Context, pod: &Value, settings: &Settings) -> Result<Vec<LogRequest>, Failure> {
    if settings.all_containers {
        let kinds = [ContainerKind::Init, ContainerKind::Regular, ContainerKind::Ephemeral];
        let all = kinds.into_iter().flat_map(|kind| pods::containers(pod, kind));
        return Ok(all.map(|container| LogRequest::new(pod, container.name())).collect());
    }
    let mut name = settings.options.container.as_str();
    if name.is_empty() {
        let annotated = pod.str_at(&["metadata", "annotations", pods::DEFAULT_CONTAINER]).unwrap_or_default();
        if !annotated.is_empty() {
            if pods::find_container(pod, annotated).is_some() {
                name = annotated;
            } else {
                let pod = pod.str_at(&["metadata", "name"]).unwrap_or_default();
                writeln!(context.err(), "Default container name {} not found in pod {pod}", go::quote(annotated))?;
            }
        }
    }
    if name.is_empty() {
        name = pods::containers(pod, ContainerKind::Regular).next().map(|first| first.name()).unwrap_or_default();
        if let Some(notice) = pods::default_notice(pod, name).filter(|_| !settings.all_pods) {
            writeln!(context.err(), "{notice}")?;
        }
    }
    if pods::find_container(pod, name).is_none() {
        return Err(Failure::new(pods::unknown_container(pod, name)));
    }
    Ok(vec![LogRequest::new(pod, name)])
}

/// Prints one log. A log that is followed is requested again while the server rejects it.
async fn consume(
    context: &Context,
    client: &client::Client,
    request: &LogRequest,
    settings: &Settings,
) -> Result<(), Failure> {
    let prefix = if settings.prefix { request.prefix() } else { String::new() };
    let mut out = context.out();
    let deadline = tokio::time::Instant::now() + settings.timeout;
    loop {
        let Err(failure) = request::print(client, request, &settings.options, &prefix, &mut out).await else {
            return Ok(());
        };
        if settings.ignore_errors {
            writeln!(out, "error: {}", plain_message(&failure))?;
            return Ok(());
        }
        if !settings.options.follow {
            return Err(failure);
        }
        writeln!(context.err(), "{}", plain_message(&failure))?;
        if failure.status().is_none() {
            return Err(failure);
        }
        if tokio::time::timeout_at(deadline, tokio::time::sleep(RETRY_INTERVAL)).await.is_err() {
            return Err(Failure::new("context deadline exceeded"));
        }
    }
}

/// Returns the message of a failure without `Error from server (…): `.
fn plain_message(failure: &Failure) -> String {
    failure.status().map_or_else(|| failure.message.clone(), |status| status.message.clone())
}

/// Prints the log of a container that cannot be attached to.
pub async fn print_container_log(context: &Context, pod: &Value, container: &str) -> Result<(), Failure> {
    let request = LogRequest::new(pod, container);
    request::print(&context.client()?, &request, &LogOptions::default(), "", &mut context.out()).await
}

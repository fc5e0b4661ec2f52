//! `kubectl exec`: runs a command in a container.

use std::io::Write;
use std::time::Duration;

use apimachinery::Value;
use apimachinery::meta::Meta;

use crate::command::{Command, Flag, Group};
use crate::pods::{self, attachable_pod};
use crate::resources::{Builder, Info};
use crate::stream::path::{ProcessQuery, process_path};
use crate::stream::remote::{self, Streams};
use crate::stream::terminal::{self, Mode, Setup};
use crate::{Context, Failure, Invocation};

pub static COMMAND: Command = Command {
    name: "exec",
    group: Group::Troubleshooting,
    summary: "Run a command in a container",
    description: "Run a command in a running container and show its output. The pod is given by name or by an \
         object that selects pods, such as a Deployment or a Service. Write the command after --, each argument as \
         a word of its own; no shell interprets it unless the command is one.",
    examples: "  # Show the environment of the pod web
  kubectl exec web -- env

  # Open a shell in the container postgres of the pod db
  kubectl exec db -c postgres -it -- sh

  # Load a local file into the database
  kubectl exec -i db -c postgres -- psql -U app < schema.sql

  # List files in a pod of the Deployment worker
  kubectl exec deployment/worker -- ls -l /var/lib/jobs",
    usage: "kubectl exec (POD | TYPE/NAME) [-c CONTAINER] [flags] -- COMMAND [args...] [options]",
    flags: &[FLAGS],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::text(
        "container",
        "",
        "Container to use; if omitted, the one named by the kubectl.kubernetes.io/default-container annotation, or \
         else the first of the pod.",
    )
    .short('c'),
    Flag::list("filename", "Manifest file, directory or URL with the object in whose pod the command runs.").short('f'),
    Flag::duration(
        "pod-running-timeout",
        "1m0s",
        "Time to wait for a running pod, such as 5s, 2m or 3h; must be greater than zero.",
    ),
    Flag::bool("quiet", "Print only what the command writes.").short('q'),
    Flag::bool("stdin", "Send standard input to the command.").short('i'),
    Flag::bool("tty", "Use standard input as a terminal.").short('t'),
];

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let (resource, command) = split_arguments(invocation)?;
    let timeout = pod_running_timeout(invocation).map_err(|error| Failure::usage(&invocation.name(), error))?;
    let namespace = context.namespace()?;
    let client = context.client()?;
    if resource.is_none() && invocation.list("filename").is_empty() {
        return Err(Failure::new("pod, type/name or --filename must be specified"));
    }
    if command.is_empty() {
        return Err(Failure::new("you must specify at least one command for the container"));
    }
    let builder = Builder::new(context).filenames(invocation).namespace(&namespace);
    let info = single(builder.names("pods", resource.as_slice()).infos().await?, "exec into")?;
    let pod = attachable_pod(&client, &info, timeout).await?;
    if let phase @ ("Succeeded" | "Failed") = pods::phase(&pod) {
        let problem = format!("cannot exec into a container in a completed pod; current phase is {phase}");
        return Err(Failure::new(problem));
    }
    let quiet = invocation.bool("quiet");
    let container = container(context, &pod, invocation.text("container"), quiet)?;
    let setup = set_up(context, invocation.bool("stdin"), invocation.bool("tty"), quiet);
    terminal::guard(setup.mode, execute(context, &pod, &container, command, setup.mode)).await
}

/// Returns the pod or object, and the words of the command, which are after `--`.
fn split_arguments(invocation: &Invocation) -> Result<(Option<String>, &[String]), Failure> {
    let args = &invocation.args;
    let resource = args.first().filter(|name| invocation.dash != Some(0) && !name.is_empty()).cloned();
    match invocation.dash {
        Some(dash) => Ok((resource, &args[dash..])),
        None if args.len() > 1 || (!args.is_empty() && !invocation.list("filename").is_empty()) => {
            let problem = "exec [POD] [COMMAND] is not supported anymore. Use exec [POD] -- [COMMAND] instead";
            Err(Failure::usage(&invocation.name(), problem))
        }
        None => Ok((resource, &[])),
    }
}

/// Returns the value of `--pod-running-timeout`.
pub fn pod_running_timeout(invocation: &Invocation) -> Result<Duration, &'static str> {
    let timeout = invocation.duration("pod-running-timeout");
    if timeout.is_zero() { Err("--pod-running-timeout must be higher than zero") } else { Ok(timeout) }
}

/// Returns the only object of a command line.
fn single(mut infos: Vec<Info>, verb: &str) -> Result<Info, Failure> {
    match infos.len() {
        1 => Ok(infos.swap_remove(0)),
        _ => Err(Failure::new(format!("cannot {verb} multiple objects at a time"))),
    }
}

/// Returns the name of the container, and prints a notice if it was not given.
pub fn container(context: &Context, pod: &Value, name: &str, quiet: bool) -> Result<String, Failure> {
    let choice = pods::choose_container(pod, name).map_err(Failure::new)?;
    if let Some(notice) = choice.notice.filter(|_| !quiet) {
        writeln!(context.err(), "{notice}")?;
    }
    Ok(choice.container.name().to_owned())
}

/// Decides how to use the terminal, and prints a warning if there is none.
pub fn set_up(context: &Context, stdin: bool, tty: bool, quiet: bool) -> Setup {
    let setup = Setup::new(stdin, tty, terminal::is_stdin_terminal());
    if setup.not_a_terminal && !quiet {
        let _ = writeln!(context.err(), "{}", Setup::WARNING);
    }
    setup
}

/// Runs a command with the standard streams of this process.
async fn execute(
    context: &Context,
    pod: &Value,
    container: &str,
    command: &[String],
    mode: Mode,
) -> Result<(), Failure> {
    let raw = mode == Mode::Raw;
    let streams = Streams {
        stdin: (mode != Mode::NoInput).then(|| terminal::input(None)),
        stdout: Some(Box::new(tokio::io::stdout())),
        stderr: if raw { None } else { Some(Box::new(tokio::io::stderr())) },
        tty: raw,
        sizes: if raw { terminal::watch_size(|size| vec![size]) } else { None },
    };
    execute_with(context, pod, container, command, streams).await
}

/// Runs a command in a container with the given streams.
pub async fn execute_with(
    context: &Context,
    pod: &Value,
    container: &str,
    command: &[String],
    streams: Streams,
) -> Result<(), Failure> {
    let query = ProcessQuery {
        container,
        command,
        stdin: streams.stdin.is_some(),
        stdout: streams.stdout.is_some(),
        stderr: streams.stderr.is_some(),
        tty: streams.tty,
    };
    let meta = Meta::of(pod);
    let path = process_path(meta.namespace(), meta.name(), "exec", &query)?;
    Ok(remote::run(&context.client()?, &path, streams).await?)
}

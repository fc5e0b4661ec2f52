//! `kubectl attach`: connects to the process of a running container.

use std::io::Write;

use apimachinery::Value;
use apimachinery::meta::Meta;

use super::exec::{pod_running_timeout, set_up};
use crate::command::{Command, Flag, Group};
use crate::pods::{self, Container, ContainerKind, attachable_pod};
use crate::resources::Builder;
use crate::stream::detach::{Detector, parse_keys};
use crate::stream::path::{ProcessQuery, process_path};
use crate::stream::remote::{self, Size, Streams};
use crate::stream::terminal::{self, Mode};
use crate::{Context, Failure, Invocation};

pub static COMMAND: Command = Command {
    name: "attach",
    group: Group::Troubleshooting,
    summary: "Connect to the main process of a container",
    description: "Connect this terminal to the main process of a running container, to see its output and, with \
         --stdin, to send it input. The pod is given by name or by an object that owns pods. The detach keys end \
         the session while the process continues to run.",
    examples: "  # Watch the output of the pod web
  kubectl attach web

  # Use the shell that is the main process of the container console in the pod worker
  kubectl attach worker -c console -it

  # Watch the output of a pod of the Deployment worker, with no messages of kubectl
  kubectl attach deployment/worker --quiet",
    usage: "kubectl attach (POD | TYPE/NAME) -c CONTAINER [options]",
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
    Flag::text("detach-keys", "ctrl-p,ctrl-q", "Keys that end the session without ending the process."),
    Flag::duration(
        "pod-running-timeout",
        "1m0s",
        "Time to wait for a running pod, such as 5s, 2m or 3h; must be greater than zero.",
    ),
    Flag::bool("quiet", "Print only what the container writes.").short('q'),
    Flag::bool("stdin", "Send standard input to the container.").short('i'),
    Flag::bool("tty", "Use standard input as a terminal.").short('t'),
];

/// The keys that detach if none are given.
pub const DETACH_KEYS: &str = "ctrl-p,ctrl-q";

/// Options of an attachment to a container.
#[derive(Clone, Copy, Debug)]
pub struct AttachOptions<'a> {
    /// The container; empty for the default one.
    pub container: &'a str,
    pub stdin: bool,
    pub tty: bool,
    pub quiet: bool,
    pub detach_keys: &'a str,
    /// The command that attaches again, for a message: `kubectl attach`.
    pub command: &'a str,
}

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let timeout = pod_running_timeout(invocation).map_err(|error| Failure::usage(&invocation.name(), error))?;
    let builder = Builder::new(context).namespace(&context.namespace()?);
    let builder = match invocation.args.as_slice() {
        [] => return Err(Failure::new("at least 1 argument is required for attach")),
        [name] => builder.names("pods", std::slice::from_ref(name)),
        [kind, name] => builder.names(kind, std::slice::from_ref(name)),
        more => {
            return Err(Failure::new(format!(
                "expected POD, TYPE/NAME, or TYPE NAME, (at most 2 arguments) saw {}: [{}]",
                more.len(),
                more.join(" ")
            )));
        }
    };
    let infos = builder.infos().await?;
    let info = infos.first().ok_or_else(|| Failure::new("no resources found"))?;
    let pod = attachable_pod(&context.client()?, info, timeout).await?;
    if let phase @ ("Succeeded" | "Failed") = pods::phase(&pod) {
        return Err(Failure::new(format!("cannot attach a container in a completed pod; current phase is {phase}")));
    }
    let options = AttachOptions {
        container: invocation.text("container"),
        stdin: invocation.bool("stdin"),
        tty: invocation.bool("tty"),
        quiet: invocation.bool("quiet"),
        detach_keys: invocation.text("detach-keys"),
        command: &invocation.name(),
    };
    attach(context, &pod, &options).await
}

/// Attaches to a container until it exits or the detach keys are typed.
pub async fn attach(context: &Context, pod: &Value, options: &AttachOptions<'_>) -> Result<(), Failure> {
    let choice = pods::choose_container(pod, options.container)
        .map_err(|error| Failure::new(format!("cannot attach to the container: {error}")))?;
    let notices = |text: String| -> std::io::Result<()> {
        if options.quiet { Ok(()) } else { writeln!(context.err(), "{text}") }
    };
    if let Some(notice) = choice.notice {
        notices(notice)?;
    }
    let container = choice.container;
    let has_tty = container.spec.get("tty").and_then(Value::as_bool).unwrap_or(false);
    if options.tty && !has_tty {
        notices(format!("error: Unable to use a TTY - container {} did not allocate one", container.name()))?;
    }
    // A container with a terminal cannot be attached to without one.
    let setup = set_up(context, options.stdin, has_tty, options.quiet);
    notices(
        "All commands and output from this session will be recorded in container logs, including credentials and \
         sensitive information passed through the command prompt."
            .to_owned(),
    )?;
    notices("If you don't see a command prompt, try pressing enter.".to_owned())?;
    terminal::guard(setup.mode, stream(context, pod, container, setup.mode, options)).await?;
    if setup.mode == Mode::Raw && !options.quiet {
        let mut out = context.out();
        writeln!(out, "{}", reattach_message(pod, container, options.command))?;
        out.flush()?;
    }
    Ok(())
}

async fn stream(
    context: &Context,
    pod: &Value,
    container: Container<'_>,
    mode: Mode,
    options: &AttachOptions<'_>,
) -> Result<(), Failure> {
    let raw = mode == Mode::Raw;
    let detector = if raw {
        let keys = if options.detach_keys.is_empty() { DETACH_KEYS } else { options.detach_keys };
        let keys = parse_keys(keys).map_err(|error| Failure::new(format!("could not bind detach keys: {error}")))?;
        Some(Detector::new(keys))
    } else {
        None
    };
    let streams = Streams {
        stdin: (mode != Mode::NoInput).then(|| terminal::input(detector)),
        stdout: Some(Box::new(tokio::io::stdout())),
        stderr: if raw { None } else { Some(Box::new(tokio::io::stderr())) },
        tty: raw,
        sizes: if raw { terminal::watch_size(redrawing_sizes) } else { None },
    };
    let query = ProcessQuery {
        container: container.name(),
        command: &[],
        stdin: streams.stdin.is_some(),
        stdout: true,
        stderr: !raw,
        tty: raw,
    };
    let meta = Meta::of(pod);
    let path = process_path(meta.namespace(), meta.name(), "attach", &query)?;
    Ok(remote::run(&context.client()?, &path, streams).await?)
}

/// Returns a different size and then the actual size, so that the program redraws its screen after it is attached
/// again.
fn redrawing_sizes(size: Size) -> Vec<Size> {
    let larger = Size { width: size.width.saturating_add(1), height: size.height.saturating_add(1) };
    vec![larger, size]
}

fn reattach_message(pod: &Value, container: Container<'_>, command: &str) -> String {
    let meta = Meta::of(pod);
    let again = format!("{command} {} -c {} -n {} -i -t", meta.name(), container.name(), meta.namespace());
    if container.kind == ContainerKind::Ephemeral {
        return format!(
            "Session ended, the ephemeral container will not be restarted but may be reattached using '{again}' if it \
             is still running"
        );
    }
    format!("Session ended, resume using '{again}' command")
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn message_names_the_command_to_attach_again() {
        let pod = value!({
            "metadata": {"name": "p", "namespace": "n"},
            "spec": {"containers": [{"name": "c"}], "ephemeralContainers": [{"name": "e"}]},
        });
        let check = |name: &str, expect: &str| {
            let container = pods::find_container(&pod, name).unwrap();
            assert_eq!(reattach_message(&pod, container, "kubectl attach"), expect);
        };
        check("c", "Session ended, resume using 'kubectl attach p -c c -n n -i -t' command");
        check(
            "e",
            "Session ended, the ephemeral container will not be restarted but may be reattached using 'kubectl attach \
             p -c e -n n -i -t' if it is still running",
        );
    }

    #[test]
    fn new_session_changes_the_size_twice() {
        let size = Size { width: 80, height: 24 };
        assert_eq!(redrawing_sizes(size), [Size { width: 81, height: 25 }, size]);
    }
}

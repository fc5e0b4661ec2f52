//! `kubectl debug`: debugs pods and nodes with containers made for it.

mod generate;
mod profile;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;

use apimachinery::meta::{Meta, name_suffix};
use apimachinery::status::Reason;
use apimachinery::{Object, Value, go, json, yaml};
use client::{Event, Patch, Target, WatchOptions, WriteOptions};

use super::attach::{AttachOptions, DETACH_KEYS, attach};
use super::logs::print_container_log;
use crate::command::{Command, Flag, Group};
use crate::pods::{self, PODS};
use crate::resources::{Builder, Info};
use crate::stream::terminal;
use crate::{Context, Failure, Invocation, generate as generators};
use generate::{DebugOptions, DebugPod, ephemeral_patch, non_root_warning};
use profile::{Keep, Profile};

pub(super) static COMMAND: Command = Command {
    name: "debug",
    group: Group::Troubleshooting,
    summary: "Debug a pod or node with an extra container",
    description: "Start a container to investigate a pod or a node. For a pod, the command adds an ephemeral \
         container to it while it runs or, with --copy-to, creates a modified copy of it. For a node, it creates a \
         pod in the host namespaces of the node, with the root file system of the node at /host. If the pod runs \
         as a non-root user, some capabilities of the debug profile may have no effect.",
    examples: "  # Add a container with a shell to the pod web, and see the processes of its container app
  kubectl debug web -it --image=alpine:3.22 --target=app -- sh

  # Copy the pod db to db-debug on the same node, and run a shell instead of the command of the container postgres
  kubectl debug db -it --copy-to=db-debug --same-node --container=postgres -- sh

  # Copy the pod worker with another image in each of its containers
  kubectl debug worker --copy-to=worker-debug --set-image='*=registry.example.com/worker:debug'

  # Open a privileged shell on the node node-1
  kubectl debug node/node-1 -it --image=alpine:3.22 --profile=sysadmin",
    usage: "kubectl debug (POD | TYPE[[.VERSION].GROUP]/NAME) [ -- COMMAND [args...] ] [options]",
    flags: &[FLAGS],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::bool("arguments-only", "Use the words after -- as the arguments of the container, not as its command."),
    Flag::bool(
        "attach",
        "Attach to the container once it runs, as 'kubectl attach' does; true by default if --stdin is set.",
    ),
    Flag::text("container", "", "Name of the debug container.").short('c'),
    Flag::text("copy-to", "", "Debug a copy of the pod that has this name."),
    Flag::text("custom", "", "JSON or YAML file with a partial container spec that is merged into the debug profile."),
    Flag::list("env", "Environment variables of the container, as NAME=VALUE."),
    Flag::list("filename", "Files, directories or URLs of manifests with the objects to debug.").short('f'),
    Flag::text("image", "", "Image of the debug container."),
    Flag::text("image-pull-policy", "", "Image pull policy of the container; if empty, the server chooses it."),
    Flag::bool("keep-annotations", "Keep the annotations of the pod in the copy made with --copy-to."),
    Flag::bool("keep-init-containers", "Keep the init containers of the pod in the copy made with --copy-to.")
        .default("true"),
    Flag::bool("keep-labels", "Keep the labels of the pod in the copy made with --copy-to."),
    Flag::bool("keep-liveness", "Keep the liveness probes of the pod in the copy made with --copy-to."),
    Flag::bool("keep-readiness", "Keep the readiness probes of the pod in the copy made with --copy-to."),
    Flag::bool("keep-startup", "Keep the startup probes of the pod in the copy made with --copy-to."),
    Flag::text("profile", "general", "Debug profile: general, baseline, restricted, netadmin or sysadmin."),
    Flag::bool("quiet", "Do not print informational messages.").short('q'),
    Flag::bool("replace", "Delete the original pod; requires --copy-to."),
    Flag::bool("same-node", "Schedule the copy on the node of the original pod; requires --copy-to."),
    Flag::list(
        "set-image",
        "Images for containers of the copy, as CONTAINER=IMAGE, with * for all containers; requires --copy-to.",
    ),
    Flag::bool(
        "share-processes",
        "Share one process namespace between the containers in the copy made with --copy-to.",
    )
    .default("true"),
    Flag::bool("stdin", "Keep the standard input of the container open, also while no client is attached.").short('i'),
    Flag::text("target", "", "Container whose process namespace an ephemeral container joins."),
    Flag::bool("tty", "Allocate a terminal for the debug container.").short('t'),
];

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let (names, args) = match invocation.dash {
        Some(dash) if invocation.args.len() > dash => invocation.args.split_at(dash),
        _ => (invocation.args.as_slice(), &[][..]),
    };
    let options = options(invocation, args)?;
    let namespace = context.namespace()?;
    validate(context, invocation, &options, names)?;
    let builder = Builder::new(context).filenames(invocation).namespace(&namespace);
    let infos = builder.names("pods", names).infos().await?;
    let attaches = if invocation.is_set("attach") { invocation.bool("attach") } else { options.stdin };
    for info in &infos {
        let resource = &info.mapping.resource;
        let (pod, container) = match (resource.group.as_str(), resource.kind.as_str()) {
            ("", "Node") => debug_node(context, invocation, &namespace.name, info, &options).await?,
            ("", "Pod") if options.copy_to.is_empty() => debug_pod(context, invocation, info, &options).await?,
            ("", "Pod") => debug_copy(context, invocation, info, &options).await?,
            (group, kind) => {
                let version = resource.version.as_str();
                let of = if group.is_empty() { format!("/{version}") } else { format!("{group}/{version}") };
                return Err(Failure::new(format!("\"{of}, Kind={kind}\" not supported by debug")));
            }
        };
        if attaches && !container.is_empty() {
            attach_to(context, invocation, &pod, &container, &options).await?;
        }
    }
    Ok(())
}

fn options(invocation: &Invocation, args: &[String]) -> Result<DebugOptions, Failure> {
    let text = |name: &str| invocation.text(name).to_owned();
    Ok(DebugOptions {
        args: args.to_vec(),
        args_only: invocation.bool("arguments-only"),
        container: text("container"),
        copy_to: text("copy-to"),
        env: pairs(invocation, "env")?,
        image: text("image"),
        pull_policy: text("image-pull-policy"),
        stdin: invocation.bool("stdin"),
        tty: invocation.bool("tty"),
        same_node: invocation.bool("same-node"),
        set_images: pairs(invocation, "set-image")?,
        share_processes: invocation.is_set("share-processes").then(|| invocation.bool("share-processes")),
        target: text("target"),
        profile: Profile::parse(invocation.text("profile")).map_err(Failure::new)?,
        keep: Keep {
            labels: invocation.bool("keep-labels"),
            annotations: invocation.bool("keep-annotations"),
            liveness: invocation.bool("keep-liveness"),
            readiness: invocation.bool("keep-readiness"),
            startup: invocation.bool("keep-startup"),
            init_containers: invocation.bool("keep-init-containers"),
        },
        custom: custom(invocation.text("custom"))?,
    })
}

/// Parses values of the form `name=value`.
fn pairs(invocation: &Invocation, flag: &str) -> Result<Vec<(String, String)>, Failure> {
    let parse = |pair: String| match pair.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err(Failure::new(format!(
            "invalid argument {} for \"--{flag}\" flag: {pair} must be formatted as key=value\nSee '{} --help' for usage.",
            go::quote(&pair),
            invocation.name()
        ))),
    };
    invocation.list(flag).into_iter().map(parse).collect()
}

/// Reads the partial container of `--custom`, in JSON or YAML.
fn custom(file: &str) -> Result<Option<Object>, Failure> {
    if file.is_empty() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(file).map_err(|error| {
        let error = crate::failure::go_io_error(&error);
        Failure::new(format!("must pass a container spec json file for custom profile: open {file}: {error}"))
    })?;
    let wrong = |error: String| Failure::new(format!("{file} does not contain a valid container spec: {error}"));
    let value = match json::parse(text.as_bytes()) {
        Ok(value) => value,
        Err(_) => yaml::parse(&text).map_err(|error| wrong(error.to_string()))?,
    };
    match value {
        Value::Object(custom) => Ok(Some(custom)),
        other => Err(wrong(format!("cannot unmarshal {} into an object", other.kind()))),
    }
}

fn validate(
    context: &Context,
    invocation: &Invocation,
    options: &DebugOptions,
    names: &[String],
) -> Result<(), Failure> {
    check(invocation, options, names).map_err(Failure::new)?;
    if !options.target.is_empty() {
        if !options.copy_to.is_empty() {
            let problem = "--target is incompatible with --copy-to. Use --share-processes instead.";
            return Err(Failure::new(problem));
        }
        let notice = format!(
            "Targeting container {}. If you don't see processes from this container it may be because the container \
             runtime doesn't support this feature.",
            go::quote(&options.target)
        );
        inform(context, invocation, &notice)?;
    }
    if options.tty && !options.stdin {
        return Err(Failure::new("-i/--stdin is required for containers with -t/--tty=true"));
    }
    if let Some(custom) = &options.custom {
        let fixed = ["name", "command", "image", "lifecycle", "volumeDevices"];
        if fixed.into_iter().any(|field| custom.contains_key(field)) {
            let problem = "name, command, image, lifecycle and volume devices are not modifiable via custom profile";
            return Err(Failure::new(problem));
        }
    }
    if options.profile == Profile::Legacy {
        writeln!(
            context.err(),
            "--profile=legacy is deprecated and planned to be removed in v1.39. It is recommended to specify other \
             profile, for example \"--profile=general\"."
        )?;
    }
    Ok(())
}

/// Checks the options that are independent of each other's effects.
fn check(invocation: &Invocation, options: &DebugOptions, names: &[String]) -> Result<(), String> {
    let problem = |text: &str| Err(text.to_owned());
    if invocation.is_set("attach")
        && invocation.bool("attach")
        && options.image.is_empty()
        && options.container.is_empty()
    {
        return problem("you must specify --container or create a new container using --image in order to attach.");
    }
    if options.copy_to.is_empty() {
        if invocation.bool("replace") {
            return problem("--replace may only be used with --copy-to.");
        }
        if options.same_node {
            return problem("--same-node may only be used with --copy-to.");
        }
        if !options.set_images.is_empty() {
            return problem("--set-image may only be used with --copy-to.");
        }
        if options.image.is_empty() {
            return problem("you must specify --image when not using --copy-to.");
        }
    } else {
        if options.image.is_empty() && options.set_images.is_empty() && options.args.is_empty() {
            return problem("you must specify --image, --set-image or command arguments.");
        }
        if !options.args.is_empty() && options.container.is_empty() && options.image.is_empty() {
            return problem("you must specify an existing container or a new image when specifying args.");
        }
    }
    let is_image = |image: &str| generators::pod::validate_image(image).is_ok();
    if !options.image.is_empty() && !is_image(&options.image) {
        return Err(format!("invalid image name {}: invalid reference format", go::quote(&options.image)));
    }
    if names.is_empty() && invocation.list("filename").is_empty() {
        return problem("NAME or filename is required for debug");
    }
    if !matches!(options.pull_policy.as_str(), "" | "Always" | "IfNotPresent" | "Never") {
        return Err(format!("invalid image pull policy: {}", options.pull_policy));
    }
    for (name, image) in &options.set_images {
        if !is_image(image) {
            let (image, name) = (go::quote(image), go::quote(name));
            return Err(format!("invalid image name {image} for container {name}: invalid reference format"));
        }
    }
    Ok(())
}

/// Prints a message to standard output, unless `--quiet` is set.
fn inform(context: &Context, invocation: &Invocation, text: &str) -> Result<(), Failure> {
    if !invocation.bool("quiet") {
        let mut out = context.out();
        writeln!(out, "{text}")?;
        out.flush()?;
    }
    Ok(())
}

/// Returns five random characters for names.
fn random_suffix() -> String {
    name_suffix(RandomState::new().build_hasher().finish())
}

/// Returns the name of a new container of a pod.
fn container_name(
    context: &Context,
    invocation: &Invocation,
    pod: &Value,
    options: &DebugOptions,
) -> Result<String, Failure> {
    if !options.container.is_empty() {
        return Ok(options.container.clone());
    }
    let name = loop {
        let name = format!("debugger-{}", random_suffix());
        if pods::find_container(pod, &name).is_none() {
            break name;
        }
    };
    inform(context, invocation, &format!("Defaulting debug container name to {name}."))?;
    Ok(name)
}

async fn debug_node(
    context: &Context,
    invocation: &Invocation,
    namespace: &str,
    info: &Info,
    options: &DebugOptions,
) -> Result<(Value, String), Failure> {
    let DebugPod { pod, container } =
        generate::node_pod(&info.name, &random_suffix(), options).map_err(Failure::new)?;
    let name = Meta::of(&pod).name().to_owned();
    let text = format!("Creating debugging pod {name} with container {container} on node {}.", info.name);
    inform(context, invocation, &text)?;
    let target = Target::within(&PODS, namespace);
    let created = context.client()?.create(&target, &pod, &WriteOptions::default()).await?;
    Ok((created, container))
}

async fn debug_pod(
    context: &Context,
    invocation: &Invocation,
    info: &Info,
    options: &DebugOptions,
) -> Result<(Value, String), Failure> {
    let name = container_name(context, invocation, &info.object, options)?;
    let DebugPod { pod, container } = generate::ephemeral(&info.object, &name, options).map_err(Failure::new)?;
    if let Some(warning) = non_root_warning(&pod, &container) {
        writeln!(context.err(), "{warning}")?;
    }
    let patch = Patch::Strategic(ephemeral_patch(&pod, &container));
    let target = info.target().subresource("ephemeralcontainers");
    match context.client()?.patch(&target, &patch, &WriteOptions::default()).await {
        Ok(patched) => Ok((patched, container)),
        Err(error) => Err(match error.status() {
            // A server without the subresource does not name the pod.
            Some(status)
                if status.is(&Reason::NotFound)
                    && status.details.as_ref().is_none_or(|details| details.name.is_empty()) =>
            {
                let message = go::quote(&status.message);
                let problem = "ephemeral containers are disabled for this cluster";
                Failure::new(format!("{problem} (error from server: {message})"))
            }
            _ => error.into(),
        }),
    }
}

async fn debug_copy(
    context: &Context,
    invocation: &Invocation,
    info: &Info,
    options: &DebugOptions,
) -> Result<(Value, String), Failure> {
    let mut printed = Ok(());
    let generated = generate::copy(&info.object, options, |pod| {
        let name = container_name(context, invocation, pod, options);
        name.unwrap_or_else(|failure| {
            printed = Err(failure);
            String::new()
        })
    });
    printed?;
    let DebugPod { pod, container } = generated.map_err(Failure::new)?;
    if let Some(warning) = non_root_warning(&pod, &container) {
        writeln!(context.err(), "{warning}")?;
    }
    let client = context.client()?;
    let created = client.create(&info.collection(), &pod, &WriteOptions::default()).await?;
    if invocation.bool("replace") {
        let now = client::DeleteOptions { grace_seconds: Some(0), ..client::DeleteOptions::default() };
        client.delete(&info.target(), &now).await?;
    }
    Ok((created, container))
}

/// Attaches to a debug container when it runs, or prints its log if it has exited.
async fn attach_to(
    context: &Context,
    invocation: &Invocation,
    pod: &Value,
    container: &str,
    options: &DebugOptions,
) -> Result<(), Failure> {
    let quiet = invocation.bool("quiet");
    let pod = terminal::interruptible(wait_for_container(context, pod, container, quiet)).await?;
    let exited = status_of(&pod, container).is_some_and(|status| status.at(&["state", "terminated"]).is_some());
    if exited {
        return print_container_log(context, &pod, container).await;
    }
    let command = format!("{} attach", invocation.path[..invocation.path.len() - 1].join(" "));
    let attach_options = AttachOptions {
        container,
        stdin: options.stdin,
        tty: options.tty,
        quiet,
        detach_keys: DETACH_KEYS,
        command: &command,
    };
    let Err(failure) = attach(context, &pod, &attach_options).await else { return Ok(()) };
    if failure.message.is_empty() {
        return Err(failure);
    }
    let name = Meta::of(&pod).name();
    let message = &failure.message;
    writeln!(context.err(), "warning: couldn't attach to pod/{name}, falling back to streaming logs: {message}")?;
    print_container_log(context, &pod, container).await
}

/// Waits until a container runs or has exited, and prints why it waits.
async fn wait_for_container(context: &Context, pod: &Value, container: &str, quiet: bool) -> Result<Value, Failure> {
    let meta = Meta::of(pod);
    let target = Target::within(&PODS, meta.namespace());
    let field_selector = format!("metadata.name={}", meta.name());
    let client = context.client()?;
    loop {
        let options = WatchOptions { field_selector: field_selector.clone(), ..WatchOptions::default() };
        let mut watch = client.watch(&target, &options).await?;
        while let Some(event) = watch.next().await {
            let pod = match event? {
                Event::Added(pod) | Event::Modified(pod) => pod,
                Event::Deleted(_) => return Err(Failure::plain("Error from server (NotFound): pods \"\" not found")),
                Event::Bookmark { .. } => continue,
            };
            let Some(status) = status_of(&pod, container) else { continue };
            if status.at(&["state", "running"]).is_some() || status.at(&["state", "terminated"]).is_some() {
                return Ok(pod);
            }
            let message = status.str_at(&["state", "waiting", "message"]).unwrap_or_default();
            if !quiet && !message.is_empty() {
                context.warn(&format!("container {container}: {message}"));
            }
        }
    }
}

fn status_of<'p>(pod: &'p Value, container: &str) -> Option<&'p Value> {
    ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"]
        .into_iter()
        .flat_map(|field| pod.at(&["status", field]).and_then(Value::as_array).unwrap_or_default())
        .find(|status| status.str_at(&["name"]) == Some(container))
}

//! `kubectl run`: creates a pod, and optionally attaches to it.

mod attach;

use apimachinery::{Resource, Value};
use client::{Target, WriteOptions};

use crate::changes::{self, DryRun, Form, RECORD, Results};
use crate::command::{Command, Flag, Group};
use crate::generate::pod::{self, Pod};
use crate::generate::{self, last_applied, overrides};
use crate::{Context, Failure, Invocation, Namespace, flags};

static PODS: Resource = Resource::namespaced("", "v1", "pods", "Pod");
static SERVICES: Resource = Resource::namespaced("", "v1", "services", "Service");

pub(super) static COMMAND: Command = Command {
    name: "run",
    group: Group::BasicBeginner,
    summary: "Run an image in a new pod",
    description: "Create a pod with one container. Arguments after -- are passed to the entrypoint of the image, or \
                  replace it with --command. With --attach or --stdin, the command connects to the container as soon \
                  as it runs.",
    examples: r#"  # Run a pod that listens on a port, and create a service for it
  kubectl run web --image=registry.example/web:2 --port=8080 --expose
  
  # Set environment variables and labels
  kubectl run worker --image=registry.example/worker:4 --env=QUEUE=mail --env=THREADS=4 --labels=app=worker,stage=test
  
  # Open a shell in a temporary pod
  kubectl run shell --image=alpine -it --rm --restart=Never -- sh
  
  # Replace the entrypoint of the image
  kubectl run db-check --image=postgres:17 --restart=Never --command -- pg_isready -h db
  
  # Print the manifest of a pod that uses a service account
  kubectl run web --image=registry.example/web:2 --overrides='{"spec":{"serviceAccountName":"web"}}' \
    --dry-run=client -o yaml"#,
    usage: r#"kubectl run NAME --image=image [--env="key=value"] [--port=port] [--dry-run=server|client] [--overrides=inline-json] [--command] -- [COMMAND] [args...] [options]"#,
    flags: &[
        flags::SAVE_CONFIG,
        RECORD,
        flags::OUTPUT,
        flags::DRY_RUN,
        &[
            Flag::array("annotations", "Annotation of the pod, as key=value; can be repeated."),
            Flag::bool("attach", "Attach to the container once it runs; on by default with --stdin."),
            Flag::text(
                "cascade",
                "background",
                r#"How --rm treats dependents of deleted objects: "background", "orphan", or "foreground"."#,
            )
            .without_value("background"),
            Flag::bool("command", "Use the arguments after -- as the command of the container instead of its args."),
            Flag::text("detach-keys", "ctrl-p,ctrl-q", "Keys that detach from the container."),
            Flag::array("env", "Environment variable of the container, as key=value; can be repeated."),
            Flag::bool("expose", "Create a ClusterIP service for the pod; requires --port."),
            flags::field_manager("kubectl-run"),
            flags::filename("Accepted for compatibility; run does not use it."),
            Flag::bool("force", "Accepted for compatibility; run does not use it."),
            Flag::int("grace-period", "-1", "Accepted for compatibility; run does not use it."),
            Flag::text("image", "", "Image of the container."),
            Flag::text("image-pull-policy", "", "When to pull the image; if empty, the server chooses."),
            Flag::text("kustomize", "", "Accepted for compatibility; run does not use it.").short('k'),
            Flag::text("labels", "", "Labels of the pod as key=value pairs, separated by commas.").short('l'),
            Flag::bool(
                "leave-stdin-open",
                "Keep standard input of the container open after the first client detaches.",
            ),
            Flag::text("override-type", "merge", "How --overrides is applied: json, merge, or strategic."),
            Flag::text(
                "overrides",
                "",
                "Inline JSON that changes the generated object, in the way of --override-type.",
            ),
            Flag::duration(
                "pod-running-timeout",
                "1m0s",
                "Time to wait for the pod to run, such as 5s, 2m, or 3h; must be greater than zero.",
            ),
            Flag::text("port", "", "Port on which the container listens."),
            Flag::bool("privileged", "Run the container in privileged mode."),
            Flag::bool("quiet", "Do not print prompts and notices.").short('q'),
            Flag::bool("recursive", "Accepted for compatibility; run does not use it.").short('R'),
            Flag::text("restart", "Always", "Restart policy of the pod: Always, OnFailure, or Never."),
            Flag::bool(
                "rm",
                "Delete the created objects after the attached session ends; requires --attach or --stdin.",
            ),
            Flag::bool("stdin", "Keep standard input of the container open, and attach to it.").short('i'),
            Flag::duration("timeout", "0s", "Accepted for compatibility; run does not use it."),
            Flag::bool("tty", "Allocate a terminal for the container; requires --stdin.").short('t'),
            Flag::bool("wait", "Accepted for compatibility; run does not use it."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    changes::require(invocation, &["image"])?;
    let dry_run = DryRun::of(context, invocation)?;
    let mut results = Results::new(context, invocation, dry_run, Form::Typed)?;
    let options = validate(invocation, dry_run)?;
    let namespace = context.namespace()?;
    let write = changes::write_options(invocation, dry_run)?;
    let create = Create { context, invocation, namespace: &namespace, dry_run, options: &write };

    let object = pod::pod(options)?;
    let overrides = (invocation.text("overrides"), invocation.text("override-type"));
    let object = overrides::apply(object, overrides.0, overrides.1)?;
    let created = create.run(object, &PODS).await?;
    let mut removable = vec![created.clone()];
    let mut failures = Vec::new();
    if invocation.bool("expose") {
        match expose(&create, options, &mut results).await {
            Ok(service) => removable.push(service),
            Err(failure) => failures.push(failure),
        }
    }
    if attaches(invocation) {
        let attached = attach::attach(context, invocation, &created).await;
        if invocation.bool("rm") {
            attach::remove(context, invocation, &removable).await?;
        }
        return attached;
    }
    results.print(&created, "created")?;
    Failure::all(failures)
}

struct Create<'a> {
    context: &'a Context,
    invocation: &'a Invocation,
    namespace: &'a Namespace,
    dry_run: DryRun,
    options: &'a WriteOptions,
}

impl Create<'_> {
    async fn run(&self, mut object: Value, resource: &Resource) -> Result<Value, Failure> {
        changes::record(self.invocation, &mut object);
        if self.dry_run == DryRun::Client {
            if self.namespace.explicit {
                generate::set_namespace(&mut object, &self.namespace.name);
            }
            return Ok(object);
        }
        if self.invocation.bool("save-config") || last_applied::is_saved(&object) {
            last_applied::save(&mut object);
        }
        let target = Target::within(resource, self.namespace.name.as_str());
        let created = self.context.client()?.create(&target, &object, self.options).await?;
        Ok(generate::typed(created))
    }
}

async fn expose(create: &Create<'_>, options: Pod<'_>, results: &mut Results<'_>) -> Result<Value, Failure> {
    let service = create.run(pod::service(options)?, &SERVICES).await?;
    results.print(&service, "created")?;
    if create.invocation.text("output") == "yaml" {
        results.write("---\n")?;
    }
    Ok(service)
}

/// Whether to attach to the container: `--stdin` implies it.
fn attaches(invocation: &Invocation) -> bool {
    if invocation.is_set("attach") { invocation.bool("attach") } else { invocation.bool("stdin") }
}

fn validate(invocation: &Invocation, dry_run: DryRun) -> Result<Pod<'_>, Failure> {
    let usage = |problem: &str| Failure::usage(&invocation.name(), problem);
    let Some(name) = invocation.args.first() else { return Err(usage("NAME is required for run")) };
    if name.is_empty() {
        return Err(Failure::new("Parameter: name is required"));
    }
    if invocation.duration("pod-running-timeout").is_zero() {
        return Err(usage("--pod-running-timeout must be higher than zero"));
    }
    pod::validate_image(invocation.text("image"))?;
    let stdin = invocation.bool("stdin");
    if invocation.bool("tty") && !stdin {
        return Err(usage("-i/--stdin is required for containers with -t/--tty=true"));
    }
    if invocation.bool("expose") && invocation.text("port").is_empty() {
        return Err(usage("--port must be set when exposing a service"));
    }
    pod::restart_policy(invocation.text("restart"), stdin)?;
    let attached = attaches(invocation);
    if !attached && invocation.bool("rm") {
        return Err(usage("--rm should only be used for attached containers"));
    }
    if attached && dry_run != DryRun::None {
        return Err(usage(
            "--dry-run=[server|client] can't be used with attached containers options (--attach, --stdin, or --tty)",
        ));
    }
    pod::validate_pull_policy(invocation.text("image-pull-policy"))?;
    Ok(Pod {
        name,
        image: invocation.text("image"),
        image_pull_policy: invocation.text("image-pull-policy"),
        labels: invocation.text("labels"),
        annotations: invocation.values("annotations"),
        env: invocation.values("env"),
        port: invocation.text("port"),
        stdin,
        leave_stdin_open: invocation.bool("leave-stdin-open"),
        tty: invocation.bool("tty"),
        privileged: invocation.bool("privileged"),
        restart: invocation.text("restart"),
        args: &invocation.args[1..],
        command: invocation.bool("command"),
    })
}

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

pub static COMMAND: Command = Command {
    name: "run",
    group: Group::BasicBeginner,
    summary: "Run a particular image on the cluster",
    description: "Create and run a particular image in a pod.",
    examples: r#"  # Start a nginx pod
  kubectl run nginx --image=nginx
  
  # Start a hazelcast pod and let the container expose port 5701
  kubectl run hazelcast --image=hazelcast/hazelcast --port=5701
  
  # Start a hazelcast pod and set environment variables "DNS_DOMAIN=cluster" and "POD_NAMESPACE=default" in the container
  kubectl run hazelcast --image=hazelcast/hazelcast --env="DNS_DOMAIN=cluster" --env="POD_NAMESPACE=default"
  
  # Start a hazelcast pod and set labels "app=hazelcast" and "env=prod" in the container
  kubectl run hazelcast --image=hazelcast/hazelcast --labels="app=hazelcast,env=prod"
  
  # Dry run; print the corresponding API objects without creating them
  kubectl run nginx --image=nginx --dry-run=client
  
  # Start a nginx pod, but overload the spec with a partial set of values parsed from JSON
  kubectl run nginx --image=nginx --overrides='{ "apiVersion": "v1", "spec": { ... } }'
  
  # Start a busybox pod and keep it in the foreground, don't restart it if it exits
  kubectl run -i -t busybox --image=busybox --restart=Never
  
  # Start the nginx pod using the default command, but use custom arguments (arg1 .. argN) for that command
  kubectl run nginx --image=nginx -- <arg1> <arg2> ... <argN>
  
  # Start the nginx pod using a different command and custom arguments
  kubectl run nginx --image=nginx --command -- <cmd> <arg1> ... <argN>"#,
    usage: r#"kubectl run NAME --image=image [--env="key=value"] [--port=port] [--dry-run=server|client] [--overrides=inline-json] [--command] -- [COMMAND] [args...] [options]"#,
    flags: &[flags::SAVE_CONFIG, RECORD, flags::OUTPUT, flags::DRY_RUN, &[
        Flag::array("annotations", "Annotations to apply to the pod."),
        Flag::bool("attach", "If true, wait for the Pod to start running, and then attach to the Pod as if 'kubectl attach ...' were called.  Default false, unless '-i/--stdin' is set, in which case the default is true. With '--restart=Never' the exit code of the container process is returned."),
        Flag::text("cascade", "background", r#"Must be "background", "orphan", or "foreground". Selects the deletion cascading strategy for the dependents (e.g. Pods created by a ReplicationController). Defaults to background."#).without_value("background"),
        Flag::bool("command", "If true and extra arguments are present, use them as the 'command' field in the container, rather than the 'args' field which is the default."),
        Flag::text("detach-keys", "ctrl-p,ctrl-q", "Override the key sequence for detaching a container."),
        Flag::array("env", "Environment variables to set in the container."),
        Flag::bool("expose", "If true, create a ClusterIP service associated with the pod.  Requires `--port`."),
        flags::field_manager("kubectl-run"),
        flags::filename("to use to replace the resource."),
        Flag::bool("force", "If true, immediately remove resources from API and bypass graceful deletion. Note that immediate deletion of some resources may result in inconsistency or data loss and requires confirmation."),
        Flag::int("grace-period", "-1", "Period of time in seconds given to the resource to terminate gracefully. Ignored if negative. Set to 1 for immediate shutdown. Can only be set to 0 when --force is true (force deletion)."),
        Flag::text("image", "", "The image for the container to run."),
        Flag::text("image-pull-policy", "", "The image pull policy for the container.  If left empty, this value will not be specified by the client and defaulted by the server."),
        Flag::text("kustomize", "", "Process a kustomization directory. This flag can't be used together with -f or -R.").short('k'),
        Flag::text("labels", "", "Comma separated labels to apply to the pod. Will override previous values.").short('l'),
        Flag::bool("leave-stdin-open", "If the pod is started in interactive mode or with stdin, leave stdin open after the first attach completes. By default, stdin will be closed after the first attach completes."),
        Flag::text("override-type", "merge", "The method used to override the generated object: json, merge, or strategic."),
        Flag::text("overrides", "", "An inline JSON override for the generated object. If this is non-empty, it is used to override the generated object. Requires that the object supply a valid apiVersion field."),
        Flag::duration("pod-running-timeout", "1m0s", "The length of time (like 5s, 2m, or 3h, higher than zero) to wait until at least one pod is running"),
        Flag::text("port", "", "The port that this container exposes."),
        Flag::bool("privileged", "If true, run the container in privileged mode."),
        Flag::bool("quiet", "If true, suppress prompt messages.").short('q'),
        Flag::bool("recursive", "Process the directory used in -f, --filename recursively. Useful when you want to manage related manifests organized within the same directory.").short('R'),
        Flag::text("restart", "Always", "The restart policy for this Pod.  Legal values [Always, OnFailure, Never]."),
        Flag::bool("rm", "If true, delete the pod after it exits.  Only valid when attaching to the container, e.g. with '--attach' or with '-i/--stdin'."),
        Flag::bool("stdin", "Keep stdin open on the container in the pod, even if nothing is attached.").short('i'),
        Flag::duration("timeout", "0s", "The length of time to wait before giving up on a delete, zero means determine a timeout from the size of the object"),
        Flag::bool("tty", "Allocate a TTY for the container in the pod.").short('t'),
        Flag::bool("wait", "If true, wait for resources to be gone before returning. This waits for finalizers."),
    ]],
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

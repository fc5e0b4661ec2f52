//! Creation of a sandbox and its containers, with an event for each step.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use apimachinery::Value;
use apimachinery::time::Time;
use component_base::clock;
use controller::EventType;
use node_api::cri::v1;
use tokio::sync::{Mutex, mpsc, watch};
use tracing::Instrument;

use super::{Message, RETRY, TaskResult, Worker};
use crate::blocking;
use crate::context::Context;
use crate::environment::{self, Sources};
use crate::events::EventSink;
use crate::images::ImageError;
use crate::plan::{Resizing, Waiting};
use crate::pod::{Container, Pod};
use crate::referenced_objects::Kind;
use crate::volumes::{PreparedVolumes, Tokens, VolumeError, VolumeLocation, make_dir, mounts};
use crate::{container, dns, hooks, resources, sandbox, security, user_namespaces};

/// Time after which waiting for the enforcement of network policies is reported as an event.
const GATE_USUAL: Duration = Duration::from_secs(2);
/// Timeout of a postStart hook.
const POST_START_MAX: Duration = Duration::from_secs(3600);

/// Maximum bytes of the node's hosts file that host-network pods get.
const HOSTS_BYTES_MAX: u64 = 1 << 20;

/// Timeout for the initial list of services.
const SERVICES_TIMEOUT: Duration = Duration::from_secs(5);

/// The waiting reason and message of a container that failed to start.
struct Failure {
    reason: String,
    message: String,
    /// The image, if its pull failed.
    image: Option<String>,
}

/// The inputs of starting a pod's containers.
struct ContainerStarter {
    context: Arc<Context>,
    pod: Arc<Value>,
    tokens: Arc<Mutex<Tokens>>,
    messages: mpsc::Sender<Message>,
    sandbox: String,
    pod_ips: Vec<String>,
    /// Container names and IDs of running containers.
    running: Vec<(String, String)>,
    /// Whether the pod must terminate.
    ending: watch::Receiver<bool>,
}

impl Worker {
    fn container_starter(&self) -> ContainerStarter {
        let sandbox = self.runtime.sandbox();
        let ips = match self.pod().flag("hostNetwork") {
            true => self.context.facts.host_ips.clone(),
            false => sandbox.map(|sandbox| sandbox.ips.clone()).unwrap_or_default(),
        };
        ContainerStarter {
            context: Arc::clone(&self.context),
            pod: Arc::clone(&self.pod),
            tokens: Arc::clone(&self.tokens),
            messages: self.messages.0.clone(),
            sandbox: sandbox.map(|sandbox| sandbox.id.clone()).unwrap_or_default(),
            pod_ips: ips,
            running: self.runtime.running().map(|one| (one.name.clone(), one.id.clone())).collect(),
            ending: self.ending.subscribe(),
        }
    }

    /// Starts the creation of a sandbox.
    pub(super) fn create_sandbox(&mut self, attempt: u32) {
        self.local.starting = true;
        let starter = self.container_starter();
        if attempt > 0 {
            let message = "Pod sandbox changed, it will be killed and re-created.";
            starter.context.event_sink(Pod(&starter.pod)).pod(EventType::Normal, "SandboxChanged", message);
        }
        let task = async move {
            let outcome = starter.sandbox(attempt).await;
            TaskResult::Sandbox(outcome.map_err(|message| {
                let reason = "FailedCreatePodSandBox".to_owned();
                Waiting { reason, message, retry_at: clock::now().plus(RETRY) }
            }))
        };
        self.tasks.spawn(task.in_current_span());
    }

    /// Starts containers sequentially in a task.
    pub(super) fn start(&mut self, names: Vec<(String, u32)>) {
        self.local.starting = true;
        let starter = self.container_starter();
        let task = async move {
            for (name, attempt) in names {
                let outcome = starter.container(&name, attempt).await;
                // In a terminating pod a failed start is not reported, and further containers do not start.
                if *starter.ending.borrow() {
                    break;
                }
                let message = match outcome {
                    Ok(()) => Message::Started { name },
                    Err(Failure { reason, message, image }) => Message::Failed { name, reason, message, image },
                };
                if starter.messages.send(message).await.is_err() {
                    break;
                }
            }
            TaskResult::Started
        };
        self.tasks.spawn(task.in_current_span());
    }

    /// Starts the resize of a running container and of its pod's cgroup.
    pub(super) fn resize(&mut self, id: &str, name: &str) {
        let (context, pod, id, name) =
            (Arc::clone(&self.context), Arc::clone(&self.pod), id.to_owned(), name.to_owned());
        // The entry prevents another resize meanwhile.
        let known = self.local.resizing.remove(&id).and_then(|known| known.problem);
        let resizing = Resizing { retry_at: clock::now().plus(RETRY), problem: known.clone() };
        self.local.resizing.insert(id.clone(), resizing);
        let task = async move {
            let pod = Pod(&pod);
            let Some(container) = pod.container(&name) else { return TaskResult::Resized(id, Ok(())) };
            let outcome = change(&context, pod, container, &id).await;
            let events = context.event_sink(pod);
            match &outcome {
                Ok(()) => events.container(container, EventType::Normal, "ResizeCompleted", "Pod resize completed"),
                // A repeated failure is reported once.
                Err(problem) if known.as_ref() == Some(problem) => {}
                Err(problem) => events.container(container, EventType::Warning, "ResizeError", problem),
            }
            TaskResult::Resized(id, outcome)
        };
        self.tasks.spawn(task.in_current_span());
    }

    /// Starts an update of the volumes if one is due. Otherwise returns its time.
    pub(super) fn refresh(&mut self) -> Option<Time> {
        let at = self.refresh_at.filter(|_| self.local.ending.is_none() && !self.refreshing && !self.local.starting)?;
        if clock::now() < at {
            return Some(at);
        }
        self.runtime.sandbox()?;
        self.refreshing = true;
        self.refresh_at = None;
        let starter = self.container_starter();
        let task = async move {
            match starter.volumes().await {
                Ok(prepared) => TaskResult::Refreshed(prepared.refresh_at),
                Err(error) => {
                    tracing::warn!(error = error.describe(), "failed to update the pod's volumes");
                    TaskResult::Refreshed(Some(clock::now().plus(RETRY)))
                }
            }
        };
        self.tasks.spawn(task.in_current_span());
        None
    }
}

/// Applies a container's resources. The pod's cgroup is updated first, since it must grow before its container. It must
/// shrink after its container: if the first update fails, it is repeated afterwards.
async fn change(context: &Context, pod: Pod<'_>, container: Container<'_>, id: &str) -> Result<(), String> {
    let mut linux = resources::of_container(pod, container, context.memory_capacity);
    context.swap.add(pod, container, &mut linux);
    context.groups.keep_enforced(&mut linux);
    let (limit, used) = (linux.memory_limit_in_bytes, context.runtime.memory_used(id).await);
    // With a limit below its usage, the kernel would kill the container.
    if limit > 0 && used > limit.unsigned_abs() {
        let name = container.name();
        return Err(format!(
            "attempting to set container {name:?} memory limit ({limit}) below current usage ({used})"
        ));
    }
    let grown = context.config.cgroups_per_qos.then(|| blocking::in_place(|| context.groups.update(pod)));
    let request =
        v1::UpdateContainerResourcesRequest { container_id: id.to_owned(), linux: Some(linux), ..Default::default() };
    let outcome = context.runtime.runtime.clone().update_container_resources(request).await;
    if let Some(Err(_)) = grown
        && let Err(error) = blocking::in_place(|| context.groups.update(pod))
    {
        tracing::warn!(%error, "failed to update the pod's cgroup");
    }
    outcome.map(drop).map_err(|status| status.message().to_owned())
}

impl ContainerStarter {
    fn pod(&self) -> Pod<'_> {
        Pod(&self.pod)
    }

    async fn sandbox(&self, attempt: u32) -> Result<(), String> {
        let (pod, context) = (self.pod(), &self.context);
        let events = context.event_sink(pod);
        if let Err(error) = self.volumes().await {
            let message = error.describe();
            events.pod(EventType::Warning, "FailedMount", &message);
            return Err(message);
        }
        if let Err(error) = context.claims.prepare(pod).await {
            let message = format!("Failed to prepare dynamic resources: {error}");
            events.pod(EventType::Warning, "FailedPrepareDynamicResources", &message);
            return Err(message);
        }
        let group = context.groups.cgroup_parent(pod);
        if context.config.cgroups_per_qos
            && let Err(error) = blocking::in_place(|| context.groups.make(pod))
        {
            let message =
                format!("unable to ensure pod container exists: failed to create container for {group}: {error}");
            events.pod(EventType::Warning, "FailedCreatePodContainer", &message);
            return Err(message);
        }
        let inputs = sandbox::Inputs {
            names: &context.names,
            log_directory: context.logs.of(pod).display().to_string(),
            cgroup: if context.config.cgroups_per_qos { group } else { String::new() },
            attempt,
            users: blocking::in_place(|| context.users.of(pod))
                .map_err(|error| format!("the pod has no users: {error}"))?,
        };
        let handler = self.runtime_handler().await?;
        let request =
            v1::RunPodSandboxRequest { config: Some(sandbox::config(pod, &inputs)), runtime_handler: handler };
        match context.runtime.runtime.clone().run_pod_sandbox(request).await {
            Ok(_) => Ok(()),
            Err(status) => {
                let message = format!(
                    "Failed to create pod sandbox: rpc error: code = {:?} desc = {}",
                    status.code(),
                    status.message()
                );
                events.pod(EventType::Warning, "FailedCreatePodSandBox", &message);
                Err(message)
            }
        }
    }

    /// Returns the handler of the pod's RuntimeClass.
    async fn runtime_handler(&self) -> Result<String, String> {
        let Some(name) = self.pod().spec().str_at(&["runtimeClassName"]).filter(|name| !name.is_empty()) else {
            return Ok(String::new());
        };
        match self.context.client.get(&client::Target::named(&controller::kinds::RUNTIME_CLASSES, "", name)).await {
            Ok(class) => Ok(class.str_at(&["handler"]).unwrap_or_default().to_owned()),
            Err(error) => Err(format!("failed to get sandbox runtime: {error}")),
        }
    }

    /// Calls `then` with the objects and values that the pod refers to.
    async fn with_sources<R>(&self, then: impl AsyncFnOnce(&Sources<'_>) -> R) -> R {
        let objects = self.context.objects.of(self.pod()).await;
        let none = std::collections::BTreeMap::new();
        let namespace = self.pod().namespace();
        let is_needed = |key: &apimachinery::Key| {
            key.namespace == namespace || key.namespace == "default" && key.name == "kubernetes"
        };
        // Without an API server, pods run without service variables.
        let _ = tokio::time::timeout(SERVICES_TIMEOUT, self.context.services.synced()).await;
        let snapshot = self.context.services.snapshot();
        let services: Vec<Value> =
            snapshot.objects.iter().filter(|entry| is_needed(&entry.key)).map(|entry| entry.value.clone()).collect();
        then(&Sources {
            config_maps: objects.get(&Kind::ConfigMap).unwrap_or(&none),
            secrets: objects.get(&Kind::Secret).unwrap_or(&none),
            trust_bundles: objects.get(&Kind::TrustBundle).unwrap_or(&none),
            files: &environment::Files::new(),
            services: &services,
            pod_ips: &self.pod_ips,
            host_ips: &self.context.facts.host_ips,
            allocatable: &self.context.allocatable,
        })
        .await
    }

    async fn volumes(&self) -> Result<PreparedVolumes, VolumeError> {
        blocking::in_place(|| make_dir(&self.context.volumes.pod_dir(self.pod().uid()), 0o750))?;
        let prepared = self
            .with_sources(async |sources| {
                let mut tokens = self.tokens.lock().await;
                self.context.volumes.prepare(self.pod(), sources, &mut tokens, clock::now()).await
            })
            .await?;
        // The worker may have stopped; then no receiver is left.
        let _ = self.messages.send(Message::VolumesAt(prepared.refresh_at)).await;
        Ok(prepared)
    }

    async fn container(&self, name: &str, attempt: u32) -> Result<(), Failure> {
        let pod = self.pod();
        let container = pod.container(name).ok_or_else(|| Failure::new("CreateContainerConfigError", "it is gone"))?;
        let events = self.context.event_sink(pod);
        let record_event =
            |kind: EventType, reason: &str, message: &str| events.container(container, kind, reason, message);
        let prepared =
            self.volumes().await.map_err(|error| Failure::new("CreateContainerConfigError", error.describe()));
        let prepared =
            prepared.inspect_err(|failure| record_event(EventType::Warning, "FailedMount", &failure.message))?;
        let found = self.image(
            container.image(),
            container.spec.str_at(&["imagePullPolicy"]).unwrap_or_default(),
            &record_event,
        );
        let found = self.unless_ending(found).await?.inspect_err(|failure| {
            record_event(EventType::Warning, "Failed", &format!("Error: {}", failure.reason));
        })?;
        for location in prepared.places.values() {
            if let VolumeLocation::Image { reference, pull_policy } = location {
                self.unless_ending(self.image(reference, pull_policy, &record_event)).await??;
            }
        }
        let config = self.config(container, attempt, &prepared, &found).await.inspect_err(|failure| {
            record_event(EventType::Warning, "Failed", &format!("Error: {}", failure.message));
        })?;
        let sandbox_inputs = sandbox::Inputs {
            names: &self.context.names,
            log_directory: self.context.logs.of(pod).display().to_string(),
            cgroup: self.context.groups.cgroup_parent(pod),
            attempt: 0,
            users: self.users()?,
        };
        let mut runtime = self.context.runtime.runtime.clone();
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: self.sandbox.clone(),
            config: Some(config),
            sandbox_config: Some(sandbox::config(pod, &sandbox_inputs)),
        };
        // A restarted container may have other resources than the previous one.
        if attempt > 0
            && self.context.config.cgroups_per_qos
            && let Err(error) = blocking::in_place(|| self.context.groups.update(pod))
        {
            tracing::warn!(%error, "failed to update the pod's cgroup");
        }
        let id = match runtime.create_container(request).await {
            Ok(response) => response.into_inner().container_id,
            Err(status) => {
                record_event(EventType::Warning, "Failed", &format!("Error: {}", status.message()));
                return Err(Failure::new("CreateContainerError", status.message()));
            }
        };
        record_event(EventType::Normal, "Created", &format!("Created container: {name}"));
        self.unless_ending(self.gate(&events)).await?;
        if let Err(status) = runtime.start_container(v1::StartContainerRequest { container_id: id.clone() }).await {
            record_event(EventType::Warning, "Failed", &format!("Error: {}", status.message()));
            return Err(Failure::new("RunContainerError", status.message()));
        }
        if let Err(error) = blocking::in_place(|| self.context.logs.link(pod, name, attempt, &id)) {
            tracing::warn!(container = name, %error, "failed to create the symlink to a container log");
        }
        record_event(EventType::Normal, "Started", &format!("Started container {name}"));
        self.post_start(container, &id, &record_event).await
    }

    /// Waits until network policies are enforced for the pod's addresses. No container runs before, so an unusually
    /// long wait is reported as an event.
    async fn gate(&self, events: &EventSink) {
        if let Some(gate) = &self.context.gate
            && !self.pod().flag("hostNetwork")
        {
            let ips = self.pod_ips.iter().filter_map(|ip| ip.parse().ok()).collect();
            let mut open = gate(Arc::clone(&self.pod), ips);
            if tokio::time::timeout(GATE_USUAL, &mut open).await.is_err() {
                let message =
                    "network is not ready: the pod's network policies are not enforced yet; its containers wait";
                events.pod(EventType::Warning, "NetworkNotReady", message);
                open.await;
            }
        }
    }

    async fn post_start(
        &self,
        container: Container<'_>,
        id: &str,
        record_event: &impl Fn(EventType, &str, &str),
    ) -> Result<(), Failure> {
        let Some(hook) = container.spec["lifecycle"].get("postStart").filter(|hook| !hook.is_null()) else {
            return Ok(());
        };
        let ip = self.pod_ips.first().map_or("", String::as_str);
        let run = hooks::run(&self.context.runtime, hook, container, id, ip, POST_START_MAX);
        let Err(cause) = run.await else { return Ok(()) };
        let message = format!("PostStartHook failed: {cause}");
        record_event(EventType::Warning, "FailedPostStartHook", &message);
        record_event(EventType::Normal, "Killing", "FailedPostStartHook");
        if let Err(status) = self.context.runtime.stop_container(id, self.pod().grace_seconds()).await {
            tracing::warn!(id, status = status.message(), "failed to stop a container");
        }
        Err(Failure::new("PostStartHookError", message))
    }

    /// Awaits long-running work, and aborts it if the pod must terminate.
    async fn unless_ending<T>(&self, work: impl Future<Output = T>) -> Result<T, Failure> {
        let mut ending = self.ending.clone();
        tokio::select! {
            done = work => Ok(done),
            // A stopped worker has nothing to start either.
            _ = ending.wait_for(|ending| *ending) => Err(Failure::new("ContainerCreating", "the pod is to end")),
        }
    }

    async fn image(
        &self,
        image: &str,
        policy: &str,
        record_event: &impl Fn(EventType, &str, &str),
    ) -> Result<crate::images::PresentImage, Failure> {
        let objects = self.context.objects.of(self.pod()).await;
        let names: Vec<&str> =
            self.pod().list("imagePullSecrets").iter().filter_map(|one| one.str_at(&["name"])).collect();
        let secrets = objects.get(&Kind::Secret).into_iter().flatten();
        let secrets: Vec<Value> =
            secrets.filter(|(name, _)| names.contains(&name.as_str())).filter_map(|(_, value)| value.clone()).collect();
        let ensured = self.context.images.ensure(image, policy, self.pod(), &secrets, record_event).await;
        ensured.map_err(|error| Failure {
            reason: error.reason().to_owned(),
            message: error.to_string(),
            image: matches!(error, ImageError::Pull(_)).then(|| image.to_owned()),
        })
    }

    async fn config(
        &self,
        container: Container<'_>,
        attempt: u32,
        prepared: &PreparedVolumes,
        found: &crate::images::PresentImage,
    ) -> Result<v1::ContainerConfig, Failure> {
        let pod = self.pod();
        let bad = |message: String| Failure::new("CreateContainerConfigError", message);
        let variables = container.spec["env"].as_array().unwrap_or_default().iter();
        let files = variables.filter_map(environment::file_of);
        let files = files.map(|(volume, path)| {
            let text = blocking::in_place(|| mounts::text_of(&prepared.places, &volume, &path));
            ((volume, path), text)
        });
        let files: environment::Files = files.collect();
        let environment = self
            .with_sources(async |sources| {
                environment::environment(pod, container, &Sources { files: &files, ..*sources })
            })
            .await
            .map_err(|error| bad(error.to_string()))?;
        let pod_dir = self.context.volumes.pod_dir(pod.uid());
        let hosts = blocking::in_place(|| self.write_hosts(&pod_dir));
        hosts.map_err(|error| bad(format!("cannot write the hosts file: {error}")))?;
        let inputs =
            mounts::Inputs { pod_dir: &pod_dir, locations: &prepared.places, environment: &environment, attempt };
        let mounts = blocking::in_place(|| mounts::all(container, &inputs));
        let mut mounts = mounts.map_err(|error| bad(error.describe()))?;
        let target = container.spec.str_at(&["targetContainerName"]).unwrap_or_default();
        let target = self.running.iter().find(|(name, _)| name == target).map(|(_, id)| id.clone());
        let profiles = security::Profiles::of(&self.context.config);
        let security = security::of_container(pod, container, &found.user, &profiles, target);
        let mut security = security.map_err(|error| bad(error.to_string()))?;
        if let Some(users) = self.users()? {
            user_namespaces::map_mounts(&mut mounts, &users);
            security.namespace_options.get_or_insert_default().userns_options = Some(users);
        }
        let mut resources = resources::of_container(pod, container, self.context.memory_capacity);
        self.context.swap.add(pod, container, &mut resources);
        self.context.groups.add(&mut resources);
        resources.cpuset_cpus = self.context.cpus.of(pod, container);
        resources.cpuset_mems = self.context.memory.of(pod, container);
        self.context.groups.keep_enforced(&mut resources);
        let needs = self.context.devices.needs(pod.uid(), container.name()).await;
        let needs = needs.map_err(|error| bad(error.to_string()))?;
        let inputs =
            container::Inputs { attempt, image_ref: found.reference.clone(), environment, mounts, security, resources };
        let mut config = container::config(pod, container, inputs);
        config.devices = mounts::devices(container, &prepared.places).map_err(|error| bad(error.describe()))?;
        container::add_devices(&mut config, needs);
        let claimed = blocking::in_place(|| self.context.claims.devices(pod, container)).into_iter();
        config.cdi_devices.extend(claimed.map(|name| v1::CdiDevice { name }));
        Ok(config)
    }

    fn users(&self) -> Result<Option<v1::UserNamespace>, Failure> {
        let users = blocking::in_place(|| self.context.users.of(self.pod()));
        users.map_err(|error| Failure::new("CreateContainerConfigError", format!("the pod has no users: {error}")))
    }

    fn write_hosts(&self, pod_dir: &Path) -> std::io::Result<()> {
        let pod = self.pod();
        let text = if pod.flag("hostNetwork") {
            let of_node = File::open("/etc/hosts").and_then(|file| sys::read_bounded(file, HOSTS_BYTES_MAX));
            dns::host_network_hosts(pod, &String::from_utf8_lossy(&of_node.unwrap_or_default()))
        } else {
            dns::hosts(pod, &self.pod_ips, &self.context.names.cluster_domain)
        };
        let file = pod_dir.join("etc-hosts");
        write_hosts_file(&file, &text)
    }
}

/// Updates the hosts file of a pod. Containers can make the file arbitrarily large, so the comparison reads no more
/// bytes than expected.
fn write_hosts_file(file: &Path, text: &str) -> std::io::Result<()> {
    if sys::read_container_file(file, text.len() as u64).is_ok_and(|have| have == text.as_bytes()) {
        return Ok(());
    }
    sys::write_container_file(file, text.as_bytes(), 0o644)
}

impl Failure {
    fn new(reason: &str, message: impl Into<String>) -> Self {
        Self { reason: reason.to_owned(), message: message.into(), image: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes that this thread has read from files.
    fn bytes_read() -> u64 {
        let io = std::fs::read_to_string("/proc/thread-self/io").unwrap();
        io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
    }

    #[test]
    fn huge_hosts_file_is_not_read_entirely() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("etc-hosts");
        write_hosts_file(&file, "127.0.0.1 localhost\n").unwrap();
        File::options().write(true).open(&file).unwrap().set_len(1 << 30).unwrap();
        let before = bytes_read();
        write_hosts_file(&file, "127.0.0.1 localhost\n").unwrap();
        assert!(bytes_read() - before < 1 << 20);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "127.0.0.1 localhost\n");
    }
}

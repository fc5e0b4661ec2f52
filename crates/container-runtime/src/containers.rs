//! Container operations: create, start, stop, remove, update.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cgroups::Cgroup;
use container_shim::private;
use container_shim::protocol::Start;
use image_store::Image;
use node_api::cri::v1;
use rustix::mount::MountPropagationFlags;

use crate::blocking;
use crate::cleanup::{remove_cgroup, remove_container_dir};
use crate::error::Error;
use crate::ids::{new_id, now};
use crate::persisted::{self, Phase, Syncing};
use crate::spec::{self, Inputs};
use crate::state::{Container, Runtime, Sandbox};
use crate::user::{self, RequestedUser};
use crate::{cdi, rootfs, sandboxes, signal, user_namespace};

/// Timeout after SIGKILL: the kernel needs longer if a process is blocked in disk I/O.
const KILL_TIMEOUT: Duration = Duration::from_secs(60);

impl Runtime {
    /// Creates a container's files; no process runs yet.
    pub(crate) async fn create_container(
        self: &Arc<Runtime>,
        sandbox_id: &str,
        config: v1::ContainerConfig,
    ) -> Result<String, Error> {
        let sandbox = self.sandbox(sandbox_id)?;
        if !sandbox.record().ready {
            return Err(Error::State(format!("sandbox {sandbox_id} is not ready")));
        }
        if config.metadata.is_none() {
            return Err(Error::Invalid("metadata: required".to_owned()));
        }
        let image_name = config.image.clone().unwrap_or_default().image;
        let image = self.image(&image_name).await?;
        let image = image.ok_or_else(|| Error::NotFound { kind: "image", id: image_name })?;
        let id = new_id();
        let dir = self.config.root.join("containers").join(&id);
        let runtime = Arc::clone(self);
        let made: Result<(persisted::Container, Syncing), Error> = {
            let (id, dir, sandbox) = (id.clone(), dir.clone(), Arc::clone(&sandbox));
            let work = move || {
                let record = runtime.prepare(&id, &dir, &sandbox, config, &image)?;
                let syncing = persisted::create(&dir, &record).map_err(Error::io("write the container's record"))?;
                Ok((record, syncing))
            };
            tokio::task::spawn_blocking(work).await.expect("preparing a container does not panic")
        };
        match made {
            Ok((record, syncing)) => {
                self.add_container(Arc::new(Container::new(&dir, record, Some(syncing))));
                self.emit(&id, &sandbox, v1::ContainerEventType::ContainerCreatedEvent);
                Ok(id)
            }
            Err(error) => {
                if let Err(error) = blocking::in_place(|| remove_container_dir(&dir)) {
                    tracing::warn!(id, error = error.describe(), "failed to remove a partly created container");
                }
                Err(error)
            }
        }
    }

    fn prepare(
        &self,
        id: &str,
        dir: &Path,
        sandbox: &Sandbox,
        config: v1::ContainerConfig,
        image: &Image,
    ) -> Result<persisted::Container, Error> {
        let bundle = dir.join("bundle");
        let root = bundle.join("rootfs");
        let maps = sandboxes::id_maps(&sandbox.record().config);
        let security = config.linux.clone().unwrap_or_default().security_context.unwrap_or_default();
        user_namespace::check_container(&security.namespace_options.clone().unwrap_or_default(), maps.as_ref())?;
        for dir in [dir, &bundle, &dir.join("mounts")] {
            sandboxes::create_private(dir, maps.as_ref()).map_err(Error::io("make the container's directory"))?;
        }
        rootfs::mount_writable(&self.images.lower_dirs(image), dir, &root, maps.as_ref(), sandbox.record().pause)
            .map_err(Error::io("mount the container's root"))?;
        let record = sandbox.record();
        let foreign = self.foreign_runtime(&record.handler);
        let (prepared, mounted_layers) = self.prepare_mounts(dir, &config, record.pause, foreign.is_some())?;
        let parent = record.cgroup.rsplit_once('/').map_or("", |(parent, _)| parent);
        let user = resolve_user(&root, &security, image)?;
        let cgroup = format!("{parent}/{id}");
        let target = match security.namespace_options.as_ref().map(|options| (options.pid(), &options.target_id)) {
            Some((v1::NamespaceMode::Target, id)) => Some(self.target_pid(id, &record.id)?),
            _ => None,
        };
        let groups = if foreign.is_some() { BTreeMap::new() } else { Cgroup::at(&cgroup).places() };
        let mut spec = spec::build(&Inputs {
            config: &config,
            sandbox: &record.config,
            image: &image.config.config,
            user: &user,
            rootfs: &root,
            cgroup: &cgroup,
            groups: &groups,
            pause: record.pause,
            target,
            provided: &sandbox.provided(),
            prepared: &prepared,
            users: maps.is_some(),
            foreign: foreign.is_some(),
            ulimits: &self.config.ulimits,
        })?;
        cdi::inject(&mut spec, &cdi::requested_devices(&config))?;
        mount_devices(&mut spec, &dir.join("mounts/devices"))?;
        private::write(&bundle.join("config.json"), spec.to_string().as_bytes())
            .map_err(Error::io("write the bundle"))?;
        let log = match (record.config.log_directory.as_str(), config.log_path.as_str()) {
            ("", _) | (_, "") => String::new(),
            (dir, path) => Path::new(dir).join(path).display().to_string(),
        };
        if let Some(dir) = Path::new(&log).parent().filter(|_| !log.is_empty()) {
            fs::create_dir_all(dir).map_err(Error::io("make the log's directory"))?;
        }
        if !groups.is_empty() {
            make_groups(&cgroup)?;
        }
        Ok(persisted::Container {
            id: id.to_owned(),
            sandbox: record.id,
            image_id: image.id.to_string(),
            image_ref: image.digests.first().cloned().unwrap_or_else(|| image.id.to_string()),
            layers: image.layers.iter().map(ToString::to_string).collect(),
            mounted_layers,
            cgroup,
            log,
            user,
            stop_signal: signal::stop_signal(config.stop_signal(), &image.config.config.stop_signal),
            config,
            created_at: now(),
            phase: Phase::Created,
        })
    }

    /// Returns the executable of a handler, if it is not the built-in runtime.
    fn foreign_runtime(&self, handler: &str) -> Option<PathBuf> {
        self.config.handlers.get(handler).filter(|path| !path.as_os_str().is_empty()).cloned()
    }

    /// Prepares mounts that the OCI specification cannot express: images, ID-mapped volumes, and volumes with a weaker
    /// propagation than others of the container.
    fn prepare_mounts(
        &self,
        dir: &Path,
        config: &v1::ContainerConfig,
        pause: i32,
        foreign: bool,
    ) -> Result<(BTreeMap<usize, PathBuf>, Vec<String>), Error> {
        let (mut prepared, mut layers) = (BTreeMap::new(), Vec::new());
        let weaker = if foreign { BTreeMap::new() } else { spec::weaker(&config.mounts) };
        for (n, mount) in config.mounts.iter().enumerate() {
            spec::check_propagation(mount).map_err(spec::SpecError::from)?;
            let target = dir.join("mounts").join(n.to_string());
            let image_name = mount.image.as_ref().map_or("", |image| image.image.as_str());
            if !image_name.is_empty() {
                let image = self.find_image(image_name)?;
                rootfs::mount_read_only(&self.images.lower_dirs(&image), &target)
                    .map_err(Error::io(format!("mount image {image_name}")))?;
                layers.extend(image.layers.iter().map(ToString::to_string));
                let resolved = rootfs::resolve_in_root(&target, Path::new(&mount.image_sub_path))
                    .map_err(Error::io(format!("find {:?} in image {image_name}", mount.image_sub_path)))?;
                prepared.insert(n, resolved);
            } else if !mount.uid_mappings.is_empty() {
                let source = spec::host_source(Path::new(&mount.host_path)).map_err(spec::SpecError::from)?;
                rootfs::mount_mapped(&source, &target, pause)
                    .map_err(Error::io(format!("map the owners of {}", mount.host_path)))?;
                prepared.insert(n, target);
            } else if let Some(propagation) = weaker.get(&n) {
                let source = spec::host_source(Path::new(&mount.host_path)).map_err(spec::SpecError::from)?;
                rootfs::mount_apart(&source, &target, flags_of(*propagation))
                    .map_err(Error::io(format!("bind {} apart", mount.host_path)))?;
                prepared.insert(n, target);
            }
        }
        Ok((prepared, layers))
    }

    pub(crate) fn find_image(&self, image_name: &str) -> Result<Arc<Image>, Error> {
        self.images.find(image_name).ok_or_else(|| Error::NotFound { kind: "image", id: image_name.to_owned() })
    }

    fn target_pid(&self, id: &str, sandbox: &str) -> Result<i32, Error> {
        let target = self.container(id)?.record();
        match target.phase {
            Phase::Running { pid, .. } if target.sandbox == sandbox => Ok(pid),
            _ => Err(Error::State(format!("target container {id} does not run in this sandbox"))),
        }
    }

    /// Starts a created container.
    pub(crate) async fn start_container(&self, id: &str) -> Result<(), Error> {
        let container = self.container(id)?;
        let _changing = container.changing.lock().await;
        let record = container.record();
        if record.phase != Phase::Created {
            return Err(Error::State(format!("container {id} was started before")));
        }
        let sandbox = self.sandbox(&record.sandbox)?;
        let sandbox_record = sandbox.record();
        if !sandbox_record.ready {
            return Err(Error::State(format!("sandbox {} is not ready", record.sandbox)));
        }
        let security = record.config.linux.clone().unwrap_or_default().security_context.unwrap_or_default();
        let pid_mode = security.namespace_options.unwrap_or_default().pid();
        let start = Start {
            id: record.id.clone(),
            dir: container.dir.clone(),
            cgroup: record.cgroup.clone(),
            log: (!record.log.is_empty()).then(|| PathBuf::from(&record.log)),
            terminal: record.config.tty,
            stdin: record.config.stdin,
            shared_pids: pid_mode != v1::NamespaceMode::Container,
            runtime: self.foreign_runtime(&sandbox_record.handler),
        };
        let started = match container.finish_sync().await {
            Ok(()) => sandbox.shim.start(start).await.map_err(Error::from),
            Err(error) => Err(Error::io("sync the container's record")(error)),
        };
        match started {
            Ok(running) => {
                for warning in &running.warnings {
                    tracing::warn!(id = record.id, "{warning}");
                }
                container.started(running.pid, running.at_nanos);
                self.emit(&record.id, &sandbox, v1::ContainerEventType::ContainerStartedEvent);
                Ok(())
            }
            Err(error) => {
                container.failed(&error.to_string());
                self.emit(&record.id, &sandbox, v1::ContainerEventType::ContainerStoppedEvent);
                Err(error)
            }
        }
    }

    /// Sends the stop signal to a container and kills it after the timeout.
    pub(crate) async fn stop_container(&self, id: &str, timeout: Duration) -> Result<(), Error> {
        let Ok(container) = self.container(id) else { return Ok(()) };
        let record = container.record();
        if !matches!(record.phase, Phase::Running { .. }) {
            return Ok(());
        }
        let sandbox = self.sandbox(&record.sandbox)?;
        let mut phase = container.phase();
        let mut exits_within = async |within: Duration| {
            let over = phase.wait_for(|phase| matches!(phase, Phase::Exited { .. }));
            tokio::time::timeout(within, over).await.is_ok()
        };
        if !timeout.is_zero() {
            sandbox.shim.signal(&record.id, record.stop_signal, false).await?;
            if exits_within(timeout).await {
                return Ok(());
            }
        }
        sandbox.shim.signal(&record.id, signal::KILL, true).await?;
        if exits_within(KILL_TIMEOUT).await {
            return Ok(());
        }
        Err(Error::Deadline(format!("container {id} does not die")))
    }

    /// Removes a container and kills it if it runs. Idempotent.
    pub(crate) async fn remove_container(&self, id: &str) -> Result<(), Error> {
        let Ok(container) = self.container(id) else { return Ok(()) };
        self.stop_container(id, Duration::ZERO).await?;
        let _changing = container.changing.lock().await;
        let record = container.record();
        let sandbox = self.sandbox(&record.sandbox)?;
        // A shim that has exited no longer knows the container.
        let _ = sandbox.shim.remove(&record.id).await;
        let dir = container.dir.clone();
        let cgroup = Cgroup::at(&record.cgroup);
        let work = move || {
            cgroup.kill();
            remove_cgroup(&cgroup)?;
            remove_container_dir(&dir)
        };
        tokio::task::spawn_blocking(work).await.expect("removing a container does not panic")?;
        self.drop_container_record(&record.id);
        self.emit(&record.id, &sandbox, v1::ContainerEventType::ContainerDeletedEvent);
        Ok(())
    }

    /// Updates the limits of a container.
    pub(crate) fn update_container(&self, id: &str, requested: &v1::LinuxContainerResources) -> Result<(), Error> {
        let container = self.container(id)?;
        let record = container.record();
        if matches!(record.phase, Phase::Exited { .. }) {
            return Err(Error::State(format!("container {id} has ended")));
        }
        let mut linux = record.config.linux.clone().unwrap_or_default();
        let resources = merge(linux.resources.unwrap_or_default(), requested);
        if matches!(record.phase, Phase::Running { .. }) {
            let changes = spec::resources(&resources);
            Cgroup::at(&record.cgroup).update(&changes).map_err(Error::io("change the container's limits"))?;
        } else {
            self.rewrite_limits(&container, &resources)?;
        }
        linux.resources = Some(resources);
        container.change(|record| record.config.linux = Some(linux));
        Ok(())
    }

    /// Writes new limits to the OCI specification of a container that has not started yet.
    fn rewrite_limits(&self, container: &Container, resources: &v1::LinuxContainerResources) -> Result<(), Error> {
        let path = container.dir.join("bundle/config.json");
        let mut spec = container.spec()?;
        let rules = spec["linux"]["resources"]["devices"].take();
        spec["linux"]["resources"] = spec::resources(resources);
        spec["linux"]["resources"]["devices"] = rules;
        private::write(&path, spec.to_string().as_bytes()).map_err(Error::io("write the bundle"))
    }
}

impl Container {
    /// Reads the container's OCI specification.
    pub(crate) fn spec(&self) -> Result<serde_json::Value, Error> {
        let text = fs::read(self.dir.join("bundle/config.json")).map_err(Error::io("read the bundle"))?;
        serde_json::from_slice(&text).map_err(|error| Error::io("read the bundle")(error.into()))
    }

    pub(crate) fn status(&self) -> v1::ContainerStatus {
        let record = self.record();
        let (state, started_at, finished_at, exit_code, reason, message) = match &record.phase {
            Phase::Created => (v1::ContainerState::ContainerCreated, 0, 0, 0, String::new(), String::new()),
            Phase::Running { started_at, .. } => {
                (v1::ContainerState::ContainerRunning, *started_at, 0, 0, String::new(), String::new())
            }
            Phase::Exited { started_at, finished_at, code, reason, message } => {
                (v1::ContainerState::ContainerExited, *started_at, *finished_at, *code, reason.clone(), message.clone())
            }
        };
        let linux = record.config.linux.clone().unwrap_or_default();
        let user = v1::LinuxContainerUser {
            uid: record.user.uid.into(),
            gid: record.user.gid.into(),
            supplemental_groups: record.user.groups.iter().map(|gid| i64::from(*gid)).collect(),
        };
        v1::ContainerStatus {
            id: record.id,
            metadata: record.config.metadata,
            state: state.into(),
            created_at: record.created_at,
            started_at,
            finished_at,
            exit_code,
            image: record.config.image,
            image_ref: record.image_ref,
            reason,
            message,
            labels: record.config.labels,
            annotations: record.config.annotations,
            mounts: record.config.mounts,
            log_path: record.log,
            resources: Some(v1::ContainerResources { linux: linux.resources, windows: None }),
            image_id: record.image_id,
            user: Some(v1::ContainerUser { linux: Some(user) }),
            stop_signal: record.config.stop_signal,
        }
    }

    pub(crate) fn summary(&self) -> v1::Container {
        let status = self.status();
        v1::Container {
            id: status.id,
            pod_sandbox_id: self.record().sandbox,
            metadata: status.metadata,
            image: status.image,
            image_ref: status.image_ref,
            state: status.state,
            created_at: status.created_at,
            labels: status.labels,
            annotations: status.annotations,
            image_id: status.image_id,
        }
    }
}

/// Creates the cgroups that a container mounts, which must exist before it starts.
fn make_groups(path: &str) -> Result<(), Error> {
    let cgroup = Cgroup::at(path);
    cgroup.create().map_err(|error| {
        // Removes partly created cgroups; the first error is returned.
        let _ = cgroup.remove();
        Error::io("make the container's groups")(error)
    })
}

/// Mounts the devices that a specification places outside of `/dev`, because the container's root is mounted with
/// `nodev`.
fn mount_devices(spec: &mut serde_json::Value, target: &Path) -> Result<(), Error> {
    let (destinations, nodes): (Vec<PathBuf>, Vec<rootfs::Node>) = spec::take_outside(spec).into_iter().unzip();
    if nodes.is_empty() {
        return Ok(());
    }
    let sources = rootfs::mount_devices(&nodes, target).map_err(Error::io("make the container's devices"))?;
    let mounts = spec["mounts"].as_array_mut().expect("a specification that was built here has mounts");
    for (destination, source) in destinations.iter().zip(&sources) {
        mounts.push(spec::bind(destination, source, &["bind", "rprivate", "nosuid", "noexec"]));
    }
    Ok(())
}

fn resolve_user(root: &Path, security: &v1::LinuxContainerSecurityContext, image: &Image) -> Result<user::User, Error> {
    let id = |name: &str, value: &Option<v1::Int64Value>| match value {
        None => Ok(None),
        Some(id) => match u32::try_from(id.value) {
            Ok(id) => Ok(Some(id)),
            Err(_) => Err(Error::Invalid(format!("{name}: {} is not an id", id.value))),
        },
    };
    let group =
        |id: &i64| u32::try_from(*id).map_err(|_| Error::Invalid(format!("supplemental_groups: {id} is not an id")));
    let groups = security.supplemental_groups.iter().map(group).collect::<Result<Vec<u32>, Error>>()?;
    let requested = RequestedUser {
        uid: id("run_as_user", &security.run_as_user)?,
        name: Some(security.run_as_username.as_str()).filter(|name| !name.is_empty()),
        gid: id("run_as_group", &security.run_as_group)?,
        image: &image.config.config.user,
        groups: &groups,
        merge: security.supplemental_groups_policy() == v1::SupplementalGroupsPolicy::Merge,
    };
    Ok(user::resolve(root, &requested)?)
}

/// Merges an update into resources; fields that the update omits stay unchanged.
fn merge(mut now: v1::LinuxContainerResources, change: &v1::LinuxContainerResources) -> v1::LinuxContainerResources {
    for (own, new) in [
        (&mut now.cpu_period, change.cpu_period),
        (&mut now.cpu_quota, change.cpu_quota),
        (&mut now.cpu_shares, change.cpu_shares),
        (&mut now.memory_limit_in_bytes, change.memory_limit_in_bytes),
        (&mut now.memory_swap_limit_in_bytes, change.memory_swap_limit_in_bytes),
        (&mut now.oom_score_adj, change.oom_score_adj),
    ] {
        if new != 0 {
            *own = new;
        }
    }
    for (own, new) in [(&mut now.cpuset_cpus, &change.cpuset_cpus), (&mut now.cpuset_mems, &change.cpuset_mems)] {
        if !new.is_empty() {
            own.clone_from(new);
        }
    }
    if !change.hugepage_limits.is_empty() {
        now.hugepage_limits.clone_from(&change.hugepage_limits);
    }
    now.unified.extend(change.unified.clone());
    now
}

fn flags_of(propagation: v1::MountPropagation) -> MountPropagationFlags {
    match propagation {
        v1::MountPropagation::PropagationPrivate => MountPropagationFlags::PRIVATE,
        v1::MountPropagation::PropagationHostToContainer => MountPropagationFlags::DOWNSTREAM,
        v1::MountPropagation::PropagationBidirectional => MountPropagationFlags::SHARED,
    }
}

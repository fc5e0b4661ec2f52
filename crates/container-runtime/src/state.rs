//! The runtime's state: sandboxes and containers of the host, and their events.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use cgroups::Cgroup;
use container_shim::protocol::{EXIT, Exit, Reply};
use container_shim::{Client, Events, Program};
use image_store::{Builtin, Digest, Image, Store};
use node_api::cri::v1;
use pod_network::Network;
use tokio::sync::{broadcast, watch};
use tracing::Instrument;

use crate::error::Error;
use crate::ids::now;
use crate::persisted::{self, Phase, Syncing};
use crate::registries::RegistrySettings;
use crate::tickets::Tickets;
use crate::ulimit::Ulimit;
use crate::{archives, blocking, cleanup};

/// Capacity of the event channel per listener.
const EVENTS_MAX: usize = 1024;
/// Exit code if the actual one is unknown because the shim died.
const UNKNOWN_EXIT: i32 = 255;

/// The settings of a runtime.
pub struct Config {
    /// Directory of all runtime state.
    pub root: PathBuf,
    /// Executable of the shim and its first arguments.
    pub shim: (PathBuf, Vec<String>),
    /// Parent cgroup of sandboxes that specify none.
    pub cgroup_parent: String,
    /// Other OCI runtimes by handler name.
    pub handlers: BTreeMap<String, PathBuf>,
    pub registries: RegistrySettings,
    /// Images that need no registry.
    pub builtins: Vec<Builtin>,
    /// Directory of image archives that are imported when the runtime starts.
    pub archives: PathBuf,
    /// Resource limits of all container processes.
    pub ulimits: Vec<Ulimit>,
    pub network: Arc<dyn Network>,
}

pub struct Runtime {
    pub(crate) config: Config,
    pub(crate) images: Store,
    pub(crate) shim: Program,
    pub(crate) tickets: Tickets,
    sandboxes: Mutex<BTreeMap<String, Arc<Sandbox>>>,
    containers: Mutex<BTreeMap<String, Arc<Container>>>,
    events: broadcast::Sender<v1::ContainerEventResponse>,
}

pub(crate) struct Sandbox {
    pub(crate) dir: PathBuf,
    pub(crate) shim: Client,
    record: Mutex<persisted::Sandbox>,
    /// Serializes changes.
    pub(crate) changing: tokio::sync::Mutex<()>,
}

pub(crate) struct Container {
    pub(crate) dir: PathBuf,
    record: Mutex<persisted::Container>,
    /// The sync of the first record, until the container is started.
    syncing: Mutex<Option<Syncing>>,
    phase: watch::Sender<Phase>,
    pub(crate) changing: tokio::sync::Mutex<()>,
    pub(crate) sample: Mutex<Option<Sample>>,
}

/// Creates a directory that only root can list and every user can traverse, including the root of a user namespace.
fn create_passage(dir: &Path) -> std::io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o711))
}

/// The last measurement of a container's resource usage.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub at: Instant,
    pub cpu_nanos: u64,
    pub rate: Option<u64>,
    pub disk: Option<(Instant, u64, u64)>,
}

impl Runtime {
    /// Opens a runtime and recovers the sandboxes and containers of its predecessor.
    pub async fn open(config: Config) -> Result<Arc<Runtime>, Error> {
        for dir in ["", "sandboxes", "containers"] {
            let dir = config.root.join(dir);
            create_passage(&dir).map_err(Error::io(format!("make {}", dir.display())))?;
        }
        let images = Store::open(&config.root.join("images"))?;
        archives::import(&images, &config.archives, &config.root.join("imported-archives.json")).await;
        let empty = config.root.join("empty");
        let protect = || {
            container_shim::private::create_dir(&empty)?;
            Program::protect(&config.shim.0, &empty)
        };
        let shim = protect().map_err(Error::io("protect the shim's program from containers"))?;
        let runtime = Arc::new(Runtime {
            config,
            images,
            shim,
            tickets: Tickets::default(),
            sandboxes: Mutex::new(BTreeMap::new()),
            containers: Mutex::new(BTreeMap::new()),
            events: broadcast::channel(EVENTS_MAX).0,
        });
        runtime.recover().await?;
        Ok(runtime)
    }

    pub fn images(&self) -> &Store {
        &self.images
    }

    /// Finds an image by ID or name; builds a built-in image on first use.
    pub(crate) async fn image(&self, image_name: &str) -> Result<Option<Arc<Image>>, Error> {
        match self.config.builtins.iter().find(|builtin| builtin.is_called(image_name)) {
            Some(builtin) => Ok(Some(self.images.provide(builtin).await?)),
            None => Ok(self.images.find(image_name)),
        }
    }

    /// Finds a sandbox by its ID or a unique prefix.
    pub(crate) fn sandbox(&self, id: &str) -> Result<Arc<Sandbox>, Error> {
        by_id(&self.sandboxes(), id).ok_or_else(|| Error::NotFound { kind: "sandbox", id: id.to_owned() })
    }

    /// Finds a container by its ID or a unique prefix.
    pub(crate) fn container(&self, id: &str) -> Result<Arc<Container>, Error> {
        by_id(&self.containers(), id).ok_or_else(|| Error::NotFound { kind: "container", id: id.to_owned() })
    }

    pub(crate) fn all_sandboxes(&self) -> Vec<Arc<Sandbox>> {
        self.sandboxes().values().cloned().collect()
    }

    pub(crate) fn all_containers(&self) -> Vec<Arc<Container>> {
        self.containers().values().cloned().collect()
    }

    pub(crate) fn containers_of(&self, sandbox: &str) -> Vec<Arc<Container>> {
        self.all_containers().into_iter().filter(|container| container.record().sandbox == sandbox).collect()
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<v1::ContainerEventResponse> {
        self.events.subscribe()
    }

    /// Returns the layers that containers use.
    pub(crate) fn layers_in_use(&self) -> BTreeSet<Digest> {
        let all = self.all_containers();
        let records = all.iter().map(|container| container.record());
        let keys = records.flat_map(|record| record.layers.into_iter().chain(record.mounted_layers));
        keys.filter_map(|key| Digest::parse(&key).ok()).collect()
    }

    pub(crate) fn add_sandbox(self: &Arc<Runtime>, sandbox: Arc<Sandbox>, events: Option<Events>) {
        let id = sandbox.record().id;
        self.sandboxes().insert(id, Arc::clone(&sandbox));
        if let Some(events) = events {
            tokio::spawn(Arc::clone(self).follow(sandbox, events).in_current_span());
        }
    }

    pub(crate) fn drop_sandbox_record(&self, id: &str) {
        self.sandboxes().remove(id);
    }

    pub(crate) fn add_container(&self, container: Arc<Container>) {
        let id = container.record().id;
        self.containers().insert(id, container);
    }

    pub(crate) fn drop_container_record(&self, id: &str) {
        self.containers().remove(id);
    }

    /// Sends an event; without listeners nothing happens.
    pub(crate) fn emit(&self, id: &str, sandbox: &Sandbox, kind: v1::ContainerEventType) {
        if self.events.receiver_count() == 0 {
            return;
        }
        let sandbox_id = sandbox.record().id;
        let statuses = self.containers_of(&sandbox_id).iter().map(|container| container.status()).collect();
        let _ = self.events.send(v1::ContainerEventResponse {
            container_id: id.to_owned(),
            container_event_type: kind.into(),
            created_at: now(),
            pod_sandbox_status: Some(sandbox.status()),
            containers_statuses: statuses,
        });
    }

    /// Follows the events of a shim until it exits.
    async fn follow(self: Arc<Runtime>, sandbox: Arc<Sandbox>, mut events: Events) {
        loop {
            match events.next().await {
                Ok(Reply::Exited { id, exit }) => {
                    if let Ok(container) = self.container(&id)
                        && container.exited(&exit)
                    {
                        self.emit(&id, &sandbox, v1::ContainerEventType::ContainerStoppedEvent);
                    }
                }
                Ok(Reply::SandboxExited) => self.sandbox_lost(&sandbox),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        blocking::in_place(|| self.shim_lost(&sandbox));
    }

    /// Handles the loss of a shim: the remaining processes are killed, since their logs and exit codes would be lost.
    fn shim_lost(&self, sandbox: &Sandbox) {
        let record = sandbox.record();
        // The sandbox changes first: a client that sees a container exit must not find its sandbox ready.
        if record.ready {
            sandbox.change(|record| record.ready = false);
        }
        Cgroup::at(&record.cgroup).kill();
        for container in self.containers_of(&record.id) {
            Cgroup::at(&container.record().cgroup).kill();
            if container.record_lost_exit() {
                self.emit(&container.record().id, sandbox, v1::ContainerEventType::ContainerStoppedEvent);
            }
        }
        if record.ready {
            self.emit(&record.id, sandbox, v1::ContainerEventType::ContainerStoppedEvent);
        }
    }

    fn sandbox_lost(&self, sandbox: &Sandbox) {
        if sandbox.record().ready {
            sandbox.change(|record| record.ready = false);
            let id = sandbox.record().id;
            self.emit(&id, sandbox, v1::ContainerEventType::ContainerStoppedEvent);
        }
    }

    async fn recover(self: &Arc<Runtime>) -> Result<(), Error> {
        for dir in entries(&self.config.root.join("containers"))? {
            match persisted::read::<persisted::Container>(&dir) {
                Ok(record) => self.add_container(Arc::new(Container::new(&dir, record, None))),
                Err(error) => {
                    tracing::warn!(dir = %dir.display(), %error, "removing a container without a readable record");
                    cleanup::remove_container_dir(&dir)?;
                }
            }
        }
        for dir in entries(&self.config.root.join("sandboxes"))? {
            match persisted::read::<persisted::Sandbox>(&dir) {
                Ok(record) => self.recover_sandbox(&dir, record).await,
                Err(error) => {
                    tracing::warn!(dir = %dir.display(), %error, "removing a sandbox without a readable record");
                    let _ = Client::new(&dir).shutdown().await;
                    cleanup::remove_sandbox_dir(&dir)?;
                }
            }
        }
        let known = |container: &Arc<Container>| self.sandbox(&container.record().sandbox).is_ok();
        for orphan in self.all_containers().into_iter().filter(|container| !known(container)) {
            let record = orphan.record();
            Cgroup::at(&record.cgroup).kill();
            cleanup::remove_container_dir(&orphan.dir)?;
            self.drop_container_record(&record.id);
        }
        // Releases addresses of sandboxes that were removed while the runtime was down.
        let alive: Vec<String> = self.sandboxes().keys().cloned().collect();
        if let Err(error) = self.config.network.collect(&alive).await {
            tracing::warn!(error = Error::from(error).describe(), "failed to release the network of removed sandboxes");
        }
        Ok(())
    }

    async fn recover_sandbox(self: &Arc<Runtime>, dir: &Path, record: persisted::Sandbox) {
        let id = record.id.clone();
        let sandbox = Arc::new(Sandbox::new(dir, record));
        let followed = sandbox.shim.follow().await;
        let running = followed.as_ref().map(|(state, _)| state.running.clone()).unwrap_or_default();
        let pause = followed.as_ref().ok().and_then(|(state, _)| state.pause);
        for container in self.containers_of(&id) {
            let container_id = container.record().id;
            match running.get(&container_id) {
                Some(pid) => container.started(*pid, container.record().created_at),
                None => {
                    blocking::in_place(|| container.record_lost_exit());
                }
            }
        }
        if followed.is_err() {
            Cgroup::at(&sandbox.record().cgroup).kill();
        }
        if pause.is_none() {
            sandbox.change(|record| record.ready = false);
        }
        self.add_sandbox(sandbox, followed.ok().map(|(_, events)| events));
    }

    fn sandboxes(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Sandbox>>> {
        self.sandboxes.lock().expect("no holder of the sandboxes panics")
    }

    fn containers(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Container>>> {
        self.containers.lock().expect("no holder of the containers panics")
    }
}

impl Sandbox {
    pub(crate) fn new(dir: &Path, record: persisted::Sandbox) -> Sandbox {
        Sandbox {
            dir: dir.to_owned(),
            shim: Client::new(dir),
            record: Mutex::new(record),
            changing: tokio::sync::Mutex::new(()),
        }
    }

    pub(crate) fn record(&self) -> persisted::Sandbox {
        self.record.lock().expect("no holder of a record panics").clone()
    }

    /// Changes the record in memory and on disk.
    pub(crate) fn change(&self, change: impl FnOnce(&mut persisted::Sandbox)) {
        let mut record = self.record.lock().expect("no holder of a record panics");
        change(&mut record);
        store(&self.dir, &*record);
    }
}

impl Container {
    pub(crate) fn new(dir: &Path, record: persisted::Container, syncing: Option<Syncing>) -> Container {
        Container {
            dir: dir.to_owned(),
            phase: watch::channel(record.phase.clone()).0,
            record: Mutex::new(record),
            syncing: Mutex::new(syncing),
            changing: tokio::sync::Mutex::new(()),
            sample: Mutex::new(None),
        }
    }

    /// Waits until the first record survives a power failure.
    pub(crate) async fn finish_sync(&self) -> std::io::Result<()> {
        let syncing = self.syncing.lock().expect("no holder of a sync panics").take();
        match syncing {
            Some(syncing) => syncing.finish().await,
            None => Ok(()),
        }
    }

    pub(crate) fn record(&self) -> persisted::Container {
        self.record.lock().expect("no holder of a record panics").clone()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut persisted::Container)) {
        let mut record = self.record.lock().expect("no holder of a record panics");
        change(&mut record);
        store(&self.dir, &*record);
    }

    pub(crate) fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Records the start. If the exit was recorded first, only the start time is added.
    pub(crate) fn started(&self, pid: i32, at: i64) {
        self.advance(|phase| match phase {
            Phase::Created => *phase = Phase::Running { started_at: at, pid },
            Phase::Running { pid: known, .. } => *known = pid,
            Phase::Exited { started_at: 0, .. } => {
                if let Phase::Exited { started_at, .. } = phase {
                    *started_at = at;
                }
            }
            Phase::Exited { .. } => {}
        });
    }

    /// Records the exit. Returns whether it is new.
    pub(crate) fn exited(&self, exit: &Exit) -> bool {
        let reason = match (exit.oom, exit.code) {
            (true, _) => "OOMKilled",
            (false, 0) => "Completed",
            (false, _) => "Error",
        };
        self.end(exit.code, exit.at_nanos, reason, "")
    }

    /// Records that the container could not start.
    pub(crate) fn failed(&self, message: &str) {
        // Exit code 128 for a container that cannot start, as other runtimes report it.
        self.end(128, now(), "StartError", message);
    }

    /// Records the exit of a container whose shim is lost, from the exit file if there is one. Returns whether it is
    /// new.
    pub(crate) fn record_lost_exit(&self) -> bool {
        let text = fs::read(self.dir.join(EXIT)).ok();
        let exit = text.and_then(|text| serde_json::from_slice::<Exit>(&text).ok());
        match (exit, self.record().phase) {
            // Created is included: the container may have exited before its start was recorded.
            (Some(exit), Phase::Created | Phase::Running { .. }) => self.exited(&exit),
            (None, Phase::Running { .. }) => {
                self.end(UNKNOWN_EXIT, now(), "Unknown", "the container's shim has exited")
            }
            (_, Phase::Created | Phase::Exited { .. }) => false,
        }
    }

    fn end(&self, code: i32, at: i64, reason: &str, message: &str) -> bool {
        let mut changed = false;
        self.advance(|phase| {
            let started_at = match phase {
                Phase::Created => 0,
                Phase::Running { started_at, .. } => *started_at,
                Phase::Exited { .. } => return,
            };
            changed = true;
            let (reason, message) = (reason.to_owned(), message.to_owned());
            *phase = Phase::Exited { started_at, finished_at: at, code, reason, message };
        });
        changed
    }

    fn advance(&self, step: impl FnOnce(&mut Phase)) {
        let mut next = None;
        self.change(|record| {
            step(&mut record.phase);
            next = Some(record.phase.clone());
        });
        if let Some(phase) = next {
            self.phase.send_replace(phase);
        }
    }
}

/// Stores a record. A failure is logged: the change is lost only at the next restart.
fn store(dir: &Path, record: &impl serde::Serialize) {
    if let Err(error) = blocking::in_place(|| persisted::update(dir, record)) {
        tracing::error!(dir = %dir.display(), %error, "failed to write a record");
    }
}

fn by_id<T>(all: &BTreeMap<String, Arc<T>>, id: &str) -> Option<Arc<T>> {
    if let Some(found) = all.get(id) {
        return Some(Arc::clone(found));
    }
    if id.is_empty() {
        return None;
    }
    let mut matches = all.range(id.to_owned()..).take_while(|(known, _)| known.starts_with(id));
    let first = matches.next()?;
    matches.next().is_none().then(|| Arc::clone(first.1))
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let list = fs::read_dir(dir).map_err(Error::io(format!("list {}", dir.display())))?;
    Ok(list.flatten().map(|entry| entry.path()).collect())
}

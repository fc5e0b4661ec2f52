//! Device manager: devices of device plugins, their allocation to containers, and the containers' settings for them.
//!
//! ```text
//!   plugin ──Register──> kubelet ──ListAndWatch──> allocator ──> the node's capacity
//!                                                    │
//!           admission of a pod allocates devices <───┘
//!           the start of a container calls Allocate on the plugin, once per container
//! ```

mod allocator;
mod checkpoint;
mod serve;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use node_api::devices as v1beta1;
use node_api::devices::device_plugin_client::DevicePluginClient;
use tokio::sync::watch;
use tonic::transport::Channel;

use crate::blocking;
use crate::node::NodeConditions;
pub use allocator::{Counts, Device, DeviceAllocation, DeviceAllocator};
pub use serve::open;

/// Timeout of a call to a plugin.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(60);

/// The devices of a container could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    #[error("the device plugin of {0} is not registered")]
    Absent(String),
    #[error("failed to write the checkpoint of devices")]
    Checkpoint(#[from] io::Error),
    #[error("the device plugin of {resource} failed: {problem}")]
    Plugin {
        resource: String,
        /// The plugin's error message.
        problem: String,
    },
}

#[derive(Clone)]
struct Plugin {
    client: DevicePluginClient<Channel>,
    options: v1beta1::DevicePluginOptions,
    /// Identity of this registration, to distinguish it from one that replaced it.
    this: Arc<()>,
}

/// The device manager of a node. Clones share its state.
#[derive(Clone)]
pub struct Devices(Arc<Inner>);

struct Inner {
    dir: PathBuf,
    ledger: Mutex<DeviceAllocator>,
    plugins: Mutex<BTreeMap<String, Plugin>>,
    node_conditions: Arc<watch::Sender<NodeConditions>>,
}

impl Devices {
    /// Creates a manager for plugins whose sockets are in `device-plugins` below the kubelet's directory. Restores the
    /// allocations of its checkpoint.
    pub fn new(root: &Path, node_conditions: Arc<watch::Sender<NodeConditions>>) -> Self {
        let dir = root.join("device-plugins");
        let ledger = DeviceAllocator::new(checkpoint::read(&dir));
        Self(Arc::new(Inner { dir, ledger: Mutex::new(ledger), plugins: Mutex::default(), node_conditions }))
    }

    /// Runs `then`, which allocates devices to a pod, and checkpoints the result. Rolls everything back on failure.
    pub fn with_allocation<T, E: From<io::Error>>(
        &self,
        then: impl FnOnce(&mut DeviceAllocator) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut ledger = self.ledger();
        let before = ledger.clone();
        let outcome = then(&mut ledger).and_then(|given| {
            if ledger.given() != before.given() {
                checkpoint::write(&self.0.dir, ledger.given())?;
            }
            Ok(given)
        });
        if outcome.is_err() {
            *ledger = before;
        }
        outcome
    }

    /// Releases the devices of deleted pods.
    pub fn keep_only(&self, is_here: impl Fn(&str) -> bool) {
        let mut ledger = self.ledger();
        if ledger.keep_only(is_here)
            && let Err(error) = checkpoint::write(&self.0.dir, ledger.given())
        {
            tracing::error!(%error, "failed to write the checkpoint of devices");
        }
    }

    /// Returns all allocations.
    pub fn given(&self) -> Vec<DeviceAllocation> {
        self.ledger().given().to_vec()
    }

    /// Returns the healthy devices by resource.
    pub fn healthy(&self) -> BTreeMap<String, Vec<String>> {
        self.ledger().healthy()
    }

    // DEVIATION: Allocate is called when a container starts, and GetPreferredAllocation is never called; upstream calls
    // both at admission.
    /// Returns the settings that a container needs to use its devices. Allocate is called once per container and
    /// resource, PreStartContainer at every start.
    pub async fn needs(
        &self,
        uid: &str,
        container: &str,
    ) -> Result<Vec<v1beta1::ContainerAllocateResponse>, DeviceError> {
        let mut needs = Vec::new();
        let own: Vec<DeviceAllocation> =
            self.given().into_iter().filter(|given| given.uid == uid && given.container == container).collect();
        for given in own {
            let plugin = self.plugin(&given.resource);
            let need = match &given.response {
                Some(known) => known.clone(),
                None => self.allocate(&given, plugin.clone()).await?,
            };
            if let Some(mut plugin) = plugin.filter(|plugin| plugin.options.pre_start_required) {
                let request = v1beta1::PreStartContainerRequest { devices_ids: given.ids.iter().cloned().collect() };
                let started = tokio::time::timeout(PLUGIN_TIMEOUT, plugin.client.pre_start_container(request)).await;
                unwrap_response(&given.resource, started)?;
            }
            needs.push(need);
        }
        Ok(needs)
    }

    async fn allocate(
        &self,
        given: &DeviceAllocation,
        plugin: Option<Plugin>,
    ) -> Result<v1beta1::ContainerAllocateResponse, DeviceError> {
        let mut plugin = plugin.ok_or_else(|| DeviceError::Absent(given.resource.clone()))?;
        let one = v1beta1::ContainerAllocateRequest { devices_ids: given.ids.iter().cloned().collect() };
        let request = v1beta1::AllocateRequest { container_requests: vec![one] };
        let allocated = tokio::time::timeout(PLUGIN_TIMEOUT, plugin.client.allocate(request)).await;
        let response =
            unwrap_response(&given.resource, allocated)?.container_responses.into_iter().next().unwrap_or_default();
        blocking::in_place(|| {
            let mut ledger = self.ledger();
            ledger.set_response(given, response.clone());
            checkpoint::write(&self.0.dir, ledger.given())
        })?;
        Ok(response)
    }

    fn plugin(&self, resource: &str) -> Option<Plugin> {
        self.0.plugins.lock().unwrap_or_else(PoisonError::into_inner).get(resource).cloned()
    }

    fn ledger(&self) -> MutexGuard<'_, DeviceAllocator> {
        self.0.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes the device counts for the node status.
    fn publish(&self) {
        let counts = self.ledger().counts();
        self.0
            .node_conditions
            .send_if_modified(|known| std::mem::replace(&mut known.devices, counts.clone()) != counts);
    }
}

fn unwrap_response<T>(
    resource: &str,
    response: Result<Result<tonic::Response<T>, tonic::Status>, tokio::time::error::Elapsed>,
) -> Result<T, DeviceError> {
    let failed = |problem: String| DeviceError::Plugin { resource: resource.to_owned(), problem };
    match response {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(failed(status.message().to_owned())),
        Err(_) => Err(failed(format!("no response in {} seconds", PLUGIN_TIMEOUT.as_secs()))),
    }
}

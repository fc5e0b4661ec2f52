//! CSI volumes: staged once per node, published once per pod, and undone in the opposite order.
//!
//! ```text
//!   attached? ──> stage (global mount) ──> publish (pod's mount)   …   unpublish ──> last pod on the node? unstage
//! ```
//!
//! The data for unpublishing is written to a file beside the pod's mount before the first call, so that a restarted
//! kubelet can undo it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use apimachinery::meta::Meta;
use apimachinery::{Object, Value, json, value};
use client::{Client, Target};
use controller::kinds;
use node_api::csi as v1;
use node_api::csi::node_client::NodeClient;
use node_api::csi::node_service_capability::Type;
use node_api::csi::node_service_capability::rpc::Type as Capability;
use node_api::csi::volume_capability::access_mode::Mode;
use node_api::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use tokio::sync::watch;
use tonic::transport::Channel;

use super::{Drivers, Kind};
use crate::blocking;
use crate::checkpoint;
use crate::node::NodeConditions;
use crate::pod::Pod;
use crate::volumes::VolumeError;

/// File name of the data for unpublishing.
const DATA: &str = "vol_data.json";
/// File beside a global mount that contains the boot ID at the time of staging.
const STAGED: &str = "staged";
/// Timeout of a driver call.
const TIMEOUT: Duration = Duration::from_secs(120);
/// First interval for checking whether a volume is attached; doubled after each check.
const ATTACHED_EVERY: Duration = Duration::from_millis(500);
/// Maximum number of these checks.
const ATTACHED_ATTEMPTS: u32 = 7;

/// Mounts and unmounts CSI volumes.
pub struct Csi {
    client: Client,
    drivers: Drivers,
    root: PathBuf,
    node_name: String,
    /// Receives the volumes in use for the node status.
    node_conditions: Arc<watch::Sender<NodeConditions>>,
    /// Serializes changes per volume.
    locks: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// A CSI volume of a pod or of a PersistentVolume.
pub struct CsiVolume<'a> {
    /// Directory name of the volume in the pod's directory.
    pub name: &'a str,
    pub source: &'a Value,
    /// The PersistentVolume's spec; `None` for an inline volume.
    pub persistent: Option<&'a Value>,
    pub read_only: bool,
}

/// A published volume.
pub struct PublishedVolume {
    pub path: PathBuf,
    /// Whether the kubelet must apply the pod's fsGroup.
    pub apply_fs_group: bool,
}

impl Csi {
    /// Creates a CSI volume manager for the kubelet with the root directory `root`, and reports its volumes in use.
    pub fn new(
        client: Client,
        drivers: Drivers,
        root: &Path,
        node_name: &str,
        node_conditions: Arc<watch::Sender<NodeConditions>>,
    ) -> Self {
        let (root, node_name) = (root.to_owned(), node_name.to_owned());
        let csi = Self { client, drivers, root, node_name, node_conditions, locks: Mutex::default() };
        csi.report_in_use();
        csi
    }

    // DEVIATION: a volume is mounted once it is attached and the kubelet has added it to `volumesInUse` locally;
    // upstream waits until the API server has stored that.
    /// Publishes the attached volumes in use for the node status, so that they are not detached.
    fn report_in_use(&self) {
        let pods = fs::read_dir(self.pods()).into_iter().flatten().flatten();
        let all = pods.flat_map(|pod| volumes_of(&pod.path())).filter_map(|dir| Data::read(&dir));
        let names: BTreeSet<String> = all
            .filter(|data| data.attached)
            .map(|data| format!("kubernetes.io/csi/{}^{}", data.driver, data.handle))
            .collect();
        self.node_conditions
            .send_if_modified(|known| std::mem::replace(&mut known.volumes_in_use, names.clone()) != names);
    }

    /// Stages and publishes a volume for a pod. Idempotent.
    pub async fn publish(&self, pod: Pod<'_>, csi_volume: &CsiVolume<'_>) -> Result<PublishedVolume, VolumeError> {
        let text = |field: &str| csi_volume.source.str_at(&[field]).unwrap_or_default();
        let driver = text("driver");
        // An inline volume belongs to one pod only.
        let handle = match csi_volume.persistent {
            Some(_) => text("volumeHandle").to_owned(),
            None => format!("csi-{}", super::sha256_hex(&format!("{}{}", pod.uid(), csi_volume.name))),
        };
        let dir = self.pods().join(pod.uid()).join("volumes/kubernetes.io~csi").join(csi_volume.name);
        let lock = self.lock_of(&format!("{driver} {handle}"));
        let _alone = lock.lock().await;
        let about = self.about(driver).await?;
        let apply_fs_group = about.apply_fs_group(csi_volume);
        let published = PublishedVolume { path: dir.join("mount"), apply_fs_group };
        if blocking::in_place(|| Data::read(&dir)).is_some_and(|data| data.published == boot()) {
            return Ok(published);
        }
        let mut node = self.node(driver)?;
        let attached = csi_volume.persistent.is_some() && about.attach;
        let publish_context = match attached {
            true => self.attached(driver, &handle).await?,
            false => HashMap::new(),
        };
        let stages = stages(&mut node).await?;
        let staging = if stages { Some(self.staging(driver, &handle)) } else { None };
        let (driver_name, published_in) = (driver.to_owned(), String::new());
        let mut data =
            Data { driver: driver_name, handle: handle.clone(), attached, staged: stages, published: published_in };
        blocking::in_place(|| data.write(&dir).map(|()| self.report_in_use()))?;
        let capability = capability(csi_volume, pod);
        let attributes = strings(&csi_volume.source["volumeAttributes"]);
        if let Some(staging) = staging.as_ref().filter(|staging| !blocking::in_place(|| is_staged(staging))) {
            blocking::in_place(|| sys::create_dirs(staging, 0o750))
                .map_err(VolumeError::io(format!("make {}", staging.display())))?;
            let request = v1::NodeStageVolumeRequest {
                volume_id: handle.clone(),
                publish_context: publish_context.clone(),
                staging_target_path: staging.display().to_string(),
                volume_capability: Some(capability.clone()),
                secrets: self.secrets(&csi_volume.source["nodeStageSecretRef"], pod).await?,
                volume_context: attributes.clone(),
            };
            await_response("NodeStageVolume", node.node_stage_volume(request)).await?;
            let noted =
                blocking::in_place(|| sys::replace_file(&staging.with_file_name(STAGED), boot().as_bytes(), 0o600));
            noted.map_err(VolumeError::io("record that a volume is staged"))?;
        }
        let mut volume_context = attributes;
        if about.pod_info {
            volume_context.extend(pod_info(pod, csi_volume));
        }
        let request = v1::NodePublishVolumeRequest {
            volume_id: handle,
            publish_context,
            staging_target_path: staging.map(|path| path.display().to_string()).unwrap_or_default(),
            target_path: published.path.display().to_string(),
            volume_capability: Some(capability),
            readonly: csi_volume.read_only,
            secrets: self.secrets(&csi_volume.source["nodePublishSecretRef"], pod).await?,
            volume_context,
        };
        await_response("NodePublishVolume", node.node_publish_volume(request)).await?;
        data.published = boot();
        blocking::in_place(|| data.write(&dir))?;
        Ok(published)
    }

    /// Unpublishes all CSI volumes of a pod.
    pub async fn unpublish(&self, uid: &str) -> Result<(), VolumeError> {
        for dir in blocking::in_place(|| volumes_of(&self.pods().join(uid))) {
            let Some(data) = blocking::in_place(|| Data::read(&dir)) else { continue };
            let lock = self.lock_of(&format!("{} {}", data.driver, data.handle));
            let _alone = lock.lock().await;
            let mut node = self.node(&data.driver)?;
            let target_path = dir.join("mount").display().to_string();
            let request = v1::NodeUnpublishVolumeRequest { volume_id: data.handle.clone(), target_path };
            await_response("NodeUnpublishVolume", node.node_unpublish_volume(request)).await?;
            if data.staged && !blocking::in_place(|| self.is_used_elsewhere(&data, &dir)) {
                let staging = self.staging(&data.driver, &data.handle);
                let staging_target_path = staging.display().to_string();
                let request = v1::NodeUnstageVolumeRequest { volume_id: data.handle.clone(), staging_target_path };
                await_response("NodeUnstageVolume", node.node_unstage_volume(request)).await?;
                blocking::in_place(|| remove_staging(&staging));
            }
            let removed = blocking::in_place(|| {
                fs::remove_file(dir.join(DATA))?;
                let _ = fs::remove_dir(dir.join("mount"));
                self.report_in_use();
                Ok(())
            });
            removed.map_err(VolumeError::io(format!("forget {}", dir.display())))?;
        }
        Ok(())
    }

    fn is_used_elsewhere(&self, data: &Data, here: &Path) -> bool {
        let pods = fs::read_dir(self.pods()).into_iter().flatten().flatten();
        let others = pods.flat_map(|pod| volumes_of(&pod.path())).filter(|dir| dir != here);
        others
            .filter_map(|dir| Data::read(&dir))
            .any(|other| other.driver == data.driver && other.handle == data.handle)
    }

    /// Waits until the volume is attached to this node. Returns the attachment metadata.
    async fn attached(&self, driver: &str, handle: &str) -> Result<HashMap<String, String>, VolumeError> {
        let name = format!("csi-{}", super::sha256_hex(&format!("{handle}{driver}{}", self.node_name)));
        let mut wait = ATTACHED_EVERY;
        for _ in 0..ATTACHED_ATTEMPTS {
            match self.client.get(&Target::named(&kinds::VOLUME_ATTACHMENTS, "", name.as_str())).await {
                // A VolumeAttachment that is being deleted may be detached before the volume is used.
                Ok(found) if found["status"]["attached"].as_bool() == Some(true) && !Meta::of(&found).is_deleting() => {
                    return Ok(strings(&found["status"]["attachmentMetadata"]));
                }
                Ok(_) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(api("volumeattachment", &name, error)),
            }
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
        Err(VolumeError::Invalid(format!("volume {handle} of {driver} is not attached to this node")))
    }

    async fn about(&self, driver: &str) -> Result<About, VolumeError> {
        match self.client.get(&Target::named(&kinds::CSI_DRIVERS, "", driver)).await {
            Ok(found) => Ok(About::read(&found["spec"])),
            Err(error) if error.is_not_found() => Ok(About::read(&Value::Null)),
            Err(error) => Err(api("csidriver", driver, error)),
        }
    }

    async fn secrets(&self, reference: &Value, pod: Pod<'_>) -> Result<HashMap<String, String>, VolumeError> {
        let Some(name) = reference.str_at(&["name"]).filter(|name| !name.is_empty()) else {
            return Ok(HashMap::new());
        };
        let namespace = reference.str_at(&["namespace"]).filter(|text| !text.is_empty()).unwrap_or(pod.namespace());
        let found = self.client.get(&Target::named(&kinds::SECRETS, namespace, name)).await;
        let found = found.map_err(|error| api("secret", name, error))?;
        let entries = found["data"].as_object().into_iter().flat_map(Object::iter);
        let decode = |text: &str| base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text).ok();
        Ok(entries
            .filter_map(|(key, value)| {
                let bytes = decode(value.as_str()?)?;
                Some((key.to_owned(), String::from_utf8_lossy(&bytes).into_owned()))
            })
            .collect())
    }

    fn node(&self, driver: &str) -> Result<NodeClient<Channel>, VolumeError> {
        let channel = self.drivers.find(Kind::Csi, driver);
        let missing =
            || VolumeError::Invalid(format!("driver name {driver} not found in the list of registered CSI drivers"));
        channel.map(NodeClient::new).ok_or_else(missing)
    }

    fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }

    fn staging(&self, driver: &str, handle: &str) -> PathBuf {
        let dir = self.root.join("plugins/kubernetes.io/csi").join(driver);
        dir.join(super::sha256_hex(handle)).join("globalmount")
    }

    fn lock_of(&self, volume: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(locks.entry(volume.to_owned()).or_default())
    }
}

/// The properties of a driver from its CSIDriver object.
struct About {
    attach: bool,
    pod_info: bool,
    group_policy: String,
}

impl About {
    fn read(spec: &Value) -> Self {
        Self {
            attach: spec["attachRequired"].as_bool().unwrap_or(true),
            pod_info: spec["podInfoOnMount"].as_bool().unwrap_or(false),
            group_policy: spec.str_at(&["fsGroupPolicy"]).unwrap_or("ReadWriteOnceWithFSType").to_owned(),
        }
    }

    fn apply_fs_group(&self, csi_volume: &CsiVolume<'_>) -> bool {
        let once = csi_volume.persistent.is_some_and(|spec| {
            let modes = spec["accessModes"].as_array().unwrap_or_default();
            modes.iter().any(|mode| matches!(mode.as_str(), Some("ReadWriteOnce" | "ReadWriteOncePod")))
        });
        match self.group_policy.as_str() {
            "None" => false,
            "File" => true,
            _ => once && csi_volume.source.str_at(&["fsType"]).is_some_and(|kind| !kind.is_empty()),
        }
    }
}

/// The data for unpublishing one volume of one pod.
struct Data {
    driver: String,
    handle: String,
    /// Whether the volume was attached to this node with a VolumeAttachment.
    attached: bool,
    staged: bool,
    /// Boot ID at the time of publishing: mounts do not survive a reboot.
    published: String,
}

impl Data {
    fn read(dir: &Path) -> Option<Self> {
        let value = json::parse(&fs::read(dir.join(DATA)).ok()?).ok()?;
        let text = |field: &str| value.str_at(&[field]).map(str::to_owned);
        Some(Self {
            driver: text("driverName")?,
            handle: text("volumeHandle")?,
            attached: value["attached"].as_bool().unwrap_or(false),
            staged: value["staged"].as_bool().unwrap_or(false),
            published: text("published").unwrap_or_default(),
        })
    }

    fn write(&self, dir: &Path) -> Result<(), VolumeError> {
        let value = value!({"driverName": (self.driver.as_str()), "volumeHandle": (self.handle.as_str()),
            "attached": (self.attached), "staged": (self.staged), "published": (self.published.as_str())});
        let written = checkpoint::write(dir, DATA, &value);
        written.map_err(VolumeError::io(format!("write the record of the volume in {}", dir.display())))
    }
}

/// Removes the staging directory. Removes only empty directories, so that a volume left mounted by a driver is not
/// deleted.
fn remove_staging(staging: &Path) {
    let _ = fs::remove_file(staging.with_file_name(STAGED));
    let _ = fs::remove_dir(staging);
    let _ = staging.parent().map(fs::remove_dir);
}

/// Returns the boot ID of the host.
fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn is_staged(staging: &Path) -> bool {
    fs::read_to_string(staging.with_file_name(STAGED)).is_ok_and(|text| text == boot())
}

async fn stages(node: &mut NodeClient<Channel>) -> Result<bool, VolumeError> {
    let future = node.node_get_capabilities(v1::NodeGetCapabilitiesRequest {});
    let capabilities = await_response("NodeGetCapabilities", future).await?.capabilities;
    let stages = |one: &v1::NodeServiceCapability| match &one.r#type {
        Some(Type::Rpc(rpc)) => rpc.r#type() == Capability::StageUnstageVolume,
        None => false,
    };
    Ok(capabilities.iter().any(stages))
}

fn capability(csi_volume: &CsiVolume<'_>, pod: Pod<'_>) -> v1::VolumeCapability {
    let spec = csi_volume.persistent.unwrap_or(&Value::Null);
    let texts = |field: &str| -> Vec<String> {
        let list = spec[field].as_array().unwrap_or_default();
        list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let modes = texts("accessModes");
    let mode = match modes.first().map(String::as_str) {
        Some("ReadOnlyMany") => Mode::MultiNodeReaderOnly,
        Some("ReadWriteMany") => Mode::MultiNodeMultiWriter,
        Some("ReadWriteOncePod") => Mode::SingleNodeSingleWriter,
        _ => Mode::SingleNodeWriter,
    };
    let block = spec.str_at(&["volumeMode"]) == Some("Block");
    let group = pod.spec()["securityContext"]["fsGroup"].as_int();
    let mount = MountVolume {
        fs_type: csi_volume.source.str_at(&["fsType"]).unwrap_or_default().to_owned(),
        mount_flags: texts("mountOptions"),
        volume_mount_group: group.map(|group| group.to_string()).unwrap_or_default(),
    };
    v1::VolumeCapability {
        access_type: Some(if block { AccessType::Block(BlockVolume {}) } else { AccessType::Mount(mount) }),
        access_mode: Some(AccessMode { mode: mode.into() }),
    }
}

fn pod_info(pod: Pod<'_>, csi_volume: &CsiVolume<'_>) -> HashMap<String, String> {
    let account = pod.spec().str_at(&["serviceAccountName"]).unwrap_or_default();
    let ephemeral = csi_volume.persistent.is_none().to_string();
    [
        ("pod.name", pod.name()),
        ("pod.namespace", pod.namespace()),
        ("pod.uid", pod.uid()),
        ("serviceAccount.name", account),
        ("ephemeral", ephemeral.as_str()),
    ]
    .map(|(key, value)| (format!("csi.storage.k8s.io/{key}"), value.to_owned()))
    .into()
}

fn strings(value: &Value) -> HashMap<String, String> {
    let entries = value.as_object().into_iter().flat_map(Object::iter);
    entries.filter_map(|(key, value)| Some((key.to_owned(), value.as_str()?.to_owned()))).collect()
}

/// Returns the directories of a pod's CSI volumes.
fn volumes_of(pod: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(pod.join("volumes/kubernetes.io~csi")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn api(what: &str, name: &str, error: client::Error) -> VolumeError {
    VolumeError::Api { what: format!("{what} {name:?}"), source: Box::new(error) }
}

async fn await_response<T>(
    call: &str,
    future: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, VolumeError> {
    match tokio::time::timeout(TIMEOUT, future).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(VolumeError::Invalid(format!(
            "{call} failed: rpc error: code = {:?} desc = {}",
            status.code(),
            status.message()
        ))),
        Err(_) => Err(VolumeError::Invalid(format!("{call} took longer than {} seconds", TIMEOUT.as_secs()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_capability_follows_the_access_mode() {
        let pod = value!({"metadata": {"uid": "u"}, "spec": {"securityContext": {"fsGroup": 5}}});
        let source = value!({"driver": "d", "fsType": "ext4"});
        let check = |spec: Value, mode: Mode, block: bool| {
            let csi_volume = CsiVolume { name: "v", source: &source, persistent: Some(&spec), read_only: false };
            let found = capability(&csi_volume, Pod(&pod));
            assert_eq!(found.access_mode.unwrap().mode(), mode, "{spec:?}");
            assert_eq!(matches!(found.access_type, Some(AccessType::Block(_))), block, "{spec:?}");
        };
        check(value!({"accessModes": ["ReadWriteOnce"]}), Mode::SingleNodeWriter, false);
        check(value!({"accessModes": ["ReadWriteMany"], "volumeMode": "Block"}), Mode::MultiNodeMultiWriter, true);
        check(value!({"accessModes": ["ReadOnlyMany"]}), Mode::MultiNodeReaderOnly, false);
    }

    #[test]
    fn fs_group_is_applied_according_to_fs_group_policy() {
        let check = |policy: &str, mode: &str, kind: &str, expect: bool| {
            let source = value!({"fsType": kind});
            let spec = value!({"accessModes": [mode]});
            let csi_volume = CsiVolume { name: "v", source: &source, persistent: Some(&spec), read_only: false };
            let about = About::read(&value!({"fsGroupPolicy": policy}));
            assert_eq!(about.apply_fs_group(&csi_volume), expect, "{policy} {mode} {kind}");
        };
        check("ReadWriteOnceWithFSType", "ReadWriteOnce", "ext4", true);
        check("ReadWriteOnceWithFSType", "ReadWriteOnce", "", false);
        check("ReadWriteOnceWithFSType", "ReadWriteMany", "ext4", false);
        check("File", "ReadWriteMany", "", true);
        check("None", "ReadWriteOnce", "ext4", false);
    }
}

//! Pod volumes: set up, updated and removed.

mod atomic;
mod hostpath;
pub mod mounts;
mod nfs;
mod ownership;
pub mod payload;
pub(crate) mod token;
mod trust;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use api::amounts::Amounts;
use api::field_rules::quantity;
use apimachinery::quantity::Quantity;
use apimachinery::time::Time;
use apimachinery::{Resource, Value};
use client::{Client, Target};
use controller::kinds;
use rustix::mount::MountFlags;

use crate::blocking;
use crate::checkpoint::DIR_MODE;
use crate::environment::Sources;
use crate::plugins::csi::{Csi, CsiVolume};
use crate::pod::{AmountsFrom, Pod};
use crate::resources;
use crate::usage::{DiskUsage, disk_taken};
use nfs::Export;
use payload::PayloadError;
pub use token::Tokens;

/// A volume could not be set up or removed.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// An error of one volume, with upstream's message.
    #[error("MountVolume.SetUp failed for volume {name:?} ")]
    SetUp {
        name: String,
        #[source]
        source: Box<VolumeError>,
    },
    #[error(transparent)]
    Payload(#[from] PayloadError),
    #[error("cannot {what}")]
    Io {
        /// Description of the failed operation.
        what: String,
        #[source]
        source: io::Error,
    },
    #[error("hostPath type check failed: {0}")]
    HostPath(String),
    #[error("{what}")]
    Api {
        /// The requested object.
        what: String,
        #[source]
        source: Box<client::Error>,
    },
    #[error("{0}")]
    Invalid(String),
    #[error("volumes of type {0} are not supported by this node")]
    Unsupported(String),
}

/// The volumes of a pod after their setup.
#[derive(Clone, Debug, Default)]
pub struct PreparedVolumes {
    /// Location of each volume by name.
    pub places: BTreeMap<String, VolumeLocation>,
    /// Time of the next token renewal.
    pub refresh_at: Option<Time>,
}

/// The required owner of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Any,
    Pod,
}

/// The location of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeLocation {
    /// A directory or file of the node.
    Path {
        path: PathBuf,
        /// Whether containers may only read it, regardless of their mounts.
        read_only: bool,
    },
    /// A block device of the node.
    Device { path: PathBuf, read_only: bool },
    /// An image, mounted by the runtime.
    Image { reference: String, pull_policy: String },
}

/// Sets up and removes the volumes of all pods.
pub struct Volumes {
    client: Client,
    pods: PathBuf,
    csi: Csi,
}

impl VolumeLocation {
    const fn writable(path: PathBuf) -> Self {
        Self::Path { path, read_only: false }
    }
}

impl VolumeError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// Adds the name of the volume.
    fn of_volume(self, name: &str) -> Self {
        Self::SetUp { name: name.to_owned(), source: Box::new(self) }
    }

    /// Formats the error with its sources in one line.
    pub fn describe(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(next) = cause {
            text = format!("{text}: {next}");
            cause = next.source();
        }
        text
    }
}

impl Volumes {
    /// Creates a manager for volumes below the kubelet's directory.
    pub fn new(client: Client, root: &Path, csi: Csi) -> Self {
        Self { client, pods: root.join("pods"), csi }
    }

    pub fn pod_dir(&self, uid: &str) -> PathBuf {
        self.pods.join(uid)
    }

    /// Returns the directory of an emptyDir volume.
    pub fn empty_dir_of(&self, uid: &str, name: &str) -> PathBuf {
        self.pod_dir(uid).join("volumes/kubernetes.io~empty-dir").join(name)
    }

    /// Returns the disk usage of the kubelet's files that all containers mount: the hosts file and the termination
    /// logs.
    pub fn own_files(&self, uid: &str) -> DiskUsage {
        own_files_of(&self.pod_dir(uid))
    }

    /// Returns the UIDs of pods that have a directory.
    pub fn pods(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.pods).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// Sets up all volumes of a pod, or updates their content.
    pub async fn prepare(
        &self,
        pod: Pod<'_>,
        sources: &Sources<'_>,
        tokens: &mut Tokens,
        now: Time,
    ) -> Result<PreparedVolumes, VolumeError> {
        let mut prepared = PreparedVolumes::default();
        for volume in pod.list("volumes") {
            let name = volume.str_at(&["name"]).unwrap_or_default();
            let location = self.one(pod, volume, sources, tokens, now).await.map_err(|error| error.of_volume(name))?;
            prepared.places.insert(name.to_owned(), location);
        }
        prepared.refresh_at = tokens.refresh_at();
        Ok(prepared)
    }

    async fn one(
        &self,
        pod: Pod<'_>,
        volume: &Value,
        sources: &Sources<'_>,
        tokens: &mut Tokens,
        now: Time,
    ) -> Result<VolumeLocation, VolumeError> {
        let name = volume.str_at(&["name"]).unwrap_or_default();
        let Some((kind, source)) = kind_of(volume) else {
            return Err(VolumeError::Invalid("it has no source".to_owned()));
        };
        let dir =
            |plugin: &str| self.pod_dir(pod.uid()).join("volumes").join(format!("kubernetes.io~{plugin}")).join(name);
        match kind {
            "emptyDir" => {
                let dir = dir("empty-dir");
                let bytes = memory_bytes(pod, source, sources.allocatable);
                let mark = self.mark(pod, "empty-dir", name);
                blocking::in_place(|| empty_dir(pod, source, &dir, &mark, bytes))?;
                Ok(VolumeLocation::writable(dir))
            }
            "hostPath" => blocking::in_place(|| hostpath::check(source)).map(VolumeLocation::writable),
            "configMap" | "secret" | "downwardAPI" | "projected" => {
                tokens.renew(&self.client, pod, volume, now).await?;
                let files = payload::of_volume(pod, volume, sources, tokens)?;
                let plugin = match kind {
                    "configMap" => "configmap",
                    "downwardAPI" => "downward-api",
                    other => other,
                };
                let dir = dir(plugin);
                // Secrets and tokens are kept in a tmpfs, not on disk.
                let in_memory = kind != "configMap";
                blocking::in_place(|| show_files(pod, &dir, &files, in_memory))?;
                Ok(VolumeLocation::Path { path: dir, read_only: true })
            }
            "image" => Ok(VolumeLocation::Image {
                reference: source.str_at(&["reference"]).unwrap_or_default().to_owned(),
                pull_policy: source.str_at(&["pullPolicy"]).unwrap_or_default().to_owned(),
            }),
            "nfs" => self.of_server(pod, name, Export::read(source, None), is_read_only(source)).await,
            "csi" => {
                self.of_driver(pod, &CsiVolume { name, source, persistent: None, read_only: is_read_only(source) })
                    .await
            }
            "persistentVolumeClaim" => {
                let claim = source.str_at(&["claimName"]).unwrap_or_default();
                self.claim(pod, claim, Owner::Any, is_read_only(source)).await
            }
            "ephemeral" => self.claim(pod, &format!("{}-{name}", pod.name()), Owner::Pod, false).await,
            other => Err(VolumeError::Unsupported(other.to_owned())),
        }
    }

    /// Sets up the PersistentVolume that is bound to a claim.
    async fn claim(
        &self,
        pod: Pod<'_>,
        name: &str,
        owner: Owner,
        read_only: bool,
    ) -> Result<VolumeLocation, VolumeError> {
        let get_object = async |resource: &'static Resource, namespace: &str, name: &str| {
            let response = self.client.get(&Target::named(resource, namespace, name)).await;
            response.map_err(|error| VolumeError::Api { what: format!("{resource} {name:?}"), source: Box::new(error) })
        };
        let claim = get_object(&kinds::PERSISTENT_VOLUME_CLAIMS, pod.namespace(), name).await?;
        if owner == Owner::Pod && !is_controlled(&claim, pod) {
            let (namespace, pod) = (pod.namespace(), pod.name());
            let message =
                format!("PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)");
            return Err(VolumeError::Invalid(message));
        }
        let volume = claim.str_at(&["spec", "volumeName"]).unwrap_or_default();
        if claim.str_at(&["status", "phase"]) != Some("Bound") || volume.is_empty() {
            return Err(VolumeError::Invalid(format!("PVC {}/{name} is not bound", pod.namespace())));
        }
        let object = get_object(&kinds::PERSISTENT_VOLUMES, "", volume).await?;
        let spec = &object["spec"];
        let is_block = spec.str_at(&["volumeMode"]) == Some("Block");
        if let Some(source) = spec.get("csi") {
            let read_only = read_only || is_read_only(source);
            let csi_volume = CsiVolume { name: volume, source, persistent: Some(spec), read_only };
            if is_block {
                return Ok(VolumeLocation::Device { path: self.csi.publish(pod, &csi_volume).await?.path, read_only });
            }
            return self.of_driver(pod, &csi_volume).await;
        }
        if let Some(source) = spec.get("nfs").filter(|_| !is_block) {
            let read_only = read_only || is_read_only(source);
            return self.of_server(pod, volume, Export::read(source, Some(spec)), read_only).await;
        }
        if let Some(source) = spec.get("hostPath").filter(|_| !is_block) {
            // Host paths are shared with the node, so their ownership is not changed.
            return Ok(VolumeLocation::Path { path: blocking::in_place(|| hostpath::check(source))?, read_only });
        }
        let Some(local) = spec.get("local") else {
            let kind = spec.as_object().and_then(|spec| spec.keys().find(|key| PLUGINS.contains(key)));
            let kind = if is_block { Some("block device outside of local and csi") } else { kind };
            return Err(VolumeError::Unsupported(kind.unwrap_or("an unknown kind").to_owned()));
        };
        let path = PathBuf::from(local.str_at(&["path"]).unwrap_or_default());
        let mark = self.mark(pod, "local-volume", volume);
        blocking::in_place(|| local_volume(pod, path, &mark, is_block, read_only))
    }

    async fn of_server(
        &self,
        pod: Pod<'_>,
        name: &str,
        export: Export,
        read_only: bool,
    ) -> Result<VolumeLocation, VolumeError> {
        let dir = self.pod_dir(pod.uid()).join("volumes/kubernetes.io~nfs").join(name);
        let target = dir.clone();
        let mounting = move || {
            make_dir(&target, 0o750)?;
            if !is_mount_point(&target)? {
                export.mount(&target).map_err(VolumeError::io("mount the export"))?;
            }
            Ok::<_, VolumeError>(())
        };
        blocking::run(mounting).await?;
        Ok(VolumeLocation::Path { path: dir, read_only })
    }

    async fn of_driver(&self, pod: Pod<'_>, csi_volume: &CsiVolume<'_>) -> Result<VolumeLocation, VolumeError> {
        let published = self.csi.publish(pod, csi_volume).await?;
        if published.apply_fs_group && !csi_volume.read_only {
            let mark = self.mark(pod, "csi", csi_volume.name);
            blocking::in_place(|| once(&mark, || apply_fs_group(pod, &published.path)))?;
        }
        Ok(VolumeLocation::Path { path: published.path, read_only: csi_volume.read_only })
    }

    /// Returns the file that marks a volume as set up.
    fn mark(&self, pod: Pod<'_>, plugin: &str, name: &str) -> PathBuf {
        self.pod_dir(pod.uid()).join("plugins").join(format!("kubernetes.io~{plugin}")).join(name).join("ready")
    }

    /// Removes the volumes of a terminated pod; the termination messages of its containers stay.
    pub async fn release(&self, uid: &str) -> Result<(), VolumeError> {
        self.csi.unpublish(uid).await?;
        let dir = self.pod_dir(uid);
        let parts = ["plugins", "volumes", "volume-subpaths"].map(|part| dir.join(part));
        blocking::in_place(|| parts.iter().try_for_each(|part| take_away(uid, part)))
    }

    /// Removes the pod's directory with everything in it.
    pub async fn remove(&self, uid: &str) -> Result<(), VolumeError> {
        self.csi.unpublish(uid).await?;
        blocking::in_place(|| take_away(uid, &self.pod_dir(uid)))
    }
}

fn empty_dir(pod: Pod<'_>, source: &Value, dir: &Path, mark: &Path, memory: Option<i64>) -> Result<(), VolumeError> {
    make_dir(dir, 0o777)?;
    let medium = source.str_at(&["medium"]).unwrap_or_default();
    if !medium.is_empty() && !is_mount_point(dir)? {
        // The previous content was lost with the mount, so the setup runs again.
        let _ = fs::remove_file(mark);
        match medium.strip_prefix("HugePages") {
            Some(size) => mount_hugepages(dir, &page_size(pod, size)?)?,
            None => mount_tmpfs(dir, memory)?,
        }
    }
    once(mark, || {
        open_to_all(dir).map_err(VolumeError::io("open an emptyDir to all"))?;
        apply_fs_group(pod, dir)
    })
}

/// Allows every user to write to a directory. Other mode bits stay, such as the sticky bit of a tmpfs.
fn open_to_all(dir: &Path) -> io::Result<()> {
    let mode = fs::symlink_metadata(dir)?.permissions().mode() & 0o7777;
    if mode & 0o777 == 0o777 { Ok(()) } else { fs::set_permissions(dir, fs::Permissions::from_mode(mode | 0o777)) }
}

/// Returns the size of a memory volume: its `sizeLimit`, at most the pod's memory limit or the node's allocatable
/// memory.
fn memory_bytes(pod: Pod<'_>, source: &Value, allocatable: &Amounts) -> Option<i64> {
    let size_limit = source.get("sizeLimit").map(quantity);
    let of_pod = resources::pod_limits(pod).get("memory").copied();
    let limits = [size_limit, of_pod, allocatable.get("memory").copied()];
    limits.into_iter().flatten().map(Quantity::value).filter(|bytes| *bytes > 0).min()
}

/// Runs the setup of a new volume only once: later changes of modes and owners by containers stay. Containers start
/// after it has completed.
fn once(mark: &Path, set_up: impl FnOnce() -> Result<(), VolumeError>) -> Result<(), VolumeError> {
    if mark.exists() {
        return Ok(());
    }
    set_up()?;
    if let Some(parent) = mark.parent() {
        make_dir(parent, 0o750)?;
    }
    fs::write(mark, "").map_err(VolumeError::io(format!("write {}", mark.display())))
}

/// Applies the pod's `fsGroup` to a volume.
fn apply_fs_group(pod: Pod<'_>, path: &Path) -> Result<(), VolumeError> {
    let Some(group) = pod.spec()["securityContext"]["fsGroup"].as_int() else { return Ok(()) };
    ownership::apply_group(path, group, ownership_policy(pod)).map_err(VolumeError::io("give a volume to its group"))
}

fn local_volume(
    pod: Pod<'_>,
    path: PathBuf,
    mark: &Path,
    is_block: bool,
    read_only: bool,
) -> Result<VolumeLocation, VolumeError> {
    if !path.exists() {
        return Err(VolumeError::Invalid(format!("path {:?} does not exist", path.display().to_string())));
    }
    if is_block {
        return local_device(path, read_only);
    }
    if !read_only {
        once(mark, || apply_fs_group(pod, &path))?;
    }
    Ok(VolumeLocation::Path { path, read_only })
}

/// Writes files to a directory, in a tmpfs if they must not reach the disk.
fn show_files(pod: Pod<'_>, dir: &Path, files: &payload::Files, in_memory: bool) -> Result<(), VolumeError> {
    make_dir(dir, 0o755)?;
    if in_memory && !is_mount_point(dir)? {
        mount_tmpfs(dir, None)?;
    }
    let group = pod.spec()["securityContext"]["fsGroup"].as_int();
    atomic::write(dir, files, group).map(drop).map_err(VolumeError::io(format!("write to {}", dir.display())))
}

fn local_device(path: PathBuf, read_only: bool) -> Result<VolumeLocation, VolumeError> {
    let is_device = fs::metadata(&path).is_ok_and(|metadata| metadata.file_type().is_block_device());
    if is_device {
        return Ok(VolumeLocation::Device { path, read_only });
    }
    Err(VolumeError::Invalid(format!("{} is not a block device", path.display())))
}

fn own_files_of(pod_dir: &Path) -> DiskUsage {
    ["etc-hosts", "containers"].iter().map(|name| disk_taken(&pod_dir.join(name))).sum()
}

fn take_away(uid: &str, dir: &Path) -> Result<(), VolumeError> {
    // A UID that is not a plain file name is ignored, since it would lead out of the directory.
    if uid.is_empty() || uid.contains('/') || uid.starts_with('.') {
        return Ok(());
    }
    sys::unmount_below(dir).map_err(VolumeError::io("unmount a pod's volumes"))?;
    // A volume that is still mounted is not entered: its content must not be deleted.
    sys::remove_tree(dir).map_err(VolumeError::io(format!("remove {}", dir.display())))
}

/// Unsupported volume plugins, for error messages.
const PLUGINS: &[&str] = &["iscsi", "fc", "cephfs", "rbd", "azureFile", "awsElasticBlockStore", "gcePersistentDisk"];

fn kind_of(volume: &Value) -> Option<(&str, &Value)> {
    volume.as_object()?.iter().find(|(field, value)| *field != "name" && !value.is_null())
}

fn is_controlled(object: &Value, pod: Pod<'_>) -> bool {
    let owners = object.at(&["metadata", "ownerReferences"]).and_then(Value::as_array).unwrap_or_default();
    let is_pod = |owner: &Value| owner.str_at(&["uid"]) == Some(pod.uid());
    owners.iter().any(|owner| owner["controller"].as_bool() == Some(true) && is_pod(owner))
}

fn is_read_only(source: &Value) -> bool {
    source["readOnly"].as_bool().unwrap_or(false)
}

fn ownership_policy(pod: Pod<'_>) -> ownership::Policy {
    match pod.spec().str_at(&["securityContext", "fsGroupChangePolicy"]) {
        Some("OnRootMismatch") => ownership::Policy::OnRootMismatch,
        _ => ownership::Policy::Always,
    }
}

/// Creates a directory with exactly this mode, regardless of the umask. Missing parents get `DIR_MODE`; an existing
/// directory stays unchanged.
pub(crate) fn make_dir(dir: &Path, mode: u32) -> Result<(), VolumeError> {
    if dir.is_dir() {
        return Ok(());
    }
    let failed = || VolumeError::io(format!("make {}", dir.display()));
    fs::DirBuilder::new().recursive(true).mode(DIR_MODE).create(dir).map_err(failed())?;
    fs::set_permissions(dir, fs::Permissions::from_mode(mode)).map_err(failed())
}

fn mount_tmpfs(dir: &Path, bytes: Option<i64>) -> Result<(), VolumeError> {
    let options = bytes.filter(|bytes| *bytes > 0).map_or(String::new(), |bytes| format!("size={bytes}"));
    let options = std::ffi::CString::new(options).expect("a number contains no zero byte");
    let mounted = rustix::mount::mount("tmpfs", dir, "tmpfs", MountFlags::empty(), Some(options.as_c_str()));
    mounted.map_err(|error| VolumeError::io(format!("mount memory on {}", dir.display()))(error.into()))
}

/// Returns the huge page size of a medium: the size in its name, or the only size that the pod requests.
fn page_size(pod: Pod<'_>, suffix: &str) -> Result<Quantity, VolumeError> {
    if let Some(size) = suffix.strip_prefix('-') {
        return size.parse().map_err(|_| VolumeError::Invalid(format!("{size:?} is not a page size")));
    }
    let requests = pod.requests(AmountsFrom::Spec);
    let mut sizes = requests.keys().filter_map(|name| name.strip_prefix("hugepages-"));
    match (sizes.next().and_then(|size| size.parse().ok()), sizes.next()) {
        (Some(size), None) => Ok(size),
        _ => Err(VolumeError::Invalid("medium HugePages needs a pod that asks for pages of one size".to_owned())),
    }
}

fn mount_hugepages(dir: &Path, size: &Quantity) -> Result<(), VolumeError> {
    let options = std::ffi::CString::new(format!("pagesize={}", size.value())).expect("a number contains no zero byte");
    let mounted = rustix::mount::mount("nodev", dir, "hugetlbfs", MountFlags::empty(), Some(options.as_c_str()));
    mounted.map_err(|error| VolumeError::io(format!("mount huge pages on {}", dir.display()))(error.into()))
}

fn is_mount_point(dir: &Path) -> Result<bool, VolumeError> {
    sys::is_mount_point(dir).map_err(VolumeError::io("read the mounts of this host"))
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    /// A symlink above the kubelet's directory could hide its mounts, so that removal entered them.
    #[test]
    fn removing_a_pod_never_removes_the_content_of_its_volumes() {
        test_requirements::root();
        let top = tempfile::tempdir().unwrap();
        let (real, link, precious) = (top.path().join("real"), top.path().join("link"), top.path().join("precious"));
        let volume = real.join("pods/uid/volumes/kubernetes.io~nfs/v");
        fs::create_dir_all(&volume).unwrap();
        fs::create_dir(&precious).unwrap();
        fs::write(precious.join("data"), "x").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let removed = sys::apart(|| {
            rustix::mount::mount_bind_recursive(&precious, &volume).unwrap();
            assert!(is_mount_point(&link.join("pods/uid/volumes/kubernetes.io~nfs/v")).unwrap());
            take_away("uid", &link.join("pods/uid"))
        });
        removed.unwrap().unwrap();
        assert!(precious.join("data").exists());
        assert!(!real.join("pods/uid").exists());
    }

    /// CVE-2020-8557.
    #[test]
    fn hosts_file_and_termination_logs_count_as_ephemeral_storage() {
        let pod = tempfile::tempdir().unwrap();
        assert_eq!(own_files_of(pod.path()), DiskUsage::default());
        fs::write(pod.path().join("etc-hosts"), vec![b'x'; 1 << 20]).unwrap();
        let hosts = own_files_of(pod.path());
        assert!(hosts.bytes >= 1 << 20, "{hosts:?}");
        fs::create_dir_all(pod.path().join("containers/c")).unwrap();
        fs::write(pod.path().join("containers/c/log"), vec![b'x'; 1 << 20]).unwrap();
        assert!(own_files_of(pod.path()).bytes >= 2 << 20);
    }

    #[test]
    fn volume_mode_changed_by_a_container_stays() {
        let top = tempfile::tempdir().unwrap();
        let (dir, mark) = (top.path().join("v"), top.path().join("plugins/v/ready"));
        let (pod, source) = (value!({"spec": {}}), value!({}));
        let check = |expect: u32| {
            empty_dir(Pod(&pod), &source, &dir, &mark, None).unwrap();
            assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o7777, expect);
        };
        check(0o777);
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
        check(0o700);
        fs::remove_file(&mark).unwrap();
        check(0o777);
    }

    #[test]
    fn memory_volume_is_limited_by_pod_and_node() {
        let allocatable = Amounts::from([("memory".into(), "1Gi".parse().unwrap())]);
        let check = |source: Value, limit: &str, expect: i64| {
            let limits = if limit.is_empty() { value!({}) } else { value!({"memory": limit}) };
            let pod = value!({"spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}});
            assert_eq!(memory_bytes(Pod(&pod), &source, &allocatable), Some(expect << 20), "{source:?} {limit}");
        };
        check(value!({}), "", 1024);
        check(value!({"sizeLimit": "0"}), "64Mi", 64);
        check(value!({"sizeLimit": "8Mi"}), "64Mi", 8);
        check(value!({"sizeLimit": "2Gi"}), "", 1024);
    }

    #[test]
    fn huge_page_size_comes_from_the_medium_or_the_pod() {
        let check = |resources: Value, suffix: &str, expect: Option<i64>| {
            let pod = value!({"spec": {"containers": [{"name": "c", "resources": {"requests": (resources)}}]}});
            assert_eq!(page_size(Pod(&pod), suffix).ok().map(Quantity::value), expect, "{suffix}");
        };
        check(value!({}), "-2Mi", Some(2 << 20));
        check(value!({}), "-x", None);
        check(value!({}), "", None);
        check(value!({"hugepages-1Gi": "1Gi"}), "", Some(1 << 30));
        check(value!({"hugepages-1Gi": "1Gi", "hugepages-2Mi": "2Mi"}), "", None);
    }
}

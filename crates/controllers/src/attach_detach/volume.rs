//! CSI PersistentVolumes: the unique volume name in a node's status and the name of the VolumeAttachment.

use api::resources::{CSI_DRIVERS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES};
use apimachinery::meta::Meta;
use apimachinery::{Key, Value, value};
use aws_lc_rs::digest;
use controller::{Action, Cache, kinds};

const PREFIX: &str = "csi-";
const UNIQUE_PREFIX: &str = "kubernetes.io/csi/";

/// A PersistentVolume of a CSI driver that must be attached before it can be mounted.
pub(super) struct Volume<'a> {
    object: &'a Value,
    driver: &'a str,
    handle: &'a str,
}

impl<'a> Volume<'a> {
    /// Returns the volume that the claim is bound to; `None` if it needs no attachment.
    pub(super) fn of_claim(cache: &'a Cache, claim: &Key) -> Option<Self> {
        let claim = cache.get(PERSISTENT_VOLUME_CLAIMS, claim)?;
        let object = cache.get(PERSISTENT_VOLUMES, &Key::cluster(claim.text_at(&["spec", "volumeName"])))?;
        if object.text_at(&["spec", "claimRef", "uid"]) != Meta::of(claim).uid() {
            return None;
        }
        let driver = object.str_at(&["spec", "csi", "driver"])?;
        let known = cache.get(CSI_DRIVERS, &Key::cluster(driver));
        let attached = known.and_then(|known| known.at(&["spec", "attachRequired"])).and_then(Value::as_bool);
        attached.unwrap_or(true).then(|| Self {
            object,
            driver,
            handle: object.text_at(&["spec", "csi", "volumeHandle"]),
        })
    }

    pub(super) fn name(&self) -> &'a str {
        Meta::of(self.object).name()
    }

    /// Whether the volume can be attached to one node only.
    pub(super) fn is_exclusive(&self) -> bool {
        let shared = |mode: &Value| mode.as_str().is_some_and(|mode| !mode.starts_with("ReadWriteOnce"));
        !self.object.list_at(&["spec", "accessModes"]).iter().any(shared)
    }

    /// Returns the volume's name in `volumesAttached` and `volumesInUse` of a node's status.
    pub(super) fn unique_name(&self) -> String {
        format!("{UNIQUE_PREFIX}{}^{}", self.driver, self.handle)
    }

    /// Returns the name of the VolumeAttachment to a node. The name is deterministic.
    pub(super) fn attachment(&self, node: &str) -> String {
        hashed(self.handle, self.driver, node)
    }

    pub(super) fn attach(&self, name: &str, node: &str) -> Action {
        let resource = kinds::VOLUME_ATTACHMENTS.clone();
        let object = value!({"apiVersion": (resource.api_version()), "kind": "VolumeAttachment", "metadata": {"name": name},
            "spec": {"attacher": (self.driver), "nodeName": node, "source": {"persistentVolumeName": (self.name())}}});
        Action::Create { resource, object, result_event: None }
    }
}

/// Returns the name of the VolumeAttachment to `node` for a unique volume name.
pub(super) fn attachment_name(unique: &str, node: &str) -> Option<String> {
    let (driver, handle) = unique.strip_prefix(UNIQUE_PREFIX)?.split_once('^')?;
    Some(hashed(handle, driver, node))
}

/// Whether the name has this controller's form. VolumeAttachments with other names belong to other components.
pub(super) fn is_our_name(name: &str) -> bool {
    let is_hash = |text: &str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.strip_prefix(PREFIX).is_some_and(is_hash)
}

fn hashed(handle: &str, driver: &str, node: &str) -> String {
    let hash = digest::digest(&digest::SHA256, format!("{handle}{driver}{node}").as_bytes());
    let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{PREFIX}{hex}")
}

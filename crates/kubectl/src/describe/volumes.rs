//! Volumes of pods and the sources of PersistentVolumes, as a table of their fields.

use apimachinery::quantity::Quantity;
use apimachinery::{Object, Value};

use super::common::shorten;
use super::read::{Read, go_list, go_map, quantity};
use super::storage;
use super::writer::{Writer, line};

/// A volume source: the field that selects it, its description, and its lines.
struct Source {
    field: &'static str,
    about: &'static str,
    lines: &'static [Line],
    /// Writes the parts that are not lines of fields.
    rest: Option<fn(&mut Writer<'_>, &Value)>,
}

/// A line: its title, the path of the field and its format.
type Line = (&'static str, &'static str, Formatter);

#[derive(Clone, Copy)]
enum Formatter {
    Text,
    Int,
    Bool,
    /// The text, or another if it is absent.
    TextOr(&'static str),
    IntOr(&'static str),
    /// `[a b]`
    List,
    /// `a, b`
    Joined,
    /// `map[a:b]`
    Map,
    /// A reference to an object: `&Name{A:a,B:b,}`, or `nil`.
    Reference(&'static str, &'static [(&'static str, &'static str)]),
    /// The size limit of an `emptyDir`.
    SizeLimit,
}

use Formatter::{Bool, Int, IntOr, Joined, List, Map, Reference, SizeLimit, Text, TextOr};

/// A reference to a secret in the namespace of the pod.
const LOCAL_SECRET: Formatter = Reference("LocalObjectReference", &[("Name", "name")]);
/// A reference to a secret in any namespace.
const SECRET: Formatter = Reference("SecretReference", &[("Name", "name"), ("Namespace", "namespace")]);

const READ_ONLY: Line = ("ReadOnly:", "readOnly", Bool);
const FS_TYPE: Line = ("FSType:", "fsType", Text);

const fn source(field: &'static str, about: &'static str, lines: &'static [Line]) -> Source {
    Source { field, about, lines, rest: None }
}

const HOST_PATH: Source = source(
    "hostPath",
    "HostPath (bare host directory volume)",
    &[("Path:", "path", Text), ("HostPathType:", "type", TextOr("<none>"))],
);
const GCE_DISK: Source = source(
    "gcePersistentDisk",
    "GCEPersistentDisk (a Persistent Disk resource in Google Compute Engine)",
    &[("PDName:", "pdName", Text), FS_TYPE, ("Partition:", "partition", Int), READ_ONLY],
);
const AWS_DISK: Source = source(
    "awsElasticBlockStore",
    "AWSElasticBlockStore (a Persistent Disk resource in AWS)",
    &[("VolumeID:", "volumeID", Text), FS_TYPE, ("Partition:", "partition", Int), READ_ONLY],
);
const NFS: Source = source(
    "nfs",
    "NFS (an NFS mount that lasts the lifetime of a pod)",
    &[("Server:", "server", Text), ("Path:", "path", Text), READ_ONLY],
);
const QUOBYTE: Source = source(
    "quobyte",
    "Quobyte (a Quobyte mount on the host that shares a pod's lifetime)",
    &[("Registry:", "registry", Text), ("Volume:", "volume", Text), READ_ONLY],
);
const VSPHERE: Source = source(
    "vsphereVolume",
    "vSphereVolume (a Persistent Disk resource in vSphere)",
    &[("VolumePath:", "volumePath", Text), FS_TYPE, ("StoragePolicyName:", "storagePolicyName", Text)],
);
const AZURE_DISK: Source = source(
    "azureDisk",
    "AzureDisk (an Azure Data Disk mount on the host and bind mount to the pod)",
    &[
        ("DiskName:", "diskName", Text),
        ("DiskURI:", "diskURI", Text),
        ("Kind: ", "kind", Text),
        FS_TYPE,
        ("CachingMode:", "cachingMode", Text),
        READ_ONLY,
    ],
);
const PHOTON: Source = source(
    "photonPersistentDisk",
    "PhotonPersistentDisk (a Persistent Disk resource in photon platform)",
    &[("PdID:", "pdID", Text), FS_TYPE],
);
const PORTWORX: Source =
    source("portworxVolume", "PortworxVolume (a Portworx Volume resource)", &[("VolumeID:", "volumeID", Text)]);
const FC: Source = source(
    "fc",
    "FC (a Fibre Channel disk)",
    &[("TargetWWNs:", "targetWWNs", Joined), ("LUN:", "lun", IntOr("<none>")), FS_TYPE, READ_ONLY],
);
const FLOCKER: Source = source(
    "flocker",
    "Flocker (a Flocker volume mounted by the Flocker agent)",
    &[("DatasetName:", "datasetName", Text), ("DatasetUUID:", "datasetUUID", Text)],
);
const LOCAL: Source =
    source("local", "LocalVolume (a persistent volume backed by local storage on a node)", &[("Path:", "path", Text)]);
const STORAGE_OS: Source = source(
    "storageos",
    "StorageOS (a StorageOS Persistent Disk resource)",
    &[("VolumeName:", "volumeName", Text), ("VolumeNamespace:", "volumeNamespace", Text), FS_TYPE, READ_ONLY],
);

const ISCSI_ABOUT: &str =
    "ISCSI (an ISCSI Disk resource that is attached to a kubelet's host machine and then exposed to the pod)";
const RBD_ABOUT: &str = "RBD (a Rados Block Device mount on the host that shares a pod's lifetime)";
const CEPH_ABOUT: &str = "CephFS (a CephFS mount on the host that shares a pod's lifetime)";
const GLUSTER_ABOUT: &str = "Glusterfs (a Glusterfs mount on the host that shares a pod's lifetime)";
const FLEX_ABOUT: &str =
    "FlexVolume (a generic volume resource that is provisioned/attached using an exec based plugin)";
const CINDER_ABOUT: &str = "Cinder (a Persistent Disk resource in OpenStack)";
const SCALE_IO_ABOUT: &str = "ScaleIO (a persistent volume backed by a block device in ScaleIO)";
const AZURE_FILE_ABOUT: &str = "AzureFile (an Azure File Service mount on the host and bind mount to the pod)";
const CSI_ABOUT: &str = "CSI (a Container Storage Interface (CSI) volume source)";

macro_rules! iscsi {
    ($secret:expr) => {
        source(
            "iscsi",
            ISCSI_ABOUT,
            &[
                ("TargetPortal:", "targetPortal", Text),
                ("IQN:", "iqn", Text),
                ("Lun:", "lun", Int),
                ("ISCSIInterface", "iscsiInterface", Text),
                FS_TYPE,
                READ_ONLY,
                ("Portals:", "portals", List),
                ("DiscoveryCHAPAuth:", "chapAuthDiscovery", Bool),
                ("SessionCHAPAuth:", "chapAuthSession", Bool),
                ("SecretRef:", "secretRef", $secret),
                ("InitiatorName:", "initiatorName", TextOr("<none>")),
            ],
        )
    };
}

macro_rules! rbd {
    ($secret:expr) => {
        source(
            "rbd",
            RBD_ABOUT,
            &[
                ("CephMonitors:", "monitors", List),
                ("RBDImage:", "image", Text),
                FS_TYPE,
                ("RBDPool:", "pool", Text),
                ("RadosUser:", "user", Text),
                ("Keyring:", "keyring", Text),
                ("SecretRef:", "secretRef", $secret),
                READ_ONLY,
            ],
        )
    };
}

macro_rules! ceph {
    ($secret:expr) => {
        source(
            "cephfs",
            CEPH_ABOUT,
            &[
                ("Monitors:", "monitors", List),
                ("Path:", "path", Text),
                ("User:", "user", Text),
                ("SecretFile:", "secretFile", Text),
                ("SecretRef:", "secretRef", $secret),
                READ_ONLY,
            ],
        )
    };
}

macro_rules! flex {
    ($secret:expr) => {
        source(
            "flexVolume",
            FLEX_ABOUT,
            &[
                ("Driver:", "driver", Text),
                FS_TYPE,
                ("SecretRef:", "secretRef", $secret),
                READ_ONLY,
                ("Options:", "options", Map),
            ],
        )
    };
}

macro_rules! cinder {
    ($secret:expr) => {
        source(
            "cinder",
            CINDER_ABOUT,
            &[("VolumeID:", "volumeID", Text), FS_TYPE, READ_ONLY, ("SecretRef:", "secretRef", $secret)],
        )
    };
}

macro_rules! scale_io {
    ($($secret:expr),*) => {
        source(
            "scaleIO",
            SCALE_IO_ABOUT,
            &[
                ("Gateway:", "gateway", Text),
                ("System:", "system", Text),
                ("Protection Domain:", "protectionDomain", Text),
                ("Storage Pool:", "storagePool", Text),
                ("Storage Mode:", "storageMode", Text),
                ("VolumeName:", "volumeName", Text),
                $($secret,)*
                FS_TYPE,
                READ_ONLY,
            ],
        )
    };
}

/// The sources of a pod's volume, in the order in which they are checked.
const POD_SOURCES: [Source; 31] = [
    HOST_PATH,
    source(
        "emptyDir",
        "EmptyDir (a temporary directory that shares a pod's lifetime)",
        &[("Medium:", "medium", Text), ("SizeLimit:", "sizeLimit", SizeLimit)],
    ),
    GCE_DISK,
    AWS_DISK,
    source(
        "gitRepo",
        "GitRepo (a volume that is pulled from git when the pod is created)",
        &[("Repository:", "repository", Text), ("Revision:", "revision", Text)],
    ),
    source(
        "secret",
        "Secret (a volume populated by a Secret)",
        &[("SecretName:", "secretName", Text), ("Optional:", "optional", Bool)],
    ),
    source(
        "configMap",
        "ConfigMap (a volume populated by a ConfigMap)",
        &[("Name:", "name", Text), ("Optional:", "optional", Bool)],
    ),
    NFS,
    iscsi!(LOCAL_SECRET),
    source("glusterfs", GLUSTER_ABOUT, &[("EndpointsName:", "endpoints", Text), ("Path:", "path", Text), READ_ONLY]),
    source(
        "persistentVolumeClaim",
        "PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)",
        &[("ClaimName:", "claimName", Text), READ_ONLY],
    ),
    Source {
        field: "ephemeral",
        about: "EphemeralVolume (an inline specification for a volume that gets created and deleted with the pod)",
        lines: &[],
        rest: Some(write_claim_template),
    },
    rbd!(LOCAL_SECRET),
    QUOBYTE,
    Source {
        field: "downwardAPI",
        about: "DownwardAPI (a volume populated by information about the pod)",
        lines: &[],
        rest: Some(write_downward_api),
    },
    AZURE_DISK,
    VSPHERE,
    cinder!(LOCAL_SECRET),
    PHOTON,
    PORTWORX,
    scale_io!(),
    ceph!(LOCAL_SECRET),
    STORAGE_OS,
    FC,
    source(
        "azureFile",
        AZURE_FILE_ABOUT,
        &[("SecretName:", "secretName", Text), ("ShareName:", "shareName", Text), READ_ONLY],
    ),
    flex!(LOCAL_SECRET),
    FLOCKER,
    Source {
        field: "projected",
        about: "Projected (a volume that contains injected data from multiple sources)",
        lines: &[],
        rest: Some(write_projected),
    },
    Source {
        field: "csi",
        about: CSI_ABOUT,
        lines: &[("Driver:", "driver", Text), FS_TYPE, READ_ONLY],
        rest: Some(write_attributes),
    },
    source(
        "image",
        "Image (a container image or OCI artifact)",
        &[("Reference:", "reference", Text), ("PullPolicy:", "pullPolicy", Text)],
    ),
    LOCAL,
];

/// The sources of a PersistentVolume.
const PERSISTENT_SOURCES: [Source; 22] = [
    HOST_PATH,
    GCE_DISK,
    AWS_DISK,
    NFS,
    iscsi!(SECRET),
    source(
        "glusterfs",
        GLUSTER_ABOUT,
        &[
            ("EndpointsName:", "endpoints", Text),
            ("EndpointsNamespace:", "endpointsNamespace", TextOr("<unset>")),
            ("Path:", "path", Text),
            READ_ONLY,
        ],
    ),
    rbd!(SECRET),
    QUOBYTE,
    VSPHERE,
    cinder!(SECRET),
    AZURE_DISK,
    PHOTON,
    PORTWORX,
    scale_io!(("SecretName:", "secretRef.name", Text), ("SecretNamespace:", "secretRef.namespace", Text)),
    LOCAL,
    ceph!(SECRET),
    STORAGE_OS,
    FC,
    source(
        "azureFile",
        AZURE_FILE_ABOUT,
        &[
            ("SecretName:", "secretName", Text),
            ("SecretNamespace:", "secretNamespace", Text),
            ("ShareName:", "shareName", Text),
            READ_ONLY,
        ],
    ),
    flex!(SECRET),
    FLOCKER,
    Source {
        field: "csi",
        about: CSI_ABOUT,
        lines: &[("Driver:", "driver", Text), FS_TYPE, ("VolumeHandle:", "volumeHandle", Text), READ_ONLY],
        rest: Some(write_attributes),
    },
];

/// Writes the volumes of a pod or, indented, of a pod template.
pub(super) fn write(w: &mut Writer<'_>, volumes: &[Value], indent: &str) {
    line!(w, 0, "{indent}Volumes:{}", if volumes.is_empty() { "\t<none>" } else { "" });
    let indent = if indent.is_empty() { "" } else { " " };
    for volume in volumes {
        line!(w, 1, "{indent}{}:", volume.text("name"));
        write_source(w, &POD_SOURCES, volume);
    }
}

/// Writes the source of a PersistentVolume.
pub(super) fn write_persistent(w: &mut Writer<'_>, spec: &Value) {
    write_source(w, &PERSISTENT_SOURCES, spec);
}

fn write_source(w: &mut Writer<'_>, sources: &[Source], volume: &Value) {
    let Some(source) = sources.iter().find(|source| volume.has(source.field)) else {
        line!(w, 1, "<unknown>");
        return;
    };
    let volume = volume.sub(source.field);
    line!(w, 2, "Type:\t{}", source.about);
    for (title, path, show) in source.lines {
        line!(w, 2, "{title}\t{}", show.format(volume.sub(path)));
    }
    if let Some(rest) = source.rest {
        rest(w, volume);
    }
}

impl Formatter {
    fn format(self, value: &Value) -> String {
        let text = || value.as_str().unwrap_or_default().to_owned();
        let list = value.as_array().unwrap_or_default();
        match self {
            Text => text(),
            TextOr(other) => value.as_str().unwrap_or(other).to_owned(),
            Int => value.as_int().unwrap_or_default().to_string(),
            IntOr(other) => value.as_int().map_or_else(|| other.to_owned(), |int| int.to_string()),
            Bool => value.as_bool().unwrap_or_default().to_string(),
            List => go_list(list),
            Joined => list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
            Map => go_map(value.as_object().unwrap_or(&Object::new())),
            Reference(..) if value.is_null() => "nil".to_owned(),
            Reference(kind, fields) => {
                let fields: String =
                    fields.iter().map(|(name, field)| format!("{name}:{},", value.text(field))).collect();
                format!("&{kind}{{{fields}}}")
            }
            SizeLimit if quantity(value) > Quantity::ZERO => text(),
            SizeLimit => "<unset>".to_owned(),
        }
    }
}

fn write_claim_template(w: &mut Writer<'_>, ephemeral: &Value) {
    if ephemeral.has("volumeClaimTemplate") {
        w.nested(2, |w| storage::write_claim_template(w, ephemeral.sub("volumeClaimTemplate")));
    }
}

fn write_downward_api(w: &mut Writer<'_>, source: &Value) {
    line!(w, 2, "Items:");
    for item in source.list("items") {
        for field in ["fieldRef.fieldPath", "resourceFieldRef.resource"] {
            if item.has(field) {
                line!(w, 3, "{} -> {}", item.text(field), item.text("path"));
            }
        }
    }
}

fn write_projected(w: &mut Writer<'_>, projected: &Value) {
    for source in projected.list("sources") {
        if source.has("secret") {
            line!(w, 2, "SecretName:\t{}", source.text("secret.name"));
            line!(w, 2, "Optional:\t{}", source.flag("secret.optional"));
        } else if source.has("downwardAPI") {
            line!(w, 2, "DownwardAPI:\ttrue");
        } else if source.has("configMap") {
            line!(w, 2, "ConfigMapName:\t{}", source.text("configMap.name"));
            line!(w, 2, "Optional:\t{}", source.flag("configMap.optional"));
        } else if source.has("serviceAccountToken") {
            line!(w, 2, "TokenExpirationSeconds:\t{}", source.int("serviceAccountToken.expirationSeconds"));
        }
    }
}

fn write_attributes(w: &mut Writer<'_>, csi: &Value) {
    const LENGTH: usize = 140;
    w.write(2, "VolumeAttributes:\t");
    let attributes = csi.map("volumeAttributes");
    if attributes.is_empty() {
        w.write(0, "<none>\n");
    }
    for (index, (key, value)) in attributes.iter().enumerate() {
        if index > 0 {
            w.write(2, "");
            w.write(2, "\t");
        }
        let text = format!("{key}={}", value.as_str().unwrap_or_default());
        line!(w, 2, "{}", shorten(&text, LENGTH));
    }
}

//! Persistent records of sandboxes and containers: one small file each, replaced atomically.
//!
//! Only the first record of a sandbox or container is synced to disk. Later changes are not: a power failure also
//! terminates the containers, and writes of a killed process stay in the page cache.

use std::fs;
use std::io;
use std::path::Path;

use node_api::cri::v1;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::user::User;

const FILE: &str = "record.json";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Sandbox {
    pub id: String,
    /// The CRI configuration of the request.
    #[serde(with = "protobuf")]
    pub config: v1::PodSandboxConfig,
    /// The requested runtime handler.
    pub handler: String,
    /// Creation time in Unix nanoseconds.
    pub created_at: i64,
    pub cgroup: String,
    /// Whether containers can be created in the sandbox.
    pub ready: bool,
    /// PID of the process that holds the namespaces.
    pub pause: i32,
    /// The primary address comes first.
    pub ips: Vec<String>,
    /// Whether the network has released the sandbox.
    pub detached: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Container {
    pub id: String,
    /// ID of the sandbox.
    pub sandbox: String,
    /// The CRI configuration, with resources as last updated.
    #[serde(with = "protobuf")]
    pub config: v1::ContainerConfig,
    pub image_id: String,
    /// The image by digest, if it has such a name.
    pub image_ref: String,
    /// Layers of the root filesystem.
    pub layers: Vec<String>,
    /// Layers of images that are mounted as volumes.
    pub mounted_layers: Vec<String>,
    pub cgroup: String,
    pub log: String,
    pub user: User,
    pub stop_signal: i32,
    /// Creation time in Unix nanoseconds.
    pub created_at: i64,
    pub phase: Phase,
}

/// The phase of a container, which only ever advances in this order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Phase {
    Created,
    Running {
        started_at: i64,
        /// PID of the container's init process.
        pid: i32,
    },
    Exited {
        started_at: i64,
        finished_at: i64,
        code: i32,
        /// CRI's reason, such as `OOMKilled`.
        reason: String,
        message: String,
    },
}

/// Writes the first record into its directory and starts to sync both. The caller must wait for the sync before it
/// starts a process or reserves resources outside of the directory. Otherwise they could not be found after a power
/// failure.
pub(crate) fn create(dir: &Path, record: &impl Serialize) -> io::Result<Syncing> {
    let file = dir.join(FILE);
    sys::replace_file_lazily(&file, &serde_json::to_vec(record)?, 0o600)?;
    let dir = dir.to_owned();
    Ok(Syncing(tokio::task::spawn_blocking(move || {
        fs::File::open(file)?.sync_all()?;
        sys::sync_dir(&dir)?;
        dir.parent().map_or(Ok(()), sys::sync_dir)
    })))
}

/// The sync of a first record, in progress. It takes milliseconds, so other work continues meanwhile.
#[must_use]
pub(crate) struct Syncing(tokio::task::JoinHandle<io::Result<()>>);

impl Syncing {
    /// Waits until the record survives a power failure.
    pub(crate) async fn finish(self) -> io::Result<()> {
        self.0.await.map_err(io::Error::other)?
    }
}

/// Replaces a record without syncing. Changes need not survive a power failure, since it terminates all containers.
pub(crate) fn update(dir: &Path, record: &impl Serialize) -> io::Result<()> {
    sys::replace_file_lazily(&dir.join(FILE), &serde_json::to_vec(record)?, 0o600)
}

pub(crate) fn read<T: DeserializeOwned>(dir: &Path) -> io::Result<T> {
    Ok(serde_json::from_slice(&fs::read(dir.join(FILE))?)?)
}

/// Serializes CRI messages within JSON.
mod protobuf {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use prost::Message;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<M: Message, S: Serializer>(message: &M, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(message.encode_to_vec()))
    }

    pub(super) fn deserialize<'de, M: Message + Default, D: Deserializer<'de>>(from: D) -> Result<M, D::Error> {
        let bytes = STANDARD.decode(String::deserialize(from)?).map_err(D::Error::custom)?;
        M::decode(bytes.as_slice()).map_err(D::Error::custom)
    }
}

//! What must be known of sandboxes and containers after a restart: a small file each, replaced as a whole.
//!
//! No file is synced: a machine that loses power has lost its containers too, and what a killed process wrote stays.

use std::fs;
use std::io;
use std::path::Path;

use cri::v1;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::user::User;

const FILE: &str = "record.json";

/// A sandbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sandbox {
    /// Its id.
    pub id: String,
    /// As CRI described it.
    #[serde(with = "protobuf")]
    pub config: v1::PodSandboxConfig,
    /// The runtime handler it was asked to run by.
    pub handler: String,
    /// When it was made, in nanoseconds since 1970.
    pub created_at: i64,
    /// Its cgroup.
    pub cgroup: String,
    /// Whether it can take containers.
    pub ready: bool,
    /// The process that holds its namespaces.
    pub pause: i32,
    /// Its addresses, the main one first.
    pub ips: Vec<String>,
    /// The network has been told to let it go.
    pub detached: bool,
}

/// A container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Container {
    /// Its id.
    pub id: String,
    /// Its sandbox's id.
    pub sandbox: String,
    /// As CRI described it; resources as last changed.
    #[serde(with = "protobuf")]
    pub config: v1::ContainerConfig,
    /// The image's id.
    pub image_id: String,
    /// The image by digest, if it has such a name.
    pub image_ref: String,
    /// The layers it stands on.
    pub layers: Vec<String>,
    /// Images that are mounted in it, by their layers.
    pub mounted_layers: Vec<String>,
    /// Its cgroup.
    pub cgroup: String,
    /// Its log.
    pub log: String,
    /// Who it runs as.
    pub user: User,
    /// The signal that asks it to end.
    pub stop_signal: i32,
    /// When it was made.
    pub created_at: i64,
    /// How far it has come.
    pub phase: Phase,
}

/// How far a container has come. It only ever moves down this list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// It has not run.
    Created,
    /// It runs.
    Running {
        /// Since when.
        started_at: i64,
        /// Its first process.
        pid: i32,
    },
    /// It has ended.
    Exited {
        /// When it started.
        started_at: i64,
        /// When it ended.
        finished_at: i64,
        /// How.
        code: i32,
        /// Why, in one word.
        reason: String,
        /// Why, in a sentence.
        message: String,
    },
}

/// Writes the first record into its directory. It is on the disk before anything that it names exists, so that whatever a
/// crash leaves behind is found.
pub fn create(dir: &Path, record: &impl Serialize) -> io::Result<()> {
    sys::replace_file(&dir.join(FILE), &serde_json::to_vec(record)?, 0o600)
}

/// Replaces a record. What changed is of no use after a power failure, which ends everything that it is about.
pub fn update(dir: &Path, record: &impl Serialize) -> io::Result<()> {
    sys::replace_file_lazily(&dir.join(FILE), &serde_json::to_vec(record)?, 0o600)
}

/// Reads a record from its directory.
pub fn read<T: DeserializeOwned>(dir: &Path) -> io::Result<T> {
    Ok(serde_json::from_slice(&fs::read(dir.join(FILE))?)?)
}

/// CRI's messages within JSON.
mod protobuf {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use prost::Message;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<M: Message, S: Serializer>(message: &M, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(message.encode_to_vec()))
    }

    pub fn deserialize<'de, M: Message + Default, D: Deserializer<'de>>(from: D) -> Result<M, D::Error> {
        let bytes = STANDARD.decode(String::deserialize(from)?).map_err(D::Error::custom)?;
        M::decode(bytes.as_slice()).map_err(D::Error::custom)
    }
}

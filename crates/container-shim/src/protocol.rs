//! Protocol between container runtime and shim: one JSON text per line, with descriptors attached to the first byte.
//!
//! A connection carries one request. Most requests get one reply. The connection of an exec then waits for the exit,
//! and that of a follower carries events until one side closes it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Socket in the shim's directory.
pub const SOCKET: &str = "shim.sock";
/// Mount of the sandbox's network namespace in the shim's directory.
pub const NETNS: &str = "netns";
/// Exit file in a container's directory.
pub const EXIT: &str = "exit.json";
/// Output of a shim once it listens.
pub const READY: &[u8; 6] = b"ready\n";
/// Maximum size of a request; the kernel limits arguments and environment of a process to less.
pub const REQUEST_BYTES_MAX: usize = 8 << 20;

/// A request of the container runtime.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Starts the process that holds the sandbox's namespaces.
    Sandbox(Sandbox),
    /// Creates and starts a container.
    Start(Start),
    /// Runs a process in a container; carries its standard streams unless it has a terminal.
    Exec(Exec),
    /// Copies a container's output to the attached descriptors: stdout and, without a terminal, stderr. The reply
    /// carries its stdin, if it has one.
    Attach {
        id: String,
    },
    CloseStdin {
        id: String,
    },
    /// Opens the log by its path again.
    ReopenLog {
        id: String,
    },
    /// Sends a signal to a container's init process, or to all of its processes.
    Signal {
        id: String,
        signal: i32,
        all: bool,
    },
    /// Returns the state and then events.
    Follow,
    /// Removes an exited container from the shim.
    #[serde(rename = "Forget")]
    Remove {
        id: String,
    },
    /// Kills all processes and exits.
    Shutdown,
}

/// Parameters of the process that holds a sandbox's namespaces.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sandbox {
    pub cgroup: String,
    /// Host name in the UTS namespace.
    pub hostname: String,
    /// Whether to create a network namespace.
    pub network: bool,
    /// Whether to create an IPC namespace.
    pub ipc: bool,
    /// Whether to create a UTS namespace.
    pub uts: bool,
    /// Whether to create a PID namespace, which containers may join.
    pub pid: bool,
    /// Mappings of the user namespace, if one is created.
    pub users: Option<IdMaps>,
    /// Sysctls by their dotted names.
    pub sysctls: BTreeMap<String, String>,
}

/// ID mappings of a user namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMaps {
    pub uids: Vec<IdMap>,
    pub gids: Vec<IdMap>,
}

/// A mapped range of IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMap {
    /// First ID inside the namespace.
    pub inside: u32,
    /// First ID outside the namespace.
    pub outside: u32,
    pub length: u32,
}

/// A container to start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    pub id: String,
    /// The container's directory, which contains the OCI bundle as `bundle` and receives the exit file.
    pub dir: PathBuf,
    /// The same as in the bundle.
    pub cgroup: String,
    pub log: Option<PathBuf>,
    /// Whether the container has a terminal instead of pipes.
    pub terminal: bool,
    /// Whether stdin stays open.
    pub stdin: bool,
    /// Whether the PID namespace is shared, so that processes may outlive the init process.
    pub shared_pids: bool,
    /// Path of another OCI runtime.
    pub runtime: Option<PathBuf>,
}

/// A process to run in a container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Exec {
    /// ID of the container.
    pub id: String,
    /// The OCI process.
    pub process: serde_json::Value,
    /// Whether the process has a terminal, which the reply carries.
    pub terminal: bool,
}

/// A reply of the shim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    Done,
    Started {
        /// PID on the host.
        pid: i32,
        at_nanos: i64,
        /// Settings that could not be applied.
        warnings: Vec<String>,
    },
    /// The process of this connection's exec has exited.
    #[serde(rename = "Ended")]
    ExecExited {
        code: i32,
    },
    /// The current state, sent to a follower.
    State(State),
    /// A container has exited, sent to a follower.
    Exited {
        id: String,
        exit: Exit,
    },
    /// The process that holds the namespaces has exited, sent to a follower.
    SandboxExited,
    Failed {
        message: String,
    },
}

/// The state of a shim.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct State {
    /// PID of the process that holds the namespaces, if it runs.
    pub pause: Option<i32>,
    /// PIDs of running containers by ID.
    pub running: BTreeMap<String, i32>,
}

/// The exit of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code; 128 plus the signal number after a signal.
    pub code: i32,
    pub at_nanos: i64,
    /// Whether the OOM killer killed the container.
    pub oom: bool,
}

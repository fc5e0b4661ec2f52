//! What daemon and shim say to each other: one JSON text a line, descriptors beside the first byte.
//!
//! A connection carries one request. Most get one reply; an exec's connection then waits for its end, and a follower's
//! carries events until one side goes away.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The shim's socket in its directory.
pub const SOCKET: &str = "shim.sock";
/// The sandbox's network namespace in the shim's directory.
pub const NETNS: &str = "netns";
/// A container's end, in its directory.
pub const EXIT: &str = "exit.json";
/// What a shim prints once it listens.
pub const READY: &[u8; 6] = b"ready\n";
/// A request is smaller: arguments and environment of a process are limited by the kernel to less.
pub const REQUEST_BYTES_MAX: usize = 8 << 20;

/// What the daemon wants.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Start the process that holds the sandbox's namespaces.
    Sandbox(Sandbox),
    /// Create and start a container.
    Start(Start),
    /// Run a process in a container; comes with its standard streams, unless it has a terminal.
    Exec(Exec),
    /// Copy a container's output to the two descriptors that come along; the reply brings its input, if it has one.
    Attach {
        /// Which container.
        id: String,
    },
    /// Close a container's input.
    CloseStdin {
        /// Which container.
        id: String,
    },
    /// Open the log by its path again.
    ReopenLog {
        /// Which container.
        id: String,
    },
    /// Send a signal to a container's first process, or to all of them.
    Signal {
        /// Which container.
        id: String,
        /// Which signal.
        signal: i32,
        /// Whether to all.
        all: bool,
    },
    /// Say what there is, and go on saying what happens.
    Follow,
    /// Forget a container that has ended.
    Forget {
        /// Which container.
        id: String,
    },
    /// Kill everything and go away.
    Shutdown,
}

/// The process that holds a sandbox's namespaces.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sandbox {
    /// Its cgroup.
    pub cgroup: String,
    /// The host name, in a UTS namespace of its own.
    pub hostname: String,
    /// A network namespace of its own.
    pub network: bool,
    /// An IPC namespace of its own.
    pub ipc: bool,
    /// A UTS namespace of its own.
    pub uts: bool,
    /// A PID namespace of its own, which containers may join.
    pub pid: bool,
    /// A user namespace with these mappings.
    pub users: Option<IdMaps>,
    /// Kernel parameters by their dotted names.
    pub sysctls: BTreeMap<String, String>,
}

/// A user namespace's mappings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMaps {
    /// Users.
    pub uids: Vec<IdMap>,
    /// Groups.
    pub gids: Vec<IdMap>,
}

/// A range of ids inside and outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMap {
    /// The first one inside.
    pub inside: u32,
    /// The first one outside.
    pub outside: u32,
    /// How many.
    pub length: u32,
}

/// A container to start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    /// Its id.
    pub id: String,
    /// Its directory, which holds the OCI bundle as `bundle` and gets the end as a file.
    pub dir: PathBuf,
    /// Its cgroup, as in the bundle.
    pub cgroup: String,
    /// Its log, if it has one.
    pub log: Option<PathBuf>,
    /// A terminal instead of pipes.
    pub terminal: bool,
    /// An open input.
    pub stdin: bool,
    /// Processes of it may outlive the first one, because it shares a PID namespace.
    pub shared_pids: bool,
    /// Another OCI runtime by path.
    pub runtime: Option<PathBuf>,
}

/// A process to run in a container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Exec {
    /// The container's id.
    pub id: String,
    /// The process, as the OCI runtime specification has it.
    pub process: serde_json::Value,
    /// A terminal: the reply brings it.
    pub terminal: bool,
}

/// What the shim answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// It is done.
    Done,
    /// It runs.
    Started {
        /// Its process, as the host sees it.
        pid: i32,
        /// When.
        at_nanos: i64,
        /// What could not be given to it.
        warnings: Vec<String>,
    },
    /// The process of this connection's exec has ended.
    Ended {
        /// How.
        code: i32,
    },
    /// What there is, to a follower.
    State(State),
    /// A container has ended, to a follower.
    Exited {
        /// Which one.
        id: String,
        /// How.
        exit: Exit,
    },
    /// The process that holds the namespaces has ended, to a follower.
    SandboxExited,
    /// It cannot be done.
    Failed {
        /// Why.
        message: String,
    },
}

/// What a shim keeps.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct State {
    /// The process that holds the namespaces, if it runs.
    pub pause: Option<i32>,
    /// Containers that run, and their processes.
    pub running: BTreeMap<String, i32>,
}

/// A container's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The exit code; 128 and the signal's number after a signal.
    pub code: i32,
    /// When.
    pub at_nanos: i64,
    /// The kernel killed it for want of memory.
    pub oom: bool,
}

//! System calls that no crate wraps safely, behind functions that cannot be misused.
//!
//! This is the only crate with `unsafe`; each block states why it is sound. Safe functions of `rustix` or `nix` are
//! used where they exist. File operations that must withstand a hostile container or a power failure are also here, so
//! that each exists only once.
//!
//! # Invariants
//!
//! - Only the owner can connect to a private socket, from the moment it exists. *Enforced by*
//!   `only_the_owner_may_connect_and_a_stale_socket_is_replaced`.
//! - After a power failure, a replaced file has either its old or its new content. *Enforced by*
//!   `power_failure_after_any_step_leaves_the_old_content_or_the_new`.

#![expect(unsafe_code, reason = "this crate contains the unsafe code")]

mod allocator;
mod apart;
mod atomic_file;
mod bpf;
mod clock;
mod code;
mod container_file;
mod counting;
mod fork;
mod loaded;
mod loopback;
mod mount;
mod mount_table;
mod oom;
mod open_files;
mod own_socket;
mod packet;
mod read_lease;
mod remove_tree;
mod seccomp;
mod spill;

pub use allocator::{Allocator, reserve_arena};
pub use apart::apart;
pub use atomic_file::{create_dirs, replace_file, replace_file_lazily, sync_dir};
pub use bpf::{BpfInstruction, attach_device_filter, load_device_filter};
pub use clock::{ClockState, clock_state};
pub use code::release_code;
pub use container_file::{
    Access, WalkEntry, open_container_file, open_container_file_in, read_bounded, read_container_file,
    tail_container_file, walk_container_tree, write_container_file,
};
pub use counting::Counting;
pub use fork::{ForkError, ForkResult, close_everything_and, fork, send_signal};
pub use loaded::loaded_objects;
pub use loopback::loopback_up;
pub use mount::{clone_tree, map_ids};
pub use mount_table::{MountEntry, is_mount_point, mount_of, mounts_below, unmount_below};
pub use oom::set_oom_score_adj;
pub use open_files::{raise_open_files, restore_open_files};
pub use own_socket::listen_own;
pub use packet::send_frame;
pub use read_lease::{ReadLease, lease_for_reading};
pub use remove_tree::{remove_contents, remove_tree};
pub use seccomp::{SockFilter, load_seccomp};
pub use spill::{SLOT_BYTES_MAX, Slot, Spill};

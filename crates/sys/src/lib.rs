//! System calls that no crate wraps safely, behind functions that cannot be misused.
//!
//! This is the only crate with `unsafe`; each block says why it is sound. What `rustix` or `nix` offer safely is used from there.

#![expect(unsafe_code, reason = "this crate is where it lives")]

mod allocator;
mod apart;
mod bpf;
mod clock;
mod code;
mod counting;
mod fork;
mod loaded;
mod loopback;
mod mount;
mod own_socket;
mod packet;
mod seccomp;
mod spill;

pub use allocator::{Allocator, make_room};
pub use apart::apart;
pub use bpf::{BpfInstruction, attach_device_filter, load_device_filter};
pub use clock::{ClockState, clock_state};
pub use code::release_code;
pub use counting::Counting;
pub use fork::{ForkError, Forked, close_everything_and, fork, send_signal};
pub use loaded::loaded_objects;
pub use loopback::loopback_up;
pub use mount::{clone_tree, map_ids};
pub use own_socket::listen_own;
pub use packet::send_frame;
pub use seccomp::{SockFilter, load_seccomp};
pub use spill::{SLOT_BYTES_MAX, Slot, Spill};

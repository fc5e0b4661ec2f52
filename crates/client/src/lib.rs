//! Kubernetes API client of all components: verbs, watches and shared caches over one transport.
//!
//! A [`Client`] sends requests, retries them if allowed, and parses responses. A [`Transport`] carries requests:
//! [`Https`] over the network, or [`InProcess`] as a function call in the same process. A [`cache`] holds the objects
//! of a kind, maintained by one watch, for any number of readers.
//!
//! # Invariants
//!
//! - All caches of complete objects in a process share one copy of an object version, which equals what a remote client
//!   reads. *Enforced by* `in_process_caches_share_objects_and_remote_caches_have_copies`.

pub mod apply_set;
pub mod backoff;
pub mod cache;
mod client;
pub mod clock;
pub mod config;
pub mod discovery;
mod error;
mod limit;
mod object_ref;
mod options;
pub mod shared_objects;
pub mod transport;
mod watch;

pub use client::{Client, List, Settings};
pub use config::{Config, Impersonate};
pub use error::{Error, ResponseError};
pub use object_ref::{Target, TargetError};
pub use options::{
    DeleteOptions, FieldValidation, ListOptions, Patch, Propagation, VersionMatch, WatchOptions, WriteOptions,
};
pub use transport::{Body, Https, InProcess, Transport, TransportError, UpgradeResponse, UpgradedStream};
pub use watch::{Event, Watch};

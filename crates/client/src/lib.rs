//! How every component speaks to the API server: verbs, watches and shared caches over one transport.
//!
//! A [`Client`] makes requests of verbs and objects, retries what may be retried and reads answers. What carries a request is a
//! [`Transport`]: [`Https`] over the network, or [`InProcess`] as a call of a function in the same process. A [`cache`]
//! keeps the objects of a kind, fed by one watch, for any number of readers.

pub mod backoff;
pub mod cache;
mod client;
pub mod config;
pub mod discovery;
mod error;
pub mod held;
mod limit;
mod options;
mod target;
pub mod transport;
mod watch;

pub use client::{Client, List, Settings};
pub use config::{Config, Impersonate};
pub use error::{AnswerError, Error};
pub use options::{
    DeleteOptions, FieldValidation, ListOptions, Patch, Propagation, VersionMatch, WatchOptions, WriteOptions,
};
pub use target::{Target, TargetError};
pub use transport::{Body, Https, InProcess, Transport, TransportError};
pub use watch::{Event, Watch};

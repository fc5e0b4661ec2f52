//! Common parts of all components. Servers: accept loop with a connection limit, HTTP connections, TLS settings, health
//! checks, TokenReviews and SubjectAccessReviews. Processes: leader election, Events, tracing spans, configuration files,
//! reloaded and watched files, rotated log files and the clock.

mod accept;
pub mod clock;
pub mod config_file;
pub mod connection;
pub mod election;
pub mod events;
mod head;
pub mod health;
mod idle;
pub mod inotify;
mod log_file;
pub mod reload;
pub mod reviews;
pub mod spans;
mod tls;
pub mod trust;

pub use accept::{Slot, accept};
pub use connection::serve_connection;
pub use head::without_head_body;
pub use idle::Idle;
pub use log_file::LogFile;
pub use reload::ReloadedValue;
pub use tls::{MinVersion, TlsError, TlsSettings, read_certificate, read_certificates};

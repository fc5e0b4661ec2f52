//! Common server parts: accept loop with a limit, TLS settings, health checks, reloaded files, rotated log files.

mod accept;
mod ciphers;
mod head;
pub mod health;
mod idle;
mod log_file;
pub mod reload;
mod tls;

pub use accept::{Slot, accept};
pub use head::without_head_body;
pub use idle::Idle;
pub use log_file::LogFile;
pub use reload::Reloaded;
pub use tls::{MinVersion, TlsError, TlsSettings, read_certificate, read_certificates};

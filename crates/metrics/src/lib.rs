//! The resource metrics API (`metrics.k8s.io`): what nodes and pods use, asked of their kubelets.
//!
//! ```text
//!   kubelet ──/metrics/resource──> reading ──> history ──> usage over a window ──> NodeMetrics, PodMetrics
//! ```
//!
//! Kubelets are asked when somebody asks this server and what it knows is too old, and once in a while besides, so that there
//! is always a reading to compare the next one with. Whether somebody may ask, the API server says.

mod history;
pub mod objects;
mod reading;
mod scrape;
mod serve;
mod trust;

pub use history::{History, Used};
pub use reading::{Reading, Spent};
pub use scrape::{Kubelets, Scraper};
pub use serve::{Certificate, ServeError, Server};

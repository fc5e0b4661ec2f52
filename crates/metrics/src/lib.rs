//! Resource metrics API (`metrics.k8s.io`): usage of nodes and pods, scraped from kubelets.
//!
//! ```text
//!   kubelet ──/metrics/resource──> reading ──> history ──> usage over a window ──> NodeMetrics, PodMetrics
//! ```
//!
//! Kubelets are scraped on request if the data is too old. They are also scraped periodically, so that the next reading
//! can be compared with an earlier one. The API server authorizes requests (SubjectAccessReview).

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

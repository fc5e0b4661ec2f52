//! Resource metrics API (`metrics.k8s.io`): usage of nodes and pods, scraped from kubelets.
//!
//! ```text
//!   kubelet ──/metrics/resource──> reading ──> history ──> usage over a window ──> NodeMetrics, PodMetrics
//! ```
//!
//! Kubelets are scraped on request if the data is too old. They are also scraped periodically, so that the next reading
//! can be compared with an earlier one. The API server authorizes requests (SubjectAccessReview).
//!
//! # Invariants
//!
//! - Usage is served only to users that the API server authorizes. Only the front proxy's certificate may act for other
//!   users. *Enforced by* `proxies_impersonate_users_and_clients_authenticate_themselves`,
//!   `up_runs_a_cluster_that_survives_kills_and_purge_leaves_nothing`.

mod history;
pub mod objects;
mod reading;
mod scrape;
mod serve;
mod trust;

pub use history::{History, Usage};
pub use reading::{Reading, Spent};
pub use scrape::{Kubelets, Scraper};
pub use serve::{Certificate, ServeError, Server};

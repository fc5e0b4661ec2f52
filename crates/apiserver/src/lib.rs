//! The API server: HTTP, the life of a request, watch cache and watches, over the store.

pub mod admission_config;
pub mod aggregation;
pub mod answer;
pub mod audit;
pub mod authentication;
pub mod authorization;
pub mod backend;
pub mod bootstrap;
pub mod cache;
pub mod claims;
pub mod compaction;
pub mod conversion;
pub mod custom;
pub mod documents;
pub mod fairness;
pub mod followers;
pub mod health;
pub mod life;
pub mod metrics;
pub mod patient;
pub mod proxy;
pub mod reload;
pub mod remote;
pub mod runtime_config;
pub mod sealed;
pub mod server;
pub mod state;
pub mod storage;
pub mod table;
pub mod tls;
pub mod vault;
pub mod verbs;
pub mod webhooks;

pub use server::{Config, Server};

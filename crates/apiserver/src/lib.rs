//! The API server: HTTP, the life of a request, watch cache and watches, over the store.

pub mod aggregation;
pub mod answer;
pub mod authentication;
pub mod authorization;
pub mod backend;
pub mod bootstrap;
pub mod cache;
pub mod claims;
pub mod custom;
pub mod documents;
pub mod followers;
pub mod life;
pub mod proxy;
pub mod server;
pub mod state;
pub mod storage;
pub mod table;
pub mod tls;
pub mod verbs;

pub use server::{Config, Server};

//! The ingress controller: routes HTTP requests from outside the cluster to the endpoints of Services.
//!
//! ```text
//! Ingress, Gateway, HTTPRoute, Service, EndpointSlice, Secret ──plan──> RoutingTable ──swap──> proxy ──> endpoints
//! ```
//!
//! `plan` is a pure function from objects to a [`routing::RoutingTable`] and to the statuses to write. `proxy` serves the
//! table and decides nothing about objects. A change of an object replaces the table; requests in flight keep the old one.

pub mod acme;
pub mod crds;
mod kinds;
pub mod plan;
pub mod proxy;
pub mod routing;
pub mod run;

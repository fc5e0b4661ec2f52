//! The node's agent: pods from the API server, containers through CRI.

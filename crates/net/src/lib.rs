//! The pod network: links, routes, addresses and CNI.

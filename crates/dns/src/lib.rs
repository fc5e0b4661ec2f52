//! The cluster's DNS: answers from a projection of services and endpoint slices.

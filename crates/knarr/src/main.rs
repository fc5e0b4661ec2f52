//! One small binary that is a whole Kubernetes cluster.

fn main() {}

//! Nodes without containers: pods become Running and Ready as a kubelet would report them.

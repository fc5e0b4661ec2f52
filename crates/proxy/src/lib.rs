//! Services on a node: a whole ruleset from services and endpoint slices, in one transaction.

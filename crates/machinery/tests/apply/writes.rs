//! What writes do to an object and to the owners of its fields.

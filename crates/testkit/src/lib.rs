//! A cluster in a process, for tests.

//! The streaming protocols of exec, attach, port-forward and logs.

pub mod spdy;

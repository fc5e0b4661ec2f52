//! Side effects of a plan that are not API writes: decided as values, performed by an implementation of [`Errands`].

use std::fmt;

use machinery::Value;
use machinery::time::Duration;

/// A side effect that is performed before a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Errand {
    /// Signs a certificate. The result is the PEM certificate in base64.
    Sign(Order),
    /// Creates a directory of the node, if it does not exist.
    MakeFolder(String),
    /// Removes a directory of the node with its contents, if it exists.
    RemoveFolder(String),
}

/// A certificate to be signed. The decision to sign is already made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The signer, whose CA signs: `kubernetes.io/kubelet-serving`.
    pub signer: String,
    /// The certificate request in DER.
    pub request: Vec<u8>,
    /// The usages as in the API: `client auth`.
    pub usages: Vec<String>,
    /// The lifetime; shorter if the CA expires before.
    pub life: Duration,
}

/// Performs side effects. Each must be repeatable after an interruption.
pub trait Errands: Send + Sync {
    /// Performs one side effect and returns its result or an error message.
    fn run(&self, errand: &Errand) -> Result<Value, String>;
}

impl fmt::Display for Errand {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sign(order) => write!(out, "sign as {} for {}", order.signer, order.usages.join(", ")),
            Self::MakeFolder(path) => write!(out, "create directory {path}"),
            Self::RemoveFolder(path) => write!(out, "remove directory {path}"),
        }
    }
}

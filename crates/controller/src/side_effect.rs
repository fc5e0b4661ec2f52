//! Side effects of a plan that are not API writes. A plan contains them as values; [`SideEffects`] performs them.

use std::fmt;

use apimachinery::Value;
use apimachinery::time::Duration;

/// A side effect that is performed before a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SideEffect {
    /// Signs a certificate. The result is the PEM certificate in base64.
    Sign(Order),
    /// Creates a directory of the node, if it does not exist.
    CreateDirectory(String),
    /// Removes a directory of the node with its contents, if it exists.
    RemoveDirectory(String),
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
pub trait SideEffects: Send + Sync {
    /// Performs one side effect and returns its result or an error message.
    fn run(&self, errand: &SideEffect) -> Result<Value, String>;
}

impl fmt::Display for SideEffect {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sign(order) => write!(out, "sign as {} for {}", order.signer, order.usages.join(", ")),
            Self::CreateDirectory(path) => write!(out, "create directory {path}"),
            Self::RemoveDirectory(path) => write!(out, "remove directory {path}"),
        }
    }
}

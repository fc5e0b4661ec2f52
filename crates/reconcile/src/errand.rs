//! What a plan wants done that is no write to the API: decided as a value, done by whoever the driver was given.

use std::fmt;

use machinery::Value;
use machinery::time::Duration;

/// Something that is done before a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Errand {
    /// A certificate is signed; what comes of it is the certificate in base64 of PEM.
    Sign(Order),
    /// A folder of the machine is made, unless it is there.
    MakeFolder(String),
    /// A folder of the machine goes with everything in it, unless it is gone.
    RemoveFolder(String),
}

/// A certificate that is to be signed. That it may be is decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Whose authority signs: `kubernetes.io/kubelet-serving`.
    pub signer: String,
    /// What was asked for, in DER.
    pub request: Vec<u8>,
    /// What it is for, in the words of the API: `client auth`.
    pub usages: Vec<String>,
    /// How long it lasts; less if the authority ends before.
    pub life: Duration,
}

/// Runs errands. Each may be run again after it was cut short.
pub trait Errands: Send + Sync {
    /// Runs one, and gives what came of it, or why nothing did.
    fn run(&self, errand: &Errand) -> Result<Value, String>;
}

impl fmt::Display for Errand {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sign(order) => write!(out, "sign as {} for {}", order.signer, order.usages.join(", ")),
            Self::MakeFolder(path) => write!(out, "make folder {path}"),
            Self::RemoveFolder(path) => write!(out, "remove folder {path}"),
        }
    }
}

//! What a server does once after it has started to listen, and how far it is with that.

use std::sync::atomic::{AtomicU32, Ordering};

/// Something that is done once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The namespaces of every cluster exist.
    Namespaces,
    /// Its roles and bindings.
    Roles,
    /// Its priority classes.
    PriorityClasses,
    /// Its flow schemas and priority levels.
    FlowControlObjects,
    /// The ServiceCIDR of the flags.
    ServiceCidr,
    /// The service `kubernetes`, with this server among its endpoints.
    OwnService,
    /// Requests are queued as the flow schemas say.
    FlowControl,
    /// All established CustomResourceDefinitions are served.
    CustomResources,
    /// `kube-system/extension-apiserver-authentication` names the CAs.
    AuthenticationInfo,
    /// The APIServices of what this server serves exist, and those of other servers are known.
    ApiServices,
}

/// The objects that every cluster starts with.
const BOOTSTRAP: [Step; 6] = [
    Step::Namespaces,
    Step::Roles,
    Step::PriorityClasses,
    Step::FlowControlObjects,
    Step::ServiceCidr,
    Step::OwnService,
];

/// The steps that are done.
#[derive(Debug, Default)]
pub struct Startup(AtomicU32);

impl Startup {
    /// A step is done.
    pub fn complete(&self, step: Step) {
        self.0.fetch_or(1 << step as u32, Ordering::Relaxed);
    }

    /// Whether a step is done.
    pub fn has(&self, step: Step) -> bool {
        self.0.load(Ordering::Relaxed) & (1 << step as u32) != 0
    }

    /// Whether all objects exist that every cluster starts with.
    pub fn is_bootstrapped(&self) -> bool {
        BOOTSTRAP.into_iter().all(|step| self.has(step))
    }
}

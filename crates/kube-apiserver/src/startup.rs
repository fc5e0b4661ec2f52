//! Startup steps: work that the server does once after it starts to listen, reported by the poststarthook health
//! checks.

use std::sync::atomic::{AtomicU32, Ordering};

/// A startup step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The system namespaces exist.
    Namespaces,
    /// The default roles and bindings exist.
    Roles,
    /// The system PriorityClasses exist.
    PriorityClasses,
    /// The default FlowSchemas and PriorityLevelConfigurations exist.
    FlowControlObjects,
    /// The default ServiceCIDR exists.
    ServiceCidr,
    /// The Service `kubernetes` exists, with this server among its endpoints.
    OwnService,
    /// The FlowSchemas are applied to requests.
    FlowControl,
    /// All established CustomResourceDefinitions are served.
    CustomResources,
    /// `kube-system/extension-apiserver-authentication` names the CAs.
    AuthenticationInfo,
    /// The local APIServices exist, and remote ones are known.
    ApiServices,
}

/// The steps that create bootstrap objects.
const BOOTSTRAP: [Step; 6] = [
    Step::Namespaces,
    Step::Roles,
    Step::PriorityClasses,
    Step::FlowControlObjects,
    Step::ServiceCidr,
    Step::OwnService,
];

/// The completed steps.
#[derive(Debug, Default)]
pub struct Startup(AtomicU32);

impl Startup {
    /// Marks a step as completed.
    pub fn complete(&self, step: Step) {
        self.0.fetch_or(1 << step as u32, Ordering::Relaxed);
    }

    /// Whether a step is completed.
    pub fn has(&self, step: Step) -> bool {
        self.0.load(Ordering::Relaxed) & (1 << step as u32) != 0
    }

    /// Whether all bootstrap objects exist.
    pub fn is_bootstrapped(&self) -> bool {
        BOOTSTRAP.into_iter().all(|step| self.has(step))
    }
}

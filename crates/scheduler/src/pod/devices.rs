//! ResourceClaims of a pod, and extended resources that devices may back.

use api::amounts;
use apimachinery::{Str, Value};

use crate::devices::is_backed_name;

/// An entry of `spec.resourceClaims`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceClaim {
    /// Name in the pod spec.
    pub name: Str,
    pub source: Source,
}

/// Source of a pod's ResourceClaim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `resourceClaimName`: the claim exists independently of the pod.
    Named(Str),
    /// Created from a template; the pod must own the claim.
    FromTemplate(Str),
    /// Not yet created from its template.
    NotCreated,
    /// The pod status records that no claim is needed.
    NotNeeded,
    /// A source unknown to this version.
    Unknown,
}

/// An extended resource request of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerResource {
    /// Index over init containers and containers.
    pub container: usize,
    /// Name of the container.
    pub name: Str,
    /// Whether it is an init container that exits before the next container starts.
    pub brief: bool,
    pub resource: Str,
    /// Index among the resources that the container requests.
    pub index: usize,
    pub amount: i64,
}

impl Source {
    /// Returns the name of the claim, if it is known.
    pub const fn name(&self) -> Option<&Str> {
        match self {
            Self::Named(name) | Self::FromTemplate(name) => Some(name),
            Self::NotCreated | Self::NotNeeded | Self::Unknown => None,
        }
    }
}

/// Reads the ResourceClaims of a pod.
pub(super) fn claims(spec: &Value, status: &Value) -> Vec<DeviceClaim> {
    let claim = |it: &Value| {
        let name = it.text_at(&["name"]);
        let source = if let Some(claim) = it.str_at(&["resourceClaimName"]) {
            Source::Named(claim.into())
        } else if it.str_at(&["resourceClaimTemplateName"]).is_some() {
            let made = status.list_at(&["resourceClaimStatuses"]).iter().find(|it| it.str_at(&["name"]) == Some(name));
            match made.map(|made| made.str_at(&["resourceClaimName"])) {
                Some(Some(claim)) => Source::FromTemplate(claim.into()),
                Some(None) => Source::NotNeeded,
                None => Source::NotCreated,
            }
        } else {
            Source::Unknown
        };
        DeviceClaim { name: name.into(), source }
    };
    spec.list_at(&["resourceClaims"]).iter().map(claim).collect()
}

/// Reads the extended resource requests of all containers.
pub(super) fn extended(spec: &Value) -> Vec<ContainerResource> {
    let mut all = Vec::new();
    let init = spec.list_at(&["initContainers"]).iter().map(|it| (it, it.str_at(&["restartPolicy"]) != Some("Always")));
    let containers = init.chain(spec.list_at(&["containers"]).iter().map(|it| (it, false)));
    for (number, (container, brief)) in containers.enumerate() {
        let requests = container.at(&["resources", "requests"]);
        for (index, (resource, amount)) in amounts::read(requests).into_iter().enumerate() {
            let amount = amount.value();
            if amount > 0 && is_backed_name(&resource) {
                let name = container.text_at(&["name"]).into();
                all.push(ContainerResource { container: number, name, brief, resource, index, amount });
            }
        }
    }
    all
}

//! What a pod wants of devices: claims, and extended resources that devices may stand behind.

use machinery::{Str, Value};

use super::items;
use crate::devices::is_backed_name;
use crate::resources;

/// A claim of devices that a pod uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceClaim {
    /// Its name in the pod.
    pub name: Str,
    /// Where the claim comes from.
    pub source: Source,
}

/// Where a claim comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// It is there without the pod.
    Named(Str),
    /// It was made for the pod, and must be the pod's.
    Made(Str),
    /// It is still to be made for the pod.
    ToBeMade,
    /// It turned out not to be needed.
    NotNeeded,
    /// Nobody knows.
    Unknown,
}

/// An extended resource of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerResource {
    /// Which container, counted over init containers and containers.
    pub container: usize,
    /// Its name.
    pub name: Str,
    /// Whether it has ended before those after it begin.
    pub brief: bool,
    /// The resource.
    pub resource: Str,
    /// The place of the resource among all that the container asks for.
    pub place: usize,
    /// How much.
    pub amount: i64,
}

impl Source {
    /// The name of the claim, if it has one.
    pub const fn name(&self) -> Option<&Str> {
        match self {
            Self::Named(name) | Self::Made(name) => Some(name),
            Self::ToBeMade | Self::NotNeeded | Self::Unknown => None,
        }
    }
}

/// The claims of a pod.
pub fn claims(spec: &Value, status: &Value) -> Vec<DeviceClaim> {
    let claim = |it: &Value| {
        let name = it.str_at(&["name"]).unwrap_or_default();
        let source = if let Some(claim) = it.str_at(&["resourceClaimName"]) {
            Source::Named(claim.into())
        } else if it.str_at(&["resourceClaimTemplateName"]).is_some() {
            let made = items(status, "resourceClaimStatuses").iter().find(|it| it.str_at(&["name"]) == Some(name));
            match made.map(|made| made.str_at(&["resourceClaimName"])) {
                Some(Some(claim)) => Source::Made(claim.into()),
                Some(None) => Source::NotNeeded,
                None => Source::ToBeMade,
            }
        } else {
            Source::Unknown
        };
        DeviceClaim { name: name.into(), source }
    };
    items(spec, "resourceClaims").iter().map(claim).collect()
}

/// The extended resources of a pod's containers.
pub fn extended(spec: &Value) -> Vec<ContainerResource> {
    let mut all = Vec::new();
    let init = items(spec, "initContainers").iter().map(|it| (it, it.str_at(&["restartPolicy"]) != Some("Always")));
    let containers = init.chain(items(spec, "containers").iter().map(|it| (it, false)));
    for (number, (container, brief)) in containers.enumerate() {
        let requests = container.at(&["resources", "requests"]);
        // What is no amount was refused where all are summed up.
        for (place, (resource, amount)) in resources::list(requests, "").unwrap_or_default().into_iter().enumerate() {
            let amount = amount.value();
            if amount > 0 && is_backed_name(&resource) {
                let name = container.str_at(&["name"]).unwrap_or_default().into();
                all.push(ContainerResource { container: number, name, brief, resource, place, amount });
            }
        }
    }
    all
}

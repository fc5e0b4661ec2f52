//! Extended resources backed by devices: a claim is created for resources that the node does not report itself.

use apimachinery::{Str, Value, value};

use super::claim::{Alternative, Claim, Mode, Request};
use super::{CLASS_PREFIX, Devices};
use crate::pod::Pod;
use crate::resources::{Resources, is_extended};

/// The part of a pod's extended resources that must come from devices on a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExtendedResourceClaim {
    /// The claim to create.
    pub claim: Claim,
    /// Maps each request to a container and its extended resource.
    pub mappings: Vec<Value>,
}

/// Whether a resource of this name can be backed by devices.
pub fn is_backed_name(name: &str) -> bool {
    is_extended(name) || name.starts_with(CLASS_PREFIX)
}

impl Devices {
    /// Whether a DeviceClass backs an extended resource that the pod requests.
    pub fn backs(&self, pod: &Pod) -> bool {
        let requested = pod.shape.requests.scalars.iter().filter(|(_, amount)| *amount > 0);
        requested.filter(|(name, _)| is_backed_name(name)).any(|(name, _)| self.class_of(name).is_some())
    }

    /// Returns the devices that a pod needs on a node with allocatable `node`. Returns `None` if the node lacks a
    /// resource and no DeviceClass backs it.
    pub fn extended(&self, pod: &Pod, node: &Resources) -> Option<ExtendedResourceClaim> {
        let mut extended = ExtendedResourceClaim::default();
        let requested = pod.shape.requests.scalars.iter().filter(|(name, amount)| *amount > 0 && is_backed_name(name));
        for (resource, _) in requested {
            match self.class_of(resource) {
                Some(class) if node.scalar(resource) == 0 => extended.add(pod, resource, class),
                _ if node.scalars.iter().any(|(name, _)| name == resource) => {}
                _ => return None,
            }
        }
        extended.claim.requests.sort_by(|a, b| a.name.cmp(&b.name));
        Some(extended)
    }
}

impl ExtendedResourceClaim {
    /// Returns `spec.devices.requests` of the claim.
    pub fn requests(&self) -> Vec<Value> {
        let request = |it: &Request| {
            let way = &it.alternatives[0];
            let Mode::Exactly(count) = way.mode else { return Value::Null };
            let exactly =
                value!({"deviceClassName": (way.class.as_str()), "allocationMode": "ExactCount", "count": count});
            value!({"name": (it.name.as_str()), "exactly": exactly})
        };
        self.claim.requests.iter().map(request).collect()
    }

    /// Adds the requests of the pod's containers. Regular and sidecar containers get separate devices. Init containers
    /// reuse the devices of later containers and share what they need beyond that.
    fn add(&mut self, pod: &Pod, resource: &Str, class: &Str) {
        let containers = pod.extended.iter().filter(|it| it.resource == *resource);
        let (brief, lasting): (Vec<_>, Vec<_>) = containers.partition(|it| it.brief);
        let name = |it: &crate::pod::ContainerResource| format!("container-{}-request-{}", it.container, it.index);
        let map = |container: &Str, request: &str| value!({"containerName": (container.as_str()), "resourceName": (resource.as_str()), "requestName": request});
        let mut most: Option<(String, i64)> = None;
        let (mut own, mut mappings) = (Vec::new(), Vec::new());
        for it in &brief {
            let mut left = it.amount;
            for later in lasting.iter().filter(|later| later.container >= it.container) {
                if left <= 0 {
                    break;
                }
                left -= later.amount;
                mappings.push(map(&it.name, &name(later)));
            }
            if left > 0 {
                own.push(&it.name);
                if most.as_ref().is_none_or(|(_, most)| *most < left) {
                    most = Some((name(it), left));
                }
            }
        }
        for it in &lasting {
            self.mappings.push(map(&it.name, &name(it)));
            self.claim.requests.push(request(name(it).into(), class, it.amount));
        }
        self.mappings.extend(mappings);
        if let Some((name, count)) = most {
            self.mappings.extend(own.into_iter().map(|container| map(container, &name)));
            self.claim.requests.push(request(name.into(), class, count));
        }
    }
}

fn request(name: Str, class: &Str, count: i64) -> Request {
    let alternative = Alternative { class: class.clone(), mode: Mode::Exactly(count), ..Alternative::default() };
    Request { name, alternatives: vec![alternative] }
}

//! Extended resources that devices stand behind: a claim is made for what the node does not count itself.

use machinery::{Str, Value, value};

use super::claim::{Alternative, Claim, Mode, Request};
use super::{CLASS_PREFIX, Devices};
use crate::pod::Pod;
use crate::resources::{Resources, is_extended};

/// What of a pod's extended resources comes from devices on a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extended {
    /// The claim that would have to be made.
    pub claim: Claim,
    /// Which request is for which resource of which container.
    pub mappings: Vec<Value>,
}

/// Whether devices may stand behind a resource of this name.
pub fn is_backed_name(name: &str) -> bool {
    is_extended(name) || name.starts_with(CLASS_PREFIX)
}

impl Devices {
    /// Whether devices stand behind an extended resource that the pod wants.
    pub fn backs(&self, pod: &Pod) -> bool {
        let wanted = pod.shape.requests.scalars.iter().filter(|(_, amount)| *amount > 0);
        wanted.filter(|(name, _)| is_backed_name(name)).any(|(name, _)| self.class_of(name).is_some())
    }

    /// What a pod needs of devices on a node that counts these resources itself; `None` if the node has none of a
    /// resource, and no devices stand behind it.
    pub fn extended(&self, pod: &Pod, node: &Resources) -> Option<Extended> {
        let mut extended = Extended::default();
        let wanted = pod.shape.requests.scalars.iter().filter(|(name, amount)| *amount > 0 && is_backed_name(name));
        for (resource, _) in wanted {
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

impl Extended {
    /// The requests as they are written into the claim.
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

    /// Containers that run beside each other each get devices of their own; those that run before them use the devices
    /// of those that run later, and share what they want beyond that.
    fn add(&mut self, pod: &Pod, resource: &Str, class: &Str) {
        let containers = pod.extended.iter().filter(|it| it.resource == *resource);
        let (brief, lasting): (Vec<_>, Vec<_>) = containers.partition(|it| it.brief);
        let name = |it: &crate::pod::ContainerResource| format!("container-{}-request-{}", it.container, it.place);
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

//! SchedulingGates: keeps pods with scheduling gates out of the active queue.

use crate::devices::Devices;
use crate::framework::Plugin;
use crate::pod::Pod;

pub struct SchedulingGates;

impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        "SchedulingGates"
    }

    fn gate(&self, pod: &Pod, _devices: &Devices) -> Option<String> {
        (!pod.gates.is_empty()).then(|| format!("waiting for scheduling gates: [{}]", pod.gates.join(" ")))
    }
}

//! DenyServiceExternalIPs: no service takes over an address of the network around the cluster.

use machinery::Value;
use machinery::status::Status;

use super::pods::{items, spec};
use super::{Attributes, Notes, Plugin, View};

/// See the module.
pub struct DenyServiceExternalIPs;

impl Plugin for DenyServiceExternalIPs {
    fn validate(&self, attributes: &Attributes<'_>, service: &Value, _: &dyn View, _: &mut Notes) -> Result<(), Status> {
        if !attributes.writes("", "services") {
            return Ok(());
        }
        let before = attributes.old.map(|old| items(spec(old), "externalIPs")).unwrap_or_default();
        if items(spec(service), "externalIPs").iter().all(|address| before.contains(address)) {
            return Ok(());
        }
        Err(attributes.forbidden(service, "Use of external IPs is denied by admission control"))
    }
}

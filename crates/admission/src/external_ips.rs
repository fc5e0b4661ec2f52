//! DenyServiceExternalIPs: rejects new external IPs of Services.

use api::resources::SERVICES;
use apimachinery::Value;
use apimachinery::status::Status;

use super::pods::spec;
use super::{Attributes, Notes, Plugin, View};

pub(crate) struct DenyServiceExternalIPs;

impl Plugin for DenyServiceExternalIPs {
    fn validate(
        &self,
        attributes: &Attributes<'_>,
        service: &Value,
        _: &dyn View,
        _: &mut Notes,
    ) -> Result<(), Status> {
        if !attributes.writes(SERVICES) {
            return Ok(());
        }
        let before = attributes.old.map(|old| spec(old).list_at(&["externalIPs"])).unwrap_or_default();
        if spec(service).list_at(&["externalIPs"]).iter().all(|address| before.contains(address)) {
            return Ok(());
        }
        Err(attributes.forbidden(service, "Use of external IPs is denied by admission control"))
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;
    use auth::User;

    use super::*;
    use crate::Operation;
    use crate::testing::{Cluster, attributes};

    /// A Service with an external IP receives the traffic that pods and nodes send to that address.
    #[test]
    fn cve_2020_8554_a_service_gets_no_new_external_ips() {
        let kind =
            api::kinds::all().into_iter().find(|kind| kind.plural == "services").expect("the catalogue has Service");
        let user = User::authenticated("tenant", []);
        let service = |addresses: &[&str]| {
            let addresses: Vec<Value> = addresses.iter().map(|address| Value::from(*address)).collect();
            value!({"metadata": {"name": "x"}, "spec": {"externalIPs": addresses}})
        };
        let check = |old: Option<&Value>, new: &Value, expect: bool| {
            let operation = if old.is_some() { Operation::Update } else { Operation::Create };
            let attributes = Attributes { old, ..attributes(&kind, &user, operation) };
            let mut notes = Notes::default();
            let admitted = DenyServiceExternalIPs.validate(&attributes, new, &Cluster::default(), &mut notes);
            assert_eq!(admitted.is_ok(), expect, "{old:?} {new:?}: {admitted:?}");
        };
        check(None, &service(&[]), true);
        check(None, &service(&["192.0.2.53"]), false);
        let two = service(&["192.0.2.53", "192.0.2.54"]);
        check(Some(&two), &two, true);
        check(Some(&two), &service(&["192.0.2.54"]), true);
        check(Some(&two), &service(&["192.0.2.54", "192.0.2.55"]), false);
    }
}

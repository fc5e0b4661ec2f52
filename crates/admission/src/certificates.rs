//! CertificateApproval, CertificateSigning, CertificateSubjectRestriction and ClusterTrustBundleAttest: permissions for
//! signers.

use api::certificates::pem;
use api::certificates::request::CertificateRequest;
use api::resources::{CERTIFICATE_SIGNING_REQUESTS, CLUSTER_TRUST_BUNDLES};
use apimachinery::Value;
use apimachinery::status::Status;
use auth::Resource;
use auth::user::MASTERS;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::pods::spec;
use super::{Attributes, Notes, Operation, Plugin, View};

const CLIENTS: &str = "kubernetes.io/kube-apiserver-client";

/// Requires the verb `approve` on the signer for an approval.
pub(crate) struct CertificateApproval;
/// Requires the verb `sign` on the signer to change the certificate or the conditions in the status.
pub(crate) struct CertificateSigning;
/// Rejects client certificates for the group `system:masters`.
pub(crate) struct CertificateSubjectRestriction;
/// Requires the verb `attest` on the signer for a ClusterTrustBundle.
pub(crate) struct ClusterTrustBundleAttest;

impl Plugin for CertificateApproval {
    fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: &Value,
        view: &dyn View,
        _: &mut Notes,
    ) -> Result<(), Status> {
        if !updates(attributes, "approval") {
            return Ok(());
        }
        require(attributes, object, view, "approve", "approve requests with")
    }
}

impl Plugin for CertificateSigning {
    fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: &Value,
        view: &dyn View,
        _: &mut Notes,
    ) -> Result<(), Status> {
        let status_field = |of: &Value, field: &str| of.at(&["status", field]).cloned().unwrap_or_default();
        let changed =
            |field: &str| attributes.old.is_some_and(|old| status_field(old, field) != status_field(object, field));
        if !updates(attributes, "status") || !(changed("certificate") || changed("conditions")) {
            return Ok(());
        }
        require(attributes, object, view, "sign", "sign requests with")
    }
}

impl Plugin for ClusterTrustBundleAttest {
    fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: &Value,
        view: &dyn View,
        _: &mut Notes,
    ) -> Result<(), Status> {
        let unchanged = attributes.old.is_some_and(|old| spec(old) == spec(object));
        if !attributes.writes(CLUSTER_TRUST_BUNDLES) || unchanged || spec(object).text_at(&["signerName"]).is_empty() {
            return Ok(());
        }
        require(attributes, object, view, "attest", "attest for")
    }
}

impl Plugin for CertificateSubjectRestriction {
    fn validate(&self, attributes: &Attributes<'_>, object: &Value, _: &dyn View, _: &mut Notes) -> Result<(), Status> {
        if !attributes.creates(CERTIFICATE_SIGNING_REQUESTS) || spec(object).text_at(&["signerName"]) != CLIENTS {
            return Ok(());
        }
        let groups = organizations(spec(object).text_at(&["request"]))
            .map_err(|message| attributes.forbidden(object, format!("failed to parse CSR: {message}")))?;
        if groups.iter().any(|group| group == MASTERS) {
            let message = format!("use of {CLIENTS} signer with {MASTERS} group is not allowed");
            return Err(attributes.forbidden(object, message));
        }
        Ok(())
    }
}

fn updates(attributes: &Attributes<'_>, subresource: &str) -> bool {
    attributes.operation == Operation::Update
        && attributes.is(CERTIFICATE_SIGNING_REQUESTS)
        && attributes.subresource == subresource
}

fn require(attributes: &Attributes<'_>, object: &Value, view: &dyn View, verb: &str, what: &str) -> Result<(), Status> {
    // The signer is fixed when the request is created; an update must not select another one.
    let signer = spec(attributes.old.unwrap_or(object)).text_at(&["signerName"]);
    let signer = if verb == "attest" { spec(object).text_at(&["signerName"]) } else { signer };
    let may = |name: &str| {
        let resource =
            Resource { group: "certificates.k8s.io", version: "*", resource: "signers", name, ..Resource::default() };
        view.allows(&auth::Attributes { user: attributes.user, verb, target: auth::Target::Resource(resource) })
    };
    let all_of_domain = signer.split_once('/').map(|(domain, _)| format!("{domain}/*")).unwrap_or_default();
    if may(signer) || !all_of_domain.is_empty() && may(&all_of_domain) {
        return Ok(());
    }
    Err(attributes.forbidden(object, format!("user not permitted to {what} signerName {signer:?}")))
}

/// Returns the organizations in the subject of a certificate request, which is base64-encoded PEM.
fn organizations(request: &str) -> Result<Vec<String>, pem::Error> {
    let pem = STANDARD.decode(request).unwrap_or_default();
    Ok(CertificateRequest::from_pem(&pem)?.organizations)
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;
    use crate::testing::{self, Cluster};

    #[test]
    fn client_certificate_request_for_system_masters_is_rejected_in_any_position() {
        let check = |name: &str, expect: &str| {
            let file = format!("{}/../../fuzz/corpus/csr/{name}.pem", env!("CARGO_MANIFEST_DIR"));
            let object =
                value!({"spec": {"signerName": CLIENTS, "request": (STANDARD.encode(std::fs::read(file).unwrap()))}});
            let (kind, user) =
                (api::certificates::certificate_signing_request::kind(), auth::User::authenticated("eve", []));
            let request = testing::attributes(&kind, &user, Operation::Create);
            let verdict =
                CertificateSubjectRestriction.validate(&request, &object, &Cluster::default(), &mut Notes::default());
            let message = verdict.err().map(|status| status.message).unwrap_or_default();
            assert!(message.ends_with(expect) && message.is_empty() == expect.is_empty(), "{name}: {message}");
        };
        check("developer", "");
        check("masters", "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed");
        let strict = "failed to parse CSR: PEM block type must be CERTIFICATE REQUEST";
        check("hidden-first-block", strict);
        check("text-before", strict);
        check("bmpstring-organization", "failed to parse CSR: asn1: structure error: not a certification request");
    }
}

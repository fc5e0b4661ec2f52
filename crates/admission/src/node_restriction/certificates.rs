//! NodeRestriction for certificates: a kubelet can request its own, and those of pods on its node.

use api::certificates::request::CertificateRequest;
use api::resources::{NODES, PODS, SERVICE_ACCOUNTS};
use api::view::Pod;
use apimachinery::meta::Meta;
use apimachinery::status::Status;
use apimachinery::{GroupResource, Value, go};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::super::Operation;
use super::super::pods::spec;
use super::{AdmissionResult, KubeletRequest};

/// The signers of kubelet certificates.
const KUBELET_SIGNERS: [&str; 2] = ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];

impl KubeletRequest<'_> {
    /// Requires that a node's certificate request contains the node's own name.
    pub(super) fn signing_request(&self) -> AdmissionResult {
        let signer = spec(self.object).text_at(&["signerName"]);
        if self.attributes.operation != Operation::Create || !KUBELET_SIGNERS.contains(&signer) {
            return Ok(());
        }
        let pem = STANDARD.decode(spec(self.object).text_at(&["request"])).unwrap_or_default();
        match CertificateRequest::from_pem(&pem) {
            Err(error) => self.forbid(format!("unable to parse csr: {error}")),
            Ok(request) if request.common_name == self.attributes.user.name => Ok(()),
            Ok(_) => self.forbid(format!("can only create a node CSR with CN=system:node:{}", self.node)),
        }
    }

    /// Requires that the request names this node, a pod running on it, and the pod's service account, by name and UID.
    pub(super) fn pod_certificate(&self) -> AdmissionResult {
        if self.attributes.operation != Operation::Create {
            return self.forbid(format!("unexpected operation {}", self.attributes.operation.word()));
        }
        if !self.attributes.subresource.is_empty() {
            return self.forbid(format!("unexpected subresource {}", self.attributes.subresource));
        }
        let field = |name: &str| spec(self.object).text_at(&[name]);
        let quoted_name = |name: &str| go::quote(&format!("{}/{name}", self.attributes.namespace));
        let (node, pod) = (go::quote(field("nodeName")), quoted_name(field("podName")));
        if field("nodeName") != self.node {
            let own = self.quoted();
            return self
                .forbid(format!("PodCertificateRequest.Spec.NodeName={node}, which is not the requesting node {own}"));
        }
        let found = self.named(NODES, "", self.node, || format!("node {node}"))?;
        same_uid(field("nodeUID"), &found, |given, have| {
            format!(
                "PodCertificateRequest for pod {pod} names node UID {given}, inconsistent with the running node ({have})"
            )
        })?;
        let running = self.named(PODS, self.attributes.namespace, field("podName"), || format!("pod {pod}"))?;
        same_uid(field("podUID"), &running, |given, have| {
            format!(
                "PodCertificateRequest for pod {pod} contains pod UID ({given}) which differs from running pod {have}"
            )
        })?;
        if spec(&running).text_at(&["nodeName"]) != self.node {
            let message = format!("pod {pod} is not running on node {node} named in the PodCertificateRequest");
            return self.forbid(message);
        }
        if Pod(&running).is_mirror() {
            return self.forbid(format!("pod {pod} is a mirror pod"));
        }
        let (account, own) = (field("serviceAccountName"), spec(&running).text_at(&["serviceAccountName"]));
        if account != own {
            return self.forbid(format!(
                "PodCertificateRequest for pod {pod} contains serviceAccountName ({}) that differs from running pod ({})",
                go::quote(account),
                go::quote(own)
            ));
        }
        let named = || format!("service account {}", quoted_name(account));
        let found = self.named(SERVICE_ACCOUNTS, self.attributes.namespace, account, named)?;
        same_uid(field("serviceAccountUID"), &found, |given, have| {
            format!(
                "PodCertificateRequest for pod {pod} names service account UID {given}, which differs from the running \
                 service account ({have})"
            )
        })
    }

    /// Returns an object of the core group. A missing object is a retryable error, because the cache may lag.
    fn named(
        &self,
        resource: GroupResource,
        namespace: &str,
        name: &str,
        what: impl Fn() -> String,
    ) -> Result<super::super::CachedObject, Status> {
        self.view.object(resource, namespace, name).ok_or_else(|| {
            let what = what();
            Status::internal_error(format!(
                "while retrieving {what} named in the PodCertificateRequest: {resource} {} not found",
                go::quote(name)
            ))
        })
    }
}

/// Compares UIDs. A difference is a retryable error, because the cache may lag.
fn same_uid(given: &str, found: &Value, message: impl Fn(String, String) -> String) -> AdmissionResult {
    let have = Meta::of(found).uid();
    if given == have { Ok(()) } else { Err(Status::internal_error(message(go::quote(given), go::quote(have)))) }
}

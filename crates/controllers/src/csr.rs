//! CertificateSigningRequests: parsing, and the rules of the built-in Kubernetes signers.

use api::certificates::request::CertificateRequest;
use apimachinery::Value;
use auth::user::MASTERS;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::condition;

/// Signer of client certificates for the API server.
pub const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// Signer of kubelets' client certificates for the API server.
pub const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Signer of kubelets' serving certificates.
pub const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// Signer without restrictions.
pub const LEGACY_UNKNOWN: &str = "kubernetes.io/legacy-unknown";

const NODES: &str = "system:nodes";
const NODE: &str = "system:node:";

/// A reason not to sign. The text equals upstream's, because it becomes the message of a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Objection {
    #[error("subject organization is not system:nodes")]
    Organization,
    #[error("subject common name does not begin with system:node:")]
    CommonName,
    #[error("DNS or IP subjectAltName is required")]
    NamesMissing,
    /// SubjectAltNames of this kind are not allowed for the signer.
    #[error("{0} subjectAltNames are not allowed")]
    Names(&'static str),
    #[error("usages did not match [{0}]")]
    Usages(&'static str),
    #[error("invalid usage for client certificate: {0}")]
    ClientUsage(String),
    /// The group bypasses authorization, so no certificate is issued for it.
    #[error("use of {CLIENT} signer with {MASTERS} group is not allowed")]
    Masters,
    #[error("missing required usage for client certificate: client auth")]
    ClientUsageMissing,
}

/// Parses `spec.request` of a CertificateSigningRequest with the parser of the API server's validation.
pub fn parse(request: &Value) -> Option<CertificateRequest> {
    CertificateRequest::from_pem(&BASE64.decode(request.text_at(&["spec", "request"])).ok()?).ok()
}

/// Checks the signer's rules for request and usages. Signers that are not built in have no rules here.
pub fn check(request: &CertificateRequest, signer: &str, usages: &[&str]) -> Result<(), Objection> {
    match signer {
        CLIENT => check_client(request, usages),
        KUBELET_CLIENT => check_kubelet_client(request, usages),
        KUBELET_SERVING => check_kubelet_serving(request, usages),
        // The legacy signer has never had restrictions. The API server rejects new requests for it.
        _ => Ok(()),
    }
}

/// Applies the rules of the client signer. Admission rejects such subjects too, but can be disabled, so the signer does
/// not rely on it.
fn check_client(request: &CertificateRequest, usages: &[&str]) -> Result<(), Objection> {
    if request.organizations.iter().any(|group| group == MASTERS) {
        return Err(Objection::Masters);
    }
    client_usages(usages)
}

fn check_kubelet_client(request: &CertificateRequest, usages: &[&str]) -> Result<(), Objection> {
    check_organization(request)?;
    none_of(&request.dns_names, "DNS")?;
    none_of(&request.emails, "Email")?;
    none_of(&request.addresses, "IP")?;
    none_of(&request.uris, "URI")?;
    check_common_name(request)?;
    kubelet_usages(usages, "client auth", "client auth digital signature key encipherment")
}

fn check_kubelet_serving(request: &CertificateRequest, usages: &[&str]) -> Result<(), Objection> {
    check_organization(request)?;
    if request.dns_names.is_empty() && request.addresses.is_empty() {
        return Err(Objection::NamesMissing);
    }
    none_of(&request.emails, "Email")?;
    none_of(&request.uris, "URI")?;
    kubelet_usages(usages, "server auth", "digital signature key encipherment server auth")?;
    check_common_name(request)
}

fn check_organization(request: &CertificateRequest) -> Result<(), Objection> {
    if request.organizations == [NODES] { Ok(()) } else { Err(Objection::Organization) }
}

fn check_common_name(request: &CertificateRequest) -> Result<(), Objection> {
    if request.common_name.starts_with(NODE) { Ok(()) } else { Err(Objection::CommonName) }
}

pub fn usages(request: &Value) -> Vec<&str> {
    request.list_at(&["spec", "usages"]).iter().filter_map(Value::as_str).collect()
}

/// Whether a condition of the type exists and its status is not False.
pub fn is(request: &Value, kind: &str) -> bool {
    condition::find(request, kind).is_some_and(|condition| condition.text_at(&["status"]) != "False")
}

const fn none_of<T>(names: &[T], kind: &'static str) -> Result<(), Objection> {
    if names.is_empty() { Ok(()) } else { Err(Objection::Names(kind)) }
}

/// Requires exactly the three kubelet usages. Key encipherment may be missing, because only RSA keys need it.
fn kubelet_usages(usages: &[&str], purpose: &str, required: &'static str) -> Result<(), Objection> {
    let has = |usage: &str| usages.contains(&usage);
    let known = usages.iter().all(|usage| ["key encipherment", "digital signature", purpose].contains(usage));
    if known && has("digital signature") && has(purpose) { Ok(()) } else { Err(Objection::Usages(required)) }
}

fn client_usages(usages: &[&str]) -> Result<(), Objection> {
    const KNOWN: [&str; 3] = ["digital signature", "key encipherment", "client auth"];
    if let Some(other) = usages.iter().find(|usage| !KNOWN.contains(usage)) {
        return Err(Objection::ClientUsage((*other).to_owned()));
    }
    if usages.contains(&"client auth") { Ok(()) } else { Err(Objection::ClientUsageMissing) }
}

#[cfg(test)]
pub(crate) mod tests {
    use apimachinery::value;

    use super::*;

    /// A request of node `n`: O=system:nodes, CN=system:node:n; P-256.
    pub(crate) const OF_NODE: &str = include_str!("csr/node.pem");
    /// Like [`OF_NODE`], with the DNS name `n.example` and the IP address 10.0.0.7.
    pub(crate) const OF_SERVER: &str = include_str!("csr/server.pem");
    /// A request of a user: O=people, CN=jane.
    pub(crate) const OF_PERSON: &str = include_str!("csr/person.pem");
    /// O=system:masters, CN=jane.
    pub(crate) const OF_MASTER: &str = include_str!("../../../fuzz/corpus/csr/masters.pem");
    /// A PEM text that parsers read differently: some find O=system:masters first, others O=dev.
    pub(crate) const AMBIGUOUS: &str = include_str!("../../../fuzz/corpus/csr/hidden-first-block.pem");
    /// O=knarr:dns, CN=knarr:dns:n.
    pub(crate) const OF_DNS: &str = include_str!("csr/dns.pem");
    /// O=system:node-proxier, CN=system:kube-proxy.
    pub(crate) const OF_COMPONENT: &str = include_str!("csr/component.pem");

    /// Returns a CertificateSigningRequest as stored by the API server.
    pub(crate) fn request(pem: &str, signer: &str, usages: &[&str]) -> Value {
        let usages: Vec<Value> = usages.iter().map(|usage| (*usage).into()).collect();
        value!({"metadata": {"name": "x"}, "spec": {"request": (BASE64.encode(pem)), "signerName": signer,
            "usages": usages, "username": "system:node:n", "groups": ["system:nodes", "system:authenticated"]}})
    }

    #[test]
    fn certificate_requests_are_parsed() {
        let check = |pem: &str, name: &str, organization: &str, names: (usize, usize)| {
            let parsed = parse(&request(pem, CLIENT, &[])).unwrap();
            assert_eq!(
                (parsed.common_name.as_str(), parsed.organizations.as_slice()),
                (name, &[organization.into()][..])
            );
            assert_eq!((parsed.dns_names.len(), parsed.addresses.len()), names);
        };
        check(OF_NODE, "system:node:n", "system:nodes", (0, 0));
        check(OF_SERVER, "system:node:n", "system:nodes", (1, 1));
        check(OF_PERSON, "jane", "people", (0, 0));
        assert_eq!(parse(&request("nonsense", CLIENT, &[])), None);
        assert_eq!(parse(&value!({})), None);
    }

    #[test]
    fn signer_rules_are_applied() {
        let check = |pem: &str, signer: &str, usages: &[&str], expect: &str| {
            let result = check(&parse(&request(pem, signer, usages)).unwrap(), signer, usages);
            assert_eq!(
                result.map_or_else(|error| error.to_string(), |()| String::new()),
                expect,
                "{signer} {usages:?}"
            );
        };
        let (client, server) = (["digital signature", "client auth"], ["digital signature", "server auth"]);
        check(OF_NODE, KUBELET_CLIENT, &client, "");
        check(OF_NODE, KUBELET_CLIENT, &["key encipherment", "digital signature", "client auth"], "");
        check(OF_PERSON, KUBELET_CLIENT, &client, "subject organization is not system:nodes");
        check(OF_SERVER, KUBELET_CLIENT, &client, "DNS subjectAltNames are not allowed");
        check(
            OF_NODE,
            KUBELET_CLIENT,
            &server,
            "usages did not match [client auth digital signature key encipherment]",
        );
        check(OF_SERVER, KUBELET_SERVING, &server, "");
        check(OF_NODE, KUBELET_SERVING, &server, "DNS or IP subjectAltName is required");
        check(
            OF_SERVER,
            KUBELET_SERVING,
            &client,
            "usages did not match [digital signature key encipherment server auth]",
        );
        check(OF_PERSON, CLIENT, &client, "");
        let masters = "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
        check(OF_MASTER, CLIENT, &client, masters);
        check(OF_PERSON, CLIENT, &["client auth", "server auth"], "invalid usage for client certificate: server auth");
        check(OF_PERSON, CLIENT, &[], "missing required usage for client certificate: client auth");
        check(OF_PERSON, LEGACY_UNKNOWN, &["cert sign"], "");
    }
}

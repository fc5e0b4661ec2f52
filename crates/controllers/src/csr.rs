//! What requests for certificates say, and which of them a signer of Kubernetes takes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use machinery::Value;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME, Oid};
use x509_parser::prelude::{FromDer, X509CertificationRequest};

use crate::condition;
use crate::read::{list, text};

/// Who signs what clients show to the API server.
pub const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// Who signs what kubelets show to the API server.
pub const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Who signs what kubelets show to those who ask them.
pub const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// Who signs anything.
pub const LEGACY_UNKNOWN: &str = "kubernetes.io/legacy-unknown";

const NODES: &str = "system:nodes";
const NODE: &str = "system:node:";

/// What a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// All of it, in DER.
    pub der: Vec<u8>,
    /// The user.
    pub common_name: String,
    /// The groups.
    pub organizations: Vec<String>,
    dns_names: usize,
    addresses: usize,
    mail_addresses: usize,
    uris: usize,
}

/// Why a signer does not sign. Worded as upstream words it: it becomes the message of a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Objection {
    /// The groups are not those of a node.
    #[error("subject organization is not system:nodes")]
    Organization,
    /// The user is no node.
    #[error("subject common name does not begin with system:node:")]
    CommonName,
    /// A server without a name.
    #[error("DNS or IP subjectAltName is required")]
    NamesMissing,
    /// Names of this kind are not for it.
    #[error("{0} subjectAltNames are not allowed")]
    Names(&'static str),
    /// The usages are not those of a kubelet.
    #[error("usages did not match [{0}]")]
    Usages(&'static str),
    /// A client's certificate is for nothing else.
    #[error("invalid usage for client certificate: {0}")]
    ClientUsage(String),
    /// A client's certificate must be for that.
    #[error("missing required usage for client certificate: client auth")]
    ClientUsageMissing,
}

impl Asked {
    /// Reads what the API server took. `None` for what cannot be read.
    pub fn of(request: &Value) -> Option<Self> {
        let der = der_of(&BASE64.decode(text(request, &["spec", "request"])).ok()?)?;
        let mut asked = Self::read(&der)?;
        asked.der = der;
        Some(asked)
    }

    fn read(der: &[u8]) -> Option<Self> {
        let (rest, request) = X509CertificationRequest::from_der(der).ok()?;
        if !rest.is_empty() {
            return None;
        }
        let subject = &request.certification_request_info.subject;
        let values = |kind: &Oid<'_>| -> Vec<String> {
            let found = subject.iter_by_oid(kind).filter_map(|value| value.as_str().ok());
            found.map(str::to_owned).collect()
        };
        let mut asked = Self {
            // Of several names the last counts, as in Go.
            common_name: values(&OID_X509_COMMON_NAME).pop().unwrap_or_default(),
            organizations: values(&OID_X509_ORGANIZATION_NAME),
            ..Self::default()
        };
        for extension in request.requested_extensions().into_iter().flatten() {
            if let ParsedExtension::SubjectAlternativeName(names) = extension {
                names.general_names.iter().for_each(|name| asked.count(name));
            }
        }
        Some(asked)
    }

    const fn count(&mut self, name: &GeneralName<'_>) {
        match name {
            GeneralName::DNSName(_) => self.dns_names += 1,
            GeneralName::IPAddress(_) => self.addresses += 1,
            GeneralName::RFC822Name(_) => self.mail_addresses += 1,
            GeneralName::URI(_) => self.uris += 1,
            _ => {}
        }
    }

    /// Whether a signer may sign it for these usages. Other signers are nobody's here.
    pub fn check(&self, signer: &str, usages: &[&str]) -> Result<(), Objection> {
        match signer {
            CLIENT => client_usages(usages),
            KUBELET_CLIENT => self.check_kubelet_client(usages),
            KUBELET_SERVING => self.check_kubelet_serving(usages),
            // What the oldest signer took it goes on taking.
            _ => Ok(()),
        }
    }

    fn check_kubelet_client(&self, usages: &[&str]) -> Result<(), Objection> {
        self.check_organization()?;
        none_of(self.dns_names, "DNS")?;
        none_of(self.mail_addresses, "Email")?;
        none_of(self.addresses, "IP")?;
        none_of(self.uris, "URI")?;
        self.check_common_name()?;
        kubelet_usages(usages, "client auth", "client auth digital signature key encipherment")
    }

    fn check_kubelet_serving(&self, usages: &[&str]) -> Result<(), Objection> {
        self.check_organization()?;
        if self.dns_names + self.addresses == 0 {
            return Err(Objection::NamesMissing);
        }
        none_of(self.mail_addresses, "Email")?;
        none_of(self.uris, "URI")?;
        kubelet_usages(usages, "server auth", "digital signature key encipherment server auth")?;
        self.check_common_name()
    }

    fn check_organization(&self) -> Result<(), Objection> {
        if self.organizations == [NODES] { Ok(()) } else { Err(Objection::Organization) }
    }

    fn check_common_name(&self) -> Result<(), Objection> {
        if self.common_name.starts_with(NODE) { Ok(()) } else { Err(Objection::CommonName) }
    }
}

/// The usages of a request.
pub fn usages(request: &Value) -> Vec<&str> {
    list(request, &["spec", "usages"]).iter().filter_map(Value::as_str).collect()
}

/// Whether a condition of a type holds.
pub fn is(request: &Value, kind: &str) -> bool {
    condition::find(request, kind).is_some_and(|condition| text(condition, &["status"]) != "False")
}

/// The first block of PEM that is a request.
fn der_of(pem: &[u8]) -> Option<Vec<u8>> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE REQUEST-----";
    const END: &str = "-----END CERTIFICATE REQUEST-----";
    let (_, rest) = std::str::from_utf8(pem).ok()?.split_once(BEGIN)?;
    let (block, _) = rest.split_once(END)?;
    let text: String = block.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    BASE64.decode(text).ok()
}

const fn none_of(count: usize, kind: &'static str) -> Result<(), Objection> {
    if count == 0 { Ok(()) } else { Err(Objection::Names(kind)) }
}

/// Exactly these three, of which keys other than RSA's do without the first.
fn kubelet_usages(usages: &[&str], purpose: &str, wanted: &'static str) -> Result<(), Objection> {
    let has = |usage: &str| usages.contains(&usage);
    let known = usages.iter().all(|usage| ["key encipherment", "digital signature", purpose].contains(usage));
    if known && has("digital signature") && has(purpose) { Ok(()) } else { Err(Objection::Usages(wanted)) }
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
    use machinery::value;

    use super::*;

    /// A request by a node named `n`: O=system:nodes, CN=system:node:n; P-256.
    pub const OF_NODE: &str = include_str!("csr/node.pem");
    /// The same, with the name `n.example` and the address 10.0.0.7.
    pub const OF_SERVER: &str = include_str!("csr/server.pem");
    /// By somebody else: O=people, CN=jane.
    pub const OF_PERSON: &str = include_str!("csr/person.pem");
    pub const OF_COMPONENT: &str = include_str!("csr/component.pem");

    /// A request as the API server has it.
    pub fn request(pem: &str, signer: &str, usages: &[&str]) -> Value {
        let usages: Vec<Value> = usages.iter().map(|usage| (*usage).into()).collect();
        value!({"metadata": {"name": "x"}, "spec": {"request": (BASE64.encode(pem)), "signerName": signer,
            "usages": usages, "username": "system:node:n", "groups": ["system:nodes", "system:authenticated"]}})
    }

    #[test]
    fn requests_are_read() {
        let check = |pem: &str, name: &str, organization: &str, names: (usize, usize)| {
            let asked = Asked::of(&request(pem, CLIENT, &[])).unwrap();
            assert_eq!(
                (asked.common_name.as_str(), asked.organizations.as_slice()),
                (name, &[organization.into()][..])
            );
            assert_eq!((asked.dns_names, asked.addresses), names);
        };
        check(OF_NODE, "system:node:n", "system:nodes", (0, 0));
        check(OF_SERVER, "system:node:n", "system:nodes", (1, 1));
        check(OF_PERSON, "jane", "people", (0, 0));
        assert_eq!(Asked::of(&request("nonsense", CLIENT, &[])), None);
        assert_eq!(Asked::of(&value!({})), None);
    }

    #[test]
    fn each_signer_has_its_own_rules() {
        let check = |pem: &str, signer: &str, usages: &[&str], expect: &str| {
            let said = Asked::of(&request(pem, signer, usages)).unwrap().check(signer, usages);
            assert_eq!(said.map_or_else(|error| error.to_string(), |()| String::new()), expect, "{signer} {usages:?}");
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
        check(OF_PERSON, CLIENT, &["client auth", "server auth"], "invalid usage for client certificate: server auth");
        check(OF_PERSON, CLIENT, &[], "missing required usage for client certificate: client auth");
        check(OF_PERSON, LEGACY_UNKNOWN, &["cert sign"], "");
    }
}

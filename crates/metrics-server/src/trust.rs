//! Trusted CAs from the ConfigMap extension-apiserver-authentication, for the verification of client certificates.

use std::sync::Arc;

use apimachinery::{Str, Value, json};
use auth::User;
use auth::request_header;
use auth::x509::Subject;
use component_base::clock;
use http::HeaderMap;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

/// Namespace of the ConfigMap.
pub(crate) const NAMESPACE: &str = "kube-system";
/// Name of the ConfigMap.
pub(crate) const NAME: &str = "extension-apiserver-authentication";

/// Certificate verifiers of the request header CA and of the client CA.
#[derive(Clone, Default)]
pub(crate) struct Trust {
    clients: Option<Arc<dyn ClientCertVerifier>>,
    proxies: Option<(Arc<dyn ClientCertVerifier>, request_header::Config)>,
    /// Accepts certificates of either CA.
    any: Option<Arc<dyn ClientCertVerifier>>,
}

/// The client of a connection.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// A front proxy, whose requests contain the user in headers.
    Proxy(request_header::Config, Str),
    User(User),
    /// A client without a certificate that identifies a user.
    Anonymous,
}

impl Trust {
    /// Reads the ConfigMap. Missing or invalid entries are not trusted.
    pub(crate) fn read(map: &Value) -> Self {
        let text = |key: &str| map.at(&["data", key]).and_then(Value::as_str).unwrap_or_default();
        let (of_clients, of_proxies) =
            (certificates(text("client-ca-file")), certificates(text("requestheader-client-ca-file")));
        let list = |key: &str| -> Vec<Str> {
            let list = json::parse(text(key).as_bytes()).unwrap_or_default();
            list.as_array().unwrap_or_default().iter().filter_map(Value::as_str).map(Str::from).collect()
        };
        let headers = request_header::Config {
            allowed_names: list("requestheader-allowed-names"),
            username_headers: list("requestheader-username-headers"),
            uid_headers: list("requestheader-uid-headers"),
            group_headers: list("requestheader-group-headers"),
            extra_header_prefixes: list("requestheader-extra-headers-prefix"),
        };
        let proxies = headers.normalize().ok().and_then(|headers| Some((verifier(&of_proxies)?, headers)));
        Self { clients: verifier(&of_clients), proxies, any: verifier(&[of_clients, of_proxies].concat()) }
    }

    /// Returns the verifier for TLS handshakes; none without a trusted CA.
    pub(crate) fn verifier(&self) -> Option<Arc<dyn ClientCertVerifier>> {
        self.any.clone()
    }

    /// Returns the client with this verified certificate chain.
    pub(crate) fn peer(&self, chain: Option<&[CertificateDer<'_>]>) -> Peer {
        let Some((own, between)) = chain.and_then(<[_]>::split_first) else { return Peer::Anonymous };
        let Ok(subject) = Subject::read(own, clock::now()) else { return Peer::Anonymous };
        let vouches =
            |verifier: &Arc<dyn ClientCertVerifier>| verifier.verify_client_cert(own, between, UnixTime::now()).is_ok();
        if let Some((_, headers)) = self.proxies.as_ref().filter(|(verifier, _)| vouches(verifier)) {
            return Peer::Proxy(headers.clone(), subject.common_name);
        }
        let user = self.clients.as_ref().filter(|verifier| vouches(verifier)).and_then(|_| subject.user());
        user.map_or(Peer::Anonymous, Peer::User)
    }
}

impl Peer {
    /// Returns the user of a request, as far as the connection identifies it.
    pub(crate) fn user(&self, headers: &HeaderMap) -> Option<User> {
        match self {
            Self::User(user) => Some(user.clone()),
            Self::Proxy(config, name) => {
                let headers: Vec<(&str, &str)> =
                    headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?))).collect();
                config.authenticate(name, &headers).ok().flatten()
            }
            Self::Anonymous => None,
        }
    }
}

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok).collect()
}

fn verifier(roots: &[CertificateDer<'static>]) -> Option<Arc<dyn ClientCertVerifier>> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(roots.iter().cloned());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    // Clients without a certificate may authenticate by a token.
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider).allow_unauthenticated();
    builder.build().ok()
}

#[cfg(test)]
mod tests {
    use apimachinery::value;
    use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

    use super::*;

    /// Returns a CA certificate in PEM, and a certificate that it signed.
    fn new_ca(name: &str, signed: &str) -> (String, CertificateDer<'static>) {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, signed);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let made = params.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
        (pem, made.der().clone())
    }

    #[test]
    fn proxies_impersonate_users_and_clients_authenticate_themselves() {
        let (client_ca, client) = new_ca("clients", "alice");
        let (proxy_ca, proxy) = new_ca("proxies", "front");
        let (_, stranger) = new_ca("strangers", "front");
        let map = value!({"data": {"client-ca-file": client_ca, "requestheader-client-ca-file": proxy_ca,
            "requestheader-allowed-names": "[\"front\"]", "requestheader-username-headers": "[\"X-Remote-User\"]",
            "requestheader-group-headers": "[\"X-Remote-Group\"]", "requestheader-extra-headers-prefix": "[]"}});
        let trust = Trust::read(&map);
        let headers: HeaderMap = [("x-remote-user", "bob")]
            .map(|(name, value)| (http::HeaderName::from_static(name), http::HeaderValue::from_static(value)))
            .into_iter()
            .collect();
        let check = |trust: &Trust, chain: Option<&[CertificateDer<'_>]>, expect: Option<&str>| {
            let user = trust.peer(chain).user(&headers);
            assert_eq!(user.as_ref().map(|user| user.name.as_str()), expect);
        };
        check(&trust, Some(std::slice::from_ref(&proxy)), Some("bob"));
        check(&trust, Some(&[client]), Some("alice"));
        check(&trust, Some(&[stranger]), None);
        check(&trust, Some(&[]), None);
        check(&trust, None, None);
        let no_ca = Trust::read(&value!({"data": {"client-ca-file": "nonsense", "requestheader-allowed-names": "["}}));
        assert!(no_ca.verifier().is_none());
        check(&no_ca, Some(&[proxy]), None);
    }
}

//! Kubelet certificates: TLS bootstrap with a bootstrap kubeconfig, and rotation before expiry.
//!
//! A certificate and its key share one file. `kubelet-client-current.pem` or `kubelet-server-current.pem` is a symlink
//! to the newest file; its users read it again when it changes.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{Value, json, value, yaml};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{Client, Event, Target, WatchOptions, WriteOptions};
use component_base::clock;
use controller::kinds;
use rcgen::{CertificateParams, DnType, KeyPair};
use x509_parser::extensions::GeneralName;

use crate::blocking;

/// Timeout for a CertificateSigningRequest to be signed before another one is created.
const TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Share of its validity after which a certificate is renewed, in percent.
const RENEW_PERCENT: i64 = 80;
/// Delay after a failed attempt.
const RETRY: Duration = Duration::from_secs(30);

/// A certificate could not be obtained.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    #[error("failed to create the certificate request")]
    Generate(#[from] rcgen::Error),
    #[error("failed to submit the certificate request to the API server")]
    Api(#[from] Box<client::Error>),
    /// The request was denied, failed or timed out.
    #[error("certificate request {name} {what}")]
    NotIssued {
        name: String,
        /// The outcome of the request.
        what: String,
    },
    #[error("failed to write {path}")]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The bootstrap kubeconfig is invalid.
    #[error("{path} is not a kubeconfig")]
    Kubeconfig { path: PathBuf },
}

/// The usage of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Client certificate of the kubelet for the API server.
    Client,
    /// Serving certificate of the kubelet for the node's name and these addresses.
    Serving(Vec<String>),
    /// Client certificate of another node component for the API server.
    Component {
        /// Stem of the certificate's file name.
        name: String,
        user: String,
        /// Empty for no group.
        group: String,
    },
}

impl Purpose {
    const fn signer(&self) -> &'static str {
        match self {
            Self::Client => "kubernetes.io/kube-apiserver-client-kubelet",
            Self::Serving(_) => "kubernetes.io/kubelet-serving",
            Self::Component { .. } => "kubernetes.io/kube-apiserver-client",
        }
    }

    const fn usage(&self) -> &'static str {
        match self {
            Self::Client | Self::Component { .. } => "client auth",
            Self::Serving(_) => "server auth",
        }
    }

    fn stem(&self) -> &str {
        match self {
            Self::Client => "kubelet-client",
            Self::Serving(_) => "kubelet-server",
            Self::Component { name, .. } => name,
        }
    }

    /// Returns the organization and common name of the certificate.
    fn subject(&self, node: &str) -> (String, String) {
        match self {
            Self::Client | Self::Serving(_) => ("system:nodes".to_owned(), format!("system:node:{node}")),
            Self::Component { user, group, .. } => (group.clone(), user.clone()),
        }
    }

    /// Returns the symlink to the newest certificate and key.
    pub fn file(&self, cert_dir: &Path) -> PathBuf {
        cert_dir.join(format!("{}-current.pem", self.stem()))
    }
}

/// Returns the symlink to the kubelet's newest client certificate and key.
pub fn current(cert_dir: &Path) -> PathBuf {
    Purpose::Client.file(cert_dir)
}

/// Writes a kubeconfig with the server of the bootstrap kubeconfig and the certificate and key in `pem`.
pub fn write_kubeconfig(bootstrap: &Path, kubeconfig: &Path, pem: &Path) -> Result<(), BootstrapError> {
    let none = || BootstrapError::Kubeconfig { path: bootstrap.to_owned() };
    let text = fs::read_to_string(bootstrap).map_err(|_| none())?;
    let mut config = yaml::parse(&text).map_err(|_| none())?;
    let pem = pem.display().to_string();
    let user = value!({"client-certificate": (pem.as_str()), "client-key": (pem.as_str())});
    let users = config.get_mut("users").and_then(Value::as_array_mut).ok_or_else(none)?;
    for entry in users.iter_mut().filter_map(Value::as_object_mut) {
        entry.insert("user", user.clone());
    }
    write_secret(kubeconfig, json::to_string_pretty(&config).as_bytes())
}

/// Creates a CertificateSigningRequest, waits until it is signed and stores the certificate.
pub async fn obtain(client: &Client, node: &str, cert_dir: &Path, purpose: &Purpose) -> Result<(), BootstrapError> {
    let key = KeyPair::generate()?;
    let mut params = match purpose {
        Purpose::Client | Purpose::Component { .. } => CertificateParams::default(),
        Purpose::Serving(addresses) => {
            CertificateParams::new([node.to_owned()].into_iter().chain(addresses.iter().cloned()).collect::<Vec<_>>())?
        }
    };
    params.distinguished_name = rcgen::DistinguishedName::new();
    let (group, user) = purpose.subject(node);
    if !group.is_empty() {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params.distinguished_name.push(DnType::CommonName, user);
    let request = params.serialize_request(&key)?.pem()?;
    let certificate = sign(client, &request, purpose).await?;
    let stamp = clock::now().to_string().replace(':', "-");
    let name = format!("{}-{stamp}.pem", purpose.stem());
    let content = format!("{certificate}{}", key.serialize_pem());
    blocking::in_place(|| publish(cert_dir, &name, content.as_bytes(), purpose))
}

/// Writes a certificate with its key and points the purpose's symlink to it.
fn publish(cert_dir: &Path, name: &str, content: &[u8], purpose: &Purpose) -> Result<(), BootstrapError> {
    sys::create_dirs(cert_dir, 0o700).map_err(|source| BootstrapError::File { path: cert_dir.to_owned(), source })?;
    write_secret(&cert_dir.join(name), content)?;
    let (link, fresh) = (purpose.file(cert_dir), cert_dir.join(format!(".{}-new", purpose.stem())));
    // A killed predecessor may have left the temporary link behind.
    let _ = fs::remove_file(&fresh);
    let linked = symlink(name, &fresh).and_then(|()| fs::rename(&fresh, &link)).and_then(|()| sys::sync_dir(cert_dir));
    linked.map_err(|source| BootstrapError::File { path: link, source })
}

/// Renews a certificate forever, before it expires. Requests one immediately if none exists or if the node has
/// addresses that the certificate lacks. Calls `renewed` after each renewal.
pub async fn keep(client: Client, node: String, cert_dir: PathBuf, purpose: Purpose, renewed: impl Fn() + Send) {
    let mut came = None;
    loop {
        let file = purpose.file(&cert_dir);
        let usable = blocking::in_place(|| Life::of(&file).filter(|_| names_all(&file, &node, &purpose)));
        if let Some(life) = usable {
            let wait = life.renew_at(came).since(clock::now());
            tokio::time::sleep(Duration::from_nanos(wait.nanos().max(0).unsigned_abs())).await;
        }
        match obtain(&client, &node, &cert_dir, &purpose).await {
            Ok(()) => {
                tracing::info!(name = purpose.stem(), "renewed the certificate");
                came = Some(clock::now());
                renewed();
            }
            Err(error) => {
                tracing::warn!(name = purpose.stem(), error = %error, "failed to renew the certificate");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Whether a serving certificate contains the node's name and all its addresses. Always true for client certificates.
fn names_all(file: &Path, node: &str, purpose: &Purpose) -> bool {
    let Purpose::Serving(addresses) = purpose else { return true };
    let text = fs::read(file).unwrap_or_default();
    let Ok((_, pem)) = x509_parser::pem::parse_x509_pem(&text) else { return false };
    let Ok(certificate) = pem.parse_x509() else { return false };
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.map(|names| names.value.general_names.as_slice()).unwrap_or_default();
    let is_named = |expected: &str| {
        names.iter().any(|name| match (name, expected.parse::<IpAddr>()) {
            (GeneralName::IPAddress(bytes), Ok(IpAddr::V4(expected))) => *bytes == expected.octets(),
            (GeneralName::IPAddress(bytes), Ok(IpAddr::V6(expected))) => *bytes == expected.octets(),
            (GeneralName::DNSName(name), Err(_)) => *name == expected,
            _ => false,
        })
    };
    is_named(node) && addresses.iter().all(|address| is_named(address))
}

async fn sign(client: &Client, request: &str, purpose: &Purpose) -> Result<String, BootstrapError> {
    let object = value!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "csr-"},
        "spec": {"request": (STANDARD.encode(request)), "signerName": (purpose.signer()),
            "usages": ["digital signature", (purpose.usage())]}});
    let target = Target::all(&kinds::CERTIFICATE_SIGNING_REQUESTS);
    let made = client.create(&target, &object, &WriteOptions::default()).await.map_err(Box::new)?;
    let name = Meta::of(&made).name().to_owned();
    let options = WatchOptions {
        field_selector: format!("metadata.name={name}"),
        send_initial_events: true,
        timeout: Some(TIMEOUT),
        ..WatchOptions::default()
    };
    let unsigned = |what: String| BootstrapError::NotIssued { name: name.clone(), what };
    let mut watch = client.watch(&target, &options).await.map_err(Box::new)?;
    while let Some(event) = watch.next().await {
        match event.map_err(Box::new)? {
            Event::Added(object) | Event::Modified(object) => match verdict(&object) {
                Some(Ok(certificate)) => return Ok(certificate),
                Some(Err(cause)) => return Err(unsigned(cause)),
                None => {}
            },
            Event::Deleted(_) => return Err(unsigned("was deleted".to_owned())),
            Event::Bookmark { .. } => {}
        }
    }
    Err(unsigned("was not signed in time".to_owned()))
}

/// Returns the signed certificate or the reason of its denial or failure; `None` while the request is pending.
fn verdict(request: &Value) -> Option<Result<String, String>> {
    let conditions = request["status"]["conditions"].as_array().unwrap_or_default();
    let bad = conditions.iter().find(|one| matches!(one.str_at(&["type"]), Some("Denied" | "Failed")));
    if let Some(bad) = bad {
        let text = |field: &str| bad.str_at(&[field]).unwrap_or_default();
        return Some(Err(format!("is {}: {}", text("type").to_ascii_lowercase(), text("message"))));
    }
    let bytes = STANDARD.decode(request.str_at(&["status", "certificate"])?).ok()?;
    String::from_utf8(bytes).ok().filter(|text| !text.is_empty()).map(Ok)
}

/// Whether the file contains an expired certificate.
pub fn is_over(file: &Path, now: Time) -> bool {
    Life::of(file).is_some_and(|life| now >= life.to)
}

/// Validity period of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Life {
    from: Time,
    to: Time,
}

impl Life {
    /// Reads the validity period of the certificate in a file.
    fn of(file: &Path) -> Option<Self> {
        let text = fs::read(file).ok()?;
        let (_, pem) = x509_parser::pem::parse_x509_pem(&text).ok()?;
        let validity = pem.parse_x509().ok()?.validity().clone();
        let time = |at: x509_parser::time::ASN1Time| Time::from_unix(at.timestamp(), 0);
        Some(Self { from: time(validity.not_before), to: time(validity.not_after) })
    }

    /// Returns the renewal time. A certificate obtained at `came` is used for at least half of its remaining validity:
    /// signers backdate certificates, and a signer of short-lived ones would receive requests continuously.
    fn renew_at(self, came: Option<Time>) -> Time {
        let part = |from: Time, percent: i64| {
            from.plus(apimachinery::time::Duration::from_nanos(self.to.since(from).nanos() / 100 * percent))
        };
        let at = part(self.from, RENEW_PERCENT);
        came.map_or(at, |came| at.max(part(came, 50)))
    }
}

fn write_secret(path: &Path, bytes: &[u8]) -> Result<(), BootstrapError> {
    sys::replace_file(path, bytes, 0o600).map_err(|source| BootstrapError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_request_is_pending_signed_or_denied() {
        assert_eq!(verdict(&value!({"status": {}})), None);
        assert_eq!(verdict(&value!({"status": {"certificate": "Y2VydA=="}})), Some(Ok("cert".into())));
        let denied = value!({"status": {"conditions": [{"type": "Denied", "message": "who are you"}]}});
        assert_eq!(verdict(&denied), Some(Err("is denied: who are you".into())));
    }

    #[test]
    fn bootstrap_kubeconfig_becomes_kubeconfig_with_client_certificate() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("b"), dir.path().join("k"));
        fs::write(
            &from,
            "clusters: [{name: c, cluster: {server: 'https://x'}}]\nusers: [{name: u, user: {token: t}}]\n",
        )
        .unwrap();
        write_kubeconfig(&from, &to, &current(dir.path())).unwrap();
        let made = json::parse(&fs::read(&to).unwrap()).unwrap();
        assert_eq!(made["clusters"][0]["cluster"]["server"], Value::from("https://x"));
        assert!(made["users"][0]["user"].get("token").is_none());
        assert_eq!(made["users"][0]["user"]["client-key"], Value::from(current(dir.path()).display().to_string()));
    }

    #[test]
    fn certificate_is_renewed_before_expiry_and_not_continuously() {
        let at = |seconds| Time::from_unix(seconds, 0);
        let check = |from: i64, to: i64, came: Option<i64>, expect: i64| {
            let life = Life { from: at(from), to: at(to) };
            assert_eq!(life.renew_at(came.map(at)), at(expect), "{from} {to} {came:?}");
        };
        check(0, 1000, None, 800);
        check(0, 1000, Some(300), 800);
        check(0, 360, None, 288);
        check(0, 360, Some(300), 330);
    }

    #[test]
    fn serving_certificate_is_replaced_when_node_addresses_change() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.pem");
        let names = ["n", "192.0.2.1", "2001:db8::1"].map(str::to_owned);
        fs::write(&file, rcgen::generate_simple_self_signed(names).unwrap().cert.pem()).unwrap();
        let fits = |node: &str, addresses: &[&str]| {
            names_all(&file, node, &Purpose::Serving(addresses.iter().map(|it| (*it).to_owned()).collect()))
        };
        assert!(fits("n", &["192.0.2.1", "2001:db8::1"]));
        assert!(!fits("n", &["192.0.2.2"]));
        assert!(!fits("m", &["192.0.2.1"]));
        assert!(names_all(&file, "m", &Purpose::Client));
    }

    #[test]
    fn expired_certificate_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["x".to_owned()]).unwrap();
        let file = dir.path().join("c.pem");
        fs::write(&file, made.cert.pem()).unwrap();
        let life = Life::of(&file).unwrap();
        assert!(life.from < life.to && !is_over(&file, life.from) && is_over(&file, life.to));
        assert!(!is_over(&dir.path().join("none"), life.to), "a missing certificate is not expired");
    }
}

//! The kubelet's own certificates: asked for with a bootstrap credential, and renewed before they end.
//!
//! A certificate and its key are one file, `kubelet-client-current.pem` or `kubelet-server-current.pem`, a link to the newest:
//! whoever uses it reads it again when it changes.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{Client, Event, Target, WatchOptions, WriteOptions};
use driver::clock;
use machinery::meta::Meta;
use machinery::time::Time;
use machinery::{Value, json, value, yaml};
use rcgen::{CertificateParams, DnType, KeyPair};
use reconcile::kinds;
use x509_parser::extensions::GeneralName;

use crate::blocking;

/// How long a request waits to be signed before another one is made.
const PATIENCE: Duration = Duration::from_secs(15 * 60);
/// A certificate is renewed when this part of its life is over, in percent.
const RENEW_PERCENT: i64 = 80;
/// After a failure the next attempt is not far.
const RETRY: Duration = Duration::from_secs(30);

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// A key or a request cannot be made.
    #[error("a certificate request cannot be made")]
    Make(#[from] rcgen::Error),
    /// The API server.
    #[error("the API server does not take the certificate request")]
    Api(#[from] Box<client::Error>),
    /// Nobody signed it.
    #[error("certificate request {name} {what}")]
    Unsigned {
        /// Which one.
        name: String,
        /// What became of it.
        what: String,
    },
    /// A file.
    #[error("{path} cannot be written")]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The bootstrap configuration is none.
    #[error("{path} is no kubeconfig")]
    Kubeconfig {
        /// Which one.
        path: PathBuf,
    },
}

/// What a certificate is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To show the API server who asks.
    Client,
    /// To show those who ask the kubelet that it is the one, by its name and these addresses.
    Serving(Vec<String>),
    /// To show the API server that another component of the node asks.
    Component {
        /// What its file is called.
        name: String,
        /// The user that it is.
        user: String,
        /// The group that it is in; empty if none.
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

    /// Group and user that it names.
    fn subject(&self, node: &str) -> (String, String) {
        match self {
            Self::Client | Self::Serving(_) => ("system:nodes".to_owned(), format!("system:node:{node}")),
            Self::Component { user, group, .. } => (group.clone(), user.clone()),
        }
    }

    /// The file that holds certificate and key.
    pub fn file(&self, cert_dir: &Path) -> PathBuf {
        cert_dir.join(format!("{}-current.pem", self.stem()))
    }
}

/// The file that holds the client's certificate and key.
pub fn current(cert_dir: &Path) -> PathBuf {
    Purpose::Client.file(cert_dir)
}

/// Makes a kubeconfig out of a bootstrap kubeconfig: the same server, with the certificate and key in a file.
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

/// Asks for a certificate, waits for it to be signed and keeps it.
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

/// Writes a certificate with its key, and has the purpose's name lead to it.
fn publish(cert_dir: &Path, name: &str, content: &[u8], purpose: &Purpose) -> Result<(), BootstrapError> {
    sys::create_dirs(cert_dir, 0o700).map_err(|source| BootstrapError::File { path: cert_dir.to_owned(), source })?;
    write_secret(&cert_dir.join(name), content)?;
    let (link, fresh) = (purpose.file(cert_dir), cert_dir.join(format!(".{}-new", purpose.stem())));
    // A killed predecessor may have left one behind.
    let _ = fs::remove_file(&fresh);
    let linked = symlink(name, &fresh).and_then(|()| fs::rename(&fresh, &link)).and_then(|()| sys::sync_dir(cert_dir));
    linked.map_err(|source| BootstrapError::File { path: link, source })
}

/// Renews a certificate for ever, each time before it ends; the first is asked for at once, and so is another one if the node's
/// addresses are no longer those that the certificate names. Tells when there is a new one.
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
                tracing::info!(name = purpose.stem(), "there is a new certificate");
                came = Some(clock::now());
                renewed();
            }
            Err(error) => {
                tracing::warn!(name = purpose.stem(), error = %error, "there is no new certificate");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Whether a serving certificate names the node and all its addresses; others name no addresses.
fn names_all(file: &Path, node: &str, purpose: &Purpose) -> bool {
    let Purpose::Serving(addresses) = purpose else { return true };
    let text = fs::read(file).unwrap_or_default();
    let Ok((_, pem)) = x509_parser::pem::parse_x509_pem(&text) else { return false };
    let Ok(certificate) = pem.parse_x509() else { return false };
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.map(|names| names.value.general_names.as_slice()).unwrap_or_default();
    let is_named = |wanted: &str| {
        names.iter().any(|name| match (name, wanted.parse::<IpAddr>()) {
            (GeneralName::IPAddress(bytes), Ok(IpAddr::V4(wanted))) => *bytes == wanted.octets(),
            (GeneralName::IPAddress(bytes), Ok(IpAddr::V6(wanted))) => *bytes == wanted.octets(),
            (GeneralName::DNSName(name), Err(_)) => *name == wanted,
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
        timeout: Some(PATIENCE),
        ..WatchOptions::default()
    };
    let unsigned = |what: String| BootstrapError::Unsigned { name: name.clone(), what };
    let mut watch = client.watch(&target, &options).await.map_err(Box::new)?;
    while let Some(event) = watch.next().await {
        match event.map_err(Box::new)? {
            Event::Added(object) | Event::Modified(object) => match verdict(&object) {
                Some(Ok(certificate)) => return Ok(certificate),
                Some(Err(why)) => return Err(unsigned(why)),
                None => {}
            },
            Event::Deleted(_) => return Err(unsigned("is gone".to_owned())),
            Event::Bookmark { .. } => {}
        }
    }
    Err(unsigned("was not signed in time".to_owned()))
}

/// The certificate, or why there will be none; nothing while it is open.
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

/// Whether there is a certificate in a file that nobody takes any more.
pub fn is_over(file: &Path, now: Time) -> bool {
    Life::of(file).is_some_and(|life| now >= life.to)
}

/// From when to when a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Life {
    from: Time,
    to: Time,
}

impl Life {
    /// Of the certificate in a file.
    fn of(file: &Path) -> Option<Self> {
        let text = fs::read(file).ok()?;
        let (_, pem) = x509_parser::pem::parse_x509_pem(&text).ok()?;
        let validity = pem.parse_x509().ok()?.validity().clone();
        let time = |at: x509_parser::time::ASN1Time| Time::from_unix(at.timestamp(), 0);
        Some(Self { from: time(validity.not_before), to: time(validity.not_after) })
    }

    /// When it is to be renewed. One that came just now is used for half of what it has left: signers date certificates back,
    /// and one that gives short lives would be asked all the time.
    fn renew_at(self, came: Option<Time>) -> Time {
        let part = |from: Time, percent: i64| {
            from.plus(machinery::time::Duration::from_nanos(self.to.since(from).nanos() / 100 * percent))
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
    fn a_request_is_open_signed_or_refused() {
        assert_eq!(verdict(&value!({"status": {}})), None);
        assert_eq!(verdict(&value!({"status": {"certificate": "Y2VydA=="}})), Some(Ok("cert".into())));
        let denied = value!({"status": {"conditions": [{"type": "Denied", "message": "who are you"}]}});
        assert_eq!(verdict(&denied), Some(Err("is denied: who are you".into())));
    }

    #[test]
    fn a_bootstrap_configuration_becomes_one_with_the_kubelets_certificate() {
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
    fn a_certificate_is_renewed_before_it_ends_and_not_all_the_time() {
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
    fn a_serving_certificate_is_replaced_when_the_node_has_another_address() {
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
    fn a_certificate_is_over_when_its_time_is() {
        let dir = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["x".to_owned()]).unwrap();
        let file = dir.path().join("c.pem");
        fs::write(&file, made.cert.pem()).unwrap();
        let life = Life::of(&file).unwrap();
        assert!(life.from < life.to && !is_over(&file, life.from) && is_over(&file, life.to));
        assert!(!is_over(&dir.path().join("none"), life.to), "what is not there is not over");
    }
}

//! Joining a cluster: tokens that pin the cluster's CA, and the cluster information for nodes and servers that join.

pub(crate) mod bundle;
pub(crate) mod token_args;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use api::certificates::pem;
use apimachinery::{Resource, Value, json, yaml};
use auth::bootstrap_token::Token;
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use client::config::{Credential, Pem, Secret, Tls};
use client::{Client, Config, Settings, Target};

use crate::up::Options;

/// Group of users that authenticate with a join token.
pub(crate) const GROUP: &str = "system:bootstrappers:knarr:agents";
/// Additional group of users that authenticate with a join token for servers.
pub(crate) const SERVERS: &str = "system:bootstrappers:knarr:servers";
/// Secret with the encrypted files that servers share. Its keys are token IDs.
pub(crate) const SHARED: &str = "knarr-pki";
/// ConfigMap with the network settings for nodes and servers that join.
pub(crate) const SETTINGS: &str = "knarr-cluster";

pub(crate) static SECRETS: Resource = Resource::namespaced("", "v1", "secrets", "Secret");
pub(crate) static CONFIG_MAPS: Resource = Resource::namespaced("", "v1", "configmaps", "ConfigMap");

/// File in the data directory with the last known network settings.
const NETWORK_FILE: &str = "cluster.json";
/// Timeout of each request to a server.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between checks for the signature of cluster-info.
const SIGNATURE_RETRY: Duration = Duration::from_millis(200);
/// Maximum time that a start waits for current network settings.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(2);

/// `ID.SECRET.PIN`: a bootstrap token and the hash of the cluster's CA certificate. A token for servers has a fourth
/// part, the key of the files that servers share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JoinToken {
    /// The bootstrap token, `ID.SECRET`.
    pub token: String,
    /// SHA-256 of the CA certificate, in hexadecimal.
    pub pin: String,
    /// Key of the files that servers share, in hexadecimal.
    pub key: Option<String>,
}

/// Cluster information for a node or server that joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cluster {
    /// The CA certificate as PEM, re-encoded from the DER that the token pins.
    pub ca: String,
    pub network: Network,
}

/// Network settings that all hosts of a cluster share. The first server publishes them in a ConfigMap. A host that
/// joined stores the last known ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    /// CIDRs of pod IPs.
    pub pod_cidr: String,
    /// CIDRs of Service cluster IPs.
    pub service_cidr: String,
    /// Addresses of Services of type LoadBalancer.
    pub load_balancer: String,
}

impl Network {
    pub(crate) fn of(options: &Options) -> Self {
        let Options { pod_cidr, service_cidr, load_balancer, .. } = options.clone();
        Self { pod_cidr, service_cidr, load_balancer }
    }

    /// Returns the options with these network settings.
    pub(crate) fn given(self, options: Options) -> Options {
        let Self { pod_cidr, service_cidr, load_balancer } = self;
        Options { pod_cidr, service_cidr, load_balancer, ..options }
    }

    /// Returns the data of the ConfigMap, which is also the content of the file.
    pub(crate) fn data(&self) -> Value {
        apimachinery::value!({
            "podCIDR": (self.pod_cidr.as_str()),
            "serviceCIDR": (self.service_cidr.as_str()),
            "loadBalancer": (self.load_balancer.as_str()),
        })
    }

    fn parse(data: &Value) -> Result<Self> {
        let field = |name: &str| data.str_at(&[name]).map(str::to_owned);
        let needed = |name: &str| field(name).with_context(|| format!("the cluster's settings have no {name}"));
        Ok(Self {
            pod_cidr: needed("podCIDR")?,
            service_cidr: needed("serviceCIDR")?,
            // Servers of older versions do not publish address pools.
            load_balancer: field("loadBalancer").unwrap_or_else(|| Options::default().load_balancer),
        })
    }

    /// Reads the settings stored in a data directory.
    pub(crate) fn load(data_dir: &Path) -> Result<Option<Self>> {
        let file = data_dir.join(NETWORK_FILE);
        let Ok(text) = std::fs::read(&file) else { return Ok(None) };
        let parsed = json::parse(&text).map_err(anyhow::Error::from).and_then(|data| Self::parse(&data));
        parsed.map(Some).with_context(|| format!("{} is damaged; delete it and join again", file.display()))
    }

    /// Stores the settings in a data directory.
    pub(crate) fn keep(&self, data_dir: &Path) -> Result<()> {
        Ok(pki::write(&data_dir.join(NETWORK_FILE), &json::to_string(&self.data()), 0o644)?)
    }

    /// Returns the cluster's current settings and stores them, or the stored ones if no server responds.
    pub(crate) async fn refreshed(self, client: Result<Client>, data_dir: &Path) -> Result<Self> {
        let fetching = async { Self::fetch(&client?).await };
        match tokio::time::timeout(REFRESH_TIMEOUT, fetching).await.context("no response").flatten() {
            Ok(now) if now != self => {
                now.keep(data_dir)?;
                Ok(now)
            }
            Ok(same) => Ok(same),
            Err(error) => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "failed to get the current network settings from a server; using the stored ones"
                );
                Ok(self)
            }
        }
    }

    async fn fetch(client: &Client) -> Result<Self> {
        Self::parse(&get(client, "kube-system", SETTINGS).await?["data"])
    }
}

impl JoinToken {
    /// Parses a token.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let wrong =
            || "a join token has the form ID.SECRET.PIN[.KEY]; create one with `knarr token create` on a server";
        let is_hash = |part: &str| part.len() == 64 && part.bytes().all(|letter| letter.is_ascii_hexdigit());
        let parts: Vec<&str> = text.trim().split('.').collect();
        let (id, secret, pin, key) = match parts[..] {
            [id, secret, pin] => (id, secret, pin, None),
            [id, secret, pin, key] => (id, secret, pin, Some(key)),
            _ => bail!(wrong()),
        };
        let token = format!("{id}.{secret}");
        ensure!(Token::parse(&token).is_some() && is_hash(pin) && key.is_none_or(is_hash), wrong());
        Ok(Self { token, pin: pin.to_ascii_lowercase(), key: key.map(str::to_ascii_lowercase) })
    }

    /// Returns the ID of the bootstrap token, which is not secret.
    pub(crate) fn id(&self) -> &str {
        self.token.split('.').next().unwrap_or_default()
    }
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.token, self.pin)?;
        self.key.iter().try_for_each(|key| write!(f, ".{key}"))
    }
}

/// Returns the pin of a CA given as PEM: the SHA-256 of the DER of exactly one certificate.
pub(crate) fn pin(ca: &str) -> Result<String> {
    let der = pem::single_certificate(ca.as_bytes());
    Ok(pin_of(&der.context("the CA must be exactly one PEM certificate without surrounding text")?))
}

fn pin_of(der: &[u8]) -> String {
    hex(digest(&SHA256, der).as_ref())
}

/// Encodes bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Requests the cluster's CA and network settings from a server. The token is sent only after the CA has been verified
/// by the pin and the signature.
pub(crate) async fn fetch_cluster(server: &str, token: &JoinToken) -> Result<Cluster> {
    let untrusted = Tls { insecure_skip_verify: true, ..Tls::default() };
    let anonymous = connect(server, untrusted, Credential::None)?;
    let found = signed_info(&anonymous, token.id()).await.with_context(|| {
        format!("failed to get cluster-info from {server}; is it a Knarr server, and reachable from this host?")
    })?;
    let ca = trusted_ca(&found, token).with_context(|| format!("{server} is not trusted"))?;
    let bearer = bearer(server, &ca, token)?;
    let network = Network::fetch(&bearer).await.context("the server rejected the token")?;
    Ok(Cluster { ca, network })
}

/// Returns the ConfigMap cluster-info. Waits until the bootstrap signer has signed it with a token that was just
/// created.
async fn signed_info(client: &Client, token_id: &str) -> Result<Value> {
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    loop {
        let found = get(client, "kube-public", "cluster-info").await?;
        let is_signed = found.str_at(&["data", &signature_key(token_id)]).is_some();
        if is_signed || tokio::time::Instant::now() >= deadline {
            return Ok(found);
        }
        tokio::time::sleep(SIGNATURE_RETRY).await;
    }
}

/// Returns the CA certificate of cluster-info as PEM, if the token signed the kubeconfig and pins the certificate.
///
/// The PEM is encoded from the DER that was hashed, so that every later parser reads exactly this certificate.
fn trusted_ca(info: &Value, token: &JoinToken) -> Result<String> {
    let content = info.str_at(&["data", "kubeconfig"]).context("its cluster-info has no kubeconfig")?;
    let signature = info.str_at(&["data", &signature_key(token.id())]).with_context(|| {
        let id = token.id();
        format!("its cluster-info is not signed with token {id}; the token may have expired, create another one")
    })?;
    let signer = Token::parse(&token.token).context("the token is malformed")?;
    ensure!(signer.verifies(content, signature), "its cluster-info was not signed by a holder of the token");
    let pem = kubeconfig_ca(content).context("its cluster-info names no CA")?;
    let der = pem::single_certificate(pem.as_bytes()).context("its CA is not exactly one certificate")?;
    ensure!(pin_of(&der) == token.pin, "it is not a server of the cluster that the token is for: it has another CA");
    Ok(pem::certificate(&der))
}

fn signature_key(token_id: &str) -> String {
    format!("jws-kubeconfig-{token_id}")
}

/// Returns a client that authenticates with the token and trusts only this CA.
pub(crate) fn bearer(server: &str, ca: &str, token: &JoinToken) -> Result<Client> {
    let sure = Tls { certificate_authority: Some(Pem::Inline(ca.to_owned().into())), ..Tls::default() };
    connect(server, sure, Credential::Token(Secret::new(token.token.clone())))
}

/// Returns a kubeconfig that authenticates with the token.
pub(crate) fn bootstrap_kubeconfig(server: &str, ca: &Path, token: &JoinToken) -> String {
    kubeconfig(server, ca, &format!("{{token: {}}}", token.token))
}

/// Returns a kubeconfig that authenticates with the certificate and key of a file.
pub(crate) fn certificate_kubeconfig(server: &str, ca: &Path, pem: &Path) -> String {
    let pem = pem.display();
    kubeconfig(server, ca, &format!("{{client-certificate: {pem}, client-key: {pem}}}"))
}

fn kubeconfig(server: &str, ca: &Path, user: &str) -> String {
    let ca = ca.display();
    format!(
        "apiVersion: v1
kind: Config
clusters: [{{name: knarr, cluster: {{server: '{server}', certificate-authority: {ca}}}}}]
users: [{{name: knarr, user: {user}}}]
contexts: [{{name: knarr, context: {{cluster: knarr, user: knarr}}}}]
current-context: knarr
"
    )
}

fn connect(server: &str, tls: Tls, credential: Credential) -> Result<Client> {
    let address = server.parse().with_context(|| format!("--server {server:?} is not a URL"))?;
    let config = Config { tls, credential, ..Config::new(address) };
    Ok(Client::connect(&config, Settings { attempts_max: 1, ..Settings::default() })?)
}

/// Returns the files that servers share, still encrypted.
pub(crate) async fn shared(server: &str, cluster: &Cluster, token: &JoinToken) -> Result<String> {
    let client = bearer(server, &cluster.ca, token)?;
    let target = Target::named(&SECRETS, "kube-system", SHARED);
    let secret = tokio::time::timeout(TIMEOUT, client.get(&target)).await.context("no response")?;
    let secret = secret.context("the token is not a server token; create one with `knarr token create --server`")?;
    let locked = secret.str_at(&["data", token.id()]).context("the cluster has no key bundle for this token")?;
    Ok(String::from_utf8(BASE64.decode(locked)?)?)
}

async fn get(client: &Client, namespace: &str, name: &str) -> Result<Value> {
    let target = Target::named(&CONFIG_MAPS, namespace, name);
    Ok(tokio::time::timeout(TIMEOUT, client.get(&target)).await.context("no response")??)
}

/// Returns the CA of a kubeconfig.
fn kubeconfig_ca(kubeconfig: &str) -> Option<String> {
    let config = yaml::parse(kubeconfig).ok()?;
    let data = config["clusters"][0]["cluster"]["certificate-authority-data"].as_str()?.to_owned();
    String::from_utf8(BASE64.decode(data).ok()?).ok()
}

/// Returns the cluster-info ConfigMap.
pub(crate) fn cluster_info(server: &str, ca: &[u8]) -> Value {
    let config = format!(
        "apiVersion: v1
kind: Config
clusters:
- name: ''
  cluster:
    certificate-authority-data: {}
    server: {server}
",
        BASE64.encode(Bytes::copy_from_slice(ca))
    );
    apimachinery::value!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "cluster-info", "namespace": "kube-public"},
        "data": {"kubeconfig": config},
    })
}

#[cfg(test)]
mod trust_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn join_token_round_trips() {
        let pin = "0123456789abcdef".repeat(4);
        let token = JoinToken { token: "abcdef.0123456789abcdef".to_owned(), pin: pin.clone(), key: None };
        assert_eq!(JoinToken::parse(&token.to_string()).unwrap(), token);
        let of_server = JoinToken { key: Some(pin), ..token };
        assert_eq!(JoinToken::parse(&of_server.to_string()).unwrap(), of_server);
        for wrong in ["", "abcdef.0123456789abcdef", "abcdef.0123456789abcdef.xyz", "ABCDEF.0123456789abcdef.00"] {
            assert!(JoinToken::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn joined_node_stores_the_network_settings() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Network::load(dir.path()).unwrap(), None);
        let options = Options { load_balancer: "192.0.2.10-192.0.2.20".to_owned(), ..Options::default() };
        let network = Network::of(&options);
        network.keep(dir.path()).unwrap();
        assert_eq!(Network::load(dir.path()).unwrap(), Some(network.clone()));
        assert_eq!(network.given(Options::default()).load_balancer, options.load_balancer);
        let of_before = r#"{"podCIDR": "10.0.0.0/16", "serviceCIDR": "10.1.0.0/16"}"#;
        std::fs::write(dir.path().join(NETWORK_FILE), of_before).unwrap();
        assert_eq!(Network::load(dir.path()).unwrap().unwrap().load_balancer, "nodes");
        std::fs::write(dir.path().join(NETWORK_FILE), "{}").unwrap();
        assert!(Network::load(dir.path()).unwrap_err().to_string().contains("join again"));
    }
}

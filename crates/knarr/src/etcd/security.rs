//! TLS of client and peer traffic: etcd's flags and self-signed certificates.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ::store::etcd::tls::{ServerTls, TlsFiles, Versions};
use ::store::peer::{Address, Tls};
use anyhow::{Context, Result, bail, ensure};
use clap::{ArgAction, Args};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};

/// TLS of client and peer traffic.
#[derive(Args, Debug, Clone)]
pub(super) struct Security {
    /// File containing the serving certificate for clients.
    #[arg(long, env = "ETCD_CERT_FILE")]
    cert_file: Option<PathBuf>,
    /// File containing the private key matching --cert-file.
    #[arg(long, env = "ETCD_KEY_FILE")]
    key_file: Option<PathBuf>,
    /// CA file used to verify client certificates; clients must then have one.
    #[arg(long, env = "ETCD_TRUSTED_CA_FILE")]
    trusted_ca_file: Option<PathBuf>,
    /// Require client certificates; the common name is the user of requests without a token.
    #[arg(long, env = "ETCD_CLIENT_CERT_AUTH", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    pub(super) client_cert_auth: bool,
    /// Serve clients with a generated self-signed certificate.
    #[arg(long, env = "ETCD_AUTO_TLS", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    auto_tls: bool,
    /// Minimum TLS version of clients: `TLS1.2` or `TLS1.3`.
    #[arg(long, env = "ETCD_TLS_MIN_VERSION", default_value = "TLS1.2")]
    tls_min_version: String,
    /// Maximum TLS version of clients [default: TLS1.3].
    #[arg(long, env = "ETCD_TLS_MAX_VERSION", default_value = "")]
    tls_max_version: String,
    /// File containing the certificate for peer traffic.
    #[arg(long, env = "ETCD_PEER_CERT_FILE")]
    peer_cert_file: Option<PathBuf>,
    /// File containing the private key matching --peer-cert-file.
    #[arg(long, env = "ETCD_PEER_KEY_FILE")]
    peer_key_file: Option<PathBuf>,
    /// CA file used to verify the certificates of peers.
    #[arg(long, env = "ETCD_PEER_TRUSTED_CA_FILE")]
    peer_trusted_ca_file: Option<PathBuf>,
    /// Require certificates of peers; always on with `--peer-cert-file`.
    #[arg(long, env = "ETCD_PEER_CLIENT_CERT_AUTH", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    peer_client_cert_auth: bool,
    /// Encrypt peer traffic with generated self-signed certificates that are not verified.
    #[arg(long, env = "ETCD_PEER_AUTO_TLS", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    peer_auto_tls: bool,
    /// Validity of self-signed certificates in years.
    #[arg(long, env = "ETCD_SELF_SIGNED_CERT_VALIDITY", default_value_t = 1)]
    self_signed_cert_validity: u32,
}

/// Directories of self-signed certificates below the data directory.
const CLIENT_FIXTURES: &str = "fixtures/client";
const PEER_FIXTURES: &str = "fixtures/peer";
const YEAR_SECONDS: u64 = 365 * 24 * 3600;
/// Maximum validity: years in certificates have four digits.
const YEARS_MAX: u32 = 1000;

impl Security {
    /// Returns the TLS configuration of the client URLs.
    pub(super) fn client_tls(&self, data_dir: &Path, urls: &[String]) -> Result<Option<ServerTls>> {
        let pair = match (&self.cert_file, &self.key_file) {
            (Some(cert), Some(key)) => {
                if self.auto_tls {
                    tracing::warn!("--auto-tls has no effect: --cert-file is given");
                }
                Some((cert.clone(), key.clone()))
            }
            (None, None) if self.auto_tls => self.self_signed(&data_dir.join(CLIENT_FIXTURES), urls)?,
            (None, None) => None,
            _ => bail!("--cert-file and --key-file must be given together"),
        };
        let Some((cert, key)) = pair else { return Ok(None) };
        ensure!(!self.client_cert_auth || self.trusted_ca_file.is_some(), "--client-cert-auth needs --trusted-ca-file");
        let client_ca = self.trusted_ca_file.clone();
        Ok(Some(ServerTls::new(TlsFiles { cert, key, client_ca, versions: self.versions()? })?))
    }

    /// Returns the TLS configuration of the peer URLs.
    pub(super) fn peer_tls(&self, data_dir: &Path, urls: &[String]) -> Result<Option<Tls>> {
        match (&self.peer_cert_file, &self.peer_key_file, &self.peer_trusted_ca_file) {
            (Some(cert), Some(key), Some(ca)) => {
                if self.peer_auto_tls {
                    tracing::warn!("--peer-auto-tls has no effect: --peer-cert-file is given");
                }
                Ok(Some(Tls::from_files(cert, key, ca)?))
            }
            (None, None, None) if self.peer_auto_tls => {
                ensure!(!self.peer_client_cert_auth, "--peer-client-cert-auth needs --peer-trusted-ca-file");
                let Some((cert, key)) = self.self_signed(&data_dir.join(PEER_FIXTURES), urls)? else { return Ok(None) };
                tracing::warn!("--peer-auto-tls encrypts traffic between members but does not authenticate them");
                Ok(Some(Tls::unverified(&cert, &key)?))
            }
            (None, None, None) => Ok(None),
            _ => bail!("--peer-cert-file, --peer-key-file and --peer-trusted-ca-file must be given together"),
        }
    }

    pub(super) fn versions(&self) -> Result<Versions> {
        Ok(match (&*self.tls_min_version, &*self.tls_max_version) {
            ("" | "TLS1.2", "" | "TLS1.3") => Versions::Both,
            ("" | "TLS1.2", "TLS1.2") => Versions::Only12,
            ("TLS1.3", "" | "TLS1.3") => Versions::Only13,
            ("TLS1.3", "TLS1.2") => bail!("--tls-min-version is above --tls-max-version"),
            (min, max) => bail!("--tls-min-version {min:?} and --tls-max-version {max:?} must be TLS1.2 or TLS1.3"),
        })
    }

    /// Returns the self-signed certificate for the hosts of the URLs, and generates it on first use. Returns `None` if
    /// no URL is https.
    fn self_signed(&self, directory: &Path, urls: &[String]) -> Result<Option<(PathBuf, PathBuf)>> {
        let addresses: Vec<Address> = urls.iter().map(|url| Address::parse(url)).collect::<Result<_, _>>()?;
        let hosts: Vec<String> =
            addresses.into_iter().filter(|address| address.secure).map(|address| address.host).collect();
        if hosts.is_empty() {
            return Ok(None);
        }
        let (cert, key) = (directory.join("cert.pem"), directory.join("key.pem"));
        if !cert.exists() || !key.exists() {
            ensure!(self.self_signed_cert_validity > 0, "--self-signed-cert-validity must be more than 0");
            let made = certificate(hosts, self.self_signed_cert_validity, SystemTime::now())?;
            write_pair(directory, (&cert, &key), &made)
                .with_context(|| format!("failed to write {}", cert.display()))?;
        }
        Ok(Some((cert, key)))
    }
}

/// Generates a self-signed certificate and its key as PEM.
fn certificate(hosts: Vec<String>, years: u32, now: SystemTime) -> Result<(String, String)> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name.push(DnType::OrganizationName, "etcd");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let ends = now.checked_add(Duration::from_secs(u64::from(years) * YEAR_SECONDS));
    params.not_before = now.into();
    params.not_after = ends.filter(|_| years <= YEARS_MAX).context("--self-signed-cert-validity is too large")?.into();
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

/// Writes the key first, so that a crash never leaves a certificate without its key.
fn write_pair(directory: &Path, (cert, key): (&Path, &Path), made: &(String, String)) -> Result<()> {
    use std::io::Write;
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    for (path, text) in [(key, &made.1), (cert, &made.0)] {
        let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use clap::FromArgMatches;

    use super::*;

    fn security(given: &[&str]) -> Security {
        let command = Security::augment_args(clap::Command::new("etcd").no_binary_name(true));
        Security::from_arg_matches(&command.try_get_matches_from(given).unwrap()).unwrap()
    }

    #[test]
    fn auto_tls_generates_certificates_once() {
        let dir = tempfile::tempdir().unwrap();
        let (secure, plain) = (["https://localhost:2379".to_owned()], ["http://localhost:2379".to_owned()]);
        let auto = security(&["--auto-tls", "--peer-auto-tls"]);
        assert!(security(&[]).client_tls(dir.path(), &secure).unwrap().is_none());
        assert!(auto.client_tls(dir.path(), &plain).unwrap().is_none());
        assert!(!dir.path().join("fixtures").exists(), "only used certificates are created");

        assert!(auto.client_tls(dir.path(), &secure).unwrap().is_some());
        assert!(auto.peer_tls(dir.path(), &secure).unwrap().is_some());
        let key = dir.path().join("fixtures/client/key.pem");
        assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
        let first = std::fs::read(&key).unwrap();
        assert!(auto.client_tls(dir.path(), &secure).unwrap().is_some());
        assert_eq!(std::fs::read(&key).unwrap(), first, "a restart keeps the certificate");

        let endless = security(&["--auto-tls", "--self-signed-cert-validity=0"]);
        let other = tempfile::tempdir().unwrap();
        assert!(endless.client_tls(other.path(), &secure).is_err());
    }
}

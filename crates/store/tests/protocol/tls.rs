//! Client certificate authentication.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use store::client::{Client, Freshness, Remote, RemoteConfig};
use store::etcd::Endpoint;
use store::etcd::tls::{ServerTls, TlsFiles, Versions};

use crate::common::Single;

/// A CA in a directory, and the certificates it issues there.
struct TestCa {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: PathBuf,
}

impl TestCa {
    fn new(dir: &Path) -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        std::fs::create_dir_all(dir)?;
        std::fs::write(dir.join("ca.crt"), issuer.pem())?;
        Ok(Self { issuer, dir: dir.to_owned() })
    }

    /// Replaces the CA by another one.
    fn replace(&mut self) -> Result<()> {
        *self = Self::new(&self.dir)?;
        Ok(())
    }

    fn ca(&self) -> PathBuf {
        self.dir.join("ca.crt")
    }

    fn issue(&self, name: &str) -> Result<(PathBuf, PathBuf)> {
        self.issue_to(name, None)
    }

    fn issue_to(&self, name: &str, common_name: Option<&str>) -> Result<(PathBuf, PathBuf)> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
        if let Some(common_name) = common_name {
            params.distinguished_name.push(DnType::CommonName, common_name);
        }
        let certificate = params.signed_by(&key, &self.issuer)?;
        let (cert_file, key_file) = (self.dir.join(format!("{name}.crt")), self.dir.join(format!("{name}.key")));
        std::fs::write(&cert_file, certificate.pem())?;
        std::fs::write(&key_file, key.serialize_pem())?;
        Ok((cert_file, key_file))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_certificate_is_required_and_renewed_server_certificate_needs_no_restart() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut trusted_ca = TestCa::new(&dir.path().join("ours"))?;
    let others = TestCa::new(&dir.path().join("others"))?;
    let (cert, key) = trusted_ca.issue("server")?;
    let single = Single::start(store::etcd::Config::default()).await?;
    let tls = ServerTls::new(TlsFiles { cert, key, client_ca: Some(trusted_ca.ca()), versions: Versions::Both })?;
    let endpoint = Endpoint::open("127.0.0.1:0", Some(tls)).await?;
    let url = format!("https://{}", endpoint.local_addr()?);
    let router = store::etcd::router(single.backend.clone(), store::etcd::Config::default());
    tokio::spawn(store::etcd::serve(endpoint, router, std::future::pending()));

    let works = async |identity, ca: PathBuf| {
        let config = RemoteConfig { servers: vec![url.clone()], ca_file: Some(ca), identity };
        let client = Client::Remote(Box::new(Remote::new(&config)?));
        anyhow::Ok(client.get("a".into(), Freshness::Linearizable).await.is_ok())
    };
    ensure!(works(Some(trusted_ca.issue("client")?), trusted_ca.ca()).await?, "a client of ours is served");
    ensure!(!works(None, trusted_ca.ca()).await?, "a client without a certificate is not");
    ensure!(!works(Some(others.issue("client")?), trusted_ca.ca()).await?, "nor one of another authority");
    ensure!(
        !works(Some(trusted_ca.issue("client")?), others.ca()).await?,
        "and a client does not trust a server of another"
    );
    trusted_ca.issue("server")?;
    ensure!(works(Some(trusted_ca.issue("client")?), trusted_ca.ca()).await?, "the renewed certificate is used");

    let config = RemoteConfig {
        servers: vec![url.clone()],
        ca_file: Some(trusted_ca.ca()),
        identity: Some(trusted_ca.issue("client")?),
    };
    let old = Client::Remote(Box::new(Remote::new(&config)?));
    trusted_ca.replace()?;
    trusted_ca.issue("server")?;
    trusted_ca.issue("client")?;
    ensure!(old.get("a".into(), Freshness::Linearizable).await.is_ok(), "a connected client reloads its files too");
    single.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificate_common_name_is_the_user_if_enabled() -> Result<()> {
    use store::etcd::AuthConfig;
    use store::etcd::proto::etcdserverpb::{self as pb, auth_client::AuthClient};
    let dir = tempfile::tempdir()?;
    let trusted_ca = TestCa::new(dir.path())?;
    let single = Single::start(store::etcd::Config::default()).await?;
    let mut client = AuthClient::connect(single.endpoint.clone()).await?;
    let options = Some(store::etcd::proto::authpb::UserAddOptions { no_password: true });
    let root = pb::AuthUserAddRequest { name: "root".into(), options, ..Default::default() };
    client.user_add(root).await?;
    client.user_grant_role(pb::AuthUserGrantRoleRequest { user: "root".into(), role: "root".into() }).await?;
    client.auth_enable(pb::AuthEnableRequest {}).await?;
    let (cert, key) = trusted_ca.issue("server")?;
    for (client_cert_auth, name, expect) in [(true, "root", true), (true, "other", false), (false, "root", false)] {
        let files = TlsFiles {
            cert: cert.clone(),
            key: key.clone(),
            client_ca: Some(trusted_ca.ca()),
            versions: Versions::Both,
        };
        let endpoint = Endpoint::open("127.0.0.1:0", Some(ServerTls::new(files)?)).await?;
        let url = format!("https://{}", endpoint.local_addr()?);
        let auth = AuthConfig { client_cert_auth, ..Default::default() };
        let router = store::etcd::router(single.backend.clone(), store::etcd::Config { auth, ..Default::default() });
        let serving = tokio::spawn(store::etcd::serve(endpoint, router, std::future::pending()));
        let identity = Some(trusted_ca.issue_to("client", Some(name))?);
        let config = RemoteConfig { servers: vec![url], ca_file: Some(trusted_ca.ca()), identity };
        let client = Client::Remote(Box::new(Remote::new(&config)?));
        let found = client.get("a".into(), Freshness::Linearizable).await;
        ensure!(found.is_ok() == expect, "{client_cert_auth} {name}: {found:?}");
        serving.abort();
    }
    single.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_configured_tls_versions_are_accepted() -> Result<()> {
    use rustls::version::{TLS12, TLS13};
    let dir = tempfile::tempdir()?;
    let trusted_ca = TestCa::new(dir.path())?;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted_ca.issuer.der().clone())?;
    let roots = std::sync::Arc::new(roots);
    for (versions, old, new) in
        [(Versions::Both, true, true), (Versions::Only12, true, false), (Versions::Only13, false, true)]
    {
        let (cert, key) = trusted_ca.issue("server")?;
        let tls = ServerTls::new(TlsFiles { cert, key, client_ca: None, versions })?;
        let endpoint = Endpoint::open("127.0.0.1:0", Some(tls)).await?;
        let address = endpoint.local_addr()?;
        let serving = tokio::spawn(store::etcd::serve(endpoint, axum::Router::new(), std::future::pending()));
        for (version, expect) in [(&TLS12, old), (&TLS13, new)] {
            let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let client = rustls::ClientConfig::builder_with_provider(provider)
                .with_protocol_versions(&[version])?
                .with_root_certificates(roots.clone())
                .with_no_client_auth();
            let stream = tokio::net::TcpStream::connect(address).await?;
            let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(client));
            let met = connector.connect("127.0.0.1".try_into()?, stream).await;
            ensure!(met.is_ok() == expect, "{versions:?} and {version:?}: {:?}", met.err());
        }
        serving.abort();
    }
    Ok(())
}

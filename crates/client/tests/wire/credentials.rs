//! Wire tests of credentials: certificates, tokens, plugins, server names, proxies, and their rotation.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use apimachinery::json;
use client::config::{Credential, Exec, Interactive, Kubeconfig, Pem, Secret};
use client::{Client, Config, Error, Settings, Target, TransportError};
use http::StatusCode;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::requests::{CONFIG_MAPS, config_map};
use crate::server::{Call, DEADLINE, Server, TestCa, impatient};

/// Sends a request and returns it as received by the server.
async fn seen(client: &Client, server: &mut Server) -> ObservedCredentials {
    let target = Target::named(&CONFIG_MAPS, "a", "x");
    let both = async { tokio::join!(client.get(&target), observe(server)) };
    let (response, seen) = tokio::time::timeout(DEADLINE, both).await.expect("a response in time");
    response.unwrap();
    seen
}

struct ObservedCredentials {
    authorization: String,
    peer: Option<CertificateDer<'static>>,
}

async fn observe(server: &mut Server) -> ObservedCredentials {
    let call: Call = server.next().await;
    let seen = ObservedCredentials { authorization: call.header("authorization").to_owned(), peer: call.peer.clone() };
    call.respond(&config_map("x", 1));
    seen
}

fn connect(config: &Config) -> Client {
    Client::connect(config, impatient()).unwrap()
}

fn one_attempt() -> Settings {
    Settings { attempts_max: 1, ..impatient() }
}

#[tokio::test]
async fn server_of_another_ca_is_rejected() {
    let server = Server::start().await;
    let mut config = server.config();
    config.tls.certificate_authority = Some(Pem::Inline(TestCa::new().pem().into()));
    let client = Client::connect(&config, one_attempt()).unwrap();
    let error = client.get(&Target::named(&CONFIG_MAPS, "a", "x")).await.unwrap_err();
    assert!(matches!(error, Error::Transport(TransportError::Connect { .. })), "{error:?}");
}

#[tokio::test]
async fn insecure_skip_verify_accepts_any_server() {
    let mut server = Server::start().await;
    let mut config = server.config();
    config.tls.certificate_authority = None;
    config.tls.insecure_skip_verify = true;
    seen(&connect(&config), &mut server).await;
}

#[tokio::test]
async fn tls_server_name_overrides_the_host() {
    let mut server = Server::start().await;
    let mut config = server.config();
    config.tls.server_name = Some("kubernetes".into());
    seen(&connect(&config), &mut server).await;
    config.tls.server_name = Some("elsewhere".into());
    let client = Client::connect(&config, one_attempt()).unwrap();
    assert!(client.get(&Target::named(&CONFIG_MAPS, "a", "x")).await.is_err());
}

#[tokio::test]
async fn changed_token_file_is_reloaded() {
    let mut server = Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    let mut config = server.config();
    config.credential = Credential::TokenFile { path: path.clone(), fallback: Some(Secret::new("zero")) };
    let client = connect(&config);
    assert_eq!(seen(&client, &mut server).await.authorization, "Bearer zero", "without a file");
    std::fs::write(&path, "one\n").unwrap();
    assert_eq!(seen(&client, &mut server).await.authorization, "Bearer one");
    // As a kubelet rotates a token: another file is renamed over the old one.
    let next = directory.path().join("next");
    std::fs::write(&next, "number-two").unwrap();
    std::fs::rename(&next, &path).unwrap();
    assert_eq!(seen(&client, &mut server).await.authorization, "Bearer number-two");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(seen(&client, &mut server).await.authorization, "Bearer number-two", "while it is being replaced");
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn changed_client_certificate_is_reloaded() {
    let mut server = Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = (directory.path().join("tls.crt"), directory.path().join("tls.key"));
    let first = write_pair(&server, &certificate, &key, "first");
    let mut config = server.config();
    config.tls.client = Some((Pem::File(certificate.clone()), Pem::File(key.clone())));
    let client = connect(&config);
    assert_eq!(seen(&client, &mut server).await.peer.as_ref(), Some(&first));
    let second = write_pair(&server, &certificate, &key, "the-second-of-them");
    assert_eq!(seen(&client, &mut server).await.peer.as_ref(), Some(&second));
    std::fs::write(&key, "half a key").unwrap();
    assert_eq!(seen(&client, &mut server).await.peer.as_ref(), Some(&second), "unusable credentials are not sent");
}

fn write_pair(server: &Server, certificate: &Path, key: &Path, name: &str) -> CertificateDer<'static> {
    let (certificate_pem, key_pem) = server.ca.issue(&[name]);
    std::fs::write(certificate, &certificate_pem).unwrap();
    std::fs::write(key, key_pem).unwrap();
    CertificateDer::from_pem_slice(certificate_pem.as_bytes()).unwrap()
}

/// Creates a plugin that counts its runs, records its input, and prints the file `answer`.
fn plug_in(directory: &Path) -> Exec {
    let command = directory.join("plugin");
    let script = "#!/bin/sh\ncd \"$(dirname \"$0\")\"\necho run >> runs\necho \"$KUBERNETES_EXEC_INFO\" > info\n\
        [ \"$1\" = token ] && [ \"$EXTRA\" = yes ] && cat answer\n";
    std::fs::write(&command, script).unwrap();
    std::fs::set_permissions(&command, std::fs::Permissions::from_mode(0o755)).unwrap();
    Exec {
        api_version: "client.authentication.k8s.io/v1".into(),
        command,
        args: vec!["token".into()],
        env: vec![("EXTRA".into(), "yes".into())],
        provide_cluster_info: true,
        interactive: Interactive::Never,
        ..Exec::default()
    }
}

fn print(directory: &Path, status: &str) {
    let credential =
        format!(r#"{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{status}}}"#);
    std::fs::write(directory.join("answer"), credential).unwrap();
}

fn runs(directory: &Path) -> usize {
    std::fs::read_to_string(directory.join("runs")).unwrap().lines().count()
}

#[tokio::test]
async fn plugin_runs_again_when_its_token_expires_or_is_rejected() {
    let mut server = Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    let mut config = server.config();
    config.credential = Credential::Exec(plug_in(directory.path()));
    let client = connect(&config);
    print(directory.path(), r#"{"token":"one","expirationTimestamp":"2999-01-01T00:00:00Z"}"#);
    for _ in 0..2 {
        assert_eq!(seen(&client, &mut server).await.authorization, "Bearer one");
    }
    assert_eq!(runs(directory.path()), 1);
    let info = json::parse(&std::fs::read(directory.path().join("info")).unwrap()).unwrap();
    assert_eq!(info["kind"], "ExecCredential".into());
    assert_eq!(info["spec"]["cluster"]["server"], format!("https://{}/", server.address).into());
    assert_eq!(info["spec"]["interactive"], false.into());
    print(directory.path(), r#"{"token":"two","expirationTimestamp":"2001-01-01T00:00:00Z"}"#);
    let target = Target::named(&CONFIG_MAPS, "a", "x");
    let (result, ()) = tokio::join!(client.get(&target), async {
        server.next().await.respond_with(StatusCode::UNAUTHORIZED, &[], "");
    });
    assert_eq!(result.unwrap_err().status().unwrap().code, 401);
    for run in 2..4 {
        assert_eq!(seen(&client, &mut server).await.authorization, "Bearer two", "expired as soon as it is printed");
        assert_eq!(runs(directory.path()), run);
    }
}

#[tokio::test]
async fn plugin_may_return_a_certificate() {
    let mut server = Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = server.ca.issue(&["plugged"]);
    let status = apimachinery::value!({"clientCertificateData": (certificate.as_str()), "clientKeyData": key});
    print(directory.path(), &status.to_string());
    let mut config = server.config();
    config.credential = Credential::Exec(plug_in(directory.path()));
    let peer = seen(&connect(&config), &mut server).await.peer;
    assert_eq!(peer.unwrap(), CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap());
}

#[tokio::test]
async fn errors_name_a_failed_or_missing_plugin() {
    let server = Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    let mut exec = plug_in(directory.path());
    let mut config = server.config();
    let error_message = async |config: &Config| {
        let client = Client::connect(config, one_attempt()).unwrap();
        let error = client.get(&Target::named(&CONFIG_MAPS, "a", "x")).await.unwrap_err();
        let mut text = String::new();
        let mut cause: Option<&dyn std::error::Error> = Some(&error);
        while let Some(error) = cause {
            text = error.to_string();
            cause = error.source();
            if text.contains("/plugin") || text.contains("nothing-here") {
                break;
            }
        }
        text
    };
    config.credential = Credential::Exec(exec.clone());
    let command = exec.command.display().to_string();
    assert_eq!(
        error_message(&config).await,
        format!("{command} failed with exit status: 1"),
        "there is no response to print"
    );
    std::fs::write(directory.path().join("answer"), "hello").unwrap();
    assert_eq!(error_message(&config).await, "invalid character 'h' looking for beginning of value");
    exec.command = "nothing-here".into();
    exec.install_hint = "install it".into();
    config.credential = Credential::Exec(exec);
    assert_eq!(error_message(&config).await, "cannot run nothing-here (install it)");
}

#[tokio::test]
async fn requests_are_tunnelled_through_a_proxy() {
    let mut server = Server::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap();
    let upstream = server.address;
    let tunnel = tokio::spawn(async move {
        let (mut inner, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(inner.read_u8().await.unwrap());
        }
        inner.write_all(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n").await.unwrap();
        let mut outer = TcpStream::connect(upstream).await.unwrap();
        tokio::spawn(async move { tokio::io::copy_bidirectional(&mut inner, &mut outer).await });
        String::from_utf8(request).unwrap()
    });
    let mut config = server.config();
    config.proxy = Some(format!("http://me:pass@{proxy}").parse().unwrap());
    seen(&connect(&config), &mut server).await;
    let expect =
        format!("CONNECT {upstream} HTTP/1.1\r\nHost: {upstream}\r\nProxy-Authorization: Basic bWU6cGFzcw==\r\n\r\n");
    assert_eq!(tunnel.await.unwrap(), expect);
}

#[tokio::test]
async fn kubeconfig_file_configures_the_client() {
    let mut server = Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("ca.crt"), server.ca.pem()).unwrap();
    let file = directory.path().join("config");
    let text = format!(
        "{{current-context: c, clusters: [{{name: k, cluster: {{server: 'https://{}', certificate-authority: ca.crt}}}}], \
         users: [{{name: u, user: {{username: jane, password: secret}}}}], \
         contexts: [{{name: c, context: {{cluster: k, user: u}}}}]}}",
        server.address
    );
    std::fs::write(&file, text).unwrap();
    let absent = directory.path().join("absent");
    let kubeconfig = Kubeconfig::load(&[absent.clone(), file]).unwrap();
    let client = connect(&kubeconfig.config(None).unwrap());
    assert_eq!(seen(&client, &mut server).await.authorization, "Basic amFuZTpzZWNyZXQ=");
    assert!(Kubeconfig::load(&[absent]).is_err());
}

#[tokio::test]
async fn service_account_files_configure_the_client() {
    let mut server = Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    let (host, port) = (server.address.ip().to_string(), server.address.port().to_string());
    assert!(Config::in_cluster(&host, &port, directory.path()).is_err());
    for (name, text) in [("ca.crt", server.ca.pem()), ("token", "pod".into()), ("namespace", "team\n".into())] {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let config = Config::in_cluster(&host, &port, directory.path()).unwrap();
    assert_eq!(config.namespace, "team");
    assert_eq!(seen(&connect(&config), &mut server).await.authorization, "Bearer pod");
}

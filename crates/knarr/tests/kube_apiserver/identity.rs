//! Authentication: client certificates, front proxies, OIDC issuers, and files that change while the server runs.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use apimachinery::value;
use auth::keys::{PrivateKey, jwks};
use rcgen::KeyPair;

use crate::filters::until;
use crate::outside::{Outside, TestCa};
use crate::server::Server;

fn write(dir: &Path, name: &str, text: &str) -> String {
    let file = dir.join(name);
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Returns the user name that the server authenticates, or its error.
fn whoami(server: &Server, arguments: &[&str]) -> String {
    let review = r#"{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}"#;
    let mut all = vec!["-X", "POST", "-H", "Content-Type: application/json", "-d", review];
    all.extend(arguments);
    if !arguments.iter().any(|argument| argument.starts_with("Authorization:")) {
        all.extend(["-H", "Authorization:"]);
    }
    let (code, body) = server.code(&all, "/apis/authentication.k8s.io/v1/selfsubjectreviews");
    let response: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
    response["status"]["userInfo"]["username"].as_str().map_or(code, str::to_owned)
}

#[test]
fn client_certificates_and_front_proxies_authenticate() {
    let dir = tempfile::tempdir().unwrap();
    let (clients, proxies, strangers) = (TestCa::new("clients"), TestCa::new("proxies"), TestCa::new("strangers"));
    let file = |name: &str, text: &str| write(dir.path(), name, text);
    let pair = |ca: &TestCa, name: &str| {
        let (certificate, key) = ca.certify(name, "crew", &[]);
        (file(&format!("{name}.crt"), &certificate), file(&format!("{name}.key"), &key))
    };
    let (ann, proxy, eve) = (pair(&clients, "ann"), pair(&proxies, "front"), pair(&strangers, "eve"));
    let flags = [
        "--client-ca-file".to_owned(),
        file("clients.crt", &clients.pem()),
        "--requestheader-client-ca-file".to_owned(),
        file("proxies.crt", &proxies.pem()),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-allowed-names=front".to_owned(),
        "--authorization-mode=AlwaysAllow".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = Server::start_with(&flags);
    let authenticates_as = |pair: &(String, String), more: &[&str]| {
        let mut arguments = vec!["--cert", pair.0.as_str(), "--key", pair.1.as_str()];
        arguments.extend(more);
        whoami(&server, &arguments)
    };
    assert_eq!(authenticates_as(&ann, &[]), "ann");
    assert_eq!(authenticates_as(&proxy, &["-H", "X-Remote-User: bob", "-H", "X-Remote-Group: crew"]), "bob");
    assert_eq!(authenticates_as(&ann, &["-H", "X-Remote-User: bob"]), "ann", "other clients cannot impersonate");
    assert_eq!(authenticates_as(&eve, &[]), "401", "a certificate of an unknown CA");
    assert_eq!(
        authenticates_as(&eve, &["-H", "Authorization: Bearer plain-token"]),
        "jane",
        "the token is used although a certificate is present"
    );
    assert_eq!(whoami(&server, &[]), "401", "under AlwaysAllow anonymous requests are rejected");
}

#[test]
fn anonymous_requests_are_rejected_under_always_allow() {
    let anonymous = ["-H", "Authorization:"];
    let server = Server::start_with(&["--authorization-mode=AlwaysAllow", "--anonymous-auth=true"]);
    assert_eq!(server.code(&anonymous, "/api/v1/secrets").0, "401");
    assert_eq!(server.code(&["-H", "Authorization: Bearer plain-token"], "/api/v1/secrets").0, "200");
    let server = Server::start_with(&[]);
    assert_eq!(server.code(&anonymous, "/api/v1/secrets").0, "403", "other authorizers decide over them");
}

#[test]
fn changed_files_are_reloaded() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (TestCa::new("first"), TestCa::new("second"));
    let install = |ca: &TestCa| {
        let (certificate, key) = ca.certify("server", "", &["127.0.0.1"]);
        (write(dir.path(), "tls.crt", &certificate), write(dir.path(), "tls.key", &key))
    };
    let (certificate, key) = install(&first);
    let flags = ["--tls-cert-file", &certificate, "--tls-private-key-file", &key];
    let server = Server::start_with(&flags);
    let trusts = |ca: &TestCa| {
        let file = write(dir.path(), "ca.crt", &ca.pem());
        let url = format!("https://{}/readyz", server.address);
        let output =
            std::process::Command::new("curl").args(["-s", "--max-time", "20", "--cacert", &file, &url]).output();
        output.unwrap().status.success()
    };
    assert!(trusts(&first) && !trusts(&second));
    install(&second);
    until(|| trusts(&second), |trusted| *trusted);
    let sam = "Authorization: Bearer another-token";
    assert_eq!(whoami(&server, &["-H", sam]), "401");
    write(server.dir.path(), "tokens.csv", "a-token,admin,admin,\"system:masters\"\nanother-token,sam,sam\n");
    until(|| whoami(&server, &["-H", sam]), |name| name == "sam");
    assert_eq!(whoami(&server, &["-H", "Authorization: Bearer plain-token"]), "401");
}

#[test]
fn sni_selects_the_serving_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let signing_ca = TestCa::new("ours");
    let (certificate, key) = signing_ca.certify("sni", "", &["knarr.example"]);
    let pair = [write(dir.path(), "sni.crt", &certificate), write(dir.path(), "sni.key", &key)].join(",");
    let server = Server::start_with(&["--tls-sni-cert-key", &pair, "--tls-min-version", "VersionTLS13"]);
    let port = server.address.rsplit_once(':').unwrap().1;
    let ca = write(dir.path(), "ca.crt", &signing_ca.pem());
    let request = |more: &[&str]| {
        let mut command = std::process::Command::new("curl");
        command.args(["-s", "--max-time", "20", "--cacert", &ca]).args(more);
        command.args(["--resolve", &format!("knarr.example:{port}:127.0.0.1")]);
        command.arg(format!("https://knarr.example:{port}/readyz")).output().unwrap()
    };
    assert_eq!(String::from_utf8(request(&[]).stdout).unwrap(), "ok");
    assert!(!request(&["--tls-max", "1.2"]).status.success(), "older protocol versions are rejected");
}

#[test]
fn oidc_issuers_authenticate_users() {
    let issuer = Issuer::start();
    let dir = tempfile::tempdir().unwrap();
    let ca = write(dir.path(), "issuer.crt", &issuer.server.ca.pem());
    let flags = ["--oidc-issuer-url", &issuer.server.url, "--oidc-client-id", "knarr", "--oidc-ca-file", &ca];
    let more = ["--oidc-username-claim=name", "--oidc-username-prefix=oidc:", "--oidc-groups-claim=teams"];
    let flags: Vec<&str> = flags.iter().chain(&more).copied().collect();
    let server = Server::start_with(&flags);
    let whoami_with = |token: &str| whoami(&server, &["-H", &format!("Authorization: Bearer {token}")]);
    assert_eq!(whoami_with(&issuer.token("ann", "knarr")), "oidc:ann");
    assert_eq!(whoami_with(&issuer.token("ann", "others")), "401", "for another audience");
    assert_eq!(whoami_with(&Issuer::start().token("ann", "knarr")), "401", "of another issuer");
    drop(server);
    let config = |prefix: &str| {
        let ca_pem = issuer.server.ca.pem().replace('\n', "\n      ");
        format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer:\n    url: {}\n    audiences: [knarr]\n    certificateAuthority: |\n      {ca_pem}\n  claimMappings:\n    username: {{claim: name, prefix: '{prefix}'}}\nanonymous:\n  enabled: true\n  conditions: [{{path: /readyz}}]\n",
            issuer.server.url
        )
    };
    let file = write(dir.path(), "authentication.yaml", &config("first:"));
    let server = Server::start_with(&["--authentication-config", &file]);
    let whoami_with = |token: &str| whoami(&server, &["-H", &format!("Authorization: Bearer {token}")]);
    assert_eq!(whoami_with(&issuer.token("ann", "knarr")), "first:ann");
    assert_eq!(whoami(&server, &[]), "401", "other paths require authentication");
    assert_eq!(server.code(&["-H", "Authorization:"], "/readyz").0, "200");
    write(dir.path(), "authentication.yaml", &config("second:"));
    until(|| whoami_with(&issuer.token("ann", "knarr")), |name| name == "second:ann");
}

/// A small OIDC issuer that serves its documents over TLS.
struct Issuer {
    server: Outside,
    key: PrivateKey,
}

impl Issuer {
    fn start() -> Self {
        let key = PrivateKey::from_pem(&KeyPair::generate().unwrap().serialize_pem()).unwrap();
        let keys = jwks(&[key.public().clone()]);
        let server = Outside::start(move |url, head, _| {
            let discovery = value!({"issuer": url, "jwks_uri": (format!("{url}/keys"))});
            apimachinery::json::to_string(if head.starts_with("GET /keys ") { &keys } else { &discovery })
        });
        Self { server, key }
    }

    fn token(&self, name: &str, audience: &str) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let claims = value!({
            "iss": (self.server.url.as_str()), "aud": audience, "sub": "1", "name": name, "teams": ["crew"],
            "exp": (i64::try_from(now).unwrap() + 600),
        });
        auth::jwt::sign(&self.key, &claims).unwrap()
    }
}

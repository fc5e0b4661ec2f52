//! Sign in, sign out, timeouts, and attacks on sessions.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use dashboard::Settings;

use crate::support::{ADMIN, JANE, Stand, read_until, rest};

const SESSION: &str = "/dashboard/session";

fn token(token: &str) -> String {
    format!("{{\"token\": \"{token}\"}}")
}

#[tokio::test]
async fn token_signs_in_and_the_page_learns_only_the_user() {
    let stand = Stand::start().await;
    let reply = stand.marked("POST", SESSION, "", &token(JANE)).await;
    assert_eq!(reply.code, 200);
    assert!(reply.body.contains("\"user\":\"jane\"") && !reply.body.contains(JANE), "{}", reply.body);
    let cookie = reply.cookie_line().unwrap();
    for attribute in ["HttpOnly", "SameSite=Strict", "Path=/dashboard"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    let again = stand.get(SESSION, &reply.cookie()).await;
    assert!(again.code == 200 && again.body.contains("\"user\":\"jane\"") && !again.body.contains(JANE), "{again:?}");
}

#[tokio::test]
async fn invalid_credentials_are_rejected() {
    let stand = Stand::start().await;
    for (body, code) in [
        (token("wrong"), 401),
        (token(""), 400),
        (token("a\\r\\nImpersonate-User: admin"), 400),
        ("{\"code\": \"guess\"}".to_owned(), 400),
        ("{\"kubeconfig\": \"users: [{name: a, user: {tokenFile: /etc/passwd}}]\"}".to_owned(), 400),
        ("not json".to_owned(), 400),
    ] {
        let reply = stand.marked("POST", SESSION, "", &body).await;
        assert_eq!(reply.code, code, "{body}: {reply:?}");
        assert!(reply.cookie_line().is_none() && !reply.body.contains("root:"), "{reply:?}");
    }
    assert_eq!(stand.get(SESSION, "").await.body, "{\"user\":null}");
    let guessed = format!("Cookie: knarr-session-{}=guess\r\nX-Knarr-Session: guess\r\n", stand.port);
    assert_eq!(stand.get(SESSION, &guessed).await.code, 401);
}

#[tokio::test]
async fn forged_requests_of_other_sites_have_no_effect() {
    let stand = Stand::start().await;
    let cookie = stand.sign_in(ADMIN).await;
    let host = format!("Host: 127.0.0.1:{}\r\n", stand.port);
    let marked = format!("{host}X-Knarr-Dashboard: 1\r\n{cookie}");
    let namespace = "{\"apiVersion\": \"v1\", \"kind\": \"Namespace\", \"metadata\": {\"name\": \"forged\"}}";
    for headers in [
        // A form or an image of another site cannot add the header.
        format!("{host}{cookie}"),
        format!("{host}{cookie}Origin: https://evil.test\r\n"),
        format!("{marked}Origin: https://evil.test\r\n"),
        format!("{marked}Origin: null\r\n"),
        format!("{marked}Origin: http://127.0.0.1:1\r\n"),
        format!("{marked}Sec-Fetch-Site: cross-site\r\n"),
        format!("{marked}Sec-Fetch-Site: same-site\r\n"),
    ] {
        for (method, path, body) in [
            ("POST", "/dashboard/api/api/v1/namespaces", namespace),
            ("GET", "/dashboard/api/api/v1/secrets", ""),
            ("GET", SESSION, ""),
            ("DELETE", SESSION, ""),
            ("GET", "/dashboard/chain?version=v1&resource=namespaces&kind=Namespace&name=default", ""),
        ] {
            let reply = stand.send(method, path, &headers, body).await;
            assert_eq!(reply.code, 403, "{method} {path} {headers}: {reply:?}");
        }
        // Another site cannot sign a user in as the attacker either.
        let reply = stand.send("POST", SESSION, &headers, &token(JANE)).await;
        assert!(reply.code == 403 && reply.cookie_line().is_none(), "{reply:?}");
    }
    // A preflight is never granted.
    let preflight = format!("{host}Origin: https://evil.test\r\nAccess-Control-Request-Method: POST\r\n");
    let reply = stand.send("OPTIONS", SESSION, &preflight, "").await;
    assert!(reply.code == 403 && !reply.head.contains("access-control"), "{reply:?}");
    assert_eq!(stand.get("/dashboard/api/api/v1/namespaces/forged", &cookie).await.code, 404);
    assert_eq!(stand.get(SESSION, &cookie).await.code, 200, "the session is still there");
}

#[tokio::test]
async fn session_id_of_the_client_is_never_used() {
    let stand = Stand::start().await;
    let fixed = format!("Cookie: knarr-session-{}=chosen-by-the-attacker\r\n", stand.port);
    let secret = "X-Knarr-Session: chosen-too\r\n";
    let reply = stand.marked("POST", SESSION, &format!("{fixed}{secret}"), &token(ADMIN)).await;
    assert!(reply.code == 200 && !reply.cookie().contains("chosen"), "{reply:?}");
    assert_eq!(stand.get(SESSION, &format!("{fixed}{secret}")).await.code, 401);
    // The session before ends when its browser signs in again.
    let second = stand.marked("POST", SESSION, &reply.cookie(), &token(JANE)).await;
    assert_eq!(stand.get(SESSION, &reply.cookie()).await.code, 401);
    assert_eq!(stand.get(SESSION, &second.cookie()).await.code, 200);
    let both = format!("{}{}", second.cookie(), fixed);
    assert_eq!(stand.get(SESSION, &both).await.body, "{\"user\":null}", "ambiguous cookies");
}

#[tokio::test]
async fn cookie_without_the_secret_of_the_page_is_no_session() {
    let stand = Stand::start().await;
    let (reply, other) =
        (stand.marked("POST", SESSION, "", &token(ADMIN)).await, stand.marked("POST", SESSION, "", &token(JANE)).await);
    // A server on another port of the host receives the cookie, and can send all other headers.
    let cookie = reply.cookie_alone();
    for stolen in [
        cookie.clone(),
        format!("{cookie}X-Knarr-Session: \r\n"),
        format!("{cookie}X-Knarr-Session: guess\r\n"),
        format!("{cookie}X-Knarr-Session: {}\r\n", other.secret()),
        format!("X-Knarr-Session: {}\r\n", reply.secret()),
    ] {
        assert_eq!(stand.get("/dashboard/api/api/v1/namespaces", &stolen).await.code, 401, "{stolen}");
        let described = stand.get(SESSION, &stolen).await;
        assert!(!described.body.contains("admin"), "{stolen}: {described:?}");
        stand.marked("DELETE", SESSION, &stolen, "").await;
    }
    assert_eq!(stand.get("/dashboard/api/api/v1/namespaces", &reply.cookie()).await.code, 200);
    let described = stand.get(SESSION, &reply.cookie()).await;
    assert!(described.body.contains("admin") && !described.body.contains(reply.secret()), "{described:?}");
}

#[tokio::test]
async fn signing_out_ends_the_streams_of_the_session() {
    let stand = Stand::start().await;
    let (cookie, other) = (stand.sign_in(ADMIN).await, stand.sign_in(ADMIN).await);
    let watch =
        |cookie: &str| format!("GET /dashboard/api/api/v1/namespaces?watch=1 HTTP/1.1\r\n{}{cookie}\r\n", stand.own());
    let mut stream = stand.open(&watch(&cookie)).await;
    read_until(&mut stream, "\"kube-system\"").await;
    let reply = stand.marked("DELETE", SESSION, &cookie, "").await;
    assert!(reply.cookie_line().unwrap().contains("Max-Age=0"), "{reply:?}");
    rest(&mut stream).await;
    assert_eq!(stand.get("/dashboard/api/api/v1/namespaces", &cookie).await.code, 401);
    assert_eq!(stand.get("/dashboard/api/api/v1/namespaces", &other).await.code, 200, "another session continues");
}

#[tokio::test]
async fn expired_session_ends_with_its_streams() {
    let settings = Settings { session_idle: Duration::from_secs(1), ..Settings::default() };
    let stand = Stand::start_with(settings, None).await;
    let cookie = stand.sign_in(ADMIN).await;
    let request = format!("GET /dashboard/api/api/v1/namespaces?watch=1 HTTP/1.1\r\n{}{cookie}\r\n", stand.own());
    let mut stream = stand.open(&request).await;
    read_until(&mut stream, "\"kube-system\"").await;
    rest(&mut stream).await;
    let reply = stand.get(SESSION, &cookie).await;
    assert!(reply.code == 401 && reply.body.contains("NoSession"), "{reply:?}");
}

#[tokio::test]
async fn streams_and_sessions_are_limited() {
    let settings = Settings { streams_max: 1, sessions_per_user_max: 2, ..Settings::default() };
    let stand = Stand::start_with(settings, None).await;
    let first = stand.sign_in(ADMIN).await;
    let request = format!("GET /dashboard/api/api/v1/namespaces?watch=1 HTTP/1.1\r\n{}{first}\r\n", stand.own());
    let mut stream = stand.open(&request).await;
    read_until(&mut stream, "\"kube-system\"").await;
    assert_eq!(stand.get("/dashboard/api/api/v1/namespaces", &first).await.code, 429);
    let second = stand.sign_in(ADMIN).await;
    stand.sign_in(ADMIN).await;
    rest(&mut stream).await;
    assert_eq!(stand.get(SESSION, &first).await.code, 401, "the oldest session has ended");
    assert_eq!(stand.get(SESSION, &second).await.code, 200);
}

#[tokio::test]
async fn event_chains_are_limited_by_session_and_server() {
    let settings = Settings { chains_per_session_max: 1, chains_max: 2, ..Settings::default() };
    let stand = Stand::start_with(settings, None).await;
    let sessions = [stand.sign_in(ADMIN).await, stand.sign_in(ADMIN).await, stand.sign_in(ADMIN).await];
    let path = "/dashboard/chain?version=v1&resource=namespaces&kind=Namespace&name=default";
    let mut streams = Vec::new();
    for session in &sessions[..2] {
        let mut stream = stand.open(&format!("GET {path} HTTP/1.1\r\n{}{session}\r\n", stand.own())).await;
        read_until(&mut stream, "\"steps\"").await;
        assert_eq!(stand.get(path, session).await.code, 429, "a second chain of the session");
        streams.push(stream);
    }
    assert_eq!(stand.get(path, &sessions[2]).await.code, 429, "a third chain of the server");
    drop(streams.pop());
    until_accepted(&stand, path, &sessions[2]).await;
}

/// Opens a chain as soon as the server notices that another one has ended.
async fn until_accepted(stand: &Stand, path: &str, session: &str) {
    let opened = async {
        loop {
            let mut stream = stand.open(&format!("GET {path} HTTP/1.1\r\n{}{session}\r\n", stand.own())).await;
            if read_until(&mut stream, "}").await.contains("\"steps\"") {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::support::DEADLINE, opened).await.expect("the permit is released in time");
}

#[tokio::test]
async fn large_requests_are_refused() {
    let stand = Stand::start().await;
    let reply = stand.marked("POST", SESSION, "", &token(&"a".repeat(300 << 10))).await;
    assert_eq!(reply.code, 413);
    let cookie = stand.sign_in(ADMIN).await;
    let body = " ".repeat((3 << 20) + 1);
    let reply = stand.marked("POST", "/dashboard/api/api/v1/namespaces", &cookie, &body).await;
    assert_eq!(reply.code, 413);
}

#[tokio::test]
async fn link_signs_in_once_with_the_credentials_of_its_kubeconfig() {
    let stand = Stand::start().await;
    let mut config = stand.server.clone();
    config.credential = client::config::Credential::Token(client::config::Secret::new(JANE));
    let body = format!("{{\"code\": \"{}\"}}", stand.dashboard.issue_code(config));
    let reply = stand.marked("POST", SESSION, "", &body).await;
    assert!(reply.code == 200 && reply.body.contains("\"jane\""), "{reply:?}");
    let reply = stand.marked("POST", SESSION, "", &body).await;
    assert!(reply.code == 400 && reply.body.contains("has been used"), "{reply:?}");
}

#[tokio::test]
async fn client_certificate_of_a_kubeconfig_signs_in() {
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let ca = params.self_signed(&ca_key).unwrap();
    let issuer = rcgen::Issuer::new(params, ca_key);
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "zoe");
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let stand = Stand::start_with(Settings::default(), Some(&ca.pem())).await;
    let sign_in = |certificate: &str| {
        let kubeconfig = format!(
            "{{\"current-context\": \"c\", \"clusters\": [{{\"name\": \"k\", \"cluster\": {{\"server\": \"https://elsewhere.test\"}}}}], \
             \"contexts\": [{{\"name\": \"c\", \"context\": {{\"cluster\": \"k\", \"user\": \"u\", \"namespace\": \"team\"}}}}], \"users\": \
             [{{\"name\": \"u\", \"user\": {{\"client-certificate-data\": \"{}\", \"client-key-data\": \"{}\"}}}}]}}",
            BASE64.encode(certificate),
            BASE64.encode(key.serialize_pem())
        );
        serde_json::json!({"kubeconfig": kubeconfig}).to_string()
    };
    let reply = stand.marked("POST", SESSION, "", &sign_in(&certificate.pem())).await;
    assert!(reply.code == 200 && reply.body.contains("\"zoe\"") && reply.body.contains("\"team\""), "{reply:?}");
    let stranger = rcgen::CertificateParams::default().self_signed(&key).unwrap();
    let reply = stand.marked("POST", SESSION, "", &sign_in(&stranger.pem())).await;
    assert!(reply.code == 401 && reply.cookie_line().is_none(), "{reply:?}");
}

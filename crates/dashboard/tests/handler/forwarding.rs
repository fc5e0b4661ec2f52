//! Requests to the API server: the rights of the user, nothing of the browser's own headers, WebSockets, the chain.

use crate::support::{ADMIN, JANE, Stand, read_until};

const PODS: &str = "/dashboard/api/api/v1/namespaces/default/pods";

#[tokio::test]
async fn requests_have_the_rights_of_the_user() {
    let stand = Stand::start().await;
    let (admin, jane) = (stand.sign_in(ADMIN).await, stand.sign_in(JANE).await);
    let reply = stand.get(PODS, &admin).await;
    assert!(reply.code == 200 && reply.body.contains("PodList"), "{reply:?}");
    let reply = stand.get(PODS, &jane).await;
    assert!(reply.code == 403 && reply.body.contains("User \\\"jane\\\" cannot list resource"), "{reply:?}");
    let as_table = format!("{admin}Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n");
    assert!(stand.marked("GET", PODS, &as_table, "").await.body.contains("columnDefinitions"));
    let made = "{\"apiVersion\": \"v1\", \"kind\": \"Namespace\", \"metadata\": {\"name\": \"made\"}}";
    let json = format!("{admin}Content-Type: application/json\r\n");
    assert_eq!(stand.marked("POST", "/dashboard/api/api/v1/namespaces", &json, made).await.code, 201);
    assert_eq!(stand.marked("DELETE", "/dashboard/api/api/v1/namespaces/made", &admin, "").await.code, 200);
}

#[tokio::test]
async fn headers_of_the_browser_do_not_change_the_user() {
    let stand = Stand::start().await;
    let jane = stand.sign_in(JANE).await;
    for header in [
        format!("Authorization: Bearer {ADMIN}\r\n"),
        "Impersonate-User: admin\r\nImpersonate-Group: system:masters\r\n".to_owned(),
        "X-Remote-User: admin\r\nX-Remote-Group: system:masters\r\n".to_owned(),
        "Connection: X-Knarr-Dashboard, Cookie\r\n".to_owned(),
    ] {
        let reply = stand.marked("GET", PODS, &format!("{jane}{header}"), "").await;
        assert!(reply.code == 403 && reply.body.contains("jane"), "{header}: {reply:?}");
    }
    let reply = stand.marked("GET", PODS, &format!("Authorization: Bearer {ADMIN}\r\n"), "").await;
    assert_eq!(reply.code, 401, "a token without a cookie is not a session");
}

#[tokio::test]
async fn only_paths_of_the_api_reach_the_server() {
    let stand = Stand::start().await;
    let admin = stand.sign_in(ADMIN).await;
    for (path, code) in [
        ("/dashboard/api/metrics", 404),
        ("/dashboard/api/api/../metrics", 404),
        ("/dashboard/api/api/%2e%2e/metrics", 404),
        ("/dashboard/api/api/v1%2f..%2f..%2fmetrics", 404),
        ("/dashboard/api/logs/", 404),
        ("/dashboard/apiserver", 404),
        ("/dashboard/api/api/v1/namespaces/default/services/web/proxy", 403),
        ("/dashboard/api/api/v1/nodes/n/proxy/metrics", 403),
        ("/dashboard/api/version", 200),
    ] {
        assert_eq!(stand.get(path, &admin).await.code, code, "{path}");
    }
}

#[tokio::test]
async fn smuggled_requests_are_not_forwarded() {
    let stand = Stand::start().await;
    let admin = stand.sign_in(ADMIN).await;
    let hidden = "GET /api/v1/secrets HTTP/1.1\r\nHost: x\r\n\r\n";
    let both = format!("{admin}Content-Length: {}\r\nTransfer-Encoding: chunked\r\n", hidden.len() + 5);
    let mut stream = stand
        .open(&format!("POST /dashboard/api/api/v1/namespaces HTTP/1.1\r\n{}{both}\r\n0\r\n\r\n{hidden}", stand.own()))
        .await;
    let text = read_until(&mut stream, "HTTP/1.1").await;
    assert!(!text.contains("SecretList"), "{text}");
    let twice = format!("{admin}Content-Length: 2\r\nContent-Length: 3\r\n");
    let reply = stand.marked("POST", "/dashboard/api/api/v1/namespaces", &twice, "").await;
    assert_eq!(reply.code, 400, "{reply:?}");
}

fn upgrade(stand: &Stand, origin: &str, protocol: &str, cookie: &str) -> String {
    format!(
        "Host: 127.0.0.1:{}\r\n{origin}Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: {protocol}\r\n{cookie}",
        stand.port
    )
}

#[tokio::test]
async fn websockets_need_the_own_origin_and_a_session() {
    let stand = Stand::start().await;
    let admin = stand.sign_in(ADMIN).await;
    let exec = "/dashboard/api/api/v1/namespaces/default/pods/none/exec?command=sh";
    let own = format!("Origin: http://127.0.0.1:{}\r\n", stand.port);
    let check = async |origin: &str, protocol: &str, cookie: &str, path: &str, expect: u16| {
        let reply = stand.send("GET", path, &upgrade(&stand, origin, protocol, cookie), "").await;
        assert_eq!(reply.code, expect, "{origin} {protocol} {path}: {reply:?}");
    };
    let protocol = "v5.channel.k8s.io";
    check("Origin: https://evil.test\r\n", protocol, &admin, exec, 403).await;
    check("Origin: http://127.0.0.1:1\r\n", protocol, &admin, exec, 403).await;
    check("", protocol, &admin, exec, 403).await;
    check(&own, protocol, "", exec, 401).await;
    check(&own, "base64url.bearer.authorization.k8s.io.YQ", &admin, exec, 400).await;
    check(&own, protocol, &admin, "/dashboard/api/api/v1/pods?watch=1", 400).await;
    // The API server answers for the pod that does not exist.
    check(&own, protocol, &admin, exec, 404).await;
    // Browsers send the secret as a subprotocol.
    let (cookie, secret) = admin.split_once("X-Knarr-Session: ").unwrap();
    check(&own, protocol, cookie, exec, 401).await;
    check(&own, &format!("{protocol}, session.knarr.io.{}", secret.trim()), cookie, exec, 404).await;
    check(&own, &format!("{protocol}, session.knarr.io.guess"), cookie, exec, 401).await;
}

#[tokio::test]
async fn event_chain_of_a_name_with_characters_of_a_selector_is_found() {
    let stand = Stand::start().await;
    let admin = stand.sign_in(ADMIN).await;
    let role = r#"{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "a=b,c\\d"}, "rules": []}"#;
    let roles = "/dashboard/api/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let json = format!("{admin}Content-Type: application/json\r\n");
    let made = stand.marked("POST", roles, &json, role).await;
    assert_eq!(made.code, 201, "{made:?}");
    let path = "/dashboard/chain?group=rbac.authorization.k8s.io&version=v1&resource=clusterroles&kind=ClusterRole&name=a%3Db%2Cc%5Cd";
    let mut stream = stand.open(&format!("GET {path} HTTP/1.1\r\n{}{admin}\r\n", stand.own())).await;
    let first = read_until(&mut stream, "\"gone\":").await;
    assert!(first.contains("\"stage\":\"Written\"") && first.contains("\"gone\":false"), "{first}");
}

#[tokio::test]
async fn event_chain_is_live_and_needs_the_right_to_read_the_object() {
    let stand = Stand::start().await;
    let (admin, jane) = (stand.sign_in(ADMIN).await, stand.sign_in(JANE).await);
    let path = "/dashboard/chain?group=apps&version=v1&resource=deployments&kind=Deployment&namespace=default&name=web";
    assert_eq!(stand.get(path, &jane).await.code, 403);
    assert_eq!(stand.get(path, &admin).await.code, 404);
    assert_eq!(stand.get("/dashboard/chain?version=v1", &admin).await.code, 400);
    let deployment = r#"{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"selector": {"matchLabels":
        {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}}}"#;
    let deployments = "/dashboard/api/apis/apps/v1/namespaces/default/deployments";
    let json = format!("{admin}Content-Type: application/json\r\n");
    let made = stand.marked("POST", deployments, &json, deployment).await;
    assert_eq!(made.code, 201, "{made:?}");
    let mut stream = stand.open(&format!("GET {path} HTTP/1.1\r\n{}{admin}\r\n", stand.own())).await;
    let first = read_until(&mut stream, "\"stage\":\"Written\"").await;
    assert!(first.contains("\"object\":\"Deployment/web\"") && first.contains("\"missing\":[]"), "{first}");
    let event = r#"{"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "type": "Normal", "reason": "ScalingReplicaSet",
        "action": "a", "reportingController": "c", "reportingInstance": "i", "eventTime": "2026-11-16T12:00:01.000000Z",
        "regarding": {"kind": "Deployment", "name": "web", "namespace": "default", "uid": "UID"}}"#;
    let uid = made.body.split("\"uid\":\"").nth(1).unwrap().split('"').next().unwrap();
    let events = "/dashboard/api/apis/events.k8s.io/v1/namespaces/default/events";
    let added = stand.marked("POST", events, &json, &event.replace("UID", uid)).await;
    assert_eq!(added.code, 201, "{added:?}");
    read_until(&mut stream, "\"stage\":\"Seen\"").await;
    stand.marked("DELETE", &format!("{deployments}/web"), &admin, "").await;
    read_until(&mut stream, "\"gone\":true").await;
}

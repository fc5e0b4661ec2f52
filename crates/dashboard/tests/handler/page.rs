//! The page and its assets.

use crate::support::Stand;

#[tokio::test]
async fn page_cannot_be_embedded_and_runs_no_inline_code() {
    let stand = Stand::start().await;
    let host = format!("Host: localhost:{}\r\n", stand.port);
    let page = stand.send("GET", "/dashboard/", &host, "").await;
    assert_eq!(page.code, 200);
    assert!(page.body.contains("/dashboard/assets/index.js"), "{}", page.body);
    for header in [
        "x-frame-options: DENY",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
        "cross-origin-opener-policy: same-origin",
        "cross-origin-resource-policy: same-origin",
        "cache-control: no-cache",
        "content-type: text/html; charset=utf-8",
    ] {
        assert!(page.head.contains(header), "{header}: {}", page.head);
    }
    let policy = page.head.lines().find_map(|line| line.strip_prefix("content-security-policy: ")).unwrap();
    let directives: Vec<&str> = policy.split(';').map(str::trim).collect();
    for directive in
        ["default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"]
    {
        assert!(directives.contains(&directive), "{directive}: {policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
}

#[tokio::test]
async fn assets_are_revalidated_and_paths_lead_to_no_files() {
    let stand = Stand::start().await;
    let host = format!("Host: 127.0.0.1:{}\r\n", stand.port);
    let script = stand.send("GET", "/dashboard/assets/index.js", &format!("{host}Accept-Encoding: gzip\r\n"), "").await;
    assert_eq!(script.code, 200);
    assert!(
        script.head.contains("content-encoding: gzip") && script.head.contains("text/javascript"),
        "{}",
        script.head
    );
    let etag = script.head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    let known = stand.send("GET", "/dashboard/assets/index.js", &format!("{host}If-None-Match: {etag}\r\n"), "").await;
    assert_eq!((known.code, known.body.as_str()), (304, ""));
    let head = stand.send("HEAD", "/dashboard/assets/index.js", &host, "").await;
    assert_eq!((head.code, head.body.as_str()), (200, ""));
    for path in [
        "/dashboard/assets/../../../etc/passwd",
        "/dashboard/assets/%2e%2e/%2e%2e/etc/passwd",
        "/dashboard/assets/..%2fCargo.toml",
        "/dashboard/assets//etc/passwd",
        "/dashboard/assets/index.js.gz",
        "/dashboard/assets/sources.txt",
        "/dashboard/assets/",
        "/dashboard/index.html",
        "/dashboardx/",
        "/api",
        "/metrics",
    ] {
        let reply = stand.send("GET", path, &host, "").await;
        assert_eq!(reply.code, 404, "{path}: {reply:?}");
        assert!(!reply.body.contains("root:"), "{path}");
    }
    let moved = stand.send("GET", "/dashboard", &host, "").await;
    assert!(moved.code == 308 && moved.head.contains("location: /dashboard/"), "{moved:?}");
}

#[tokio::test]
async fn other_host_names_are_refused_on_loopback() {
    let stand = Stand::start().await;
    for host in ["evil.test", "127.0.0.1.evil.test", "localhost:1"] {
        let reply = stand.send("GET", "/dashboard/", &format!("Host: {host}\r\n"), "").await;
        assert_eq!(reply.code, 403, "{host}: {reply:?}");
    }
}

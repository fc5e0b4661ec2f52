//! kubectl commands that reach a container through the API server and the kubelet.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use futures_util::StreamExt;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::cluster::*;

fn kubectl(cluster: &Cluster, arguments: &[&str], input: &str) -> String {
    let mut process = command(cluster, arguments).spawn().unwrap();
    process.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn command(cluster: &Cluster, arguments: &[&str]) -> Command {
    let mut command = Command::new("kubectl");
    command
        .arg("--kubeconfig")
        .arg(cluster.path("admin.kubeconfig"))
        .arg("--cache-dir")
        .arg(cluster.path("cache"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reads_logs_runs_commands_copies_files_and_forwards_ports() {
    let cluster = cluster().await;
    let script = "echo hello; mkdir /www; echo from the pod >/www/index.html; httpd -f -p 8080 -h /www";
    cluster.run(&pod("web", script), "ready", is_ready).await;
    cluster.logged("web", "c", 0, "hello").await;
    let check = |arguments: &[&str], input: &str, expect: &str| {
        assert_eq!(kubectl(&cluster, arguments, input), expect, "kubectl {arguments:?}");
    };
    check(&["logs", "web"], "", "hello\n");
    check(&["exec", "web", "--", "echo", "out"], "", "out\n");
    check(&["exec", "-i", "web", "--", "tr", "a-z", "A-Z"], "typed", "TYPED");
    let failed = kubectl(&cluster, &["exec", "web", "--", "sh", "-c", "exit 3"], "");
    assert!(failed.contains("exit code 3"), "{failed}");
    fs::write(cluster.path("local"), "copied\n").unwrap();
    let local = cluster.path("local").display().to_string();
    check(&["cp", &local, "web:/tmp/there"], "", "");
    check(&["exec", "web", "--", "cat", "/tmp/there"], "", "copied\n");
    let mut forward = command(&cluster, &["port-forward", "pod/web", ":8080"]).spawn().unwrap();
    let mut line = String::new();
    // The reader is kept open: kubectl exits when its output for each connection cannot be written.
    let mut stdout = BufReader::new(forward.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    let port: u16 = line.split("127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok()).expect(&line);
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut page = Vec::new();
    let mut block = [0; 1024];
    while !page.ends_with(b"from the pod\n") {
        let count = stream.read(&mut block).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&page));
        page.extend_from_slice(&block[..count]);
    }
    forward.kill().unwrap();
    forward.wait().unwrap();
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn legacy_websocket_protocols_are_supported() {
    let cluster = cluster().await;
    let speaks = pod("speaks", "echo container is alive; sleep 1000");
    cluster.run(&speaks, "ready", is_ready).await;
    cluster.logged("speaks", "c", 0, "alive").await;
    // kubectl proxy terminates the server's TLS for the test.
    let mut proxy = command(&cluster, &["proxy", "--port", "0", "--disable-filter"]).spawn().unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(proxy.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    let address = line.trim().rsplit(' ').next().unwrap().to_owned();
    let heard = |path: &'static str, protocol: &'static str| {
        let url = format!("ws://{address}/api/v1/namespaces/default/pods/speaks/{path}");
        async move { tokio::time::timeout(TIMEOUT, messages(&url, protocol)).await.expect("the stream is closed") }
    };
    let exec = "exec?command=echo&command=remote+execution+test&stdout=1&stderr=1";
    assert_eq!(heard(exec, "channel.k8s.io").await, b"\x01remote execution test\n");
    assert_eq!(heard("log", "binary.k8s.io").await, b"container is alive\n");
    proxy.kill().unwrap();
    proxy.wait().unwrap();
    cluster.finish().await;
}

/// Returns all data of a socket. Messages that contain only a channel number are skipped.
async fn messages(url: &str, protocol: &str) -> Vec<u8> {
    let mut request = url.into_client_request().unwrap();
    request.headers_mut().insert("Sec-WebSocket-Protocol", protocol.parse().unwrap());
    let (mut socket, response) = tokio_tungstenite::connect_async(request).await.unwrap();
    assert_eq!(response.headers()["sec-websocket-protocol"], protocol);
    let mut all = Vec::new();
    while let Some(message) = socket.next().await {
        match message.unwrap() {
            Message::Binary(bytes) if bytes.len() > 1 => all.extend_from_slice(&bytes),
            Message::Binary(_) | Message::Close(_) => {}
            other => panic!("{other}"),
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_logs_attach_debug_and_exec_with_terminal_work() {
    let cluster = cluster().await;
    let mut counts = pod("counts", "for n in 1 2 3; do echo $n; sleep 0.3; done");
    set(&mut counts, "restartPolicy", "Never");
    cluster.run(&counts, "running", |pod| matches!(phase(pod), "Running" | "Succeeded")).await;
    assert_eq!(kubectl(&cluster, &["logs", "-f", "counts"], ""), "1\n2\n3\n");

    let mut echoes = pod("echoes", "while read line; do echo heard $line; done");
    set(&mut echoes, "restartPolicy", "Never");
    set_container(&mut echoes, "stdin", true);
    set_container(&mut echoes, "stdinOnce", true);
    cluster.run(&echoes, "ready", is_ready).await;
    let attached = kubectl(&cluster, &["attach", "-i", "echoes"], "one\ntwo\n");
    assert!(attached.contains("heard one\nheard two\n"), "{attached}");

    cluster.run(&pod("sleeps", "exec sleep 98765"), "ready", is_ready).await;
    // kubectl requests a terminal only if it runs on one, which `script` provides.
    let line = format!(
        "kubectl --kubeconfig {} exec -it sleeps -- sh -c 'tty; stty size; echo done'",
        cluster.path("admin.kubeconfig").display()
    );
    let terminal = Command::new("script").args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).output().unwrap();
    let terminal = String::from_utf8_lossy(&terminal.stdout).replace('\r', "");
    assert!(terminal.contains("/dev/pts/") && terminal.contains("done\n"), "{terminal}");

    let debug = [
        "debug",
        "sleeps",
        "--image",
        IMAGE,
        "--target",
        "c",
        "-c",
        "debugger",
        "--",
        "sh",
        "-c",
        "ps | grep -q 'sleep [9]8765' && echo seen",
    ];
    let stdout = kubectl(&cluster, &debug, "");
    assert!(!stdout.to_lowercase().contains("error"), "{stdout}");
    cluster.logged("sleeps", "debugger", 0, "seen").await;
    cluster.finish().await;
}

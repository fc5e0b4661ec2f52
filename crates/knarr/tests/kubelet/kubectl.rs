//! The real kubectl through the API server to a container and back.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

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
    let Some(cluster) = cluster().await else { return };
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
    // It is kept: kubectl ends when nobody reads what it says of each connection.
    let mut said = BufReader::new(forward.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
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

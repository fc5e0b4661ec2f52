//! Standard streams belong to the container's user: non-root processes can open `/dev/stdout` and `/dev/stderr`.

use node_api::cri::v1;

use crate::machine::{Machine, machine, script};
use crate::streams::{exec_url, read_all, websocket};

/// Opens each stream by its path, and prints the owner and mode of standard output.
const OPEN: &str = "echo out >/dev/stdout; echo err >/dev/stderr; stat -Lc '%u %a' /proc/self/fd/1";

fn user_namespace() -> v1::UserNamespace {
    let map = v1::IdMapping { host_id: 200_000, container_id: 0, length: 65_536 };
    v1::UserNamespace { mode: v1::NamespaceMode::Pod.into(), uids: vec![map], gids: vec![map] }
}

/// Creates a sandbox. Returns its ID and the namespace options of its containers.
async fn sandbox(m: &mut Machine, name: &str, users: Option<v1::UserNamespace>) -> (String, v1::NamespaceOption) {
    let options = v1::NamespaceOption { userns_options: users, ..Default::default() };
    let mut config = m.sandbox_config(name);
    config.linux.as_mut().unwrap().security_context =
        Some(v1::LinuxSandboxSecurityContext { namespace_options: Some(options.clone()), ..Default::default() });
    let sandbox = m.sandbox_of(config).await;
    (sandbox, v1::NamespaceOption { pid: v1::NamespaceMode::Container.into(), ..options })
}

fn as_user(mut config: v1::ContainerConfig, uid: i64, options: &v1::NamespaceOption) -> v1::ContainerConfig {
    let security = config.linux.as_mut().unwrap().security_context.as_mut().unwrap();
    security.run_as_user = Some(v1::Int64Value { value: uid });
    security.namespace_options = Some(options.clone());
    config
}

async fn check(m: &mut Machine, name: &str, users: Option<v1::UserNamespace>) {
    let (sandbox, options) = sandbox(m, name, users).await;
    let (_, log) = m.output(&sandbox, as_user(script("run", OPEN), 33, &options)).await;
    // The two streams are read independently of each other.
    let (errors, output): (Vec<&str>, Vec<&str>) = log.lines().partition(|line| line.starts_with("! "));
    assert_eq!((output.join(" "), errors.join(" ")), ("out 33 600".to_owned(), "! err".to_owned()), "{name}: run");

    let mut terminal = as_user(
        script("tty", "tty >/dev/null; echo out >/dev/stdout; stat -Lc '%u %g %a' /dev/stderr /dev/console"),
        33,
        &options,
    );
    terminal.tty = true;
    let (_, log) = m.output(&sandbox, terminal).await;
    assert_eq!(log.replace('\r', ""), "out\n33 5 620\n33 5 620\n", "{name}: run with a terminal");

    let id = m.run(&sandbox, as_user(script("idle", "sleep 1000"), 33, &options)).await;
    assert_eq!(m.shell(&id, OPEN).await, "out\n33 600", "{name}: exec without streams");
    let url = exec_url(m, &id, &["sh", "-c", OPEN], false, false).await;
    let channels = read_all(websocket(&url, "v5.channel.k8s.io").await).await;
    assert_eq!((channels[&1].as_str(), channels[&2].as_str()), ("out\n33 600\n", "err\n"), "{name}: exec");
    let url =
        exec_url(m, &id, &["sh", "-c", "echo out >/dev/stdout; stat -Lc '%u %g %a' /dev/stdin"], true, false).await;
    let channels = read_all(websocket(&url, "v5.channel.k8s.io").await).await;
    assert_eq!(channels[&1].replace('\r', ""), "out\n33 5 620\n", "{name}: exec with a terminal");
}

#[tokio::test(flavor = "multi_thread")]
async fn non_root_container_opens_its_standard_streams_by_path() {
    let mut m = machine().await;
    check(&mut m, "plain", None).await;
    m.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn container_in_user_namespace_opens_its_standard_streams_by_path() {
    let mut m = machine().await;
    check(&mut m, "mapped", Some(user_namespace())).await;
    m.finish().await;
}

//! Tests that the resolvers of glibc and musl find the specified names, also by search paths.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use apimachinery::{Key, value};
use dns::Zone;
use dns::clients::Clients;
use dns::forward::Forwarder;
use dns::serve::{Knowledge, Listeners};

/// A program that resolves each argument by the C library.
const PROGRAM: &str = r#"
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

int main(int count, char **names) {
    for (int at = 1; at < count; at++) {
        struct addrinfo hints, *found = NULL;
        memset(&hints, 0, sizeof hints);
        hints.ai_socktype = SOCK_STREAM;
        printf("%s:", names[at]);
        if (getaddrinfo(names[at], NULL, &hints, &found) == 0) {
            for (struct addrinfo *one = found; one; one = one->ai_next) {
                char text[INET6_ADDRSTRLEN];
                void *address = one->ai_family == AF_INET ? (void *)&((struct sockaddr_in *)one->ai_addr)->sin_addr
                                                          : (void *)&((struct sockaddr_in6 *)one->ai_addr)->sin6_addr;
                printf(" %s", inet_ntop(one->ai_family, address, text, sizeof text));
            }
            freeaddrinfo(found);
        }
        printf("\n");
    }
    return 0;
}
"#;

const NAMES: &[(&str, &str)] = &[
    ("kubernetes", "10.96.0.1"),
    ("kubernetes.default", "10.96.0.1"),
    ("kubernetes.default.svc", "10.96.0.1"),
    ("kubernetes.default.svc.cluster.local", "10.96.0.1"),
    ("KUBERNETES.default.svc.cluster.local.", "10.96.0.1"),
    ("both", "10.96.0.7 fd00::7"),
    ("few", "10.1.0.1 10.1.0.2"),
    ("one.few", "10.1.0.1"),
    ("external", "10.96.0.1"),
    ("nothere.default.svc.cluster.local.", ""),
];

fn zone() -> Zone {
    let mut zone = Zone::of("cluster.local").unwrap();
    zone.complete = true;
    zone.set_namespace("default", true);
    for (name, spec) in [
        ("kubernetes", value!({"clusterIP": "10.96.0.1"})),
        ("both", value!({"clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7", "fd00::7"]})),
        ("few", value!({"clusterIP": "None"})),
        ("external", value!({"type": "ExternalName", "externalName": "kubernetes.default.svc.cluster.local"})),
    ] {
        let mut service = value!({});
        service.as_object_mut().unwrap().insert("spec", spec);
        zone.set_service(&Key::new("default", name), Some(&service));
    }
    let slice = value!({"metadata": {"namespace": "default", "labels": {"kubernetes.io/service-name": "few"}},
        "endpoints": [{"addresses": ["10.1.0.1"], "hostname": "one"}, {"addresses": ["10.1.0.2"], "hostname": "two"}]});
    zone.set_slice(&Key::new("default", "few-1"), Some(&slice));
    zone
}

/// A network namespace with a DNS server on port 53; deleted on drop.
struct Space(String);

impl Space {
    fn new() -> Self {
        test_requirements::root();
        let space = Self(format!("knarr-dns-{}", std::process::id()));
        for line in [format!("netns add {}", space.0), format!("-n {} link set lo up", space.0)] {
            assert!(Command::new("ip").args(line.split(' ')).status().unwrap().success(), "ip {line}");
        }
        let path = Path::new("/run/netns").join(&space.0);
        let (sender, receiver) = std::sync::mpsc::channel();
        let work = move || {
            let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            executor.block_on(async {
                let listeners = Listeners::bind(&["127.0.0.1:53".parse().unwrap()]).await.unwrap();
                sender.send(()).unwrap();
                listeners.serve(Arc::new(Knowledge::new(zone(), Forwarder::new(Vec::new()), Clients::all()))).await;
            });
        };
        // The thread exits with the test process.
        std::thread::spawn(move || netlink::namespace::within(&path, work));
        receiver.recv().unwrap();
        space
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).status();
    }
}

#[test]
fn resolvers_of_glibc_and_musl_conform_to_the_specification() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(at("resolve.c"), PROGRAM).unwrap();
    std::fs::write(
        at("resolv.conf"),
        "nameserver 127.0.0.1\nsearch default.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n",
    )
    .unwrap();
    std::fs::write(at("nsswitch.conf"), "hosts: dns\n").unwrap();
    std::fs::write(at("hosts"), "").unwrap();
    let space = Space::new();
    for (compiler, package) in [("cc", "gcc"), ("musl-gcc", "musl-tools")] {
        let path = test_requirements::program(compiler, package);
        let program = at(compiler);
        let status = Command::new(path).args(["-o", &program, &at("resolve.c")]).status().unwrap();
        assert!(status.success(), "{compiler} failed");
        check(&space, dir.path(), &program);
    }
}

/// Runs a program with other files mounted over those of the host.
fn check(space: &Space, dir: &Path, program: &str) {
    let files = ["resolv.conf", "nsswitch.conf", "hosts"];
    let mounts: Vec<String> =
        files.iter().map(|file| format!("mount --bind {}/{file} /etc/{file}", dir.display())).collect();
    let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
    let script = format!("{} && exec {program} {}", mounts.join(" && "), names.join(" "));
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{}", space.0)).args(["unshare", "--mount", "sh", "-c", &script]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let stdout = String::from_utf8(output.stdout).unwrap();
    let sorted = |line: &str| {
        let (name, addresses) = line.split_once(':').unwrap();
        let mut addresses: Vec<&str> = addresses.split_whitespace().collect();
        addresses.sort_unstable();
        format!("{name}: {}", addresses.join(" "))
    };
    let found: Vec<String> = stdout.lines().map(sorted).collect();
    let expect: Vec<String> = NAMES.iter().map(|(name, addresses)| format!("{name}: {addresses}")).collect();
    assert_eq!(found, expect, "{program}");
}

//! The manifests directory of a running cluster, with the commands of its page.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::readme::steps;
use super::service::ALONE;
use super::*;

const PAGE: &str = include_str!("../../../../docs/operating/manifests.md");
/// Renders a chart: a namespace, and an object in it.
const HELM: &str = "#!/bin/sh\nprintf 'apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: shop, namespace: %s}\\n' \"$5\"\n\
    printf -- '---\\napiVersion: v1\\nkind: Namespace\\nmetadata: {name: %s}\\n' \"$5\"\n";
const CONFIG_MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: early}\n";

/// Runs a command of the page in the root of the source tree.
fn type_line(machine: &Machine, line: &str) -> String {
    let bin = machine.dir.path().join("bin");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let line = line.replace("/var/lib/knarr/", &format!("{}/", machine.data().display()));
    let mut shell = machine.command("sh -c");
    shell.arg(line).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).env("PATH", path);
    run(&mut shell)
}

fn place_programs(machine: &Machine) {
    let bin = machine.dir.path().join("bin");
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join("helm"), HELM).unwrap();
    fs::set_permissions(bin.join("helm"), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink(KNARR, bin.join("knarr")).unwrap();
}

#[test]
fn objects_follow_the_files_of_the_manifests_directory() {
    let machine = Machine::new();
    place_programs(&machine);
    let dir = machine.data().join("manifests");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("early.yaml"), CONFIG_MAP).unwrap();
    let up = format!("up -d --node-name one {}", ALONE.replace(",manifests", ""));
    machine.knarr(&up);
    machine.eventually("kubectl get configmap early -o name", |name| name == "configmap/early");

    let commands: Vec<String> = steps(PAGE, "# The manifests directory").into_iter().map(|step| step.command).collect();
    let [copy, get, remove] = commands.as_slice() else { panic!("{commands:?}") };
    type_line(&machine, copy);
    machine.eventually("kubectl get deployment web -o name", |name| name == "deployment.apps/web");
    assert!(type_line(&machine, get).contains("web"));
    type_line(&machine, remove);
    machine.eventually("kubectl get deployment web -o name", |error| error.contains("NotFound"));
    let render = steps(PAGE, "Helm charts and kustomizations").remove(0).command;
    assert!(render.starts_with("helm template "), "{render}");
    type_line(&machine, &render);
    machine.eventually("kubectl get configmap -n shop shop -o name", |name| name == "configmap/shop");

    problems_are_reported(&machine);
    one_directory_is_applied_alone(&machine);

    // Changes while the cluster is down are found at the start.
    machine.knarr("down");
    fs::remove_file(dir.join("early.yaml")).unwrap();
    machine.knarr(&up);
    machine.eventually("kubectl get configmap early", |error| error.contains("NotFound"));
    assert_eq!(machine.succeed("kubectl get configmap -n shop shop -o name"), "configmap/shop");
    machine.knarr("down --purge");
}

/// A broken file is reported with its line, and its objects are kept.
fn problems_are_reported(machine: &Machine) {
    let file = machine.data().join("manifests/early.yaml");
    fs::write(&file, format!("{CONFIG_MAP}data: [broken\n")).unwrap();
    let knarr = |command: &str| format!("{KNARR} {command} --data-dir {}", machine.data().display());
    let status = machine.eventually(&knarr("status"), |status| status.contains("early.yaml:4: "));
    assert!(status.contains("2 files, 2 objects, 1 problem (knarr-manifests-one)"), "{status}");
    let status = apimachinery::json::parse(machine.succeed(&knarr("status -o json")).as_bytes()).unwrap();
    let problem = &status["manifests"].as_array().unwrap()[0]["problems"].as_array().unwrap()[0];
    assert_eq!((problem.text_at(&["file"]), problem.int_at(&["line"])), ("early.yaml", Some(4)));
    let doctor = machine.output_of(&knarr("doctor"));
    assert!(doctor.lines().any(|line| line.contains(" manifests ") && line.contains("1 problems")), "{doctor}");
    let events = "kubectl get events -n kube-system --field-selector involvedObject.kind=ConfigMap,type=Warning";
    machine.eventually(events, |events| events.contains("InvalidManifest") && events.contains("early.yaml:4"));
    assert_eq!(machine.succeed("kubectl get configmap early -o name"), "configmap/early");
    fs::write(&file, CONFIG_MAP).unwrap();
    machine.eventually(&knarr("status"), |status| status.contains("2 files, 3 objects (knarr-manifests-one)"));
}

fn one_directory_is_applied_alone(machine: &Machine) {
    let dir = machine.dir.path().join("alone");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("a.json"), r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "alone"}}"#)
        .unwrap();
    let kubeconfig = machine.data().join("manifests.kubeconfig");
    let command = format!("{KNARR} manifests --dir {} --kubeconfig {}", dir.display(), kubeconfig.display());
    let mut process = machine.command(&command).stdout(Stdio::null()).spawn().unwrap();
    machine.eventually("kubectl get configmap alone -o name", |name| name == "configmap/alone");
    fs::remove_file(dir.join("a.json")).unwrap();
    machine.eventually("kubectl get configmap alone", |error| error.contains("NotFound"));
    run(Command::new("kill").arg(process.id().to_string()));
    assert!(process.wait().unwrap().success());
}

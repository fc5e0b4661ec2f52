//! Completion in the shells: the Tab key after the script of `kubectl completion` is loaded.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::real::Kubectl;
use crate::server::Server;
use crate::tmux::Terminal;
use crate::{KNARR, run_kubectl};

/// Words to complete, and the only candidate.
const UNIQUE: &[(&str, &str)] = &[
    ("desc", "describe"),
    ("roll", "rollout"),
    ("rollout sta", "rollout status"),
    ("get podt", "get podtemplates"),
    ("get --all-n", "get --all-namespaces"),
    ("describe pod we", "describe pod web-0"),
    ("get pods,servicea", "get pods,serviceaccounts"),
    ("get pods/we", "get pods/web-0"),
    ("get pods web-0 ot", "get pods web-0 other"),
    ("get pods -n kube-pu", "get pods -n kube-public"),
    ("get pods --namespace=kube-pu", "get pods --namespace=kube-public"),
    ("get pods -o wi", "get pods -o wide"),
    ("logs web-0 sid", "logs web-0 sidecar"),
    ("exec -it web-0 -c sid", "exec -it web-0 -c sidecar"),
    ("port-forward web-0 9000:80", "port-forward web-0 9000:8080"),
    ("config use-context the-c", "config use-context the-context"),
    ("scale depl", "scale deployment"),
    ("apply -f mani", "apply -f manifest.yaml"),
    ("apply --filename=mani", "apply --filename=manifest.yaml"),
];

/// Words after `knarr` to complete, and the only candidate.
const UNIQUE_OF_KNARR: &[(&str, &str)] = &[
    ("doct", "doctor"),
    ("store snapshot res", "store snapshot restore"),
    ("completion zs", "completion zsh"),
    ("up --backg", "up --background"),
    ("up --disable schedu", "up --disable scheduler"),
    ("up --disable=schedu", "up --disable=scheduler"),
    ("store snapshot status manifest.y", "store snapshot status manifest.yaml"),
    ("kubectl get podt", "kubectl get podtemplates"),
    ("kubectl describe pod we", "kubectl describe pod web-0"),
];

/// Words with several candidates.
const SEVERAL: &[(&str, &[&str])] = &[
    ("get po", &["poddisruptionbudgets.policy", "pods", "podtemplates"]),
    ("create service ", &["clusterip", "externalname", "loadbalancer", "nodeport"]),
    ("describe pod ", &["other", "web-0"]),
];

/// Words without a candidate, which stay as they are.
const NONE: &[&str] = &["get pods none", "get nosuchtype a", "logs none sid"];

const OBJECTS: &str = "
apiVersion: v1
kind: Pod
metadata: {name: web-0}
spec:
  containers:
  - {name: main, image: x, ports: [{containerPort: 8080}]}
  - {name: sidecar, image: x}
---
apiVersion: v1
kind: Pod
metadata: {name: other}
spec: {containers: [{name: main, image: x}]}
";

/// A shell and the arguments that let it read no files of the user.
struct Shell {
    name: &'static str,
    command: &'static str,
    /// Commands that load the script.
    load: &'static str,
}

const SHELLS: [Shell; 3] = [
    Shell { name: "bash", command: "bash --norc --noprofile", load: "source <(kubectl completion bash)" },
    Shell {
        name: "zsh",
        command: "zsh -f",
        load: "PROMPT='[code %?] '; autoload -U compinit; compinit -u -D; source <(kubectl completion zsh)",
    },
    Shell {
        name: "fish",
        command: "fish --no-config",
        load: "function fish_prompt; echo -n \"[code $status] \"; end; set -g fish_autosuggestion_enabled 0; \
               kubectl completion fish | source",
    },
];

#[test]
fn bash_completes_commands_flags_types_and_names() {
    check(&SHELLS[0]);
}

#[test]
fn zsh_completes_commands_flags_types_and_names() {
    check(&SHELLS[1]);
}

#[test]
fn fish_completes_commands_flags_types_and_names() {
    check(&SHELLS[2]);
}

fn check(shell: &Shell) {
    let server = Server::start_with(&["--disable-admission-plugins", "ServiceAccount"]);
    let dir = server.dir.path().join("shell");
    std::fs::create_dir_all(dir.join("bin")).unwrap();
    for (name, text) in [("manifest.yaml", OBJECTS), ("manifest.text", "")] {
        std::fs::write(dir.join(name), text).unwrap();
    }
    for name in ["kubectl", "knarr"] {
        std::os::unix::fs::symlink(KNARR, dir.join("bin").join(name)).unwrap();
    }
    run_kubectl(&server, "config rename-context c the-context");
    run_kubectl(&server, &format!("create -f {}", dir.join("manifest.yaml").display()));
    let path = std::env::join_paths([dir.join("bin"), PathBuf::from("/usr/bin"), PathBuf::from("/bin")]).unwrap();
    let terminal = Terminal::open(&dir, |line| {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words).env("PATH", &path).env("HOME", &dir);
        command.env("KUBECONFIG", server.dir.path().join("kubeconfig"));
        command
    });
    terminal.enter(&format!("exec {}", shell.command));
    terminal.enter("echo started");
    terminal.wait("^started$");
    terminal.enter(shell.load);
    terminal.enter(&shell.load.replace("kubectl", "knarr"));
    terminal.enter("clear; echo loaded");
    terminal.wait("^loaded$");
    for (typed, expected) in UNIQUE_OF_KNARR {
        completes(&terminal, &format!("knarr {typed}"), 1, &[format!(r"\] knarr {}$", regex::escape(expected))]);
    }
    for (typed, expected) in UNIQUE {
        let pattern = format!(r"\] kubectl {}$", regex::escape(expected));
        completes(&terminal, &format!("kubectl {typed}"), 1, &[pattern]);
    }
    for (typed, expected) in SEVERAL {
        let patterns: Vec<String> =
            expected.iter().map(|candidate| format!(r"^(.*\s)?{}(\s|$)", regex::escape(candidate))).collect();
        // bash lists candidates when the third key changes nothing.
        completes(&terminal, &format!("kubectl {typed}"), 3, &patterns);
    }
    for typed in NONE {
        // A letter that is typed after the key is shown after the unchanged word.
        terminal.write(&format!("kubectl {typed}"));
        terminal.key("Tab");
        terminal.write("END");
        terminal.wait(&format!(r"\] kubectl {typed}END$"));
        abandon(&terminal);
    }
    println!("{} completes", shell.name);
}

/// Types words and the Tab key, and waits until the screen matches.
fn completes(terminal: &Terminal, typed: &str, keys: usize, patterns: &[String]) {
    terminal.write(typed);
    for _ in 0..keys {
        terminal.key("Tab");
    }
    for pattern in patterns {
        terminal.wait(pattern);
    }
    abandon(terminal);
}

/// Erases the command line and the screen.
fn abandon(terminal: &Terminal) {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let mark = format!("erased-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    terminal.key("C-u");
    terminal.enter(&format!("clear; echo {mark}"));
    terminal.wait(&format!("^{mark}$"));
}

/// The candidates of `kubectl __complete` are those of another kubectl of version 1.36 or later. Descriptions differ.
#[test]
fn compare_candidates_with_kubectl() {
    let other = Kubectl::find().filter(|other| other.minor >= 36);
    let other = other.expect("kubectl 1.36 or later is on PATH or in KUBECTL");
    let server = Server::start_with(&["--disable-admission-plugins", "ServiceAccount"]);
    let manifest = server.dir.path().join("manifest.yaml");
    std::fs::write(&manifest, OBJECTS).unwrap();
    run_kubectl(&server, &format!("create -f {}", manifest.display()));
    let more = [
        "get pods/web-0 ",
        "get pods/web-0 po",
        "exec ",
        "exec d",
        "exec pods/",
        "logs ",
        "cp ",
        "cp web",
        "cp default/",
        "taint ",
        "rollout pause ",
        "rollout status deployment a ",
        "autoscale r",
        "top pod ",
        "create token ",
        "get --subresource ",
        "port-forward web-0 ",
        "delete pods web-0 ",
        "get pods --context=",
        "drain a ",
        "label pods ",
        "set image po",
        "debug po",
        "attach web",
    ];
    let all = UNIQUE.iter().map(|(typed, _)| *typed).chain(SEVERAL.iter().map(|(typed, _)| *typed)).chain(more);
    let mut differences = String::new();
    for line in all.filter(|line| !line.contains("the-c")) {
        let [ours, theirs] = [KNARR.as_ref(), other.path.as_path()].map(|program| {
            let mut command = Command::new(program);
            command.args((program == KNARR.as_ref() as &std::path::Path).then_some("kubectl"));
            command.arg("__complete").args(line.split(' ')).current_dir(server.dir.path());
            command.env("KUBECONFIG", server.dir.path().join("kubeconfig")).env("HOME", server.dir.path());
            let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
            let names: Vec<_> = output.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect();
            names.join("\n")
        });
        if ours != theirs {
            differences.push_str(&format!("--- kubectl {line}\nthis:\n{ours}\n{}:\n{theirs}\n", other.path.display()));
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

//! kubectl at a terminal: sessions in containers with window sizes, keys and exit codes.
//!
//! Each scenario is run with the kubectl of the binary, in a namespace of its own. If another kubectl of version 1.36
//! or later is on `PATH`, or named by `KUBECTL`, it is run with that one too, and the screens must be the same.

use regex::Regex;

use super::*;
use crate::real::Kubectl;
use crate::tmux::Terminal;

/// The first minor version that prints what this kubectl prints.
const SAME_SINCE: u32 = 36;

const PODS: &str = r#"{"apiVersion": "v1", "kind": "List", "items": [
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": {"terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": "test.local/terminal:1", "command": ["sh", "-c",
            "echo hello; mkdir /www; echo page > /www/index.html; exec httpd -f -p 8080 -h /www"]}]}},
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "two"}, "spec": {"terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": "test.local/terminal:1", "command": ["sh"], "stdin": true, "tty": true}]}},
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ends"}, "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": "test.local/terminal:1", "command": ["sh", "-c",
            "echo first; until [ -e /stop ]; do sleep 0.1; done; echo last"]}]}},
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "listens"}, "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": "test.local/terminal:1", "command": ["sh", "-c",
            "while read line; do echo heard $line; done"], "stdin": true, "stdinOnce": true}]}}]}"#;

/// A terminal with a kubectl, and the screens that it showed.
struct Session<'a> {
    machine: &'a Machine,
    namespace: String,
    dir: PathBuf,
    terminal: Terminal,
    screens: Vec<String>,
}

type Scenario = fn(&mut Session<'_>);

const SCENARIOS: &[Scenario] = &[
    exec_follows_the_window_and_passes_keys_and_the_exit_code,
    signal_restores_the_terminal,
    exec_without_a_terminal_ends_with_ctrl_c,
    attach_detaches_by_keys_and_attaches_again,
    attach_passes_lines_until_the_end_of_the_input,
    logs_follow_until_ctrl_c_or_the_end_of_the_container,
    watches_end_with_ctrl_c,
    debug_opens_a_shell_beside_the_container,
    debug_copies_a_pod,
    run_attaches_and_removes_the_pod,
    port_forward_serves_until_ctrl_c,
    cp_copies_in_both_directions,
    top_shows_the_usage_of_nodes_and_pods,
];

impl<'a> Session<'a> {
    /// Creates the namespace and its pods, and opens a terminal in which `kubectl` is the given program.
    fn open(machine: &'a Machine, namespace: &str, kubectl: &Path) -> Self {
        let dir = machine.dir.path().join(namespace);
        std::fs::create_dir_all(dir.join("bin")).unwrap();
        std::os::unix::fs::symlink(kubectl, dir.join("bin/kubectl")).unwrap();
        std::fs::copy(machine.data().join("admin.kubeconfig"), dir.join("kubeconfig")).unwrap();
        let paths = [dir.join("bin"), PathBuf::from("/usr/sbin"), PathBuf::from("/usr/bin"), PathBuf::from("/bin")];
        let path = std::env::join_paths(paths).unwrap();
        let terminal = Terminal::open(&dir, |line| {
            let mut command = machine.command(line);
            command.env("PATH", &path).env("HOME", &dir).env("KUBECONFIG", dir.join("kubeconfig"));
            command
        });
        let mut session = Self { machine, namespace: namespace.to_owned(), dir, terminal, screens: Vec::new() };
        std::fs::write(session.dir.join("pods.json"), PODS).unwrap();
        session.run(&format!("kubectl create namespace {namespace}"));
        session.run(&format!("kubectl config set-context --current --namespace={namespace}"));
        session.run("kubectl wait --for=create serviceaccount/default");
        session.run("kubectl create -f pods.json");
        session.run("kubectl wait --for=condition=Ready pods --all --timeout=60s");
        session.screens.clear();
        session
    }

    /// Runs a command that succeeds.
    fn run(&mut self, line: &str) {
        self.exits(line, 0);
    }

    /// Runs a command until the shell's prompt shows its exit code.
    fn exits(&mut self, line: &str, code: u8) {
        self.terminal.enter(line);
        self.ends(code);
    }

    /// Waits for the prompt with an exit code and records the screen.
    fn ends(&mut self, code: u8) {
        // The first line is the prompt before the command. The last one may start with the prompt of a container's shell.
        let screen = self.terminal.wait(r"\A.*\n(.*\n)*.*\[code \d+\]\z");
        assert!(screen.ends_with(&format!("[code {code}]")), "expected exit code {code}:\n{screen}");
        self.record(&screen);
        self.terminal.clear();
    }

    /// Records a screen without what differs from run to run.
    fn record(&mut self, screen: &str) {
        // The greeting and the first prompt of the container's shell are shown if the session is attached before them.
        let is_greeting =
            |line: &&str| *line == "/ #" || line.starts_with("BusyBox v") || line.starts_with("Enter 'help'");
        let lines = screen.lines().filter(|line| !is_greeting(line));
        let text = lines.collect::<Vec<_>>().join("\n").replace(&self.namespace, "NAMESPACE");
        let masks = [(r"\b\d+m\b", "CPU"), (r"\b\d+Mi\b", "MEMORY"), (r"\b\d+%", "PERCENT"), (" +", " ")];
        let mask = |text: String, (pattern, mask): (&str, &str)| {
            Regex::new(pattern).unwrap().replace_all(&text, mask).into_owned()
        };
        self.screens.push(masks.into_iter().fold(text, mask));
    }

    /// Waits for a text, and returns the screen.
    fn sees(&self, pattern: &str) -> String {
        self.terminal.wait(pattern)
    }

    /// Waits for the prompt of the container's shell.
    fn sees_shell(&self) {
        self.sees("^/ #$");
    }
}

fn exec_follows_the_window_and_passes_keys_and_the_exit_code(session: &mut Session<'_>) {
    session.terminal.enter("kubectl exec -it one -- sh");
    session.sees_shell();
    session.terminal.enter("stty size");
    session.sees("^30 100$");
    session.terminal.resize(120, 40);
    session.terminal.enter("until [ \"$(stty size)\" = '40 120' ]; do sleep 0.1; done; echo resized");
    session.sees("^resized$");
    session.terminal.resize(100, 30);
    session.terminal.enter("until [ \"$(stty size)\" = '30 100' ]; do sleep 0.1; done; echo smaller");
    session.sees("^smaller$");
    session.terminal.enter("echo begun; sleep 1000");
    session.sees("^begun$");
    session.terminal.key("C-c");
    session.sees(r"\^C\n/ #$");
    session.terminal.enter("echo alive $?");
    session.sees("^alive 130$");
    session.terminal.enter("exit 7");
    session.ends(7);
    // The terminal is as before the session.
    session.run("stty -a | tr ' ' '\\n' | grep -xE -- '-?(icanon|echo|isig|opost)'");
    assert_eq!(
        session.screens.last().unwrap().lines().skip(1).collect::<Vec<_>>(),
        ["opost", "isig", "icanon", "echo", "[code 0]"]
    );
    session.run("kubectl exec one -- true");
    session.exits("kubectl exec one -- sh -c 'echo error >&2; exit 3'", 3);
    session.exits("kubectl exec -it one -- nosuch", 1);
    session.exits("kubectl exec -it missing -- sh", 1);
}

fn signal_restores_the_terminal(session: &mut Session<'_>) {
    session.terminal.enter("kubectl exec -it one -- sh");
    session.sees_shell();
    let shell = session.terminal.shell();
    let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
    run(Command::new("kill").args(["-TERM", children.trim()]));
    session.ends(1);
    session.run("stty -a | tr ' ' '\\n' | grep -xE -- '-?(icanon|echo|isig|opost)'");
}

fn exec_without_a_terminal_ends_with_ctrl_c(session: &mut Session<'_>) {
    for (flags, code) in [("", 130), (" -i", 1)] {
        session.terminal.enter(&format!("kubectl exec{flags} one -- sh -c 'echo begun; sleep 1000'"));
        session.sees("^begun$");
        session.terminal.key("C-c");
        session.ends(code);
    }
}

fn attach_detaches_by_keys_and_attaches_again(session: &mut Session<'_>) {
    session.terminal.enter("kubectl attach -it two");
    session.sees("try pressing enter");
    session.terminal.enter("");
    session.sees_shell();
    session.terminal.enter("color=blue; until [ \"$(stty size)\" = '30 100' ]; do sleep 0.1; done; echo size-ok");
    // The shell asks the terminal for the place of its prompt; the reply must not be between the keys.
    session.sees("^size-ok\n/ #$");
    session.terminal.key("C-p");
    session.terminal.key("C-q");
    session.ends(0);
    session.terminal.enter("kubectl attach -it two --detach-keys=ctrl-a,d");
    session.sees("try pressing enter");
    session.terminal.enter("");
    session.sees_shell();
    session.terminal.enter("echo still $color");
    session.sees("^still blue\n/ #$");
    session.terminal.key("C-a");
    session.terminal.key("d");
    session.ends(0);
    session.terminal.enter("kubectl attach one");
    session.sees("try pressing enter");
    session.terminal.key("C-c");
    session.ends(130);
    session.exits("kubectl attach -it two --detach-keys=ctrl-nothing", 1);
    session.exits("kubectl attach missing", 1);
}

fn attach_passes_lines_until_the_end_of_the_input(session: &mut Session<'_>) {
    session.terminal.enter("kubectl attach -i listens");
    session.sees("try pressing enter");
    session.terminal.enter("first");
    session.sees("^heard first$");
    session.terminal.key("C-d");
    session.ends(0);
    session.run("kubectl wait --for=jsonpath={.status.phase}=Succeeded pod/listens --timeout=60s");
}

fn logs_follow_until_ctrl_c_or_the_end_of_the_container(session: &mut Session<'_>) {
    session.terminal.enter("kubectl logs -f one");
    session.sees("^hello$");
    session.terminal.key("C-c");
    session.ends(1);
    session.terminal.enter("kubectl logs -f ends");
    session.sees("^first$");
    session.machine.succeed(&format!("{KNARR} kubectl --namespace {} exec ends -- touch /stop", session.namespace));
    session.ends(0);
    session.exits("kubectl logs -f one -c other", 1);
    session.exits("kubectl logs -f missing", 1);
}

fn watches_end_with_ctrl_c(session: &mut Session<'_>) {
    session.terminal.enter("kubectl get pod one -w -o name");
    session.sees("^pod/one$");
    session.terminal.key("C-c");
    session.ends(1);
}

fn debug_opens_a_shell_beside_the_container(session: &mut Session<'_>) {
    session.terminal.enter("kubectl debug one -it -c helper --image=test.local/terminal:1 --target=c -- sh");
    session.sees("try pressing enter");
    session.terminal.enter("");
    session.sees_shell();
    session.terminal.enter("stty size; ps | grep -c '[h]ttpd'");
    session.sees("^30 100\n1$");
    session.terminal.enter("exit 3");
    session.ends(0);
    session.exits("kubectl debug one -it -c helper --image=test.local/terminal:1 -- sh", 1);
}

fn debug_copies_a_pod(session: &mut Session<'_>) {
    session.terminal.enter("kubectl debug one -it --copy-to=copy -c c --quiet -- sh");
    session.terminal.enter("");
    session.sees_shell();
    session.terminal.enter("echo from $HOSTNAME");
    session.sees("^from copy$");
    session.terminal.enter("exit");
    session.ends(0);
    session.run("kubectl get pod copy -o jsonpath='{.spec.containers[0].command}'; echo");
    session.run("kubectl delete pod copy --now");
}

fn run_attaches_and_removes_the_pod(session: &mut Session<'_>) {
    session.terminal.enter("kubectl run -it brief --rm --quiet --restart=Never --image=test.local/terminal:1 -- sh");
    session.terminal.enter("");
    session.sees_shell();
    session.terminal.enter("exit 4");
    session.ends(4);
    session.exits("kubectl get pod brief", 1);
}

fn port_forward_serves_until_ctrl_c(session: &mut Session<'_>) {
    session.terminal.enter("kubectl port-forward pod/one 18080:8080 --address=127.0.0.1");
    session.sees("^Forwarding from");
    for _ in 0..2 {
        assert_eq!(session.machine.succeed("curl -s --max-time 20 http://127.0.0.1:18080/"), "page");
    }
    session.sees("(^Handling connection for 18080\n?){2}");
    session.terminal.key("C-c");
    session.ends(0);
    session.exits("kubectl port-forward pod/one http:8080", 1);
    session.exits("kubectl port-forward pod/missing 8080", 1);
}

fn cp_copies_in_both_directions(session: &mut Session<'_>) {
    session.run("mkdir -p tree/a/empty && echo text > tree/a/file && echo 'more text' > 'tree/with space'");
    session.run("kubectl cp tree one:/tmp/tree && kubectl exec one -- find /tmp/tree | sort");
    session.run("kubectl cp one:/tmp/tree back && diff -r tree back");
    session.exits("kubectl cp missing one:/tmp/missing", 1);
    session.exits("kubectl cp tree back", 1);
}

fn top_shows_the_usage_of_nodes_and_pods(session: &mut Session<'_>) {
    let pod = format!("{KNARR} kubectl --namespace {} top pod one", session.namespace);
    session.machine.eventually(&pod, |text| text.contains("Mi"));
    session.run("kubectl top pod one");
    session.run("kubectl top pod one --containers");
    session.run("kubectl top pod one --no-headers --sum");
    session.machine.eventually(&format!("{KNARR} kubectl top node"), |text| text.contains("Mi"));
    session.run("kubectl top node");
    session.run("kubectl top node --show-capacity --no-headers");
    session.exits("kubectl top pod missing", 1);
    session.exits("kubectl top node missing", 1);
}

/// Builds an image with all commands of busybox.
fn build_terminal_image(machine: &Machine) {
    let bin = machine.dir.path().join("terminal/bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::create_dir(machine.dir.path().join("terminal/tmp")).unwrap();
    std::fs::copy("/bin/busybox", bin.join("busybox")).unwrap();
    for name in run(Command::new("/bin/busybox").arg("--list")).lines().filter(|name| *name != "busybox") {
        std::os::unix::fs::symlink("busybox", bin.join(name)).unwrap();
    }
    let dir = bin.parent().unwrap().display();
    machine.knarr(&format!("image build test.local/terminal:1 {dir} --env PATH=/bin"));
}

/// Runs all scenarios, and returns the screens.
fn screens(machine: &Machine, namespace: &str, kubectl: &Path) -> Vec<String> {
    let mut session = Session::open(machine, namespace, kubectl);
    for scenario in SCENARIOS {
        scenario(&mut session);
    }
    session.screens
}

#[test]
fn kubectl_works_at_a_terminal() {
    let machine = Machine::new();
    machine.up();
    build_terminal_image(&machine);
    let ours = screens(&machine, "with-knarr", Path::new(KNARR));
    let Some(other) = Kubectl::find().filter(|other| other.minor >= SAME_SINCE) else { return };
    let theirs = screens(&machine, "with-other", &other.path);
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs, "this kubectl and {} differ", other.path.display());
    }
}

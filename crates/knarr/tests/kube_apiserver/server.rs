//! An API server per test.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::rc::Rc;

/// An API server with its own data directory and port, killed when the test ends.
pub(crate) struct Server {
    pub process: Child,
    pub address: String,
    pub dir: Rc<tempfile::TempDir>,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with additional flags.
    pub(crate) fn start_with(flags: &[&str]) -> Self {
        Self::start_in(Rc::new(tempfile::tempdir().unwrap()), flags)
    }

    /// Kills the server and starts another one with the same data directory.
    pub(crate) fn again(self, flags: &[&str]) -> Self {
        let dir = self.dir.clone();
        drop(self);
        Self::start_in(dir, flags)
    }

    fn start_in(dir: Rc<tempfile::TempDir>, flags: &[&str]) -> Self {
        let tokens = dir.path().join("tokens.csv");
        std::fs::write(&tokens, "a-token,admin,admin,\"system:masters\"\nplain-token,jane,jane\n").unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_knarr"))
            .args(["kube-apiserver", "--bind-address", "127.0.0.1", "--secure-port", "0"])
            .args(["--authorization-mode", "Node,RBAC", "--service-cluster-ip-range", "10.96.0.0/16"])
            .arg("--data-dir")
            .arg(dir.path().join("data"))
            .arg("--cert-dir")
            .arg(dir.path().join("certs"))
            .arg("--token-auth-file")
            .arg(&tokens)
            .args(flags)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let address = lines.by_ref().map(Result::unwrap).find_map(|line| {
            let (_, rest) = line.split_once("address=")?;
            Some(
                rest.split(|letter: char| letter != ':' && letter != '.' && !letter.is_ascii_digit())
                    .next()?
                    .to_owned(),
            )
        });
        // The rest of the log is read so that the server never blocks on the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let server = Self { process, address: address.expect("the server prints its address"), dir };
        server.write_kubeconfig();
        server.wait_until_ready();
        server
    }

    fn write_kubeconfig(&self) {
        let text = format!(
            r#"{{"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{{"name": "c", "cluster": {{"server": "https://{}", "insecure-skip-tls-verify": true}}}}],
            "users": [{{"name": "u", "user": {{"token": "a-token"}}}}],
            "contexts": [{{"name": "c", "context": {{"cluster": "c", "user": "u"}}}}]}}"#,
            self.address
        );
        std::fs::write(self.dir.path().join("kubeconfig"), text).unwrap();
    }

    pub(crate) fn wait_until_ready(&self) {
        let output = self.curl(&["--retry", "100", "--retry-delay", "0", "--retry-all-errors", "--fail"], "/readyz");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    pub(crate) fn curl(&self, arguments: &[&str], path: &str) -> Output {
        let mut command = Command::new("curl");
        // Responses to curl's default user agent are indented.
        command.args(["-sk", "-A", "test", "--max-time", "20"]).args(arguments);
        if !arguments.iter().any(|argument| argument.starts_with("Authorization:")) {
            command.args(["-H", "Authorization: Bearer a-token"]);
        }
        command.arg(format!("https://{}{path}", self.address)).output().unwrap()
    }

    /// Returns the lines of a long-running response.
    pub(crate) fn stream(&self, path: &str) -> impl Iterator<Item = String> + use<> {
        let mut process = Command::new("curl")
            .args(["-skN", "--max-time", "30", "-H", "Authorization: Bearer a-token"])
            .arg(format!("https://{}{path}", self.address))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Stream { process, lines }
    }

    /// Returns the status code and the body of a response.
    pub(crate) fn code(&self, arguments: &[&str], path: &str) -> (String, String) {
        let arguments: Vec<&str> = ["-w", "\n%{http_code}"].into_iter().chain(arguments.iter().copied()).collect();
        let text = String::from_utf8(self.curl(&arguments, path).stdout).unwrap();
        let (body, code) = text.rsplit_once('\n').unwrap();
        (code.to_owned(), body.to_owned())
    }

    /// Starts a long-running kubectl. Returns its output lines.
    pub(crate) fn start_kubectl(&self, arguments: &str) -> impl Iterator<Item = String> + use<> {
        let mut process = Command::new("kubectl")
            .env("KUBECONFIG", self.dir.path().join("kubeconfig"))
            .args(arguments.split(' '))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Stream { process, lines }
    }

    /// Sends SIGTERM, and waits until the server has exited.
    pub(crate) fn terminate(&mut self) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert!(self.process.wait().unwrap().success(), "it stops without an error");
    }

    pub(crate) fn kubectl(&self, arguments: &str) -> String {
        self.kubectl_with(arguments, "")
    }

    /// Runs kubectl. Returns its standard output and standard error.
    pub(crate) fn kubectl_with(&self, arguments: &str, input: &str) -> String {
        let mut process = Command::new("kubectl")
            .arg("--kubeconfig")
            .arg(self.dir.path().join("kubeconfig"))
            .arg("--cache-dir")
            .arg(self.dir.path().join("cache"))
            .args(["--request-timeout", "20s"])
            // An editor that makes one change.
            .env("KUBE_EDITOR", "sed -i s/a:.b$/&-edited/")
            .args(arguments.split_whitespace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        process.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = process.wait_with_output().unwrap();
        let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        format!("{out}{err}").trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A response that is still being read; curl is killed on drop.
struct Stream {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Iterator for Stream {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        self.lines.next()?.ok()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

//! A terminal of tmux with a shell, driven by keys and read as a screen.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use regex::Regex;

/// Time limit for a text to appear on the screen.
const DEADLINE: Duration = Duration::from_secs(60);
/// The prompt: the exit code of the command before.
const PROMPT: &str = "[code $?] ";

/// A terminal with its own tmux server, which is terminated on drop.
pub(crate) struct Terminal {
    socket: PathBuf,
}

impl Terminal {
    /// Opens a terminal of 100 columns and 30 lines. `shell` is the command that runs bash in the environment of the
    /// test, and `dir` an existing directory for the socket.
    pub(crate) fn open(dir: &Path, mut shell: impl FnMut(&str) -> Command) -> Self {
        let terminal = Self { socket: dir.join("tmux") };
        let mut command = shell("tmux -f /dev/null -S");
        command.arg(&terminal.socket).args(["new-session", "-d", "-x", "100", "-y", "30"]);
        command.args(["bash", "--norc", "--noprofile"]).env_remove("TMUX").current_dir(dir);
        command.env("PS1", PROMPT).env("LANG", "C.UTF-8");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        terminal.wait(r"^\[code 0\]$");
        terminal
    }

    /// Types a line, ended with Enter.
    pub(crate) fn enter(&self, line: &str) {
        self.write(line);
        self.key("Enter");
    }

    /// Types a text.
    pub(crate) fn write(&self, text: &str) {
        // An empty argument is an error.
        if !text.is_empty() {
            self.tmux(&["send-keys", "-l", "--", text]);
        }
    }

    /// Presses a key such as `C-c`.
    pub(crate) fn key(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    pub(crate) fn resize(&self, columns: u16, lines: u16) {
        self.tmux(&["resize-window", "-x", &columns.to_string(), "-y", &lines.to_string()]);
    }

    /// Waits until a line of the screen matches, and returns the screen. Wrapped lines are one line, trailing spaces
    /// are removed.
    pub(crate) fn wait(&self, pattern: &str) -> String {
        let regex = Regex::new(&format!("(?m){pattern}")).unwrap();
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if regex.is_match(&screen) {
                return screen;
            }
            assert!(start.elapsed() < DEADLINE, "{pattern} is not on the screen:\n{screen}");
        }
    }

    /// Clears the screen, at the prompt of the shell.
    pub(crate) fn clear(&self) {
        self.enter("clear");
        self.wait(r"\A\[code 0\]\n?\z");
    }

    /// Returns the PID of the shell.
    pub(crate) fn shell(&self) -> u32 {
        self.tmux(&["display-message", "-p", "#{pane_pid}"]).trim().parse().unwrap()
    }

    fn screen(&self) -> String {
        let text = self.tmux(&["capture-pane", "-p", "-J"]);
        let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        lines.join("\n")
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let output = Command::new("tmux").arg("-S").arg(&self.socket).args(arguments).output().unwrap();
        assert!(output.status.success(), "tmux {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = Command::new("tmux").arg("-S").arg(&self.socket).arg("kill-server").output();
    }
}

//! What is said while a cluster starts, and when it can be used.

use std::io::{IsTerminal, Write};
use std::time::Instant;

use super::plan::Layout;

/// Steps with their times. What is not a terminal gets plain lines.
pub struct Steps {
    begun: Instant,
    last: Instant,
    mark: &'static str,
}

impl Steps {
    /// Starts to count.
    pub fn begin() -> Self {
        let now = Instant::now();
        let mark = if std::io::stdout().is_terminal() { "\u{1b}[32m✓\u{1b}[0m" } else { "ok" };
        Self { begun: now, last: now, mark }
    }

    /// A step is done.
    pub fn done(&mut self, what: &str) {
        let now = Instant::now();
        self.say(&format!("{} {what:<24} {:>6.2} s", self.mark, (now - self.last).as_secs_f64()));
        self.last = now;
    }

    /// Everything is.
    pub fn finish(&self, layout: &Layout) {
        let seconds = self.begun.elapsed().as_secs_f64();
        let kubeconfig = layout.kubeconfig("admin");
        let kubeconfig = kubeconfig.display();
        self.say(&format!("ready in {seconds:.2} s"));
        self.say(&format!("\n  export KUBECONFIG={kubeconfig}\n  kubectl get pods --all-namespaces\n"));
        self.say(&format!(
            "The log is {}. `knarr down` stops the cluster.",
            layout.data_dir.join("knarr.log").display()
        ));
    }

    /// The node is one of the cluster's.
    pub fn joined(&self, layout: &Layout) {
        self.say(&format!("joined as {} in {:.2} s", layout.node_name, self.begun.elapsed().as_secs_f64()));
    }

    /// Whoever read this may have gone: that is no reason to stop.
    fn say(&self, text: &str) {
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{text}").and_then(|()| out.flush());
    }
}

//! Progress output of a cluster start.

use std::io::IsTerminal;
use std::time::Instant;

use super::Disk;
use super::plan::Layout;
use crate::output::outln;

/// Prints steps with their durations. Without a terminal, lines are plain.
pub struct Steps {
    begun: Instant,
    last: Instant,
    mark: &'static str,
}

impl Steps {
    pub fn begin() -> Self {
        let now = Instant::now();
        let mark = if std::io::stdout().is_terminal() { "\u{1b}[32m✓\u{1b}[0m" } else { "ok" };
        Self { begun: now, last: now, mark }
    }

    /// Prints a completed step.
    pub fn done(&mut self, what: &str) {
        let now = Instant::now();
        self.say(&format!("{} {what:<24} {:>6.2} s", self.mark, (now - self.last).as_secs_f64()));
        self.last = now;
    }

    /// Prints the time of the start and how to use the cluster.
    pub fn finish(&self, layout: &Layout) {
        let seconds = self.begun.elapsed().as_secs_f64();
        let kubeconfig = layout.kubeconfig("admin");
        let kubeconfig = kubeconfig.display();
        self.say(&format!("ready in {seconds:.2} s"));
        if let Some(disk) = Disk::of(&layout.data_dir)
            && let Some(warning) = disk.warning()
        {
            self.say(&format!("warning: {}: {warning}", disk.describe()));
        }
        self.say(&format!(
            "Logs are in {}. `knarr status` and `knarr doctor` show the state of the cluster, `knarr down` stops it.",
            layout.data_dir.join("knarr.log").display()
        ));
        self.say(&format!("Next:\n\n  export KUBECONFIG={kubeconfig}\n  kubectl get nodes,pods --all-namespaces\n"));
    }

    /// Prints that the node has joined.
    pub fn joined(&self, layout: &Layout) {
        self.say(&format!("joined as {} in {:.2} s", layout.node_name, self.begun.elapsed().as_secs_f64()));
    }

    fn say(&self, text: &str) {
        outln!("{text}");
    }
}

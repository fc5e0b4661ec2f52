//! Progress output of a cluster start.

use std::io::IsTerminal;
use std::time::Instant;

use super::Disk;
use super::plan::Layout;
use crate::output::outln;

/// Prints steps with their durations. Without a terminal, lines are plain.
pub(crate) struct Steps {
    started_at: Instant,
    last: Instant,
    mark: &'static str,
}

impl Steps {
    pub(crate) fn start() -> Self {
        let now = Instant::now();
        let mark = if std::io::stdout().is_terminal() { "\u{1b}[32m✓\u{1b}[0m" } else { "ok" };
        Self { started_at: now, last: now, mark }
    }

    /// Prints a completed step.
    pub(crate) fn done(&mut self, what: &str) {
        let now = Instant::now();
        self.print_line(&format!("{} {what:<24} {:>6.2} s", self.mark, (now - self.last).as_secs_f64()));
        self.last = now;
    }

    /// Prints the time of the start and how to use the cluster.
    pub(crate) fn finish(&self, layout: &Layout) {
        let seconds = self.started_at.elapsed().as_secs_f64();
        let kubeconfig = layout.kubeconfig("admin");
        let kubeconfig = kubeconfig.display();
        self.print_line(&format!("ready in {seconds:.2} s"));
        if let Some(disk) = Disk::of(&layout.data_dir)
            && let Some(warning) = disk.warning()
        {
            self.print_line(&format!("warning: {}: {warning}", disk.describe()));
        }
        self.print_line(&format!(
            "Logs are in {}. `knarr status` and `knarr doctor` show the state of the cluster, `knarr down` stops it.",
            layout.data_dir.join("knarr.log").display()
        ));
        self.print_line(&format!(
            "Next:\n\n  export KUBECONFIG={kubeconfig}\n  kubectl get nodes,pods --all-namespaces\n"
        ));
    }

    /// Prints that the node has joined.
    pub(crate) fn joined(&self, layout: &Layout) {
        self.print_line(&format!("joined as {} in {:.2} s", layout.node_name, self.started_at.elapsed().as_secs_f64()));
    }

    fn print_line(&self, text: &str) {
        outln!("{text}");
    }
}

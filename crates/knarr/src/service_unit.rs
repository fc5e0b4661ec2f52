//! Services of systemd and OpenRC that run a cluster or a node.

use std::path::Path;

/// Time limit of containers when the host shuts down, in seconds. Longer grace periods are shortened, so that the
/// shutdown takes a bounded time.
const SHUTDOWN_GRACE_SECONDS: u32 = 60;

/// Environment of the service, for settings such as `KNARR_LOG` that are not in the configuration file.
pub(crate) const ENVIRONMENT: &str = "/etc/default/knarr";

/// Returns a systemd unit that runs `program` with these arguments. `down` are further arguments of `knarr down`.
///
/// The unit kills only the main process: pods are supervised by separate processes and keep running while it restarts.
/// When the host shuts down, `ExecStopPost` stops them, because systemd would wait for processes that ignore SIGTERM.
pub(crate) fn systemd(program: &Path, arguments: &[String], down: &[String]) -> String {
    let program = quoted(&program.display().to_string());
    let line = |words: &[String]| words.iter().map(|word| format!(" {}", quoted(word))).collect::<String>();
    let (arguments, down) = (line(arguments), line(down));
    format!(
        "[Unit]
Description=Knarr, a Kubernetes cluster
Documentation=man:knarr(1)
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
Type=notify
EnvironmentFile=-{ENVIRONMENT}
ExecStart={program}{arguments}
# Pods are supervised by separate processes and keep running while this one restarts.
KillMode=process
# They are stopped when the host shuts down.
ExecStopPost=-{program} down --if-host-stops --grace-max {SHUTDOWN_GRACE_SECONDS}{down}
Restart=always
RestartSec=1
# A store member waits ten minutes for the other members.
TimeoutStartSec=15min
TimeoutStopSec=2min
WatchdogSec=1min
Delegate=yes
LimitNOFILE=1048576
TasksMax=infinity

[Install]
WantedBy=multi-user.target
"
    )
}

/// Returns an OpenRC script that runs a command of `program`.
pub(crate) fn openrc(program: &Path, command: &str) -> String {
    let program = program.display();
    format!(
        "#!/sbin/openrc-run
# shellcheck shell=sh

description=\"Knarr, a Kubernetes cluster\"
supervisor=supervise-daemon
command=\"{program}\"
command_args=\"{command}\"
respawn_delay=1
respawn_max=0
retry=\"TERM/30\"
rc_ulimit=\"-n 1048576\"
output_log=/var/log/knarr.log
error_log=/var/log/knarr.log

if [ -r {ENVIRONMENT} ]; then
    set -a
    . {ENVIRONMENT}
    set +a
fi

depend() {{
    need net
    use dns logger
    after firewall
}}

# Pods are supervised by separate processes and keep running while the service restarts. They are stopped when the host
# shuts down.
stop_post() {{
    if yesno \"${{RC_GOINGDOWN:-no}}\"; then
        \"$command\" down --grace-max {SHUTDOWN_GRACE_SECONDS}
    fi
    return 0
}}
"
    )
}

/// Quotes a word of a systemd command line.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:,=@+".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    let escaped = word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn systemd_unit_quotes_its_arguments() {
        let unit = systemd(Path::new("/bin/knarr"), &words(&["server", "--kubelet-arg", "a<5%"]), &[]);
        assert!(unit.contains("\nExecStart=/bin/knarr server --kubelet-arg \"a<5%%\"\n"), "{unit}");
    }

    #[test]
    fn systemd_unit_waits_for_readiness_watches_and_stops_pods_at_shutdown() {
        let unit = systemd(Path::new("/bin/knarr"), &words(&["up"]), &words(&["--data-dir", "/srv/a b"]));
        for line in [
            "Type=notify",
            "WatchdogSec=1min",
            "KillMode=process",
            "ExecStopPost=-/bin/knarr down --if-host-stops --grace-max 60 --data-dir \"/srv/a b\"",
        ] {
            assert!(unit.lines().any(|one| one == line), "{line} is not in {unit}");
        }
    }

    #[test]
    fn openrc_script_is_valid_shell() {
        let script = openrc(Path::new("/usr/local/bin/knarr"), "agent");
        assert!(script.contains("command_args=\"agent\"\n"), "{script}");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("knarr");
        std::fs::write(&file, &script).unwrap();
        // The functions of OpenRC are replaced by ones that print their arguments.
        let test =
            format!("yesno() {{ [ \"$1\" = YES ]; }}; . {}; command=echo; RC_GOINGDOWN=$1; stop_post", file.display());
        let run = |going_down: &str| {
            let output = std::process::Command::new("sh").args(["-euc", &test, "sh", going_down]).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(run("NO"), "");
        assert_eq!(run("YES"), "down --grace-max 60\n");
    }
}

//! System OOM kills, read from the kernel log.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;

use controller::EventType;
use rustix::fs::{OFlags, SeekFrom};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use super::NodeEvents;

const LOG: &str = "/dev/kmsg";
/// Maximum size of a kernel log record.
const RECORD_BYTES_MAX: usize = 8192;

/// Records an event for each process that a system-wide OOM kill terminates. Returns if the log cannot be read.
pub async fn watch(events: NodeEvents) {
    let mut log = match open() {
        Ok(log) => log,
        Err(error) => {
            tracing::info!(path = LOG, %error, "failed to open the kernel log; SystemOOM events are disabled");
            return;
        }
    };
    let mut buffer = vec![0; RECORD_BYTES_MAX];
    loop {
        let Ok(mut ready) = log.readable_mut().await else { return };
        match rustix::io::read(ready.get_inner(), &mut buffer) {
            Ok(count) => {
                if let Some(victim) = parse(&buffer[..count]) {
                    let message =
                        format!("System OOM encountered, victim process: {}, pid: {}", victim.command, victim.pid);
                    events.record(EventType::Warning, "SystemOOM", &message);
                }
            }
            Err(Errno::AGAIN) => ready.clear_ready(),
            // Records were overwritten before they were read; the next read continues with the oldest one.
            Err(Errno::PIPE | Errno::INTR) => {}
            Err(error) => {
                tracing::warn!(path = LOG, %error, "failed to read the kernel log; SystemOOM events are disabled");
                return;
            }
        }
    }
}

/// Opens the kernel log at its end.
fn open() -> io::Result<AsyncFd<File>> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
    let file = File::options().read(true).custom_flags(flags).open(LOG)?;
    rustix::fs::seek(&file, SeekFrom::End(0))?;
    // The file is owned by the value and never replaced, which is the safety condition of the newer function.
    #[expect(deprecated, reason = "the replacement is unsafe, and only `sys` contains unsafe code")]
    AsyncFd::new(file)
}

/// A killed process.
#[derive(Debug, PartialEq, Eq)]
struct Victim {
    command: String,
    pid: u32,
}

/// Parses the killed process from a record of a system-wide OOM kill. Ignores kills within a cgroup and records of user
/// space.
fn parse(record: &[u8]) -> Option<Victim> {
    let text = std::str::from_utf8(record).ok()?;
    let (header, message) = text.split_once(';')?;
    let priority: u32 = header.split(',').next()?.parse().ok()?;
    let is_from_kernel = priority >> 3 == 0;
    let details = message.lines().next()?.strip_prefix("oom-kill:")?;
    let (before, after) = details.split_once(",global_oom,")?;
    if !is_from_kernel || !before.starts_with("constraint=") {
        return None;
    }
    // The command may contain commas; it is delimited by two known field names.
    let (_, rest) = after.split_once(",task=")?;
    let (command, rest) = rest.rsplit_once(",pid=")?;
    let (pid, _) = rest.split_once(",uid=")?;
    Some(Victim { command: command.to_owned(), pid: pid.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_system_wide_oom_kills_are_reported() {
        let check = |record: &str, expect: Option<(&str, u32)>| {
            let expect = expect.map(|(command, pid)| Victim { command: command.to_owned(), pid });
            assert_eq!(parse(record.as_bytes()), expect, "{record}");
        };
        let global = "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/kubepods/x,task=java,pid=123,uid=0";
        check(&format!("6,1234,5678,-;{global}\n"), Some(("java", 123)));
        check(&format!("14,1234,5678,-;{global}\n"), None);
        check(&format!("6,1234,5678,-;{}\n", global.replace("java", "a,pid=7,b")), Some(("a,pid=7,b", 123)));
        check(
            "6,1,2,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg=/a,task_memcg=/a/b,task=sh,pid=9,uid=0\n",
            None,
        );
        check("4,1,2,-;java invoked oom-killer: gfp_mask=0x0\n SUBSYSTEM=x\n", None);
        check("", None);
    }
}

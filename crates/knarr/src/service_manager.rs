//! Notifications to systemd for units with `Type=notify` and `WatchdogSec`: readiness, and watchdog notifications while
//! a health check passes.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tracing::Instrument;

/// Variables that systemd sets for the process of a unit. Child processes must not notify systemd for it.
pub(crate) const VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];
/// Number of watchdog notifications within the time after which systemd restarts the unit.
const NOTIFICATIONS: u32 = 3;

/// A health check of the running process.
pub(crate) type HealthCheck = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<()>> + Send>> + Send + Sync>;

/// The service manager that started this process, if it expects notifications.
pub(crate) struct ServiceManager(Option<Arc<Inner>>);

struct Inner {
    socket: UnixDatagram,
    is_ready: AtomicBool,
}

impl ServiceManager {
    /// Starts to send watchdog notifications: unconditionally until the process is ready, because a start has its own
    /// time limits, and then as long as the check passes. Must be called in a Tokio runtime.
    pub(crate) fn start(check: HealthCheck) -> Result<Self> {
        let [socket, watchdog, process] = VARIABLES.map(std::env::var_os);
        let Some(socket) = socket else { return Ok(Self(None)) };
        let socket = connect(&socket).context("failed to connect to the socket of NOTIFY_SOCKET")?;
        let inner = Arc::new(Inner { socket, is_ready: AtomicBool::new(false) });
        let text = |value: Option<std::ffi::OsString>| value.and_then(|value| value.into_string().ok());
        if let Some(limit) = watchdog_limit(text(watchdog).as_deref(), text(process).as_deref(), std::process::id()) {
            tokio::spawn(keep_alive(Arc::clone(&inner), limit / NOTIFICATIONS, check).in_current_span());
        }
        Ok(Self(Some(inner)))
    }

    /// Reports that the process serves.
    pub(crate) fn ready(&self) {
        if let Some(inner) = &self.0 {
            inner.is_ready.store(true, Ordering::Relaxed);
            inner.send("READY=1");
        }
    }
}

impl Inner {
    fn send(&self, message: &str) {
        if let Err(error) = self.socket.send(message.as_bytes()) {
            tracing::warn!(%error, message, "failed to notify the service manager");
        }
    }
}

async fn keep_alive(inner: Arc<Inner>, interval: Duration, check: HealthCheck) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if !inner.is_ready.load(Ordering::Relaxed) {
            inner.send("WATCHDOG=1");
            continue;
        }
        match tokio::time::timeout(interval, check()).await {
            Ok(Ok(())) => inner.send("WATCHDOG=1"),
            Ok(Err(error)) => {
                tracing::error!(
                    "the health check failed; the watchdog of the service manager is not notified: {error:#}"
                );
            }
            Err(_) => {
                tracing::error!(
                    "the health check took longer than {interval:?}; the watchdog of the service manager is not notified"
                );
            }
        }
    }
}

/// Connects to a socket by its path, or by its abstract name after `@`.
fn connect(address: &OsStr) -> std::io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    let address = match address.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(address)?,
    };
    socket.connect_addr(&address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Returns the time without notification after which systemd restarts this process; `None` if the watchdog is off or
/// belongs to another process.
fn watchdog_limit(microseconds: Option<&str>, of_process: Option<&str>, own: u32) -> Option<Duration> {
    let is_own = of_process.is_none_or(|process| process.parse() == Ok(own));
    let microseconds: u64 = microseconds?.parse().ok()?;
    (is_own && microseconds > 0).then(|| Duration::from_micros(microseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchdog_of_another_process_is_ignored() {
        let minute = Some(Duration::from_secs(60));
        assert_eq!(watchdog_limit(Some("60000000"), Some("7"), 7), minute);
        assert_eq!(watchdog_limit(Some("60000000"), None, 7), minute);
        assert_eq!(watchdog_limit(Some("60000000"), Some("8"), 7), None);
        assert_eq!(watchdog_limit(Some("0"), None, 7), None);
        assert_eq!(watchdog_limit(None, Some("7"), 7), None);
        assert_eq!(watchdog_limit(Some("soon"), None, 7), None);
    }

    #[test]
    fn socket_is_a_path_or_an_abstract_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = format!("knarr-test-{}", dir.path().display());
        let servers = [
            (path.clone().into_os_string(), UnixDatagram::bind(&path).unwrap()),
            (
                format!("@{name}").into(),
                UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name.as_bytes()).unwrap()).unwrap(),
            ),
        ];
        for (address, server) in servers {
            Inner { socket: connect(&address).unwrap(), is_ready: AtomicBool::new(false) }.send("READY=1");
            let mut text = [0; 16];
            let length = server.recv(&mut text).unwrap();
            assert_eq!(&text[..length], b"READY=1", "{address:?}");
        }
    }

    #[tokio::test]
    async fn watchdog_is_not_notified_while_the_check_fails() {
        let (own, systemd) = UnixDatagram::pair().unwrap();
        systemd.set_nonblocking(true).unwrap();
        let systemd = tokio::net::UnixDatagram::from_std(systemd).unwrap();
        let inner = Arc::new(Inner { socket: own, is_ready: AtomicBool::new(false) });
        let (healthy, checked) = (Arc::new(AtomicBool::new(false)), Arc::new(tokio::sync::Notify::new()));
        let (is_healthy, has_checked) = (Arc::clone(&healthy), Arc::clone(&checked));
        let check: HealthCheck = Box::new(move || {
            has_checked.notify_one();
            let result = if is_healthy.load(Ordering::Relaxed) { Ok(()) } else { Err(anyhow::anyhow!("unhealthy")) };
            Box::pin(std::future::ready(result))
        });
        let keeping = tokio::spawn(keep_alive(Arc::clone(&inner), Duration::from_millis(5), check));
        let mut text = [0; 16];
        let length = systemd.recv(&mut text).await.unwrap();
        assert_eq!(&text[..length], b"WATCHDOG=1", "a start needs no check");
        inner.is_ready.store(true, Ordering::Relaxed);
        checked.notified().await;
        // Notifications that were sent before the first check.
        while systemd.try_recv(&mut text).is_ok() {}
        checked.notified().await;
        checked.notified().await;
        assert!(systemd.try_recv(&mut text).is_err(), "the check fails");
        healthy.store(true, Ordering::Relaxed);
        systemd.recv(&mut text).await.unwrap();
        keeping.abort();
    }
}

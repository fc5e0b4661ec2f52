//! Tells when something happens to a file or a directory, without looking again and again.

use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Changes of a file or of the files in a directory.
pub struct Changes(AsyncFd<OwnedFd>);

impl Changes {
    /// Changes from now on.
    #[expect(deprecated, reason = "an owned descriptor, unlike what the warning is about, stays the same one")]
    pub fn of(path: &Path) -> std::io::Result<Self> {
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let written = WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE;
        let moved = WatchFlags::MOVE | WatchFlags::MOVE_SELF | WatchFlags::CREATE | WatchFlags::DELETE;
        inotify::add_watch(&watch, path, written | moved)?;
        // What took the place of a file comes under its name.
        if let Some(dir) = path.parent().filter(|_| path.is_file()) {
            inotify::add_watch(&watch, dir, WatchFlags::MOVE | WatchFlags::CREATE)?;
        }
        Ok(Self(AsyncFd::with_interest(watch, Interest::READABLE)?))
    }

    /// Waits for something to happen; all that did is one change.
    pub async fn next(&self) -> std::io::Result<()> {
        let mut ready = self.0.readable().await?;
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(self.0.get_ref(), &mut buffer);
        while events.next().is_ok() {}
        ready.clear_ready();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_change_is_told_and_none_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let changes = Changes::of(dir.path()).unwrap();
        let none = tokio::time::timeout(std::time::Duration::from_millis(10), changes.next()).await;
        assert!(none.is_err());
        std::fs::write(dir.path().join("f"), "x").unwrap();
        changes.next().await.unwrap();
    }
}

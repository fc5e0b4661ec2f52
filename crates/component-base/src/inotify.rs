//! inotify watches on files and directories, instead of polling.

use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// An inotify watch on a file, on the files of a directory, or on several directories.
pub struct Changes(AsyncFd<OwnedFd>);

impl Changes {
    /// Watches a path from now on.
    pub fn of(path: &Path) -> std::io::Result<Self> {
        let changes = Self::none()?;
        let written = WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE;
        let moved = WatchFlags::MOVE | WatchFlags::MOVE_SELF | WatchFlags::CREATE | WatchFlags::DELETE;
        changes.add(path, written | moved)?;
        // A file that replaces the watched one is created in the parent directory.
        if let Some(dir) = path.parent().filter(|_| path.is_file()) {
            changes.watch_names(dir)?;
        }
        Ok(changes)
    }

    /// Watches nothing yet.
    #[expect(
        deprecated,
        reason = "an owned descriptor cannot be reused, unlike the case that the deprecation is about"
    )]
    pub fn none() -> std::io::Result<Self> {
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(Self(AsyncFd::with_interest(watch, Interest::READABLE)?))
    }

    /// Also watches the files of a directory, their owners and modes, and the directory itself. A file that is written
    /// is reported when it is closed. Watching a directory again has no effect.
    pub fn watch_directory(&self, dir: &Path) -> std::io::Result<()> {
        let changed = WatchFlags::CLOSE_WRITE | WatchFlags::ATTRIB | WatchFlags::CREATE | WatchFlags::DELETE;
        let moved = WatchFlags::MOVE | WatchFlags::MOVE_SELF | WatchFlags::DELETE_SELF;
        self.add(dir, changed | moved | WatchFlags::ONLYDIR)
    }

    /// Also watches which names appear in a directory, but not the content of its files.
    pub fn watch_names(&self, dir: &Path) -> std::io::Result<()> {
        self.add(dir, WatchFlags::MOVE | WatchFlags::CREATE)
    }

    fn add(&self, path: &Path, flags: WatchFlags) -> std::io::Result<()> {
        inotify::add_watch(self.0.get_ref(), path, flags)?;
        Ok(())
    }

    /// Waits for a change; all pending events count as one change.
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
    async fn watch_reports_only_actual_changes() {
        let dir = tempfile::tempdir().unwrap();
        let changes = Changes::of(dir.path()).unwrap();
        let none = tokio::time::timeout(std::time::Duration::from_millis(10), changes.next()).await;
        assert!(none.is_err());
        std::fs::write(dir.path().join("f"), "x").unwrap();
        changes.next().await.unwrap();
    }
}

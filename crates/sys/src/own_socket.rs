//! Unix sockets that only their owner may connect to, from the moment they exist.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{Mode, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

/// Maximum number of connections waiting to be accepted.
const WAITING_MAX: i32 = 1024;

/// Listens at a path. A socket file left by a dead process is replaced.
pub fn listen_own(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Linux gives the file the mode that the socket has when it is bound. With a later chmod another user could connect
    // before it.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, WAITING_MAX)?;
    Ok(UnixListener::from(socket))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn only_the_owner_may_connect_and_a_stale_socket_is_replaced() {
        let path = std::env::temp_dir().join(format!("own-socket-{}", std::process::id()));
        std::fs::write(&path, "left by one that died").unwrap();
        let listener = listen_own(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        let connected = UnixStream::connect(&path).is_ok() && listener.accept().is_ok();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((mode & 0o777, connected), (0o600, true));
    }

    #[test]
    fn invalid_paths_are_errors() {
        assert!(listen_own(Path::new("/nowhere/at/all")).is_err());
        assert!(listen_own(Path::new(&"x".repeat(200))).is_err());
    }
}

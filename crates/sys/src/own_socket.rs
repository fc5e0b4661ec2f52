//! A socket of this machine that only its owner may connect to, from the moment on in which it is there.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{Mode, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

/// Connections that wait to be accepted.
const WAITING_MAX: i32 = 1024;

/// Listens at a path. One that a process left there that died is replaced.
pub fn listen_own(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Linux gives the file the mode that the socket has when it is bound. Set afterwards, somebody could have connected before.
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
    fn only_its_owner_may_connect_and_what_was_left_there_is_replaced() {
        let path = std::env::temp_dir().join(format!("own-socket-{}", std::process::id()));
        std::fs::write(&path, "left by one that died").unwrap();
        let listener = listen_own(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        let connected = UnixStream::connect(&path).is_ok() && listener.accept().is_ok();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((mode & 0o777, connected), (0o600, true));
    }

    #[test]
    fn a_path_that_cannot_be_is_an_error() {
        assert!(listen_own(Path::new("/nowhere/at/all")).is_err());
        assert!(listen_own(Path::new(&"x".repeat(200))).is_err());
    }
}

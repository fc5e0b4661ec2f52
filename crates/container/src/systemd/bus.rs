//! The few messages of D-Bus that are needed, written and read by hand: a call and its answer.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::SystemdError;

/// A value of a unit's property.
#[derive(Clone, Debug)]
pub enum Property {
    /// `b`
    Flag(bool),
    /// `s`
    Text(String),
}

/// Arguments of a call: their types and their bytes.
pub struct Arguments {
    signature: &'static str,
    body: Vec<u8>,
}

/// A connection.
pub struct Bus {
    stream: UnixStream,
    serial: u32,
}

/// The longest message that is read; answers are short.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

const CALL: u8 = 1;
const RETURN: u8 = 2;
const ERROR: u8 = 3;

/// Writes values, each at its boundary.
#[derive(Default)]
struct Writer(Vec<u8>);

/// Makes a slice that exists for as long as nobody ends it.
pub fn start_transient_unit(unit: &str, properties: &[(&str, Property)]) -> Arguments {
    let mut body = Writer::default();
    body.text(unit);
    body.text("replace");
    body.array(8, |body| {
        for (name, property) in properties {
            body.align(8);
            body.text(name);
            match property {
                Property::Flag(flag) => {
                    body.signature("b");
                    body.number(u32::from(*flag));
                }
                Property::Text(text) => {
                    body.signature("s");
                    body.text(text);
                }
            }
        }
    });
    // No other units come with it.
    body.array(8, |_| {});
    Arguments { signature: "ssa(sv)a(sa(sv))", body: body.0 }
}

/// Ends a unit.
pub fn stop_unit(unit: &str) -> Arguments {
    let mut body = Writer::default();
    body.text(unit);
    body.text("replace");
    Arguments { signature: "ss", body: body.0 }
}

impl Bus {
    /// Connects and says who asks: the kernel vouches for it.
    pub fn connect(socket: &Path, patience: Duration) -> Result<Self, SystemdError> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let uid: String =
            rustix::process::geteuid().as_raw().to_string().bytes().map(|byte| format!("{byte:02x}")).collect();
        stream.write_all(format!("\0AUTH EXTERNAL {uid}\r\n").as_bytes())?;
        let answer = line(&mut stream)?;
        if !answer.starts_with("OK") {
            return Err(SystemdError::Refused(answer));
        }
        stream.write_all(b"BEGIN\r\n")?;
        Ok(Self { stream, serial: 0 })
    }

    /// Calls a method of systemd's manager and waits for the answer to it.
    pub fn call(&mut self, member: &str, arguments: &Arguments) -> Result<(), SystemdError> {
        self.serial += 1;
        self.stream.write_all(&message(self.serial, member, arguments))?;
        loop {
            let (kind, fields) = self.read()?;
            let answers = fields.reply_serial == Some(self.serial);
            match kind {
                RETURN if answers => return Ok(()),
                ERROR if answers => return Err(SystemdError::Refused(fields.error_name)),
                // Signals, of which nobody asked for any.
                _ => {}
            }
        }
    }

    fn read(&mut self) -> Result<(u8, Fields), SystemdError> {
        let mut head = [0; 16];
        self.stream.read_exact(&mut head)?;
        let little = head[0] == b'l';
        let number = |at: usize| {
            let bytes: [u8; 4] = head[at..at + 4].try_into().expect("a head has sixteen bytes");
            (if little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }) as usize
        };
        let (body, fields) = (number(4), number(12));
        let rest = fields.next_multiple_of(8).checked_add(body).filter(|rest| *rest <= MESSAGE_BYTES_MAX);
        let mut bytes = vec![0; rest.ok_or(SystemdError::Malformed)?];
        self.stream.read_exact(&mut bytes)?;
        let fields = Fields::read(&bytes[..fields], little).ok_or(SystemdError::Malformed)?;
        Ok((head[1], fields))
    }
}

/// What of a message's header matters.
#[derive(Debug, Default)]
struct Fields {
    reply_serial: Option<u32>,
    error_name: String,
}

impl Fields {
    /// Reads an array of codes and variants, of which only those of known types can be.
    fn read(bytes: &[u8], little: bool) -> Option<Self> {
        let mut fields = Self::default();
        let mut at = 0;
        while at < bytes.len() {
            at = at.next_multiple_of(8);
            if at >= bytes.len() {
                break;
            }
            let code = bytes[at];
            let (length, ty) = (*bytes.get(at + 1)?, *bytes.get(at + 2)?);
            if length != 1 || *bytes.get(at + 3)? != 0 {
                return None;
            }
            at += 4;
            let number = |at: usize| {
                let bytes: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
                Some(if little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
            };
            match ty {
                b's' | b'o' => {
                    let length = number(at)? as usize;
                    let text = bytes.get(at + 4..(at + 4).checked_add(length)?)?;
                    if code == 4 {
                        fields.error_name = String::from_utf8_lossy(text).into_owned();
                    }
                    at = at + 4 + length + 1;
                }
                b'g' => at = at + 2 + *bytes.get(at)? as usize,
                b'u' => {
                    if code == 5 {
                        fields.reply_serial = number(at);
                    }
                    at += 4;
                }
                _ => return None,
            }
        }
        Some(fields)
    }
}

fn message(serial: u32, member: &str, arguments: &Arguments) -> Vec<u8> {
    let mut all = Writer(vec![b'l', CALL, 0, 1]);
    all.number(u32::try_from(arguments.body.len()).unwrap_or(u32::MAX));
    all.number(serial);
    all.array(8, |fields| {
        for (code, ty, text) in [
            (1, "o", "/org/freedesktop/systemd1"),
            (2, "s", "org.freedesktop.systemd1.Manager"),
            (3, "s", member),
            (6, "s", "org.freedesktop.systemd1"),
            (8, "g", arguments.signature),
        ] {
            fields.align(8);
            fields.0.push(code);
            fields.signature(ty);
            if ty == "g" { fields.signature(text) } else { fields.text(text) }
        }
    });
    all.align(8);
    all.0.extend_from_slice(&arguments.body);
    all.0
}

/// One line of the greeting.
fn line(stream: &mut UnixStream) -> Result<String, SystemdError> {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\r\n") {
        if text.len() > 512 {
            return Err(SystemdError::Malformed);
        }
        stream.read_exact(&mut byte).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => SystemdError::Refused("the connection was closed".to_owned()),
            _ => error.into(),
        })?;
        text.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&text).trim_end().to_owned())
}

impl Writer {
    fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    fn number(&mut self, number: u32) {
        self.align(4);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(u32::try_from(text.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(0);
    }

    fn signature(&mut self, text: &str) {
        self.0.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(0);
    }

    /// Its length does not count what aligns its first item.
    fn array(&mut self, item_align: usize, items: impl FnOnce(&mut Self)) {
        self.number(0);
        let length_at = self.0.len() - 4;
        self.align(item_align);
        let begin = self.0.len();
        items(self);
        let length = u32::try_from(self.0.len() - begin).unwrap_or(u32::MAX);
        self.0[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    }
}

#[cfg(test)]
pub mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread::JoinHandle;

    use super::*;

    /// Answers one call a connection, with nothing or with an error of this name; gives the messages it got.
    pub fn answer(socket: &Path, errors: &[&str]) -> JoinHandle<Vec<Vec<u8>>> {
        let listener = UnixListener::bind(socket).unwrap();
        let errors: Vec<String> = errors.iter().map(|name| (*name).to_owned()).collect();
        std::thread::spawn(move || errors.iter().map(|error| serve(&listener, error)).collect())
    }

    fn serve(listener: &UnixListener, error: &str) -> Vec<u8> {
        let (mut stream, _) = listener.accept().unwrap();
        assert!(line(&mut stream).unwrap().starts_with("\0AUTH EXTERNAL "));
        stream.write_all(b"OK 0123456789abcdef\r\n").unwrap();
        assert_eq!(line(&mut stream).unwrap(), "BEGIN");
        let mut head = [0; 16];
        stream.read_exact(&mut head).unwrap();
        let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap()) as usize;
        let mut rest = vec![0; number(12).next_multiple_of(8) + number(4)];
        stream.read_exact(&mut rest).unwrap();
        // A signal comes first: nobody asked for it.
        stream.write_all(&reply(4, "")).unwrap();
        stream.write_all(&reply(if error.is_empty() { RETURN } else { ERROR }, error)).unwrap();
        [head.to_vec(), rest].concat()
    }

    fn reply(kind: u8, error: &str) -> Vec<u8> {
        let mut all = Writer(vec![b'l', kind, 1, 1]);
        all.number(0);
        all.number(77);
        all.array(8, |fields| {
            fields.0.push(5);
            fields.signature("u");
            fields.number(1);
            if !error.is_empty() {
                fields.align(8);
                fields.0.push(4);
                fields.signature("s");
                fields.text(error);
            }
        });
        all.align(8);
        all.0
    }

    #[test]
    fn a_call_is_written_as_the_specification_says() {
        let written = message(1, "StopUnit", &stop_unit("a.slice"));
        assert_eq!(&written[..4], b"l\x01\0\x01");
        // Two texts of seven letters, each with its length and its end.
        assert_eq!(u32::from_le_bytes(written[4..8].try_into().unwrap()), 4 + 8 + 4 + 8);
        assert_eq!(written.len() % 8, 0);
        let fields = u32::from_le_bytes(written[12..16].try_into().unwrap()) as usize;
        assert_eq!(16 + fields.next_multiple_of(8) + 24, written.len());
        assert_eq!(&written[written.len() - 24..], b"\x07\0\0\0a.slice\0\x07\0\0\0replace\0");
    }

    #[test]
    fn no_bytes_make_reading_fail_otherwise_than_in_words() {
        for bytes in [
            &b"\x05\x01u\0\x01\0\0\0"[..],
            b"\x05\x01u\0",
            b"\x04\x01s\0\xff\xff\xff\xff",
            b"\x01\x02",
            b"\x09\x01x\0",
            b"\x08\x01g\0\xff",
        ] {
            let _ = Fields::read(bytes, true);
        }
        assert_eq!(Fields::read(b"\x05\x01u\0\x01\0\0\0", true).unwrap().reply_serial, Some(1));
        assert!(Fields::read(b"\x09\x01x\0", true).is_none());
        assert!(Fields::read(b"\x04\x01s\0\xff\xff\xff\xff", true).is_none());
    }
}

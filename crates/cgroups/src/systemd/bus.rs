//! D-Bus client for systemd's manager: method calls, replies and the JobRemoved signal.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::SystemdError;

/// A value of a unit property, by D-Bus type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Property {
    /// `b`
    Flag(bool),
    /// `s`
    Text(String),
    /// `t`
    Number(u64),
    /// `ay`
    Bytes(Vec<u8>),
    /// `au`
    Numbers(Vec<u32>),
}

/// Arguments of a call: signature and encoded values.
pub(super) struct Arguments {
    signature: &'static str,
    body: Vec<u8>,
}

/// A connection to systemd.
pub(super) struct Bus {
    stream: UnixStream,
    serial: u32,
    deadline: Instant,
}

/// Maximum size of a message; replies and signals of systemd are much smaller.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

const CALL: u8 = 1;
const RETURN: u8 = 2;
const ERROR: u8 = 3;
const SIGNAL: u8 = 4;

/// Encodes values with their alignment.
#[derive(Default)]
struct Writer(Vec<u8>);

/// Returns the arguments of StartTransientUnit.
pub(super) fn start_transient_unit(unit: &str, properties: &[(&str, Property)]) -> Arguments {
    let mut body = Writer::default();
    body.text(unit);
    body.text("replace");
    body.properties(properties);
    // No auxiliary units.
    body.array(8, |_| {});
    Arguments { signature: "ssa(sv)a(sa(sv))", body: body.0 }
}

/// Returns the arguments of SetUnitProperties; the change lasts until the next boot.
pub(super) fn set_unit_properties(unit: &str, properties: &[(&str, Property)]) -> Arguments {
    let mut body = Writer::default();
    body.text(unit);
    body.number(u32::from(true));
    body.properties(properties);
    Arguments { signature: "sba(sv)", body: body.0 }
}

/// Returns the arguments of StartUnit or StopUnit; a conflicting job is replaced.
pub(super) fn unit_and_mode(unit: &str) -> Arguments {
    let mut body = Writer::default();
    body.text(unit);
    body.text("replace");
    Arguments { signature: "ss", body: body.0 }
}

impl Bus {
    /// Connects and authenticates with the credentials that the kernel passes (EXTERNAL). All operations on the
    /// connection must complete within `timeout`.
    pub(super) fn connect(socket: &Path, timeout: Duration) -> Result<Self, SystemdError> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        let uid: String =
            rustix::process::geteuid().as_raw().to_string().bytes().map(|byte| format!("{byte:02x}")).collect();
        // BEGIN is sent together with AUTH. If it were sent after the reply, systemd could read it together with the
        // first message. systemd would then leave that message in its buffer until more bytes arrive.
        stream.write_all(format!("\0AUTH EXTERNAL {uid}\r\nBEGIN\r\n").as_bytes())?;
        let reply = line(&mut stream)?;
        if !reply.starts_with("OK") {
            return Err(SystemdError::Rejected { name: "AUTH".to_owned(), message: reply });
        }
        Ok(Self { stream, serial: 0, deadline: Instant::now() + timeout })
    }

    /// Calls a method of systemd's manager and waits for its reply.
    pub(super) fn call(&mut self, member: &str, arguments: &Arguments) -> Result<(), SystemdError> {
        self.send(member, arguments)?;
        while self.read_reply()?.is_none() {}
        Ok(())
    }

    /// Calls a method that returns a job, and waits until that job has completed.
    pub(super) fn run_job(&mut self, member: &str, arguments: &Arguments) -> Result<(), SystemdError> {
        self.send(member, arguments)?;
        // A private connection receives all signals without a subscription. The job may be removed before the call
        // returns its path.
        let mut removed_jobs = Vec::new();
        let mut job = None;
        loop {
            match self.message_or_error()? {
                Message::Reply(body) => job = Some(body.text_at(0).ok_or(SystemdError::Malformed)?.0),
                Message::JobRemoved(removed) => removed_jobs.push(removed),
                Message::Other => {}
            }
            let Some(job) = &job else { continue };
            if let Some(removed) = removed_jobs.iter().find(|removed| removed.job == *job) {
                return match removed.result.as_str() {
                    "done" | "skipped" => Ok(()),
                    result => Err(SystemdError::Job { unit: removed.unit.clone(), result: result.to_owned() }),
                };
            }
        }
    }

    fn send(&mut self, member: &str, arguments: &Arguments) -> Result<(), SystemdError> {
        self.serial += 1;
        Ok(self.stream.write_all(&message(self.serial, member, arguments))?)
    }

    fn read_reply(&mut self) -> Result<Option<Body>, SystemdError> {
        Ok(match self.message_or_error()? {
            Message::Reply(body) => Some(body),
            Message::JobRemoved(_) | Message::Other => None,
        })
    }

    /// Returns the next message; an error reply to the last call is returned as an error.
    fn message_or_error(&mut self) -> Result<Message, SystemdError> {
        let (kind, fields, body) = self.read()?;
        let is_reply = fields.reply_serial == Some(self.serial);
        Ok(match kind {
            RETURN if is_reply => Message::Reply(body),
            ERROR if is_reply => {
                let message = body.text_at(0).map(|(text, _)| text).unwrap_or_default();
                return Err(SystemdError::Rejected { name: fields.error_name, message });
            }
            SIGNAL if fields.member == "JobRemoved" => {
                Message::JobRemoved(JobRemoved::read(&body).ok_or(SystemdError::Malformed)?)
            }
            _ => Message::Other,
        })
    }

    fn read(&mut self) -> Result<(u8, Fields, Body), SystemdError> {
        let mut head = [0; 16];
        self.read_exact(&mut head)?;
        let little = head[0] == b'l';
        let number = |at: usize| {
            let bytes: [u8; 4] = head[at..at + 4].try_into().expect("a head has sixteen bytes");
            (if little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }) as usize
        };
        let (body, fields) = (number(4), number(12));
        let padded = fields.next_multiple_of(8);
        let rest = padded.checked_add(body).filter(|rest| *rest <= MESSAGE_BYTES_MAX);
        let mut bytes = vec![0; rest.ok_or(SystemdError::Malformed)?];
        self.read_exact(&mut bytes)?;
        let body = Body { bytes: bytes.split_off(padded), little };
        let fields = Fields::read(&bytes[..fields], little).ok_or(SystemdError::Malformed)?;
        Ok((head[1], fields, body))
    }

    fn read_exact(&mut self, mut buffer: &mut [u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            match self.stream.read(buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => buffer = &mut buffer[count..],
                Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A message of systemd.
enum Message {
    /// The reply to the last call.
    Reply(Body),
    JobRemoved(JobRemoved),
    /// Another signal.
    Other,
}

/// The encoded values of a message.
struct Body {
    bytes: Vec<u8>,
    little: bool,
}

impl Body {
    /// Returns the string or object path at this offset, rounded up to its alignment, and the offset of its end.
    fn text_at(&self, at: usize) -> Option<(String, usize)> {
        let at = at.next_multiple_of(4);
        let length: [u8; 4] = self.bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
        let length = (if self.little { u32::from_le_bytes(length) } else { u32::from_be_bytes(length) }) as usize;
        let text = self.bytes.get(at + 4..(at + 4).checked_add(length)?)?;
        Some((String::from_utf8_lossy(text).into_owned(), at + 4 + length + 1))
    }
}

/// The JobRemoved signal.
struct JobRemoved {
    job: String,
    unit: String,
    result: String,
}

impl JobRemoved {
    fn read(body: &Body) -> Option<Self> {
        // The job ID comes first.
        let (job, end) = body.text_at(4)?;
        let (unit, end) = body.text_at(end)?;
        let (result, _) = body.text_at(end)?;
        Some(Self { job, unit, result })
    }
}

/// The header fields that are used here.
#[derive(Debug, Default)]
struct Fields {
    reply_serial: Option<u32>,
    error_name: String,
    member: String,
}

impl Fields {
    /// Decodes an array of codes and variants; fails for a type that no header field has.
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
                    let text = String::from_utf8_lossy(text).into_owned();
                    match code {
                        3 => fields.member = text,
                        4 => fields.error_name = text,
                        _ => {}
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

/// Reads one line of the authentication handshake.
fn line(stream: &mut UnixStream) -> Result<String, SystemdError> {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\r\n") {
        if text.len() > 512 {
            return Err(SystemdError::Malformed);
        }
        stream.read_exact(&mut byte).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                SystemdError::Rejected { name: "AUTH".to_owned(), message: "the connection was closed".to_owned() }
            }
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

    fn long_number(&mut self, number: u64) {
        self.align(8);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// Encodes `a(sv)`.
    fn properties(&mut self, properties: &[(&str, Property)]) {
        self.array(8, |body| {
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
                    Property::Number(number) => {
                        body.signature("t");
                        body.long_number(*number);
                    }
                    Property::Bytes(bytes) => {
                        body.signature("ay");
                        body.array(1, |body| body.0.extend_from_slice(bytes));
                    }
                    Property::Numbers(numbers) => {
                        body.signature("au");
                        body.array(4, |body| numbers.iter().for_each(|number| body.number(*number)));
                    }
                }
            }
        });
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

    /// Encodes an array, whose length excludes the padding before its first item.
    fn array(&mut self, item_align: usize, items: impl FnOnce(&mut Self)) {
        self.number(0);
        let length_at = self.0.len() - 4;
        self.align(item_align);
        let start = self.0.len();
        items(self);
        let length = u32::try_from(self.0.len() - start).unwrap_or(u32::MAX);
        self.0[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread::JoinHandle;

    use super::*;

    /// Serves one connection per list of outcomes, and one call per outcome: an error if the outcome contains a dot, an
    /// empty reply if it is empty, otherwise a job with that result. Returns the received messages.
    pub(crate) fn serve(socket: &Path, connections: &[&[&str]]) -> JoinHandle<Vec<Vec<u8>>> {
        let listener = UnixListener::bind(socket).unwrap();
        let connections: Vec<Vec<String>> =
            connections.iter().map(|all| all.iter().map(|one| (*one).to_owned()).collect()).collect();
        std::thread::spawn(move || {
            connections.iter().flat_map(|outcomes| serve_connection(&listener, outcomes)).collect()
        })
    }

    fn serve_connection(listener: &UnixListener, outcomes: &[String]) -> Vec<Vec<u8>> {
        let (mut stream, _) = listener.accept().unwrap();
        // Like systemd, the server must not find BEGIN and the first message in one read.
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert!(line(&mut stream).unwrap().starts_with("\0AUTH EXTERNAL "));
        assert_eq!(line(&mut stream).unwrap(), "BEGIN");
        stream.write_all(b"OK 0123456789abcdef\r\n").unwrap();
        let mut serve = |(index, outcome): (usize, &String)| {
            let mut head = [0; 16];
            stream.read_exact(&mut head).unwrap();
            let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap()) as usize;
            let mut rest = vec![0; number(12).next_multiple_of(8) + number(4)];
            stream.read_exact(&mut rest).unwrap();
            let serial = u32::try_from(index).unwrap() + 1;
            // An unrelated signal and the end of another job come first.
            let mut bytes = sent(SIGNAL, 0, "UnitNew", &[]);
            bytes.extend(job_removed("/job/other", "failed"));
            match outcome.as_str() {
                "" => bytes.extend(sent(RETURN, serial, "", &[])),
                error if error.contains('.') => bytes.extend(sent(ERROR, serial, error, &["because"])),
                // systemd may send the signal before it returns the job.
                "done" => {
                    bytes.extend(job_removed("/job/1", "done"));
                    bytes.extend(sent(RETURN, serial, "", &["/job/1"]));
                }
                result => {
                    bytes.extend(sent(RETURN, serial, "", &["/job/1"]));
                    bytes.extend(job_removed("/job/1", result));
                }
            }
            stream.write_all(&bytes).unwrap();
            [head.to_vec(), rest].concat()
        };
        outcomes.iter().enumerate().map(&mut serve).collect()
    }

    fn job_removed(job: &str, result: &str) -> Vec<u8> {
        sent(SIGNAL, 0, "JobRemoved", &["#", job, "x.scope", result])
    }

    /// Encodes a message of systemd. Values are strings; `#` is a number.
    fn sent(kind: u8, reply_serial: u32, name: &str, values: &[&str]) -> Vec<u8> {
        let mut body = Writer::default();
        for value in values {
            if *value == "#" { body.number(7) } else { body.text(value) }
        }
        let mut all = Writer(vec![b'l', kind, 1, 1]);
        all.number(u32::try_from(body.0.len()).unwrap());
        all.number(77);
        all.array(8, |fields| {
            if reply_serial > 0 {
                fields.0.push(5);
                fields.signature("u");
                fields.number(reply_serial);
            }
            if !name.is_empty() {
                fields.align(8);
                fields.0.push(if kind == ERROR { 4 } else { 3 });
                fields.signature("s");
                fields.text(name);
            }
        });
        all.align(8);
        all.0.extend(body.0);
        all.0
    }

    #[test]
    fn call_is_encoded_as_specified() {
        let written = message(1, "StopUnit", &unit_and_mode("a.slice"));
        assert_eq!(&written[..4], b"l\x01\0\x01");
        // Two strings of seven characters, each with its length and terminator.
        assert_eq!(u32::from_le_bytes(written[4..8].try_into().unwrap()), 4 + 8 + 4 + 8);
        assert_eq!(written.len() % 8, 0);
        let fields = u32::from_le_bytes(written[12..16].try_into().unwrap()) as usize;
        assert_eq!(16 + fields.next_multiple_of(8) + 24, written.len());
        assert_eq!(&written[written.len() - 24..], b"\x07\0\0\0a.slice\0\x07\0\0\0replace\0");
    }

    #[test]
    fn malformed_header_fields_are_rejected_without_panic() {
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

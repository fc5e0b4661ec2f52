//! Netlink: requests as bytes, and a socket that sends one and reads what the kernel says to it.
//!
//! One codec serves links, routes, nf_tables and conntrack. It is synchronous, so that a request can be made in any network
//! namespace by a thread that entered it.

use std::io;

use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};
use netlink_sys::{Socket as Raw, SocketAddr};

/// Length, type, flags, sequence number, port: what stands before every message.
const HEADER_LEN: usize = 16;
/// Set on an attribute that holds attributes.
const NESTED: u16 = 1 << 15;
/// The flags of an attribute's type that do not belong to it.
const KIND_MASK: u16 = 0x3fff;
/// A request larger than this is refused by the kernel; 5,000 services with 4 endpoints each are 3 MiB.
const SEND_BUFFER_BYTES: usize = 256 << 20;
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
/// The place of the explanation among what is said about an error.
const ERROR_MESSAGE: u16 = 1;
/// An error comes with an explanation.
const FLAG_ACK_TLVS: u16 = 0x200;
/// An error does not repeat the message it is about.
const FLAG_CAPPED: u16 = 0x100;

/// Asks the kernel to do something.
pub const REQUEST: u16 = 1;
/// Asks for an answer also if all went well.
pub const ACK: u16 = 4;
/// Asks for everything there is.
pub const DUMP: u16 = 0x300;
/// Replaces what is there.
pub const REPLACE: u16 = 0x100;
/// Fails if it is there already.
pub const EXCLUSIVE: u16 = 0x200;
/// Makes what is not there.
pub const CREATE: u16 = 0x400;
/// Adds to the end.
pub const APPEND: u16 = 0x800;

/// Which part of the kernel one talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Links, addresses and routes.
    Route,
    /// nf_tables and conntrack.
    Netfilter,
}

/// Why the kernel did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No conversation was possible.
    #[error("cannot talk to the kernel over netlink")]
    Socket(#[source] io::Error),
    /// The kernel refused.
    #[error("the kernel refused {what}{}", explained(.explanation))]
    Refused {
        /// What was asked.
        what: &'static str,
        /// The kernel's words, often empty.
        explanation: String,
        /// The error number.
        #[source]
        source: io::Error,
    },
    /// The answer makes no sense.
    #[error("the kernel's answer to {0} is malformed")]
    Malformed(&'static str),
}

/// Messages that are sent together.
#[derive(Clone, Debug, Default)]
pub struct Request {
    bytes: Vec<u8>,
    /// Where each message starts.
    starts: Vec<usize>,
}

/// The attributes of a message, or of another attribute, while they are written.
pub struct Attributes<'a>(&'a mut Vec<u8>);

/// One message of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Its type.
    pub kind: u16,
    /// What follows its header.
    pub payload: Vec<u8>,
}

/// A conversation with the kernel about the network namespace in which it was opened.
pub struct Socket {
    raw: Raw,
    sequence: u32,
}

impl Error {
    /// The error number, if the kernel gave one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Socket(source) | Self::Refused { source, .. } => source.raw_os_error(),
            Self::Malformed(_) => None,
        }
    }
}

impl Request {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// One message.
    pub fn of(kind: u16, flags: u16, header: &[u8], fill: impl FnOnce(&mut Attributes<'_>)) -> Self {
        let mut request = Self::new();
        request.message(kind, flags, header, fill);
        request
    }

    /// Adds a message: its fixed part and its attributes.
    pub fn message(&mut self, kind: u16, flags: u16, header: &[u8], fill: impl FnOnce(&mut Attributes<'_>)) {
        let start = self.bytes.len();
        self.starts.push(start);
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&(flags | REQUEST).to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 8]);
        self.bytes.extend_from_slice(header);
        pad(&mut self.bytes);
        fill(&mut Attributes(&mut self.bytes));
        let length = u32::try_from(self.bytes.len() - start).expect("a message is far below 4 GiB");
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    /// How many messages there are.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Asks for an answer to the last message so far.
    pub fn acknowledge(&mut self) {
        if let Some(start) = self.starts.last() {
            let flags = self.flags(*start) | ACK;
            self.bytes[start + 6..start + 8].copy_from_slice(&flags.to_ne_bytes());
        }
    }

    /// The position of the message whose answer is the last one.
    fn answered(&self) -> u32 {
        let at = self.starts.iter().rposition(|start| self.flags(*start) & (ACK | DUMP) != 0);
        u32::try_from(at.expect("every request asks for an answer")).expect("fewer messages than bytes")
    }

    fn flags(&self, start: usize) -> u16 {
        u16::from_ne_bytes([self.bytes[start + 6], self.bytes[start + 7]])
    }

    fn number(&mut self, first: u32) {
        for (at, start) in self.starts.iter().enumerate() {
            let number = first.wrapping_add(u32::try_from(at).expect("fewer messages than bytes"));
            self.bytes[start + 8..start + 12].copy_from_slice(&number.to_ne_bytes());
        }
    }
}

impl Attributes<'_> {
    /// Bytes as they are. A value is below 64 KiB; whoever writes lists cuts them.
    pub fn put(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        self.write(kind, |bytes| bytes.extend_from_slice(value))
    }

    /// A number in the machine's order.
    pub fn put_u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_ne_bytes())
    }

    /// A number in the network's order, as netfilter wants it.
    pub fn put_be32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_be_bytes())
    }

    /// A large number in the network's order.
    pub fn put_be64(&mut self, kind: u16, value: u64) -> &mut Self {
        self.put(kind, &value.to_be_bytes())
    }

    /// Text, ended by a zero.
    pub fn put_str(&mut self, kind: u16, value: &str) -> &mut Self {
        self.write(kind, |bytes| {
            bytes.extend_from_slice(value.as_bytes());
            bytes.push(0);
        })
    }

    /// Attributes inside an attribute.
    pub fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Attributes<'_>)) -> &mut Self {
        self.write(kind | NESTED, |bytes| fill(&mut Attributes(bytes)))
    }

    /// A fixed part inside an attribute, as a link's peer has it.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        pad(self.0);
        self
    }

    /// How many bytes the whole request has by now.
    pub fn position(&self) -> usize {
        self.0.len()
    }

    fn write(&mut self, kind: u16, fill: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        let start = self.0.len();
        self.0.extend_from_slice(&[0; 2]);
        self.0.extend_from_slice(&kind.to_ne_bytes());
        fill(self.0);
        let length = u16::try_from(self.0.len() - start).expect("an attribute is below 64 KiB");
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        pad(self.0);
        self
    }
}

impl Socket {
    /// Opens a conversation about the network namespace of the calling thread.
    pub fn open(protocol: Protocol) -> Result<Self, Error> {
        let number = match protocol {
            Protocol::Route => NETLINK_ROUTE,
            Protocol::Netfilter => NETLINK_NETFILTER,
        };
        let open = || {
            let mut raw = Raw::new(number)?;
            raw.bind_auto()?;
            raw.connect(&SocketAddr::new(0, 0))?;
            raw.set_cap_ack(true)?;
            raw.set_ext_ack(true)?;
            if protocol == Protocol::Netfilter {
                rustix::net::sockopt::set_socket_send_buffer_size_force(&raw, SEND_BUFFER_BYTES)?;
                rustix::net::sockopt::set_socket_recv_buffer_size_force(&raw, RECEIVE_BUFFER_BYTES)?;
            }
            Ok(raw)
        };
        Ok(Self { raw: open().map_err(Error::Socket)?, sequence: 1 })
    }

    /// Sends a request that asks for an answer, and gives the first error there is.
    pub fn execute(&mut self, what: &'static str, request: Request) -> Result<(), Error> {
        self.converse(what, request, |_| {})
    }

    /// Sends a request and gives what the kernel tells.
    pub fn ask(&mut self, what: &'static str, request: Request) -> Result<Vec<Reply>, Error> {
        let mut replies = Vec::new();
        self.converse(what, request, |reply| replies.push(reply))?;
        Ok(replies)
    }

    /// Hears of what happens: groups of the kernel's own numbers. Such a socket is for [`Socket::hear`] alone.
    pub fn join(&mut self, groups: &[u32]) -> Result<(), Error> {
        groups.iter().try_for_each(|group| self.raw.add_membership(*group)).map_err(Error::Socket)
    }

    /// Waits until something happens, and gives it.
    pub fn hear(&mut self) -> Result<Vec<Reply>, Error> {
        let (bytes, _) = self.raw.recv_from_full().map_err(Error::Socket)?;
        let mut replies = Vec::new();
        let mut rest = bytes.as_slice();
        while let Some(message) = Incoming::read(rest) {
            replies.push(Reply { kind: message.kind, payload: message.payload.to_vec() });
            rest = rest.get(message.length.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(replies)
    }

    fn converse(&mut self, what: &'static str, mut request: Request, mut tell: impl FnMut(Reply)) -> Result<(), Error> {
        if request.is_empty() {
            return Ok(());
        }
        let first = self.sequence;
        request.number(first);
        let count = u32::try_from(request.len()).expect("fewer messages than bytes");
        self.sequence = first.wrapping_add(count);
        let last = first.wrapping_add(request.answered());
        self.raw.send(&request.bytes, 0).map_err(Error::Socket)?;
        let mut failure = None;
        loop {
            let (bytes, _) = self.raw.recv_from_full().map_err(Error::Socket)?;
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let message = Incoming::read(rest).ok_or(Error::Malformed(what))?;
                rest = rest.get(message.length.next_multiple_of(4)..).unwrap_or_default();
                let number = i64::from(message.sequence.wrapping_sub(first));
                if number >= i64::from(count) {
                    continue;
                }
                let ends = match message.kind {
                    control::ERROR => {
                        let failed = message.failure(what)?;
                        // A batch that could not even begin is answered at its first message only.
                        let ends = message.sequence == last || (failed.is_some() && message.sequence == first);
                        failure = failure.or(failed);
                        ends
                    }
                    control::DONE => true,
                    control::NOOP => false,
                    kind => {
                        tell(Reply { kind, payload: message.payload.to_vec() });
                        false
                    }
                };
                if ends {
                    return failure.map_or(Ok(()), Err);
                }
            }
        }
    }
}

impl Reply {
    /// The attributes that follow a fixed part of so many bytes.
    pub fn attributes(&self, header_len: usize) -> impl Iterator<Item = (u16, &[u8])> {
        attributes(self.payload.get(header_len..).unwrap_or_default())
    }
}

/// The attributes in some bytes, by type; ends at the first that is cut.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & KIND_MASK, value))
    })
}

/// The attribute of a type.
pub fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(have, _)| *have == kind).map(|(_, value)| value)
}

/// A number in the machine's order.
pub fn read_u32(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?))
}

/// An address of either family.
pub fn read_ip(bytes: &[u8]) -> Option<std::net::IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(Into::into),
        16 => <[u8; 16]>::try_from(bytes).ok().map(Into::into),
        _ => None,
    }
}

/// Types of messages that every part of the kernel uses.
mod control {
    pub const NOOP: u16 = 1;
    pub const ERROR: u16 = 2;
    pub const DONE: u16 = 3;
}

struct Incoming<'a> {
    length: usize,
    kind: u16,
    flags: u16,
    sequence: u32,
    payload: &'a [u8],
}

impl<'a> Incoming<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let length = usize::try_from(read_u32(bytes)?).ok()?;
        let half = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let payload = bytes.get(HEADER_LEN..length)?;
        Some(Self { length, kind: half(4)?, flags: half(6)?, sequence: read_u32(bytes.get(8..)?)?, payload })
    }

    fn failure(&self, what: &'static str) -> Result<Option<Error>, Error> {
        let malformed = || Error::Malformed(what);
        let code = i32::from_ne_bytes(self.payload.get(..4).and_then(|it| it.try_into().ok()).ok_or_else(malformed)?);
        if code == 0 {
            return Ok(None);
        }
        let about = Incoming::header_len(self.payload.get(4..).unwrap_or_default());
        let said_at = 4 + if self.flags & FLAG_CAPPED == 0 { about } else { HEADER_LEN };
        let explanation = match self.payload.get(said_at..) {
            Some(said) if self.flags & FLAG_ACK_TLVS != 0 => attribute(said, ERROR_MESSAGE)
                .map(|text| String::from_utf8_lossy(text).trim_end_matches('\0').to_owned())
                .unwrap_or_default(),
            _ => String::new(),
        };
        Ok(Some(Error::Refused { what, explanation, source: io::Error::from_raw_os_error(-code) }))
    }

    fn header_len(bytes: &[u8]) -> usize {
        read_u32(bytes).and_then(|length| usize::try_from(length).ok()).unwrap_or(HEADER_LEN).next_multiple_of(4)
    }
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

fn explained(explanation: &str) -> String {
    if explanation.is_empty() { String::new() } else { format!(" ({explanation})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let request = Request::of(7, ACK, &[1, 2, 3, 4, 5], |attributes| {
            attributes.put(1, &[9]).nest(2, |inner| {
                inner.put_str(3, "abcd").put_be32(4, 258);
            });
        });
        let incoming = Incoming::read(&request.bytes).unwrap();
        assert_eq!((incoming.kind, incoming.flags, incoming.length), (7, REQUEST | ACK, request.bytes.len()));
        let rest = &incoming.payload[8..];
        assert_eq!(attribute(rest, 1), Some(&[9][..]));
        let inner = attribute(rest, 2).unwrap();
        assert_eq!(attributes(inner).collect::<Vec<_>>(), [(3, &b"abcd\0"[..]), (4, &[0, 0, 1, 2][..])]);
    }

    #[test]
    fn attributes_that_are_cut_end_the_list() {
        for length in 0..8 {
            let bytes = [8, 0, 1, 0, 1, 2, 3, 4];
            assert_eq!(attributes(&bytes[..length]).count(), 0, "{length} bytes");
        }
        assert_eq!(attributes(&[0; 64]).count(), 0, "a length below its own header");
    }

    #[test]
    fn an_error_is_told_with_the_kernels_words() {
        let mut socket = Socket::open(Protocol::Route).unwrap();
        let request = Request::of(16, ACK | EXCLUSIVE | CREATE, &[0; 16], |it| {
            it.put_str(3, "a-name-too-long-for-an-interface");
        });
        let error = socket.execute("a link", request).unwrap_err();
        assert!(error.errno().is_some(), "{error}");
    }
}

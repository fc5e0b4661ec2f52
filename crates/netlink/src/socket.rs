//! Netlink: encoding of requests, and a socket that sends them and reads the replies.
//!
//! One codec serves links, routes, nf_tables and conntrack. The socket is synchronous, so a thread can use it in any
//! network namespace that it has entered.

use std::io;

use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};
use netlink_sys::{Socket as Raw, SocketAddr};

/// Length of the message header: length, type, flags, sequence number and port ID.
const HEADER_LEN: usize = 16;
/// Flag of an attribute type: contains attributes.
const NESTED: u16 = 1 << 15;
/// Masks the flags of an attribute type.
const KIND_MASK: u16 = 0x3fff;
/// Maximum size of a request; 5,000 services with 4 endpoints each need 3 MiB.
const SEND_BUFFER_BYTES: usize = 256 << 20;
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
/// Attribute type of the error message in an extended ACK.
const ERROR_MESSAGE: u16 = 1;
/// Flag: the error has extended ACK attributes.
const FLAG_ACK_TLVS: u16 = 0x200;
/// Flag: the error does not repeat the request.
const FLAG_CAPPED: u16 = 0x100;

/// NLM_F_REQUEST.
pub const REQUEST: u16 = 1;
/// NLM_F_ACK: requests a reply also on success.
pub const ACK: u16 = 4;
/// NLM_F_DUMP: requests all objects.
pub const DUMP: u16 = 0x300;
/// NLM_F_REPLACE: replaces an existing object.
pub const REPLACE: u16 = 0x100;
/// NLM_F_EXCL: fails if the object exists.
pub const EXCLUSIVE: u16 = 0x200;
/// NLM_F_CREATE: creates the object if it does not exist.
pub const CREATE: u16 = 0x400;
/// NLM_F_APPEND: adds to the end of the list.
pub const APPEND: u16 = 0x800;

/// Netlink family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Links, addresses and routes.
    Route,
    /// nf_tables and conntrack.
    Netfilter,
}

/// A netlink request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A socket or sysctl operation failed.
    #[error("request to the kernel failed")]
    Socket(#[source] io::Error),
    /// The kernel returned an error.
    #[error("the kernel rejected the netlink request to {what}{}", explained(.explanation))]
    Rejected {
        /// Description of the request.
        what: &'static str,
        /// Message of the kernel, often empty.
        explanation: String,
        #[source]
        source: io::Error,
    },
    #[error("the kernel's reply to the netlink request to {0} is malformed")]
    Malformed(&'static str),
}

/// One or more messages that are sent together.
#[derive(Clone, Debug, Default)]
pub struct Request {
    bytes: Vec<u8>,
    /// Offset of each message.
    starts: Vec<usize>,
}

/// Writer for the attributes of a message or of a nested attribute.
pub struct Attributes<'a>(&'a mut Vec<u8>);

/// One message of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub kind: u16,
    /// Content after the message header.
    pub payload: Vec<u8>,
}

/// A netlink socket, bound to the network namespace in which it was opened.
pub struct Socket {
    raw: Raw,
    sequence: u32,
}

impl Error {
    /// Returns the errno of the kernel, if any.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Socket(source) | Self::Rejected { source, .. } => source.raw_os_error(),
            Self::Malformed(_) => None,
        }
    }
}

impl Request {
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a request with one message.
    pub fn of(kind: u16, flags: u16, header: &[u8], fill: impl FnOnce(&mut Attributes<'_>)) -> Self {
        let mut request = Self::new();
        request.message(kind, flags, header, fill);
        request
    }

    /// Appends a message with its fixed header and its attributes.
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

    /// Returns the number of messages.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Requests an acknowledgement of the last message.
    pub fn acknowledge(&mut self) {
        if let Some(start) = self.starts.last() {
            let flags = self.flags(*start) | ACK;
            self.bytes[start + 6..start + 8].copy_from_slice(&flags.to_ne_bytes());
        }
    }

    /// Returns the index of the message whose reply is the last one.
    fn last_replied(&self) -> u32 {
        let at = self.starts.iter().rposition(|start| self.flags(*start) & (ACK | DUMP) != 0);
        u32::try_from(at.expect("every request has the flag ACK or DUMP")).expect("the message count fits into u32")
    }

    fn flags(&self, start: usize) -> u16 {
        u16::from_ne_bytes([self.bytes[start + 6], self.bytes[start + 7]])
    }

    fn number(&mut self, first: u32) {
        for (at, start) in self.starts.iter().enumerate() {
            let number = first.wrapping_add(u32::try_from(at).expect("the message count fits into u32"));
            self.bytes[start + 8..start + 12].copy_from_slice(&number.to_ne_bytes());
        }
    }
}

impl Attributes<'_> {
    /// Writes bytes. The value must be below 64 KiB; callers split longer lists.
    pub fn put(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        self.write(kind, |bytes| bytes.extend_from_slice(value))
    }

    /// Writes a number in host byte order.
    pub fn put_u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_ne_bytes())
    }

    /// Writes a number in network byte order, as netfilter requires.
    pub fn put_be32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_be_bytes())
    }

    /// Writes a 64-bit number in network byte order.
    pub fn put_be64(&mut self, kind: u16, value: u64) -> &mut Self {
        self.put(kind, &value.to_be_bytes())
    }

    /// Writes a zero-terminated text.
    pub fn put_str(&mut self, kind: u16, value: &str) -> &mut Self {
        self.write(kind, |bytes| {
            bytes.extend_from_slice(value.as_bytes());
            bytes.push(0);
        })
    }

    /// Writes a nested attribute.
    pub fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Attributes<'_>)) -> &mut Self {
        self.write(kind | NESTED, |bytes| fill(&mut Attributes(bytes)))
    }

    /// Writes a fixed header inside an attribute, as needed for a veth peer.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        pad(self.0);
        self
    }

    /// Returns the length of the request so far.
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
    /// Opens a socket in the network namespace of the calling thread.
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

    /// Sends a request with an acknowledgement; returns the first error.
    pub fn execute(&mut self, what: &'static str, request: Request) -> Result<(), Error> {
        self.converse(what, request, |_| {})
    }

    /// Sends a request and returns all replies.
    pub fn query(&mut self, what: &'static str, request: Request) -> Result<Vec<Reply>, Error> {
        let mut replies = Vec::new();
        self.converse(what, request, |reply| replies.push(reply))?;
        Ok(replies)
    }

    /// Joins multicast groups. Such a socket must be used only with [`Socket::receive_events`].
    pub fn join(&mut self, groups: &[u32]) -> Result<(), Error> {
        groups.iter().try_for_each(|group| self.raw.add_membership(*group)).map_err(Error::Socket)
    }

    /// Waits for multicast messages and returns them.
    pub fn receive_events(&mut self) -> Result<Vec<Reply>, Error> {
        let (bytes, _) = self.raw.recv_from_full().map_err(Error::Socket)?;
        let mut replies = Vec::new();
        let mut rest = bytes.as_slice();
        while let Some(message) = Incoming::read(rest) {
            replies.push(Reply { kind: message.kind, payload: message.payload.to_vec() });
            rest = rest.get(message.length.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(replies)
    }

    fn converse(
        &mut self,
        what: &'static str,
        mut request: Request,
        mut on_reply: impl FnMut(Reply),
    ) -> Result<(), Error> {
        if request.is_empty() {
            return Ok(());
        }
        let first = self.sequence;
        request.number(first);
        let count = u32::try_from(request.len()).expect("the message count fits into u32");
        self.sequence = first.wrapping_add(count);
        let last = first.wrapping_add(request.last_replied());
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
                        // If a batch fails at its start, the kernel acknowledges only its first message.
                        let ends = message.sequence == last || (failed.is_some() && message.sequence == first);
                        failure = failure.or(failed);
                        ends
                    }
                    control::DONE => true,
                    control::NOOP => false,
                    kind => {
                        on_reply(Reply { kind, payload: message.payload.to_vec() });
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
    /// Returns the attributes after a fixed header of this length.
    pub fn attributes(&self, header_len: usize) -> impl Iterator<Item = (u16, &[u8])> {
        attributes(self.payload.get(header_len..).unwrap_or_default())
    }
}

/// Iterates over attributes by type; stops at the first truncated one.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & KIND_MASK, value))
    })
}

/// Returns the first attribute of a type.
pub fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(have, _)| *have == kind).map(|(_, value)| value)
}

/// Reads a number in host byte order.
pub fn read_u32(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?))
}

/// Reads an IPv4 or IPv6 address, by length.
pub fn read_ip(bytes: &[u8]) -> Option<std::net::IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(Into::into),
        16 => <[u8; 16]>::try_from(bytes).ok().map(Into::into),
        _ => None,
    }
}

/// Control message types of all netlink families.
mod control {
    pub(super) const NOOP: u16 = 1;
    pub(super) const ERROR: u16 = 2;
    pub(super) const DONE: u16 = 3;
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
        let attributes_at = 4 + if self.flags & FLAG_CAPPED == 0 { about } else { HEADER_LEN };
        let explanation = match self.payload.get(attributes_at..) {
            Some(attributes) if self.flags & FLAG_ACK_TLVS != 0 => attribute(attributes, ERROR_MESSAGE)
                .map(|text| String::from_utf8_lossy(text).trim_end_matches('\0').to_owned())
                .unwrap_or_default(),
            _ => String::new(),
        };
        Ok(Some(Error::Rejected { what, explanation, source: io::Error::from_raw_os_error(-code) }))
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
    fn encoded_attributes_are_decoded() {
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
    fn truncated_attribute_ends_the_list() {
        for length in 0..8 {
            let bytes = [8, 0, 1, 0, 1, 2, 3, 4];
            assert_eq!(attributes(&bytes[..length]).count(), 0, "{length} bytes");
        }
        assert_eq!(attributes(&[0; 64]).count(), 0, "a length below its own header");
    }

    #[test]
    fn error_contains_the_kernels_message() {
        let mut socket = Socket::open(Protocol::Route).unwrap();
        let request = Request::of(16, ACK | EXCLUSIVE | CREATE, &[0; 16], |it| {
            it.put_str(3, "a-name-too-long-for-an-interface");
        });
        let error = socket.execute("create a link", request).unwrap_err();
        assert!(error.errno().is_some(), "{error}");
    }
}

//! nf_tables over netlink: tables, chains, rules, sets and elements in one transaction, without the `nft` binary.
//!
//! A [`Batch`] is atomic: the kernel validates every message and then switches to the new rules, so no packet sees a
//! partial change. Only the names of chains are read back: a writer knows what it wrote, but not what an earlier run
//! wrote.

mod expression;

use crate::socket::{APPEND, Attributes, CREATE, DUMP, Error, Protocol, Reply, Request, Socket, attribute};

pub use expression::{
    CT_STATE, CT_STATUS, Compare, Dynamic, Expression, META_IIFNAME, META_L4PROTO, META_MARK, META_OIFNAME, Reg,
    Reject, STATE_NEW, STATUS_DNAT, interface_name,
};

const SUBSYSTEM: u16 = 10 << 8;
const GENERIC_LEN: usize = 4;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
/// Maximum size of an element list: an attribute's length has 16 bits. More elements go into another message.
const ELEMENTS_BYTES_MAX: usize = 48 << 10;

/// Address family of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    Ip,
    Ip6,
}

/// Netfilter hook of a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Received, before routing.
    Prerouting = 0,
    /// To this host.
    Input = 1,
    /// Forwarded by this host.
    Forward = 2,
    /// From this host.
    Output = 3,
    /// Before sending.
    Postrouting = 4,
}

/// Type of a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainKind {
    /// Accepts, drops, rejects.
    Filter,
    /// Translates addresses; traversed only by the first packet of a connection.
    Nat,
}

/// Verdict on a packet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Passes this hook.
    Accept,
    Drop,
    /// Continues in the calling chain.
    Return,
    /// Enters a chain and returns here after it.
    Jump(String),
    /// Enters a chain and returns to the caller of this one.
    Goto(String),
}

/// Part of a key or value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    /// IP protocol number.
    Protocol,
    Address4,
    Address6,
    Port,
    /// A 32-bit number in host byte order.
    Number,
    /// An interface name.
    Interface,
}

/// Value type of a set or map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// No values: a set.
    Nothing,
    /// A verdict map.
    Verdicts,
    /// A map of values.
    Values(Vec<Field>),
}

/// A set or a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    pub name: &'static str,
    /// Fields of the keys; each is padded to a multiple of four bytes.
    pub key: Vec<Field>,
    pub holds: ValueType,
    /// Whether keys are ranges of addresses.
    pub ranges: bool,
    /// Whether packets add elements, which expire.
    pub dynamic: bool,
}

/// An element of a set or map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Element {
    /// Built by [`Key`].
    pub key: Vec<u8>,
    /// End of a range, inclusive.
    pub key_end: Option<Vec<u8>>,
    pub value: Option<MapValue>,
}

/// Value of a map element.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MapValue {
    /// Built by [`Key`].
    Value(Vec<u8>),
    Verdict(Verdict),
}

/// Builds a key in the kernel's register layout.
#[derive(Clone, Debug, Default)]
pub struct Key(Vec<u8>);

/// An atomic transaction.
#[derive(Clone, Debug)]
pub struct Batch {
    request: Request,
    sets: u32,
}

/// Adds messages for one table to a batch.
pub struct Table<'a> {
    batch: &'a mut Batch,
    family: Family,
    name: &'a str,
}

impl Family {
    /// Returns the kernel's number of the family.
    pub const fn number(self) -> u8 {
        match self {
            Self::Ip => 2,
            Self::Ip6 => 10,
        }
    }

    /// Returns the family of an address.
    pub const fn of(ip: std::net::IpAddr) -> Self {
        if ip.is_ipv4() { Self::Ip } else { Self::Ip6 }
    }

    /// Returns the unspecified address of the family.
    pub const fn any(self) -> std::net::IpAddr {
        match self {
            Self::Ip => std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
            Self::Ip6 => std::net::IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
        }
    }

    /// Returns the field type of the family's addresses.
    pub const fn address(self) -> Field {
        match self {
            Self::Ip => Field::Address4,
            Self::Ip6 => Field::Address6,
        }
    }
}

impl Field {
    /// Returns the type number of the `nft` tool, which uses it to print sets.
    const fn nft_type(self) -> u32 {
        match self {
            Self::Address4 => 7,
            Self::Address6 => 8,
            Self::Protocol => 12,
            Self::Port => 13,
            Self::Number => 19,
            Self::Interface => 41,
        }
    }

    /// Returns the length in a key, in bytes.
    pub const fn padded_len(self) -> u32 {
        if matches!(self, Self::Address6 | Self::Interface) { 16 } else { 4 }
    }

    const fn len(self) -> u32 {
        match self {
            Self::Protocol => 1,
            Self::Port => 2,
            Self::Address4 | Self::Number => 4,
            Self::Address6 | Self::Interface => 16,
        }
    }
}

impl Key {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn protocol(mut self, number: u8) -> Self {
        self.0.extend_from_slice(&[number, 0, 0, 0]);
        self
    }

    pub fn ip(mut self, ip: std::net::IpAddr) -> Self {
        match ip {
            std::net::IpAddr::V4(ip) => self.0.extend_from_slice(&ip.octets()),
            std::net::IpAddr::V6(ip) => self.0.extend_from_slice(&ip.octets()),
        }
        self
    }

    pub fn port(mut self, port: u16) -> Self {
        let [high, low] = port.to_be_bytes();
        self.0.extend_from_slice(&[high, low, 0, 0]);
        self
    }

    pub fn interface(mut self, name: &str) -> Self {
        self.0.extend_from_slice(&interface_name(name));
        self
    }

    /// Appends a 32-bit number in host byte order.
    pub fn number(mut self, number: u32) -> Self {
        self.0.extend_from_slice(&number.to_ne_bytes());
        self
    }

    pub fn done(self) -> Vec<u8> {
        self.0
    }
}

impl Element {
    /// Creates an element of a set.
    pub fn member(key: Key) -> Self {
        Self { key: key.done(), key_end: None, value: None }
    }

    /// Creates an element of a map.
    pub fn entry(key: Key, value: MapValue) -> Self {
        Self { key: key.done(), key_end: None, value: Some(value) }
    }
}

impl Default for Batch {
    fn default() -> Self {
        let mut request = Request::new();
        request.message(BATCH_BEGIN, 0, &generic(0, SUBSYSTEM >> 8), |_| {});
        Self { request, sets: 0 }
    }
}

impl Batch {
    pub fn new() -> Self {
        Self::default()
    }

    /// Continues with messages for a table.
    pub fn table<'a>(&'a mut self, family: Family, name: &'a str) -> Table<'a> {
        Table { batch: self, family, name }
    }

    /// Whether the batch has no messages.
    pub fn is_empty(&self) -> bool {
        self.request.len() == 1
    }

    /// Applies the batch in the network namespace of the calling thread.
    pub fn commit(mut self) -> Result<(), Error> {
        if self.is_empty() {
            return Ok(());
        }
        // Older kernels do not acknowledge the end of a batch, but every message inside that requests it.
        self.request.acknowledge();
        self.request.message(BATCH_END, 0, &generic(0, SUBSYSTEM >> 8), |_| {});
        Socket::open(Protocol::Netfilter)?.execute("commit an nftables transaction", self.request)
    }

    fn message(&mut self, kind: u16, flags: u16, family: Family, fill: impl FnOnce(&mut Attributes<'_>)) {
        self.request.message(SUBSYSTEM | kind, flags, &generic(family.number(), 0), fill);
    }
}

impl Table<'_> {
    /// Creates an empty table, replacing an existing one.
    pub fn replace(&mut self) -> &mut Self {
        self.add().delete().add()
    }

    /// Creates the table if it does not exist.
    pub fn add(&mut self) -> &mut Self {
        self.send(0, CREATE, |_| {})
    }

    /// Deletes the table with its content; it must exist.
    pub fn delete(&mut self) -> &mut Self {
        self.send(2, 0, |_| {})
    }

    /// Creates a base chain at a hook.
    pub fn base_chain(&mut self, name: &str, kind: ChainKind, hook: Hook, priority: i32) -> &mut Self {
        let kind = match kind {
            ChainKind::Filter => "filter",
            ChainKind::Nat => "nat",
        };
        let fill = |it: &mut Attributes<'_>| {
            it.put_str(3, name);
            it.nest(4, |it| {
                it.put_be32(1, hook as u32).put_be32(2, priority.cast_unsigned());
            });
            // Policy accept.
            it.put_be32(5, 1).put_str(7, kind);
        };
        self.send(3, CREATE, fill)
    }

    /// Creates a chain that rules and maps can enter.
    pub fn chain(&mut self, name: &str) -> &mut Self {
        let fill = |it: &mut Attributes<'_>| {
            it.put_str(3, name);
        };
        self.send(3, CREATE, fill)
    }

    /// Deletes a chain; it must not be referenced.
    pub fn delete_chain(&mut self, name: &str) -> &mut Self {
        self.flush_chain(name);
        let fill = |it: &mut Attributes<'_>| {
            it.put_str(3, name);
        };
        self.send(5, 0, fill)
    }

    /// Deletes all rules of a chain.
    pub fn flush_chain(&mut self, name: &str) -> &mut Self {
        let fill = |it: &mut Attributes<'_>| {
            it.put_str(2, name);
        };
        self.send(8, 0, fill)
    }

    /// Appends a rule to a chain.
    pub fn rule(&mut self, chain: &str, expressions: &[Expression]) -> &mut Self {
        let fill = |it: &mut Attributes<'_>| {
            it.put_str(2, chain);
            it.nest(4, |list| {
                for expression in expressions {
                    list.nest(1, |it| expression.write(it));
                }
            });
        };
        self.send(6, CREATE | APPEND, fill)
    }

    /// Creates a set or map.
    pub fn set(&mut self, set: &Set) -> &mut Self {
        self.batch.sets += 1;
        let id = self.batch.sets;
        self.send(9, CREATE, |it| write_set(it, set, id))
    }

    /// Deletes all elements of a set, which must exist.
    pub fn flush_set(&mut self, set: &str) -> &mut Self {
        let fill = |it: &mut Attributes<'_>| {
            it.put_str(2, set);
        };
        self.send(14, 0, fill)
    }

    /// Adds elements to a set.
    pub fn add_elements<'e>(&mut self, set: &str, elements: impl IntoIterator<Item = &'e Element>) -> &mut Self {
        self.elements(12, CREATE, set, elements)
    }

    /// Deletes elements of a set; they must exist.
    pub fn delete_elements<'e>(&mut self, set: &str, elements: impl IntoIterator<Item = &'e Element>) -> &mut Self {
        self.elements(14, 0, set, elements)
    }

    fn elements<'e>(
        &mut self,
        kind: u16,
        flags: u16,
        set: &str,
        elements: impl IntoIterator<Item = &'e Element>,
    ) -> &mut Self {
        let mut elements = elements.into_iter().peekable();
        while elements.peek().is_some() {
            let fill = |it: &mut Attributes<'_>| {
                it.put_str(2, set);
                it.nest(3, |list| {
                    let start = list.position();
                    while list.position() - start < ELEMENTS_BYTES_MAX {
                        let Some(element) = elements.next() else { break };
                        list.nest(1, |it| write_element(it, element));
                    }
                });
            };
            self.send(kind, flags, fill);
        }
        self
    }

    /// Adds a message; every message of a table starts with the table's name.
    fn send(&mut self, kind: u16, flags: u16, fill: impl FnOnce(&mut Attributes<'_>)) -> &mut Self {
        let name = self.name;
        self.batch.message(kind, flags, self.family, |it| {
            it.put_str(1, name);
            fill(it);
        });
        self
    }
}

/// Returns the names of a table's chains; empty if the table does not exist or the kernel has no nf_tables.
pub fn chains(family: Family, table: &str) -> Result<Vec<String>, Error> {
    const GET_CHAIN: u16 = 4;
    let request = Request::of(SUBSYSTEM | GET_CHAIN, DUMP, &generic(family.number(), 0), |_| {});
    let replies = match Socket::open(Protocol::Netfilter).and_then(|mut it| it.query("list nftables chains", request)) {
        Ok(replies) => replies,
        // The kernel returns these errors if no subsystem handles the request.
        Err(error) if matches!(error.errno(), Some(libc::EINVAL | libc::EPROTONOSUPPORT)) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let text = |reply: &Reply, kind: u16| -> Option<String> {
        let bytes = attribute(reply.payload.get(GENERIC_LEN..)?, kind)?;
        Some(String::from_utf8_lossy(bytes.strip_suffix(&[0]).unwrap_or(bytes)).into_owned())
    };
    let own = replies.iter().filter(|reply| text(reply, 1).as_deref() == Some(table));
    Ok(own.filter_map(|reply| text(reply, 3)).collect())
}

/// Builds the nfgenmsg header: family, version and resource ID.
fn generic(family: u8, resource: u16) -> [u8; GENERIC_LEN] {
    let [high, low] = resource.to_be_bytes();
    [family, 0, high, low]
}

fn write_set(it: &mut Attributes<'_>, set: &Set, id: u32) {
    const INTERVAL: u32 = 0x4;
    const MAP: u32 = 0x8;
    const TIMEOUT: u32 = 0x10;
    const EVAL: u32 = 0x20;
    const CONCAT: u32 = 0x80;
    const VERDICT: u32 = 0xffff_ff00;
    let flag = |on: bool, flag: u32| if on { flag } else { 0 };
    let concatenated = set.ranges && set.key.len() > 1;
    let flags = flag(set.ranges, INTERVAL)
        | flag(set.holds != ValueType::Nothing, MAP)
        | flag(set.dynamic, TIMEOUT | EVAL)
        | flag(concatenated, CONCAT);
    it.put_str(2, set.name).put_be32(3, flags);
    it.put_be32(4, type_of(&set.key)).put_be32(5, length_of(&set.key));
    match &set.holds {
        ValueType::Nothing => {}
        ValueType::Verdicts => {
            it.put_be32(6, VERDICT).put_be32(7, 16);
        }
        ValueType::Values(fields) => {
            it.put_be32(6, type_of(fields)).put_be32(7, length_of(fields));
        }
    }
    if concatenated {
        it.nest(9, |it| {
            it.nest(2, |list| {
                for field in &set.key {
                    list.nest(1, |it| {
                        it.put_be32(1, field.padded_len());
                    });
                }
            });
        });
    }
    it.put_be32(10, id);
}

/// Returns the types of the fields, six bits each, as the `nft` tool reads them.
fn type_of(fields: &[Field]) -> u32 {
    fields.iter().fold(0, |sum, field| sum << 6 | field.nft_type())
}

/// Returns the length of a key: a single field is not padded, several are padded to whole registers.
fn length_of(fields: &[Field]) -> u32 {
    match fields {
        [field] => field.len(),
        fields => fields.iter().map(|field| field.padded_len()).sum(),
    }
}

fn write_element(it: &mut Attributes<'_>, element: &Element) {
    it.nest(1, |it| {
        it.put(1, &element.key);
    });
    if let Some(end) = &element.key_end {
        it.nest(10, |it| {
            it.put(1, end);
        });
    }
    match &element.value {
        None => {}
        Some(MapValue::Value(bytes)) => {
            it.nest(2, |it| {
                it.put(1, bytes);
            });
        }
        Some(MapValue::Verdict(verdict)) => {
            it.nest(2, |it| expression::write_verdict(it, verdict));
        }
    }
}

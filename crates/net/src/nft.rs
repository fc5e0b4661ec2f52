//! nf_tables over netlink: tables, chains, rules, sets and elements in one transaction, without the `nft` program.
//!
//! A [`Batch`] is all or nothing: the kernel checks every message and then switches to the new rules at once, so that no packet
//! ever sees half of them. Nothing is read back but the names of chains: whoever writes rules knows what they wrote, but not what
//! an earlier run did.

mod expression;

use crate::netlink::{APPEND, Attributes, CREATE, DUMP, Error, Protocol, Reply, Request, Socket, attribute};

pub use expression::{
    CT_STATE, CT_STATUS, Compare, Dynamic, Expression, META_IIFNAME, META_L4PROTO, META_MARK, META_OIFNAME, Reg,
    Reject, STATE_NEW, STATUS_DNAT, interface_name,
};

const SUBSYSTEM: u16 = 10 << 8;
const GENERIC_LEN: usize = 4;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
/// A list of elements is one attribute, whose length has 16 bits; what does not fit goes into another message.
const ELEMENTS_BYTES_MAX: usize = 48 << 10;

/// Which packets a table sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    Ip,
    /// IPv6.
    Ip6,
}

/// Where in the life of a packet a chain stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Came in, not routed yet.
    Prerouting = 0,
    /// For this machine.
    Input = 1,
    /// Through this machine.
    Forward = 2,
    /// From this machine.
    Output = 3,
    /// About to leave.
    Postrouting = 4,
}

/// What a chain may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainKind {
    /// Accept, drop, reject.
    Filter,
    /// Translate addresses: seen only by the first packet of a connection.
    Nat,
}

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It passes this hook.
    Accept,
    /// It is gone.
    Drop,
    /// Back to where the chain was entered from.
    Return,
    /// Into a chain, and back after it.
    Jump(String),
    /// Into a chain, and back to where this one was entered from.
    Goto(String),
}

/// A part of a key or of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    /// A protocol's number.
    Protocol,
    /// An IPv4 address.
    Address4,
    /// An IPv6 address.
    Address6,
    /// A port.
    Port,
    /// A number of ours, in the machine's order.
    Number,
    /// An interface's name.
    Interface,
}

/// What a set holds for each key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Nothing: it is a set.
    Nothing,
    /// What becomes of the packet.
    Verdicts,
    /// A value.
    Values(Vec<Field>),
}

/// A set or a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Its name.
    pub name: &'static str,
    /// The fields of its keys, each of which takes a multiple of four bytes.
    pub key: Vec<Field>,
    /// What it holds.
    pub holds: Holds,
    /// Its keys are ranges of addresses.
    pub ranges: bool,
    /// Packets put elements in, which go by themselves.
    pub dynamic: bool,
}

/// A key with what a set holds for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Element {
    /// The key, as [`Key`] makes it.
    pub key: Vec<u8>,
    /// The last key of a range.
    pub key_end: Option<Vec<u8>>,
    /// What the map holds.
    pub value: Option<Held>,
}

/// What a map holds for a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Held {
    /// A value, as [`Key`] makes it.
    Value(Vec<u8>),
    /// What becomes of the packet.
    Verdict(Verdict),
}

/// Puts fields one after another as the kernel has them in its registers.
#[derive(Clone, Debug, Default)]
pub struct Key(Vec<u8>);

/// Changes that happen at once or not at all.
#[derive(Clone, Debug)]
pub struct Batch {
    request: Request,
    sets: u32,
}

/// The part of a batch that is about one table.
pub struct Table<'a> {
    batch: &'a mut Batch,
    family: Family,
    name: &'a str,
}

impl Family {
    /// The kernel's number.
    pub const fn number(self) -> u8 {
        match self {
            Self::Ip => 2,
            Self::Ip6 => 10,
        }
    }

    /// The family of an address.
    pub const fn of(ip: std::net::IpAddr) -> Self {
        if ip.is_ipv4() { Self::Ip } else { Self::Ip6 }
    }

    /// The address that stands for all of this family.
    pub const fn any(self) -> std::net::IpAddr {
        match self {
            Self::Ip => std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
            Self::Ip6 => std::net::IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
        }
    }

    /// The field that holds an address of this family.
    pub const fn address(self) -> Field {
        match self {
            Self::Ip => Field::Address4,
            Self::Ip6 => Field::Address6,
        }
    }
}

impl Field {
    /// The type's number in the `nft` program, which shows sets by it.
    const fn shown_as(self) -> u32 {
        match self {
            Self::Address4 => 7,
            Self::Address6 => 8,
            Self::Protocol => 12,
            Self::Port => 13,
            Self::Number => 19,
            Self::Interface => 41,
        }
    }

    /// How many bytes it takes in a key.
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
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A protocol.
    pub fn protocol(mut self, number: u8) -> Self {
        self.0.extend_from_slice(&[number, 0, 0, 0]);
        self
    }

    /// An address.
    pub fn ip(mut self, ip: std::net::IpAddr) -> Self {
        match ip {
            std::net::IpAddr::V4(ip) => self.0.extend_from_slice(&ip.octets()),
            std::net::IpAddr::V6(ip) => self.0.extend_from_slice(&ip.octets()),
        }
        self
    }

    /// A port.
    pub fn port(mut self, port: u16) -> Self {
        let [high, low] = port.to_be_bytes();
        self.0.extend_from_slice(&[high, low, 0, 0]);
        self
    }

    /// An interface's name.
    pub fn interface(mut self, name: &str) -> Self {
        self.0.extend_from_slice(&interface_name(name));
        self
    }

    /// A number of ours.
    pub fn number(mut self, number: u32) -> Self {
        self.0.extend_from_slice(&number.to_ne_bytes());
        self
    }

    /// The bytes.
    pub fn done(self) -> Vec<u8> {
        self.0
    }
}

impl Element {
    /// An element of a set.
    pub fn member(key: Key) -> Self {
        Self { key: key.done(), key_end: None, value: None }
    }

    /// An element of a map.
    pub fn entry(key: Key, value: Held) -> Self {
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
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes on with a table.
    pub fn table<'a>(&'a mut self, family: Family, name: &'a str) -> Table<'a> {
        Table { batch: self, family, name }
    }

    /// Whether nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.request.len() == 1
    }

    /// Makes all of it true in the network namespace of the calling thread.
    pub fn commit(mut self) -> Result<(), Error> {
        if self.is_empty() {
            return Ok(());
        }
        // Older kernels do not answer the end of a batch, but every message inside it that asks for it.
        self.request.acknowledge();
        self.request.message(BATCH_END, 0, &generic(0, SUBSYSTEM >> 8), |_| {});
        Socket::open(Protocol::Netfilter)?.execute("a change of packet rules", self.request)
    }

    fn message(&mut self, kind: u16, flags: u16, family: Family, fill: impl FnOnce(&mut Attributes<'_>)) {
        self.request.message(SUBSYSTEM | kind, flags, &generic(family.number(), 0), fill);
    }
}

impl Table<'_> {
    /// An empty table, whatever was there before.
    pub fn replace(&mut self) -> &mut Self {
        self.add().delete().add()
    }

    /// The table, if it is not there.
    pub fn add(&mut self) -> &mut Self {
        self.send(0, CREATE, |_| {})
    }

    /// Takes the table away with all that is in it; it must be there.
    pub fn delete(&mut self) -> &mut Self {
        self.send(2, 0, |_| {})
    }

    /// A chain that packets come into by themselves.
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
            // Accept what no rule decides.
            it.put_be32(5, 1).put_str(7, kind);
        };
        self.send(3, CREATE, fill)
    }

    /// A chain that rules and maps lead into.
    pub fn chain(&mut self, name: &str) -> &mut Self {
        let fill = |it: &mut Attributes<'_>| {
            it.put_str(3, name);
        };
        self.send(3, CREATE, fill)
    }

    /// Takes a chain away that nothing leads into any more.
    pub fn delete_chain(&mut self, name: &str) -> &mut Self {
        self.flush_chain(name);
        let fill = |it: &mut Attributes<'_>| {
            it.put_str(3, name);
        };
        self.send(5, 0, fill)
    }

    /// Takes all rules out of a chain.
    pub fn flush_chain(&mut self, name: &str) -> &mut Self {
        let fill = |it: &mut Attributes<'_>| {
            it.put_str(2, name);
        };
        self.send(8, 0, fill)
    }

    /// A rule at the end of a chain.
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

    /// A set or a map.
    pub fn set(&mut self, set: &Set) -> &mut Self {
        self.batch.sets += 1;
        let id = self.batch.sets;
        self.send(9, CREATE, |it| write_set(it, set, id))
    }

    /// Takes all elements out of a set, which must be there.
    pub fn flush_set(&mut self, set: &str) -> &mut Self {
        let fill = |it: &mut Attributes<'_>| {
            it.put_str(2, set);
        };
        self.send(14, 0, fill)
    }

    /// Puts elements into a set.
    pub fn add_elements<'e>(&mut self, set: &str, elements: impl IntoIterator<Item = &'e Element>) -> &mut Self {
        self.elements(12, CREATE, set, elements)
    }

    /// Takes elements out of a set; they must be there.
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

    /// Every message about a table names it first.
    fn send(&mut self, kind: u16, flags: u16, fill: impl FnOnce(&mut Attributes<'_>)) -> &mut Self {
        let name = self.name;
        self.batch.message(kind, flags, self.family, |it| {
            it.put_str(1, name);
            fill(it);
        });
        self
    }
}

/// The names of a table's chains; none if there is no such table, or the kernel knows nothing of tables.
pub fn chains(family: Family, table: &str) -> Result<Vec<String>, Error> {
    const GET_CHAIN: u16 = 4;
    let request = Request::of(SUBSYSTEM | GET_CHAIN, DUMP, &generic(family.number(), 0), |_| {});
    let replies = match Socket::open(Protocol::Netfilter).and_then(|mut it| it.ask("a list of chains", request)) {
        Ok(replies) => replies,
        // So it says where no part of it takes the question.
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

/// Family, version, and what the message is for.
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
        | flag(set.holds != Holds::Nothing, MAP)
        | flag(set.dynamic, TIMEOUT | EVAL)
        | flag(concatenated, CONCAT);
    it.put_str(2, set.name).put_be32(3, flags);
    it.put_be32(4, type_of(&set.key)).put_be32(5, length_of(&set.key));
    match &set.holds {
        Holds::Nothing => {}
        Holds::Verdicts => {
            it.put_be32(6, VERDICT).put_be32(7, 16);
        }
        Holds::Values(fields) => {
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

/// The types of fields, six bits each, as the `nft` program reads them.
fn type_of(fields: &[Field]) -> u32 {
    fields.iter().fold(0, |sum, field| sum << 6 | field.shown_as())
}

/// A single field has its own length; of several each takes whole registers.
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
        Some(Held::Value(bytes)) => {
            it.nest(2, |it| {
                it.put(1, bytes);
            });
        }
        Some(Held::Verdict(verdict)) => {
            it.nest(2, |it| expression::write_verdict(it, verdict));
        }
    }
}

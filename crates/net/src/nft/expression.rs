//! What rules are made of: steps that load, compare, look up, translate and decide.

use super::{Family, Verdict};
use crate::netlink::Attributes;

/// The packet's mark.
pub const META_MARK: u32 = 3;
/// The name of the interface that it came in by.
pub const META_IIFNAME: u32 = 6;
/// The name of the interface that it leaves by.
pub const META_OIFNAME: u32 = 7;
/// The number of the protocol inside IP.
pub const META_L4PROTO: u32 = 16;
/// What the connection is to the kernel.
pub const CT_STATE: u32 = 0;
/// What happened to the connection.
pub const CT_STATUS: u32 = 2;
/// The first packet of a connection.
pub const STATE_NEW: u32 = 8;
/// The destination of the connection was translated.
pub const STATUS_DNAT: u32 = 1 << 5;

/// A word of four bytes that the steps of one rule share; there are sixteen. An IPv6 address takes four of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reg(pub u32);

/// How to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// The same.
    Equal = 0,
    /// Not the same.
    Different = 1,
    /// Not larger, as bytes in the network's order.
    AtMost = 3,
    /// Not smaller.
    AtLeast = 5,
}

/// What a packet does to a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dynamic {
    /// Puts itself in, or stays for longer.
    Update = 1,
    /// Takes itself out.
    Delete = 2,
}

/// How a packet is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reject {
    /// There is no such port.
    PortUnreachable,
    /// The connection is reset.
    TcpReset,
}

/// One step of a rule. A step whose condition does not hold ends the rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// Loads something about the packet.
    Meta(u32, Reg),
    /// Sets something about the packet.
    SetMeta(u32, Reg),
    /// Loads something about the connection.
    Ct(u32, Reg),
    /// Loads bytes of the network header: offset, length.
    Network(u32, u32, Reg),
    /// Loads bytes of the transport header: offset, length.
    Transport(u32, u32, Reg),
    /// Goes on if a register compares so with bytes.
    Compare(Reg, Compare, Vec<u8>),
    /// Keeps some bits of a register, and flips others.
    Mask {
        /// Of this register.
        from: Reg,
        /// To this one.
        to: Reg,
        /// The bits that stay.
        mask: Vec<u8>,
        /// The bits that flip.
        flip: Vec<u8>,
    },
    /// Loads bytes.
    Load(Reg, Vec<u8>),
    /// Decides.
    Verdict(Verdict),
    /// Goes on if a key is in a set, or if it is not.
    Member {
        /// The set.
        set: &'static str,
        /// Where its key is.
        key: Reg,
        /// Whether it must be in the set.
        present: bool,
    },
    /// Loads what a map holds for a key, or ends the rule.
    Look {
        /// The map.
        map: &'static str,
        /// Where its key is.
        key: Reg,
        /// Where to.
        to: Reg,
    },
    /// Decides as a map says, if it has the key.
    Decide {
        /// The map.
        map: &'static str,
        /// Where its key is.
        key: Reg,
    },
    /// A random number, one of so many from the first on.
    Random {
        /// How many there are.
        below: u32,
        /// The smallest.
        first: u32,
        /// Where to.
        to: Reg,
    },
    /// Puts the packet's key into a set or takes it out.
    Dynamic {
        /// What to do.
        action: Dynamic,
        /// The set or map.
        set: &'static str,
        /// Where its key is.
        key: Reg,
        /// What it holds for the key.
        value: Option<Reg>,
        /// How long it stays.
        timeout_ms: Option<u64>,
    },
    /// Sends the connection to an address and port.
    Dnat {
        /// The family.
        family: Family,
        /// Where the address is.
        address: Reg,
        /// Where the port is.
        port: Reg,
    },
    /// Makes the connection come from this machine.
    Masquerade,
    /// Refuses.
    Reject(Family, Reject),
    /// Loads what the packet's destination is to this machine's routes: 2 is its own.
    DestinationType(Reg),
}

/// An interface's name as the kernel compares it.
pub fn interface_name(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize(16, 0);
    bytes
}

impl Reg {
    fn number(self) -> u32 {
        8 + self.0
    }
}

impl Expression {
    pub(super) fn write(&self, it: &mut Attributes<'_>) {
        it.put_str(1, self.name());
        it.nest(2, |it| self.write_data(it));
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Meta(..) | Self::SetMeta(..) => "meta",
            Self::Ct(..) => "ct",
            Self::Network(..) | Self::Transport(..) => "payload",
            Self::Compare(..) => "cmp",
            Self::Mask { .. } => "bitwise",
            Self::Load(..) | Self::Verdict(_) => "immediate",
            Self::Member { .. } | Self::Look { .. } | Self::Decide { .. } => "lookup",
            Self::Random { .. } => "numgen",
            Self::Dynamic { .. } => "dynset",
            Self::Dnat { .. } => "nat",
            Self::Masquerade => "masq",
            Self::Reject(..) => "reject",
            Self::DestinationType(_) => "fib",
        }
    }

    fn write_data(&self, it: &mut Attributes<'_>) {
        match self {
            Self::SetMeta(key, from) => {
                it.put_be32(2, *key).put_be32(3, from.number());
            }
            Self::Meta(key, to) | Self::Ct(key, to) => {
                it.put_be32(1, to.number()).put_be32(2, *key);
            }
            Self::Network(offset, length, to) => write_payload(it, 1, *offset, *length, *to),
            Self::Transport(offset, length, to) => write_payload(it, 2, *offset, *length, *to),
            Self::Compare(from, how, bytes) => {
                it.put_be32(1, from.number()).put_be32(2, *how as u32);
                write_data(it, 3, bytes);
            }
            Self::Mask { from, to, mask, flip } => {
                let length = u32::try_from(mask.len()).expect("a register is small");
                it.put_be32(1, from.number()).put_be32(2, to.number()).put_be32(3, length);
                write_data(it, 4, mask);
                write_data(it, 5, flip);
            }
            Self::Load(to, bytes) => {
                it.put_be32(1, to.number());
                write_data(it, 2, bytes);
            }
            Self::Verdict(verdict) => {
                // Register zero is the verdict.
                it.put_be32(1, 0);
                it.nest(2, |it| write_verdict(it, verdict));
            }
            Self::Member { set, key, present } => {
                it.put_str(1, set).put_be32(2, key.number()).put_be32(5, u32::from(!present));
            }
            Self::Look { map, key, to } => {
                it.put_str(1, map).put_be32(2, key.number()).put_be32(3, to.number());
            }
            Self::Decide { map, key } => {
                it.put_str(1, map).put_be32(2, key.number()).put_be32(3, 0);
            }
            Self::Random { below, first, to } => {
                it.put_be32(1, to.number()).put_be32(2, *below).put_be32(3, 1).put_be32(4, *first);
            }
            Self::Dynamic { action, set, key, value, timeout_ms } => {
                it.put_str(1, set).put_be32(3, *action as u32).put_be32(4, key.number());
                if let Some(value) = value {
                    it.put_be32(5, value.number());
                }
                if let Some(timeout) = timeout_ms {
                    it.put_be64(6, *timeout);
                }
            }
            Self::Dnat { family, address, port } => {
                // A range without an end is one address, one port.
                it.put_be32(1, 1).put_be32(2, u32::from(family.number()));
                it.put_be32(3, address.number()).put_be32(5, port.number());
            }
            // Ports fully at random, so that two connections never race for one.
            Self::Masquerade => {
                it.put_be32(1, 1 << 4);
            }
            Self::Reject(family, how) => {
                let (kind, code) = match (how, family) {
                    (Reject::TcpReset, _) => (1, 0),
                    (Reject::PortUnreachable, Family::Ip) => (0, 3),
                    (Reject::PortUnreachable, Family::Ip6) => (0, 4),
                };
                it.put_be32(1, kind).put(2, &[code]);
            }
            Self::DestinationType(to) => {
                // Result: the type of the address; flag: of the destination.
                it.put_be32(1, to.number()).put_be32(2, 3).put_be32(3, 2);
            }
        }
    }
}

pub(super) fn write_verdict(it: &mut Attributes<'_>, verdict: &Verdict) {
    let (code, chain) = match verdict {
        Verdict::Drop => (0, None),
        Verdict::Accept => (1, None),
        Verdict::Jump(chain) => (-3_i32, Some(chain)),
        Verdict::Goto(chain) => (-4, Some(chain)),
        Verdict::Return => (-5, None),
    };
    it.nest(2, |it| {
        it.put_be32(1, code.cast_unsigned());
        if let Some(chain) = chain {
            it.put_str(2, chain);
        }
    });
}

fn write_data(it: &mut Attributes<'_>, kind: u16, bytes: &[u8]) {
    it.nest(kind, |it| {
        it.put(1, bytes);
    });
}

fn write_payload(it: &mut Attributes<'_>, base: u32, offset: u32, length: u32, to: Reg) {
    it.put_be32(1, to.number()).put_be32(2, base).put_be32(3, offset).put_be32(4, length);
}

//! nf_tables expressions: load, compare, look up, translate and decide.

use super::{Family, Verdict};
use crate::socket::Attributes;

/// Packet mark.
pub const META_MARK: u32 = 3;
/// Name of the input interface.
pub const META_IIFNAME: u32 = 6;
/// Name of the output interface.
pub const META_OIFNAME: u32 = 7;
/// Transport protocol number.
pub const META_L4PROTO: u32 = 16;
/// Conntrack state (`ct state`).
pub const CT_STATE: u32 = 0;
/// Conntrack status (`ct status`).
pub const CT_STATUS: u32 = 2;
/// State of the first packet of a connection.
pub const STATE_NEW: u32 = 8;
/// Status of a connection with translated destination.
pub const STATUS_DNAT: u32 = 1 << 5;

/// A four-byte register; a rule has sixteen. An IPv6 address takes four of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reg(pub u32);

/// Comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    Equal = 0,
    Different = 1,
    /// Less or equal, in network byte order.
    AtMost = 3,
    /// Greater or equal, in network byte order.
    AtLeast = 5,
}

/// Action on a dynamic set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dynamic {
    /// Adds the element or extends its timeout.
    Update = 1,
    Delete = 2,
}

/// Type of rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reject {
    /// ICMP port unreachable.
    PortUnreachable,
    TcpReset,
}

/// An expression of a rule. A condition that does not match ends the rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// Loads packet metadata.
    Meta(u32, Reg),
    /// Sets packet metadata.
    SetMeta(u32, Reg),
    /// Loads conntrack metadata.
    Ct(u32, Reg),
    /// Loads bytes of the network header: offset, length.
    Network(u32, u32, Reg),
    /// Loads bytes of the transport header: offset, length.
    Transport(u32, u32, Reg),
    /// Compares a register with bytes.
    Compare(Reg, Compare, Vec<u8>),
    /// Computes `(from & mask) ^ flip`.
    Mask {
        from: Reg,
        to: Reg,
        /// Bits to keep.
        mask: Vec<u8>,
        /// Bits to invert.
        flip: Vec<u8>,
    },
    /// Loads constant bytes.
    Load(Reg, Vec<u8>),
    Verdict(Verdict),
    /// Matches if a key is in a set, or is not.
    Member {
        set: &'static str,
        key: Reg,
        /// Whether the key must be in the set.
        present: bool,
    },
    /// Loads the map's value of a key; does not match if the key is absent.
    Lookup {
        map: &'static str,
        key: Reg,
        /// Destination register.
        to: Reg,
    },
    /// Applies the verdict of a map, if it has the key.
    VerdictMap {
        /// Name of a verdict map.
        map: &'static str,
        key: Reg,
    },
    /// Loads a random number from `first` to `first + below - 1`.
    Random {
        /// Size of the range.
        below: u32,
        first: u32,
        to: Reg,
    },
    /// Updates or deletes an element of a dynamic set.
    Dynamic {
        action: Dynamic,
        set: &'static str,
        key: Reg,
        /// Value register, for maps.
        value: Option<Reg>,
        /// Timeout of the element.
        timeout_ms: Option<u64>,
    },
    /// Translates the destination.
    Dnat {
        family: Family,
        address: Reg,
        /// Register of the port.
        port: Reg,
    },
    /// Translates the source to an address of this host.
    Masquerade,
    Reject(Family, Reject),
    /// Loads the FIB type of the destination address: 2 is local.
    DestinationType(Reg),
}

/// Returns an interface name padded as the kernel compares it.
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
            Self::Member { .. } | Self::Lookup { .. } | Self::VerdictMap { .. } => "lookup",
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
            Self::Lookup { map, key, to } => {
                it.put_str(1, map).put_be32(2, key.number()).put_be32(3, to.number());
            }
            Self::VerdictMap { map, key } => {
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
                // A range without end is a single address and port.
                it.put_be32(1, 1).put_be32(2, u32::from(family.number()));
                it.put_be32(3, address.number()).put_be32(5, port.number());
            }
            // Fully random ports, so that two connections never race for one.
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
                // Result: address type; flag: of the destination address.
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

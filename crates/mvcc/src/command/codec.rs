//! Encoding of commands in the log: a format version, a tag, then the fields in order.

use bytes::Bytes;

use super::{Alarm, AlarmChange, Command, Compare, Delete, Operation, Put, Relation, Target, Txn};
use crate::Span;
use crate::directory::{Caller, DirectoryChange, read_text};
use crate::range::{Bounds, Range, Sort, SortBy};
use crate::wire::{DecodeError, Reader, put_bytes, put_i64, put_u64, read_list, write_list};

/// The written format. A later format must add a reader and keep this one, because logs outlive versions.
const FORMAT: u8 = 1;

const AUTHORIZED: u8 = 11;

/// Maximum nesting of transactions; protobuf parsers stop at 50.
const DEPTH_MAX: usize = 64;

/// A log entry is not a command of a known format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CorruptCommand {
    #[error("log entry has format {0}, this version reads format {FORMAT}")]
    Format(u8),
    /// A tag or enum value is unknown.
    #[error("log entry has an unknown value {value} for {field}")]
    Unknown {
        /// The name of the field.
        field: &'static str,
        value: u8,
    },
    /// The entry ends early or contains invalid numbers.
    #[error("log entry is malformed")]
    Malformed,
    #[error("log entry nests transactions deeper than {DEPTH_MAX}")]
    Depth,
    #[error("log entry has {0} bytes after the command")]
    Trailing(usize),
}

impl From<DecodeError> for CorruptCommand {
    fn from(DecodeError: DecodeError) -> Self {
        Self::Malformed
    }
}

impl Command {
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(64 + self.payload_len());
        out.push(FORMAT);
        self.write(&mut out);
        out.into()
    }

    /// Decodes a command; its keys and values are slices of `input`.
    pub fn decode(input: &Bytes) -> Result<Self, CorruptCommand> {
        let mut reader = Reader::new(input.clone());
        let format = reader.u8()?;
        if format != FORMAT {
            return Err(CorruptCommand::Format(format));
        }
        let command = match reader.u8()? {
            AUTHORIZED => {
                let (caller, tag) = (Caller::read(&mut reader)?, reader.u8()?);
                read_command(tag, &mut reader)?.authorized(caller)
            }
            tag => read_command(tag, &mut reader)?,
        };
        match reader.remaining() {
            0 => Ok(command),
            left => Err(CorruptCommand::Trailing(left)),
        }
    }

    fn payload_len(&self) -> usize {
        fn put(put: &Put) -> usize {
            put.key.len() + put.value.as_ref().map_or(0, Bytes::len)
        }
        match self {
            Command::Put(write) => put(write),
            Command::Txn(txn) => {
                txn.success.iter().map(|op| if let Operation::Put(write) = op { put(write) + 64 } else { 64 }).sum()
            }
            Command::Authorized { command, .. } => command.payload_len(),
            _ => 0,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Command::Put(put) => {
                out.push(1);
                write_put(out, put);
            }
            Command::Delete(delete) => {
                out.push(2);
                write_delete(out, delete);
            }
            Command::Txn(txn) => {
                out.push(3);
                write_txn(out, txn);
            }
            Command::LeaseGrant { id, ttl_seconds } => {
                out.push(4);
                put_i64(out, *id);
                put_i64(out, *ttl_seconds);
            }
            Command::LeaseRevoke { id } => {
                out.push(5);
                put_i64(out, *id);
            }
            Command::LeaseCheckpoint { remaining } => {
                out.push(6);
                write_list(out, remaining, |out, (id, seconds)| {
                    put_i64(out, *id);
                    put_i64(out, *seconds);
                });
            }
            Command::Compact { revision } => {
                out.push(7);
                put_i64(out, *revision);
            }
            Command::Alarm { change, alarm, member } => {
                out.push(8);
                out.push(match change {
                    AlarmChange::Raise => 1,
                    AlarmChange::Lower => 2,
                });
                out.push(alarm.number());
                put_u64(out, *member);
            }
            Command::Directory(change) => {
                out.push(9);
                change.write(out);
            }
            Command::Authenticate { user, token } => {
                out.push(10);
                put_bytes(out, user.as_bytes());
                put_bytes(out, token.as_bytes());
            }
            Command::Authorized { caller, command } => {
                out.push(AUTHORIZED);
                caller.write(out);
                command.write(out);
            }
        }
    }
}

impl Alarm {
    /// Returns the number in the log, which for etcd's alarms is also that of the protocol.
    pub fn number(self) -> u8 {
        match self {
            Alarm::NoSpace => 1,
            Alarm::Corrupt => 2,
            Alarm::Low => 3,
            Alarm::Full => 4,
        }
    }

    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Alarm::NoSpace),
            2 => Some(Alarm::Corrupt),
            3 => Some(Alarm::Low),
            4 => Some(Alarm::Full),
            _ => None,
        }
    }
}

/// Decodes a command without caller.
fn read_command(tag: u8, reader: &mut Reader) -> Result<Command, CorruptCommand> {
    Ok(match tag {
        1 => Command::Put(read_put(reader)?),
        2 => Command::Delete(read_delete(reader)?),
        3 => Command::Txn(read_txn(reader, 0)?),
        4 => Command::LeaseGrant { id: reader.i64()?, ttl_seconds: reader.i64()? },
        5 => Command::LeaseRevoke { id: reader.i64()? },
        6 => Command::LeaseCheckpoint {
            remaining: read_list(reader, |reader| Ok::<_, DecodeError>((reader.i64()?, reader.i64()?)))?,
        },
        7 => Command::Compact { revision: reader.i64()? },
        8 => Command::Alarm {
            change: match reader.u8()? {
                1 => AlarmChange::Raise,
                2 => AlarmChange::Lower,
                value => return Err(CorruptCommand::Unknown { field: "change of an alarm", value }),
            },
            alarm: {
                let value = reader.u8()?;
                Alarm::from_number(value).ok_or(CorruptCommand::Unknown { field: "alarm", value })?
            },
            member: reader.u64()?,
        },
        9 => Command::Directory(DirectoryChange::read(reader)?),
        10 => Command::Authenticate { user: read_text(reader)?, token: read_text(reader)? },
        value => return Err(CorruptCommand::Unknown { field: "command", value }),
    })
}

const HAS_VALUE: u8 = 1;
const HAS_LEASE: u8 = 2;
const WANTS_PREVIOUS: u8 = 4;

fn write_put(out: &mut Vec<u8>, put: &Put) {
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    out.push(
        flag(put.value.is_some(), HAS_VALUE)
            | flag(put.lease.is_some(), HAS_LEASE)
            | flag(put.want_previous, WANTS_PREVIOUS),
    );
    put_bytes(out, &put.key);
    if let Some(value) = &put.value {
        put_bytes(out, value);
    }
    if let Some(lease) = put.lease {
        put_i64(out, lease);
    }
}

fn read_put(reader: &mut Reader) -> Result<Put, CorruptCommand> {
    let flags = reader.u8()?;
    if flags > HAS_VALUE | HAS_LEASE | WANTS_PREVIOUS {
        return Err(CorruptCommand::Unknown { field: "flags of a put", value: flags });
    }
    Ok(Put {
        key: reader.bytes()?,
        value: if flags & HAS_VALUE == 0 { None } else { Some(reader.bytes()?) },
        lease: if flags & HAS_LEASE == 0 { None } else { Some(reader.i64()?) },
        want_previous: flags & WANTS_PREVIOUS != 0,
    })
}

fn write_delete(out: &mut Vec<u8>, delete: &Delete) {
    write_span(out, &delete.span);
    out.push(u8::from(delete.want_previous));
}

fn read_delete(reader: &mut Reader) -> Result<Delete, CorruptCommand> {
    Ok(Delete { span: read_span(reader)?, want_previous: read_bool(reader)? })
}

fn write_span(out: &mut Vec<u8>, span: &Span) {
    put_bytes(out, &span.start);
    put_bytes(out, &span.wire_end());
}

fn read_span(reader: &mut Reader) -> Result<Span, CorruptCommand> {
    Ok(Span::from_wire(reader.bytes()?, reader.bytes()?))
}

fn read_bool(reader: &mut Reader) -> Result<bool, CorruptCommand> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        value => Err(CorruptCommand::Unknown { field: "truth value", value }),
    }
}

fn write_txn(out: &mut Vec<u8>, txn: &Txn) {
    write_list(out, &txn.compare, write_compare);
    write_list(out, &txn.success, write_operation);
    write_list(out, &txn.failure, write_operation);
}

fn read_txn(reader: &mut Reader, depth: usize) -> Result<Txn, CorruptCommand> {
    if depth == DEPTH_MAX {
        return Err(CorruptCommand::Depth);
    }
    Ok(Txn {
        compare: read_list(reader, read_compare)?,
        success: read_list(reader, |reader| read_operation(reader, depth))?,
        failure: read_list(reader, |reader| read_operation(reader, depth))?,
    })
}

fn write_operation(out: &mut Vec<u8>, operation: &Operation) {
    match operation {
        Operation::Range(range) => {
            out.push(1);
            write_range(out, range);
        }
        Operation::Put(put) => {
            out.push(2);
            write_put(out, put);
        }
        Operation::Delete(delete) => {
            out.push(3);
            write_delete(out, delete);
        }
        Operation::Txn(txn) => {
            out.push(4);
            write_txn(out, txn);
        }
    }
}

fn read_operation(reader: &mut Reader, depth: usize) -> Result<Operation, CorruptCommand> {
    Ok(match reader.u8()? {
        1 => Operation::Range(read_range(reader)?),
        2 => Operation::Put(read_put(reader)?),
        3 => Operation::Delete(read_delete(reader)?),
        4 => Operation::Txn(read_txn(reader, depth + 1)?),
        value => return Err(CorruptCommand::Unknown { field: "operation", value }),
    })
}

fn write_compare(out: &mut Vec<u8>, compare: &Compare) {
    write_span(out, &compare.span);
    out.push(match compare.relation {
        Relation::Equal => 0,
        Relation::Greater => 1,
        Relation::Less => 2,
        Relation::NotEqual => 3,
    });
    let mut number = |tag: u8, number: i64| {
        out.push(tag);
        put_i64(out, number);
    };
    match &compare.target {
        Target::Version(version) => number(0, *version),
        Target::CreateRevision(revision) => number(1, *revision),
        Target::ModRevision(revision) => number(2, *revision),
        Target::Lease(lease) => number(4, *lease),
        Target::Value(value) => {
            out.push(3);
            put_bytes(out, value);
        }
    }
}

fn read_compare(reader: &mut Reader) -> Result<Compare, CorruptCommand> {
    Ok(Compare {
        span: read_span(reader)?,
        relation: match reader.u8()? {
            0 => Relation::Equal,
            1 => Relation::Greater,
            2 => Relation::Less,
            3 => Relation::NotEqual,
            value => return Err(CorruptCommand::Unknown { field: "relation", value }),
        },
        target: match reader.u8()? {
            0 => Target::Version(reader.i64()?),
            1 => Target::CreateRevision(reader.i64()?),
            2 => Target::ModRevision(reader.i64()?),
            3 => Target::Value(reader.bytes()?),
            4 => Target::Lease(reader.i64()?),
            value => return Err(CorruptCommand::Unknown { field: "target", value }),
        },
    })
}

fn write_range(out: &mut Vec<u8>, range: &Range) {
    write_span(out, &range.span);
    put_i64(out, range.revision);
    put_i64(out, range.limit);
    out.push(match range.sort {
        None => 0,
        Some(Sort { by, descending }) => {
            let by = match by {
                SortBy::Key => 1,
                SortBy::Version => 2,
                SortBy::CreateRevision => 3,
                SortBy::ModRevision => 4,
                SortBy::Value => 5,
            };
            by << 1 | u8::from(descending)
        }
    });
    out.push(u8::from(range.keys_only) | u8::from(range.count_only) << 1);
    for bound in [range.mod_revision.min, range.mod_revision.max, range.create_revision.min, range.create_revision.max]
    {
        put_i64(out, bound);
    }
}

fn read_range(reader: &mut Reader) -> Result<Range, CorruptCommand> {
    let (span, revision, limit) = (read_span(reader)?, reader.i64()?, reader.i64()?);
    let sort = reader.u8()?;
    let by = match sort >> 1 {
        0 => None,
        1 => Some(SortBy::Key),
        2 => Some(SortBy::Version),
        3 => Some(SortBy::CreateRevision),
        4 => Some(SortBy::ModRevision),
        5 => Some(SortBy::Value),
        _ => return Err(CorruptCommand::Unknown { field: "order", value: sort }),
    };
    let flags = reader.u8()?;
    if flags > 3 {
        return Err(CorruptCommand::Unknown { field: "flags of a range", value: flags });
    }
    Ok(Range {
        span,
        revision,
        limit,
        sort: by.map(|by| Sort { by, descending: sort & 1 != 0 }),
        keys_only: flags & 1 != 0,
        count_only: flags & 2 != 0,
        mod_revision: Bounds { min: reader.i64()?, max: reader.i64()? },
        create_revision: Bounds { min: reader.i64()?, max: reader.i64()? },
    })
}

#[cfg(test)]
mod tests;

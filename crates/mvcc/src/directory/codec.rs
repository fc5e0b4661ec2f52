//! Encoding of users, roles and their changes in log and checkpoint. Decoded values do not share the input.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{Access, Caller, Directory, DirectoryChange, PasswordHash, Permission, User};
use crate::Span;
use crate::wire::{DecodeError, Reader, put_bytes, put_u64, read_list, write_list};

const ENABLED: u8 = 1;

impl Caller {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Cluster => out.push(1),
            Self::User { name, revision } => {
                out.push(2);
                put_bytes(out, name.as_bytes());
                put_u64(out, *revision);
            }
        }
    }

    pub(crate) fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        match reader.u8()? {
            1 => Ok(Self::Cluster),
            2 => Ok(Self::User { name: read_text(reader)?, revision: reader.u64()? }),
            _ => Err(DecodeError),
        }
    }
}

impl DirectoryChange {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let named = |out: &mut Vec<u8>, tag: u8, name: &str| {
            out.push(tag);
            put_bytes(out, name.as_bytes());
        };
        match self {
            Self::AddUser { name, password } => {
                named(out, 1, name);
                write_password(out, password.as_ref());
            }
            Self::DeleteUser { name } => named(out, 2, name),
            Self::SetPassword { name, password } => {
                named(out, 3, name);
                put_bytes(out, password.as_str().as_bytes());
            }
            Self::GrantRole { user, role } => {
                named(out, 4, user);
                put_bytes(out, role.as_bytes());
            }
            Self::RevokeRole { user, role } => {
                named(out, 5, user);
                put_bytes(out, role.as_bytes());
            }
            Self::AddRole { name } => named(out, 6, name),
            Self::DeleteRole { name } => named(out, 7, name),
            Self::GrantPermission { role, permission } => {
                named(out, 8, role);
                write_permission(out, permission);
            }
            Self::RevokePermission { role, span } => {
                named(out, 9, role);
                write_span(out, span);
            }
            Self::Enable => named(out, 10, ""),
            Self::Disable => named(out, 11, ""),
        }
    }

    pub(crate) fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        let (tag, name) = (reader.u8()?, read_text(reader)?);
        Ok(match tag {
            1 => Self::AddUser { name, password: read_password(reader)? },
            2 => Self::DeleteUser { name },
            3 => Self::SetPassword { name, password: PasswordHash(read_text(reader)?) },
            4 => Self::GrantRole { user: name, role: read_text(reader)? },
            5 => Self::RevokeRole { user: name, role: read_text(reader)? },
            6 => Self::AddRole { name },
            7 => Self::DeleteRole { name },
            8 => Self::GrantPermission { role: name, permission: read_permission(reader)? },
            9 => Self::RevokePermission { role: name, span: read_span(reader)? },
            10 if name.is_empty() => Self::Enable,
            11 if name.is_empty() => Self::Disable,
            _ => return Err(DecodeError),
        })
    }
}

impl Directory {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        put_u64(out, self.revision);
        write_list(out, &self.users, |out, (name, user)| {
            put_bytes(out, name.as_bytes());
            write_password(out, user.password.as_ref());
            write_list(out, &user.roles, |out, role| put_bytes(out, role.as_bytes()));
        });
        write_list(out, &self.roles, |out, (name, granted)| {
            put_bytes(out, name.as_bytes());
            write_list(out, granted, write_permission);
        });
        // Written only while authentication is enabled, so that versions without authentication can read other
        // checkpoints.
        if self.enabled {
            out.push(ENABLED);
        }
    }

    pub(crate) fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        let revision = reader.u64()?;
        let users = read_list(reader, |reader| {
            let (name, password) = (read_text(reader)?, read_password(reader)?);
            let roles = read_list(reader, read_text)?.into_iter().collect();
            Ok::<_, DecodeError>((name, User { password, roles }))
        })?;
        let roles = read_list(reader, |reader| {
            Ok::<_, DecodeError>((read_text(reader)?, read_list(reader, read_permission)?))
        })?;
        let enabled = match reader.is_empty() {
            true => false,
            false if reader.u8()? == ENABLED => true,
            false => return Err(DecodeError),
        };
        Ok(Self { revision, enabled, users: BTreeMap::from_iter(users), roles: BTreeMap::from_iter(roles) })
    }
}

impl Access {
    /// Returns the number used in the log and in the protocol.
    pub fn number(self) -> u8 {
        match self {
            Self::Read => 0,
            Self::Write => 1,
            Self::ReadWrite => 2,
        }
    }

    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Read),
            1 => Some(Self::Write),
            2 => Some(Self::ReadWrite),
            _ => None,
        }
    }
}

pub(crate) fn read_text(reader: &mut Reader) -> Result<String, DecodeError> {
    String::from_utf8(reader.bytes()?.to_vec()).map_err(|_| DecodeError)
}

fn write_password(out: &mut Vec<u8>, password: Option<&PasswordHash>) {
    out.push(u8::from(password.is_some()));
    if let Some(password) = password {
        put_bytes(out, password.as_str().as_bytes());
    }
}

fn read_password(reader: &mut Reader) -> Result<Option<PasswordHash>, DecodeError> {
    match reader.u8()? {
        0 => Ok(None),
        1 => Ok(Some(PasswordHash(read_text(reader)?))),
        _ => Err(DecodeError),
    }
}

fn write_permission(out: &mut Vec<u8>, permission: &Permission) {
    out.push(permission.access.number());
    write_span(out, &permission.span);
}

fn read_permission(reader: &mut Reader) -> Result<Permission, DecodeError> {
    Ok(Permission { access: Access::from_number(reader.u8()?).ok_or(DecodeError)?, span: read_span(reader)? })
}

fn write_span(out: &mut Vec<u8>, span: &Span) {
    put_bytes(out, &span.start);
    put_bytes(out, &span.wire_end());
}

fn read_span(reader: &mut Reader) -> Result<Span, DecodeError> {
    let mut copied = || reader.bytes().map(|bytes| Bytes::copy_from_slice(&bytes));
    Ok(Span::from_wire(copied()?, copied()?))
}

//! Device access of a cgroup, enforced on cgroup v2 by a BPF program compiled from the OCI device rules.
//!
//! cgroup v1 has a devices controller, which `libcgroups` configures. cgroup v2 has none: the kernel runs the programs
//! attached to the cgroup and its parents, and a cgroup without a program allows everything.

use std::fs::File;
use std::io;

use oci_spec::runtime::{LinuxDeviceCgroup, LinuxDeviceType};
use sys::BpfInstruction;

use cgroups::Cgroup;

/// Access types as numbered by the kernel.
const MKNOD: u32 = 1;
const READ: u32 = 2;
const WRITE: u32 = 4;
const EVERY_ACCESS: u32 = MKNOD | READ | WRITE;

/// Devices that every container may use, appended to the rules of its specification: those of runc and `libcgroups`,
/// without `/dev/net/tun`.
const DEFAULTS: &[Rule] = &[
    // Creating a node is harmless without permission to open it.
    Rule { allow: true, kind: Some(Kind::Char), major: None, minor: None, access: MKNOD },
    Rule { allow: true, kind: Some(Kind::Block), major: None, minor: None, access: MKNOD },
    char_device(1, Some(3)), // null
    char_device(1, Some(5)), // zero
    char_device(1, Some(7)), // full
    char_device(1, Some(8)), // random
    char_device(1, Some(9)), // urandom
    char_device(5, Some(0)), // tty
    char_device(5, Some(1)), // console
    char_device(5, Some(2)), // ptmx
    char_device(136, None),  // pts
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Block = 1,
    Char = 2,
}

/// Allows or denies access to matching devices; `None` matches every device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    allow: bool,
    kind: Option<Kind>,
    major: Option<u32>,
    minor: Option<u32>,
    access: u32,
}

const fn char_device(major: u32, minor: Option<u32>) -> Rule {
    Rule { allow: true, kind: Some(Kind::Char), major: Some(major), minor, access: EVERY_ACCESS }
}

/// Restricts the future processes of `cgroup` to the devices that `rules` allow. Later rules override earlier ones.
///
/// On v2, creates the cgroup; this must happen before the first process joins it. On v1, only checks that a devices
/// controller exists. Fails if devices cannot be restricted: then the container must not start.
pub(crate) fn restrict(cgroup: &Cgroup, rules: &[LinuxDeviceCgroup]) -> io::Result<()> {
    let Some(dir) = cgroup.unified_dir() else {
        if Cgroup::has_device_controller() {
            return Ok(());
        }
        return Err(io::Error::other("cannot restrict devices: the cgroup v1 controller \"devices\" is not mounted"));
    };
    let Some(program) = compile(&rules_of(rules)) else { return Ok(()) };
    cgroup.create()?;
    let attach = || sys::attach_device_filter(File::open(&dir)?, sys::load_device_filter(&program)?);
    attach().map_err(|error| {
        let hint = "the kernel needs CONFIG_CGROUP_BPF, and the runtime CAP_SYS_ADMIN or CAP_BPF with CAP_NET_ADMIN";
        io::Error::new(error.kind(), format!("cannot attach the device filter to {}: {error} ({hint})", dir.display()))
    })
}

/// Returns the rules of a specification, followed by the defaults. Rules of types that are not devices are omitted.
fn rules_of(rules: &[LinuxDeviceCgroup]) -> Vec<Rule> {
    let number = |number: Option<i64>| number.filter(|number| *number >= 0);
    let given = rules.iter().filter_map(|rule| {
        let kind = match rule.typ().unwrap_or_default() {
            LinuxDeviceType::A => None,
            LinuxDeviceType::B => Some(Kind::Block),
            LinuxDeviceType::C | LinuxDeviceType::U => Some(Kind::Char),
            LinuxDeviceType::P => return None,
        };
        let bit = |letter: char| match letter {
            'r' => READ,
            'w' => WRITE,
            'm' => MKNOD,
            _ => 0,
        };
        let access = match rule.access() {
            Some(letters) => letters.chars().fold(0, |access, letter| access | bit(letter)),
            // A rule without access is interpreted strictly: it allows nothing or denies everything.
            None if rule.allow() => 0,
            None => EVERY_ACCESS,
        };
        Some(Rule {
            allow: rule.allow(),
            kind,
            // A number out of range becomes the largest number, which no device has.
            major: number(rule.major()).map(|major| u32::try_from(major).unwrap_or(u32::MAX)),
            minor: number(rule.minor()).map(|minor| u32::try_from(minor).unwrap_or(u32::MAX)),
            access,
        })
    });
    given.chain(DEFAULTS.iter().copied()).collect()
}

/// Compiles rules to a program; `None` if they allow everything.
///
/// The program evaluates the rules from last to first with the set of accesses that no rule has decided yet. The first
/// matching denial of one of them denies the request. The request is allowed once every access is allowed.
fn compile(rules: &[Rule]) -> Option<Vec<BpfInstruction>> {
    let every = rules.iter().position(|rule| is_wildcard(rule) && rule.access == EVERY_ACCESS && rule.allow);
    if every.is_some_and(|at| rules[at..].iter().all(|rule| rule.allow)) {
        return None;
    }
    let mut program = vec![
        asm::load(asm::KIND, 0),
        asm::copy(asm::ACCESS, asm::KIND),
        asm::and(asm::KIND, 0xffff),
        asm::shift_right(asm::ACCESS, 16),
        asm::load(asm::MAJOR, 4),
        asm::load(asm::MINOR, 8),
    ];
    for rule in rules.iter().rev().filter(|rule| rule.access != 0) {
        let body = if rule.allow {
            let left = EVERY_ACCESS & !rule.access;
            vec![asm::and(asm::ACCESS, left), asm::skip_unless_equal(asm::ACCESS, 0, 2)]
        } else {
            vec![
                asm::copy(asm::RESULT, asm::ACCESS),
                asm::and(asm::RESULT, rule.access),
                asm::skip_if_equal(asm::RESULT, 0, 2),
            ]
        };
        let verdict = [asm::set(asm::RESULT, u32::from(rule.allow)), asm::exit()];
        let conditions = [
            rule.kind.map(|kind| (asm::KIND, kind as u32)),
            rule.major.map(|major| (asm::MAJOR, major)),
            rule.minor.map(|minor| (asm::MINOR, minor)),
        ];
        let conditions: Vec<(u8, u32)> = conditions.into_iter().flatten().collect();
        let rest = body.len() + verdict.len();
        for (n, (register, value)) in conditions.iter().enumerate() {
            program.push(asm::skip_unless_equal(*register, *value, conditions.len() - n - 1 + rest));
        }
        program.extend(body);
        program.extend(verdict);
    }
    program.extend([asm::set(asm::RESULT, 0), asm::exit()]);
    Some(program)
}

fn is_wildcard(rule: &Rule) -> bool {
    rule.kind.is_none() && rule.major.is_none() && rule.minor.is_none()
}

/// The BPF instructions of a device filter, all of which operate on 32 bits.
mod asm {
    use sys::BpfInstruction;

    /// Allow (1) or deny (0).
    pub(super) const RESULT: u8 = 0;
    /// Register in which the kernel passes the address of the request: type and access, major number, minor number.
    const CONTEXT: u8 = 1;
    pub(super) const KIND: u8 = 2;
    pub(super) const ACCESS: u8 = 3;
    pub(super) const MAJOR: u8 = 4;
    pub(super) const MINOR: u8 = 5;

    pub(super) const LOAD: u8 = 0x61;
    pub(super) const SET: u8 = 0xb4;
    pub(super) const COPY: u8 = 0xbc;
    pub(super) const AND: u8 = 0x54;
    pub(super) const SHIFT_RIGHT: u8 = 0x74;
    pub(super) const SKIP_IF_EQUAL: u8 = 0x16;
    pub(super) const SKIP_UNLESS_EQUAL: u8 = 0x56;
    pub(super) const EXIT: u8 = 0x95;

    pub(super) fn load(register: u8, offset: i16) -> BpfInstruction {
        BpfInstruction { code: LOAD, registers: register | CONTEXT << 4, offset, immediate: 0 }
    }

    pub(super) fn set(register: u8, value: u32) -> BpfInstruction {
        constant(SET, register, value, 0)
    }

    pub(super) fn copy(to: u8, from: u8) -> BpfInstruction {
        BpfInstruction { code: COPY, registers: to | from << 4, offset: 0, immediate: 0 }
    }

    pub(super) fn and(register: u8, mask: u32) -> BpfInstruction {
        constant(AND, register, mask, 0)
    }

    pub(super) fn shift_right(register: u8, bits: u32) -> BpfInstruction {
        constant(SHIFT_RIGHT, register, bits, 0)
    }

    pub(super) fn skip_if_equal(register: u8, value: u32, count: usize) -> BpfInstruction {
        constant(SKIP_IF_EQUAL, register, value, count)
    }

    pub(super) fn skip_unless_equal(register: u8, value: u32, count: usize) -> BpfInstruction {
        constant(SKIP_UNLESS_EQUAL, register, value, count)
    }

    pub(super) fn exit() -> BpfInstruction {
        constant(EXIT, 0, 0, 0)
    }

    fn constant(code: u8, registers: u8, value: u32, skip: usize) -> BpfInstruction {
        let offset = i16::try_from(skip).expect("a rule is a few instructions");
        BpfInstruction { code, registers, offset, immediate: value.cast_signed() }
    }
}

#[cfg(test)]
mod tests;

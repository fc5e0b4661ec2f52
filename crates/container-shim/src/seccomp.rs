//! Compiles seccomp profiles to BPF programs.
//!
//! The compiler supports one action for matching calls and one for the rest. A profile with more actions becomes
//! several programs. The kernel runs all loaded programs and applies the strictest result: a call with another action
//! passes the first program and is caught by its own.

mod default;
mod names;

use std::collections::BTreeMap;

use oci_spec::runtime::{LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompOperator, LinuxSyscall};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use sys::SockFilter;

pub use default::default_profile;

/// A profile cannot be compiled.
#[derive(Debug, thiserror::Error)]
pub enum SeccompError {
    /// An action that needs a listener process.
    #[error("seccomp action {0:?} is not supported")]
    Action(LinuxSeccompAction),
    /// A rule for an argument index that no system call has.
    #[error("seccomp rule for {syscall} has a bad argument {index}")]
    Argument { syscall: String, index: usize },
    #[error("cannot compile the seccomp profile")]
    Compile(#[source] seccompiler::BackendError),
    #[error("seccomp is not supported on {0}")]
    Architecture(&'static str),
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Marks system calls of the x32 ABI, whose numbers no profile contains.
const X32_BIT: u32 = 0x4000_0000;

/// Compiles a profile to programs that must be loaded in order.
pub(crate) fn compile(profile: &LinuxSeccomp) -> Result<Vec<Vec<SockFilter>>, SeccompError> {
    let default = action(profile.default_action(), profile.default_errno_ret())?;
    let no_calls = Vec::new();
    let mut groups: Vec<(SeccompAction, Rules)> = Vec::new();
    for call in profile.syscalls().as_ref().unwrap_or(&no_calls) {
        let action = action(call.action(), call.errno_ret().or(profile.default_errno_ret()))?;
        if action == default {
            continue;
        }
        let at = groups.iter().position(|(own, _)| *own == action).unwrap_or_else(|| {
            groups.push((action.clone(), Rules::new()));
            groups.len() - 1
        });
        add(call, &mut groups[at].1)?;
    }
    let mut programs = Vec::new();
    if default != SeccompAction::Allow {
        let mut passing = Rules::new();
        for (_, rules) in &groups {
            for (number, own) in rules {
                merge(&mut passing, *number, own.clone());
            }
        }
        programs.push(program(passing, default, SeccompAction::Allow)?);
    }
    for (action, rules) in groups {
        if action != SeccompAction::Allow {
            programs.push(program(rules, SeccompAction::Allow, action)?);
        }
    }
    Ok(programs)
}

fn add(call: &LinuxSyscall, rules: &mut Rules) -> Result<(), SeccompError> {
    for name in call.names() {
        // A system call that this kernel or architecture lacks needs no rule.
        let Some(number) = names::number(name) else { continue };
        let no_args = Vec::new();
        let own = conditions(name, call.args().as_ref().unwrap_or(&no_args))?;
        merge(rules, number, own);
    }
    Ok(())
}

/// Merges rules of a call; an empty list means that the call always matches.
fn merge(rules: &mut Rules, number: i64, own: Vec<SeccompRule>) {
    match rules.get_mut(&number) {
        None => {
            rules.insert(number, own);
        }
        Some(known) if known.is_empty() || own.is_empty() => known.clear(),
        Some(known) => known.extend(own),
    }
}

/// Returns the rules for the conditions of a call. All conditions must hold, unless two are on the same argument: then
/// any one is sufficient.
fn conditions(name: &str, args: &[LinuxSeccompArg]) -> Result<Vec<SeccompRule>, SeccompError> {
    if args.is_empty() {
        return Ok(Vec::new());
    }
    let mut seen = std::collections::BTreeSet::new();
    let alternatives = !args.iter().all(|arg| seen.insert(arg.index()));
    let conditions: Vec<SeccompCondition> =
        args.iter().map(|arg| condition(name, arg)).collect::<Result<_, SeccompError>>()?;
    let groups: Vec<Vec<SeccompCondition>> =
        if alternatives { conditions.into_iter().map(|one| vec![one]).collect() } else { vec![conditions] };
    groups.into_iter().map(|group| SeccompRule::new(group).map_err(SeccompError::Compile)).collect()
}

fn condition(name: &str, arg: &LinuxSeccompArg) -> Result<SeccompCondition, SeccompError> {
    let (operator, value) = match arg.op() {
        LinuxSeccompOperator::ScmpCmpNe => (SeccompCmpOp::Ne, arg.value()),
        LinuxSeccompOperator::ScmpCmpLt => (SeccompCmpOp::Lt, arg.value()),
        LinuxSeccompOperator::ScmpCmpLe => (SeccompCmpOp::Le, arg.value()),
        LinuxSeccompOperator::ScmpCmpEq => (SeccompCmpOp::Eq, arg.value()),
        LinuxSeccompOperator::ScmpCmpGe => (SeccompCmpOp::Ge, arg.value()),
        LinuxSeccompOperator::ScmpCmpGt => (SeccompCmpOp::Gt, arg.value()),
        LinuxSeccompOperator::ScmpCmpMaskedEq => {
            (SeccompCmpOp::MaskedEq(arg.value()), arg.value_two().unwrap_or_default())
        }
    };
    let bad = || SeccompError::Argument { syscall: name.to_owned(), index: arg.index() };
    let index = u8::try_from(arg.index()).map_err(|_| bad())?;
    SeccompCondition::new(index, SeccompCmpArgLen::Qword, operator, value).map_err(|_| bad())
}

fn action(action: LinuxSeccompAction, errno: Option<u32>) -> Result<SeccompAction, SeccompError> {
    Ok(match action {
        LinuxSeccompAction::ScmpActKill | LinuxSeccompAction::ScmpActKillThread => SeccompAction::KillThread,
        LinuxSeccompAction::ScmpActKillProcess => SeccompAction::KillProcess,
        LinuxSeccompAction::ScmpActTrap => SeccompAction::Trap,
        LinuxSeccompAction::ScmpActErrno => SeccompAction::Errno(errno.unwrap_or(nix::errno::Errno::EPERM as u32)),
        LinuxSeccompAction::ScmpActTrace => SeccompAction::Trace(errno.unwrap_or(nix::errno::Errno::EPERM as u32)),
        LinuxSeccompAction::ScmpActAllow => SeccompAction::Allow,
        LinuxSeccompAction::ScmpActLog => SeccompAction::Log,
        LinuxSeccompAction::ScmpActNotify => return Err(SeccompError::Action(action)),
    })
}

// DEVIATION: programs of another architecture than the host's own (32-bit ones) are killed under any seccomp profile,
// because the compiler supports one architecture per program.
fn program(rules: Rules, otherwise: SeccompAction, matched: SeccompAction) -> Result<Vec<SockFilter>, SeccompError> {
    let unknown = |_| SeccompError::Architecture(std::env::consts::ARCH);
    let architecture = std::env::consts::ARCH.try_into().map_err(unknown)?;
    let filter = SeccompFilter::new(rules, otherwise, matched, architecture).map_err(SeccompError::Compile)?;
    let program: BpfProgram = filter.try_into().map_err(SeccompError::Compile)?;
    let own: Vec<SockFilter> =
        program.iter().map(|one| SockFilter { code: one.code, jt: one.jt, jf: one.jf, k: one.k }).collect();
    Ok(without_x32(own))
}

/// Adds a check that rejects the x32 ABI, whose calls would pass a profile with a list of forbidden calls.
fn without_x32(mut program: Vec<SockFilter>) -> Vec<SockFilter> {
    // The architecture check is the first three instructions; its jumps stay within them.
    const ARCHITECTURE_CHECK: usize = 3;
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_IF_BITS: u16 = 0x45;
    const RETURN: u16 = 0x06;
    const ERRNO: u32 = 0x0005_0000;
    let guard = [
        SockFilter { code: LOAD_NUMBER, jt: 0, jf: 0, k: 0 },
        SockFilter { code: JUMP_IF_BITS, jt: 0, jf: 1, k: X32_BIT },
        SockFilter { code: RETURN, jt: 0, jf: 0, k: ERRNO | nix::errno::Errno::ENOSYS as u32 },
    ];
    program.splice(ARCHITECTURE_CHECK..ARCHITECTURE_CHECK, guard);
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_profile_compiles_to_two_programs() {
        let programs = compile(&default_profile(&[])).unwrap();
        assert_eq!(programs.len(), 2);
        assert!(programs.iter().all(|program| program.len() < 4096));
    }

    #[test]
    fn mount_needs_cap_sys_admin() {
        let allowed = |capabilities: &[&str], name: &str| {
            let profile = default_profile(capabilities);
            let calls = profile.syscalls().clone().unwrap();
            calls.iter().any(|call| {
                call.action() == LinuxSeccompAction::ScmpActAllow && call.names().iter().any(|own| own == name)
            })
        };
        assert!(!allowed(&[], "mount") && allowed(&["CAP_SYS_ADMIN"], "mount"));
        assert!(!allowed(&[], "clone3") && allowed(&["CAP_SYS_ADMIN"], "clone3"));
        assert!(allowed(&[], "openat") && !allowed(&[], "kexec_load"));
    }

    #[test]
    fn profile_from_a_file_with_unknown_names_and_arguments_compiles() {
        let text = r#"{"defaultAction":"SCMP_ACT_ALLOW","architectures":["SCMP_ARCH_X86_64"],"syscalls":[
            {"names":["mkdir","mkdirat","no_such_call"],"action":"SCMP_ACT_ERRNO","errnoRet":13},
            {"names":["personality"],"action":"SCMP_ACT_KILL_PROCESS","args":[
                {"index":0,"value":8,"op":"SCMP_CMP_EQ"},{"index":0,"value":9,"op":"SCMP_CMP_EQ"}]}]}"#;
        let profile: LinuxSeccomp = serde_json::from_str(text).unwrap();
        assert_eq!(compile(&profile).unwrap().len(), 2);
        let notify = text.replace("SCMP_ACT_KILL_PROCESS", "SCMP_ACT_NOTIFY");
        let profile: LinuxSeccomp = serde_json::from_str(&notify).unwrap();
        assert!(matches!(compile(&profile), Err(SeccompError::Action(_))));
    }

    #[test]
    fn names_of_the_default_profile_are_known_or_of_another_architecture() {
        let profile = default_profile(&["CAP_SYS_ADMIN"]);
        let calls = profile.syscalls().clone().unwrap();
        let unknown = calls.iter().flat_map(LinuxSyscall::names).filter(|name| names::number(name).is_none()).count();
        let all: usize = calls.iter().map(|call| call.names().len()).sum();
        assert!(unknown * 4 < all, "{unknown} of {all} names are unknown");
    }
}

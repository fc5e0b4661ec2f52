//! The `RuntimeDefault` seccomp profile: the system calls that containers need, and additional ones per capability.
//!
//! The lists are those of other container runtimes, so that images run here as elsewhere.

use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArgBuilder, LinuxSeccompBuilder, LinuxSeccompOperator,
    LinuxSyscall, LinuxSyscallBuilder,
};

/// System calls that every container may use with any arguments.
const ALWAYS: &str = "\
accept accept4 access adjtimex alarm arch_prctl bind brk cachestat capget capset chdir chmod chown chown32 \
clock_adjtime clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64 clock_nanosleep \
clock_nanosleep_time64 close close_range connect copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl \
epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 execve execveat exit exit_group faccessat \
faccessat2 fadvise64 fadvise64_64 fallocate fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown fchown32 fchownat fcntl \
fcntl64 fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstat64 fstatat64 fstatfs fstatfs64 fsync \
ftruncate ftruncate64 futex futex_requeue futex_time64 futex_wait futex_waitv futex_wake futimesat get_robust_list \
get_thread_area getcpu getcwd getdents getdents64 getegid getegid32 geteuid geteuid32 getgid getgid32 getgroups getgroups32 \
getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid getresgid32 getresuid getresuid32 \
getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid getuid32 getxattr getxattrat \
inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents \
io_pgetevents_time64 io_setup io_submit ioctl ioprio_get ioprio_set ipc kill landlock_add_rule landlock_create_ruleset \
landlock_restrict_self lchown lchown32 lgetxattr link linkat listen listmount listxattr listxattrat llistxattr _llseek \
lremovexattr lseek lsetxattr lstat lstat64 madvise map_shadow_stack membarrier memfd_create memfd_secret mincore mkdir \
mkdirat mknod mknodat mlock mlock2 mlockall mmap mmap2 mprotect mq_getsetattr mq_notify mq_open mq_timedreceive \
mq_timedreceive_time64 mq_timedsend mq_timedsend_time64 mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync munlock \
munlockall munmap name_to_handle_at nanosleep newfstatat _newselect open openat openat2 pause pidfd_open \
pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll ppoll_time64 prctl pread64 preadv preadv2 \
prlimit64 process_mrelease process_vm_readv process_vm_writev pselect6 pselect6_time64 ptrace pwrite64 pwritev pwritev2 \
read readahead readlink readlinkat readv recv recvfrom recvmmsg recvmmsg_time64 recvmsg remap_file_pages removexattr \
removexattrat rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask \
rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo \
sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler \
sched_rr_get_interval sched_rr_get_interval_time64 sched_setaffinity sched_setattr sched_setparam sched_setscheduler \
sched_yield seccomp select semctl semget semop semtimedop semtimedop_time64 send sendfile sendfile64 sendmmsg sendmsg \
sendto set_robust_list set_thread_area set_tid_address setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32 setgroups \
setgroups32 setitimer setpgid setpriority setregid setregid32 setresgid setresgid32 setresuid setresuid32 setreuid \
setreuid32 setrlimit setsid setsockopt setuid setuid32 setxattr setxattrat shmat shmctl shmdt shmget shutdown sigaltstack \
signalfd signalfd4 sigprocmask sigreturn socketcall socketpair splice stat stat64 statfs statfs64 statmount statx symlink \
symlinkat sync sync_file_range syncfs sysinfo tee tgkill time timer_create timer_delete timer_getoverrun timer_gettime \
timer_gettime64 timer_settime timer_settime64 timerfd_create timerfd_gettime timerfd_gettime64 timerfd_settime \
timerfd_settime64 times tkill truncate truncate64 ugetrlimit umask uname unlink unlinkat utime utimensat \
utimensat_time64 utimes vfork vmsplice wait4 waitid waitpid write writev modify_ldt";

/// Additional system calls per capability.
const BY_CAPABILITY: &[(&str, &str)] = &[
    ("CAP_DAC_READ_SEARCH", "open_by_handle_at"),
    (
        "CAP_SYS_ADMIN",
        "bpf clone clone3 fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie mount mount_setattr move_mount \
         open_tree perf_event_open quotactl quotactl_fd setdomainname sethostname setns syslog umount umount2 unshare",
    ),
    ("CAP_SYS_BOOT", "reboot"),
    ("CAP_SYS_CHROOT", "chroot"),
    ("CAP_SYS_MODULE", "delete_module init_module finit_module"),
    ("CAP_SYS_PACCT", "acct"),
    ("CAP_SYS_PTRACE", "kcmp pidfd_getfd process_madvise"),
    ("CAP_SYS_RAWIO", "iopl ioperm"),
    ("CAP_SYS_TIME", "settimeofday stime clock_settime clock_settime64"),
    ("CAP_SYS_TTY_CONFIG", "vhangup"),
    ("CAP_SYS_NICE", "get_mempolicy mbind set_mempolicy set_mempolicy_home_node"),
    ("CAP_SYSLOG", "syslog"),
    ("CAP_BPF", "bpf"),
    ("CAP_PERFMON", "perf_event_open"),
];

/// Harmless personalities: PER_LINUX and PER_LINUX32, each also with UNAME26, and the value that queries the current
/// one.
const PERSONALITIES: [u64; 5] = [0x0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];
/// Flags of `clone` that create namespaces.
const NEW_NAMESPACES: u64 = 0x7e02_0000;
/// The address family of VM sockets, which reach the host regardless of network policies.
const AF_VSOCK: u64 = 40;

/// Returns the profile for a container with these capabilities.
pub fn default_profile(capabilities: &[&str]) -> LinuxSeccomp {
    let has = |name: &str| capabilities.contains(&name);
    let mut calls = vec![allow(ALWAYS, None)];
    calls.extend(BY_CAPABILITY.iter().filter(|(name, _)| has(name)).map(|(_, calls)| allow(calls, None)));
    for personality in PERSONALITIES {
        calls.push(allow("personality", Some((LinuxSeccompOperator::ScmpCmpEq, personality, None))));
    }
    calls.push(allow("socket", Some((LinuxSeccompOperator::ScmpCmpNe, AF_VSOCK, None))));
    if !has("CAP_SYS_ADMIN") {
        calls.push(allow("clone", Some((LinuxSeccompOperator::ScmpCmpMaskedEq, NEW_NAMESPACES, Some(0)))));
        // The flags of clone3 are in memory, where a filter cannot read them. ENOSYS makes libraries fall back to
        // clone.
        let not_implemented = LinuxSyscallBuilder::default()
            .names(vec!["clone3".to_owned()])
            .action(LinuxSeccompAction::ScmpActErrno)
            .errno_ret(nix::errno::Errno::ENOSYS as u32);
        calls.push(not_implemented.build().expect("the rule is complete"));
    }
    LinuxSeccompBuilder::default()
        .default_action(LinuxSeccompAction::ScmpActErrno)
        .default_errno_ret(nix::errno::Errno::EPERM as u32)
        .architectures(architectures())
        .syscalls(calls)
        .build()
        .expect("the profile is complete")
}

fn architectures() -> Vec<Arch> {
    match std::env::consts::ARCH {
        "x86_64" => vec![Arch::ScmpArchX86_64, Arch::ScmpArchX86, Arch::ScmpArchX32],
        "aarch64" => vec![Arch::ScmpArchAarch64, Arch::ScmpArchArm],
        _ => Vec::new(),
    }
}

type Condition = (LinuxSeccompOperator, u64, Option<u64>);

fn allow(names: &str, first_argument: Option<Condition>) -> LinuxSyscall {
    let mut call = LinuxSyscallBuilder::default()
        .names(names.split(' ').filter(|name| !name.is_empty()).map(str::to_owned).collect::<Vec<_>>())
        .action(LinuxSeccompAction::ScmpActAllow);
    if let Some((operator, value, second)) = first_argument {
        let mut argument = LinuxSeccompArgBuilder::default().index(0usize).value(value).op(operator);
        if let Some(second) = second {
            argument = argument.value_two(second);
        }
        call = call.args(vec![argument.build().expect("the condition is complete")]);
    }
    call.build().expect("the rule is complete")
}

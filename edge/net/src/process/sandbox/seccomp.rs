//! seccomp: restricts the system calls of a thread.
//!
//! The filter has a deny list, not an allow list: the calls of C libraries differ between systems and
//! versions, and a tracker that crashes after a library update is not safer. It denies calls that reach
//! out of the process and calls that a server does not need: programs, other processes, privileges,
//! mounts, kernel modules, the clock, executable memory. Of some calls, only certain arguments are
//! denied. Denied calls fail with EPERM.

use std::collections::BTreeMap;

use libc::*;
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

use super::SandboxPolicy;

/// Denied with any arguments.
#[rustfmt::skip]
const DENIED: &[c_long] = &[
    // Programs and other processes.
    SYS_execve, SYS_execveat, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev,
    SYS_process_madvise, SYS_pidfd_open, SYS_pidfd_getfd, SYS_pidfd_send_signal, SYS_kcmp,
    SYS_kill, SYS_tkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_setpgid, SYS_setpriority,
    SYS_ioprio_set, SYS_sched_setscheduler, SYS_sched_setparam, SYS_migrate_pages, SYS_move_pages,
    SYS_shmget, SYS_shmat, SYS_shmctl, SYS_semget, SYS_semop, SYS_semtimedop, SYS_semctl,
    SYS_msgget, SYS_msgsnd, SYS_msgrcv, SYS_msgctl, SYS_mq_open, SYS_mq_unlink,
    // Privileges.
    SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid,
    SYS_setfsuid, SYS_setfsgid, SYS_setgroups, SYS_capset, SYS_setns, SYS_unshare,
    SYS_personality,
    // File systems, and the metadata of files.
    SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_move_mount, SYS_open_tree, SYS_fsopen,
    SYS_fsconfig, SYS_fsmount, SYS_fspick, SYS_mount_setattr, SYS_quotactl, SYS_swapon,
    SYS_swapoff, SYS_acct, SYS_open_by_handle_at, SYS_name_to_handle_at, SYS_fchmod,
    SYS_fchmodat, SYS_fchown, SYS_fchownat, SYS_utimensat, SYS_setxattr, SYS_lsetxattr,
    SYS_fsetxattr, SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr, SYS_mknodat,
    SYS_fanotify_init,
    // The kernel, and interfaces that are mostly used by exploits.
    SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_reboot, SYS_syslog,
    SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_io_uring_setup, SYS_io_uring_enter,
    SYS_io_uring_register, SYS_add_key, SYS_request_key, SYS_keyctl, SYS_memfd_create,
    // The machine's name and clock.
    SYS_sethostname, SYS_setdomainname, SYS_settimeofday, SYS_clock_settime, SYS_adjtimex,
    SYS_clock_adjtime,
];

/// Older calls, which only this architecture has, and one that has another number elsewhere.
#[rustfmt::skip]
#[cfg(target_arch = "x86_64")]
const DENIED_HERE: &[c_long] = &[
    SYS_fork, SYS_vfork, SYS_chmod, SYS_chown, SYS_lchown, SYS_utime, SYS_utimes, SYS_futimesat,
    SYS_mknod, SYS_kexec_file_load, SYS_modify_ldt, SYS_iopl, SYS_ioperm, SYS_uselib,
];
/// kexec_file_load, which not all C libraries name.
#[cfg(any(target_arch = "aarch64", target_arch = "riscv64"))]
const DENIED_HERE: &[c_long] = &[294];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
const DENIED_HERE: &[c_long] = &[];

/// Calls of newer kernels, which not all C libraries name. Their numbers are the same on all architectures:
/// quotactl_fd, memfd_secret, process_mrelease, fchmodat2, lsm_set_self_attr, setxattrat, removexattrat,
/// open_tree_attr, file_setattr.
const DENIED_BY_NUMBER: &[c_long] = &[443, 447, 448, 452, 460, 463, 466, 467, 469];

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Types of sockets other than SOCK_STREAM and SOCK_DGRAM, up to the largest that the argument holds.
const OTHER_TYPES: [c_int; 14] = [0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
/// The bits of that argument that are the type. The others are flags.
const TYPE_BITS: u64 = 0xf;
/// Commands of `fcntl` that direct signals at any process.
const SIGNAL_OWNERS: [c_int; 2] = [F_SETOWN, F_SETOWN_EX];
/// F_SETOWN_EX, which not all C libraries define.
const F_SETOWN_EX: c_int = 15;
/// Requests of `ioctl` that direct signals at any process (FIOSETOWN, SIOCSPGRP), or type into the
/// terminal that the process was started from (TIOCSTI, TIOCLINUX).
const REQUESTS: [c_int; 4] = [0x8901, 0x8902, 0x5412, 0x541C];
/// Calls that send, and which of their arguments is the flags.
const SENDERS: [(c_long, u8); 3] = [(SYS_sendto, 3), (SYS_sendmsg, 2), (SYS_sendmmsg, 3)];

/// Denies this thread, and threads that it starts later, the listed calls, new processes, executable
/// memory, signals to other processes, and new uses of open sockets. Without ports in `allowed`, it denies all new
/// sockets, otherwise those that are neither TCP nor UDP. Returns the number of calls that are always denied, or the
/// reason of a failure.
pub(super) fn restrict(allowed: &SandboxPolicy) -> Result<usize, String> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH)
        .map_err(|_| format!("no filter for {}", std::env::consts::ARCH))?;
    let rules = rules(allowed.has_sockets()).map_err(|error| error.to_string())?;
    // Without clone3, glibc creates threads by `clone`, whose arguments a filter can check.
    let unknown = BTreeMap::from([(SYS_clone3, Vec::new())]);
    let count = rules.values().filter(|conditions| conditions.is_empty()).count();
    for (rules, error) in [(rules, EPERM), (unknown, ENOSYS)] {
        let deny = SeccompAction::Errno(error.unsigned_abs());
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, deny, architecture);
        let program: BpfProgram =
            filter.and_then(TryInto::try_into).map_err(|error| error.to_string())?;
        apply_filter(&program).map_err(|error| error.to_string())?;
    }
    #[cfg(target_arch = "x86_64")]
    apply_filter(&x32_filter()).map_err(|error| error.to_string())?;
    Ok(count)
}

/// Returns a filter that denies all x32 calls: those with bit 30 in their number, under which the kernel
/// may offer every call a second time.
#[cfg(target_arch = "x86_64")]
fn x32_filter() -> BpfProgram {
    let instruction =
        |code: u32, jt, k| seccompiler::sock_filter { code: code as u16, jt, jf: 0, k };
    vec![
        // The number of the call is the first field of `struct seccomp_data`.
        instruction(BPF_LD | BPF_W | BPF_ABS, 0, 0),
        instruction(BPF_JMP | BPF_JGE | BPF_K, 1, 0x4000_0000),
        instruction(BPF_RET | BPF_K, 0, SECCOMP_RET_ALLOW),
        instruction(BPF_RET | BPF_K, 0, SECCOMP_RET_ERRNO | EPERM.unsigned_abs()),
    ]
}

fn rules(has_sockets: bool) -> Result<Rules, BackendError> {
    let always = |call: &c_long| (*call, Vec::new());
    let denied = DENIED.iter().chain(DENIED_HERE).chain(DENIED_BY_NUMBER);
    let mut rules: Rules = denied.map(always).collect();
    let code = u64::from(PROT_EXEC.unsigned_abs());
    for call in [SYS_mmap, SYS_mprotect, SYS_pkey_mprotect] {
        let is_code = SeccompCondition::new(2, Qword, MaskedEq(code), code)?;
        rules.insert(call, vec![SeccompRule::new(vec![is_code])?]);
    }
    let thread = u64::from(CLONE_THREAD.unsigned_abs());
    let is_process = SeccompCondition::new(0, Qword, MaskedEq(thread), 0)?;
    rules.insert(SYS_clone, vec![SeccompRule::new(vec![is_process])?]);
    // To other processes.
    let own_pid = u64::from(std::process::id());
    let is_other = SeccompCondition::new(0, Dword, Ne, own_pid)?;
    rules.insert(SYS_tgkill, vec![SeccompRule::new(vec![is_other.clone()])?]);
    let is_named = SeccompCondition::new(0, Dword, Ne, 0)?;
    for call in [SYS_sched_setattr, SYS_sched_setaffinity] {
        rules.insert(call, vec![SeccompRule::new(vec![is_named.clone()])?]);
    }
    rules.insert(SYS_prlimit64, vec![SeccompRule::new(vec![is_other, is_named])?]);
    rules.insert(SYS_fcntl, one_of(1, &SIGNAL_OWNERS)?);
    rules.insert(SYS_ioctl, one_of(1, &REQUESTS)?);
    rules.insert(SYS_socket, socket_rules(has_sockets)?);
    // Datagram sockets can be connected elsewhere, even those of a pair.
    let types = OTHER_TYPES.iter().chain(&[SOCK_DGRAM]);
    let mut pairs = types.map(|kind| has_type(*kind)).collect::<Result<Vec<_>, _>>()?;
    pairs.push(none_of(0, &[AF_UNIX])?);
    rules.insert(SYS_socketpair, pairs);
    rules.extend(reuse_rules(has_sockets)?);
    Ok(rules)
}

/// Returns the rules that keep sockets to what they were opened for. A listener after shutdown(2), or an
/// accepted connection that was dissolved, could otherwise be connected anywhere.
fn reuse_rules(has_sockets: bool) -> Result<Rules, BackendError> {
    // All listeners are open. C libraries connect sockets to resolve names, and bind those of UDP; Landlock
    // restricts both for TCP.
    let mut rules = Rules::from([(SYS_listen, Vec::new())]);
    if !has_sockets {
        rules.extend([SYS_connect, SYS_bind].map(|call| (call, Vec::new())));
    }
    // Connects TCP sockets without connect(2), which is all that Landlock restricts.
    let fast_open = u64::from(MSG_FASTOPEN.unsigned_abs());
    for (call, flags) in SENDERS {
        let connects = SeccompCondition::new(flags, Dword, MaskedEq(fast_open), fast_open)?;
        rules.insert(call, vec![SeccompRule::new(vec![connects])?]);
    }
    // Replaces TCP by another protocol, such as SMC, to which rules for ports of TCP do not apply.
    let is_tcp = SeccompCondition::new(1, Dword, Eq, u64::from(IPPROTO_TCP.unsigned_abs()))?;
    let replaces = SeccompCondition::new(2, Dword, Eq, u64::from(TCP_ULP.unsigned_abs()))?;
    rules.insert(SYS_setsockopt, vec![SeccompRule::new(vec![is_tcp, replaces])?]);
    Ok(rules)
}

/// Returns the rules that deny sockets: all, or all but those of TCP and UDP, over IPv4 and IPv6. UDP resolves host names.
fn socket_rules(has_sockets: bool) -> Result<Vec<SeccompRule>, BackendError> {
    if !has_sockets {
        return Ok(Vec::new());
    }
    let mut rules = OTHER_TYPES.into_iter().map(has_type).collect::<Result<Vec<_>, _>>()?;
    rules.push(none_of(0, &[AF_INET, AF_INET6])?);
    // MPTCP is a stream, too, and the kernel would not apply the rules for ports of TCP.
    rules.push(none_of(2, &[0, IPPROTO_TCP, IPPROTO_UDP])?);
    Ok(rules)
}

/// Returns a rule about sockets of this type.
fn has_type(kind: c_int) -> Result<SeccompRule, BackendError> {
    let condition =
        SeccompCondition::new(1, Dword, MaskedEq(TYPE_BITS), u64::from(kind.unsigned_abs()))?;
    SeccompRule::new(vec![condition])
}

/// Returns rules about calls whose argument is one of `values`.
fn one_of(argument: u8, values: &[c_int]) -> Result<Vec<SeccompRule>, BackendError> {
    let rule = |value: &c_int| {
        let value = u64::from(value.unsigned_abs());
        SeccompRule::new(vec![SeccompCondition::new(argument, Dword, Eq, value)?])
    };
    values.iter().map(rule).collect()
}

/// Returns a rule about calls whose argument is none of `values`.
fn none_of(argument: u8, values: &[c_int]) -> Result<SeccompRule, BackendError> {
    let differs =
        |value: &c_int| SeccompCondition::new(argument, Dword, Ne, u64::from(value.unsigned_abs()));
    SeccompRule::new(values.iter().map(differs).collect::<Result<_, _>>()?)
}

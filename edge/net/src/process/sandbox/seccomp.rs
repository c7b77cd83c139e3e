//! seccomp: restricts the system calls of a thread.
//!
//! The filter has a deny list, not an allow list: the calls of C libraries differ between systems and
//! versions, and a tracker that crashes after a library update is not safer. It denies calls that reach
//! out of the process and calls that a server does not need: programs, other processes, privileges,
//! mounts, kernel modules, the clock, executable memory. Denied calls fail with EPERM.

use std::collections::BTreeMap;

use libc::*;
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{MaskedEq, Ne};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

/// Denied with any arguments.
#[rustfmt::skip]
const DENIED: &[c_long] = &[
    // Programs and other processes.
    SYS_execve, SYS_execveat, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev,
    SYS_process_madvise, SYS_pidfd_open, SYS_pidfd_getfd, SYS_pidfd_send_signal, SYS_kcmp,
    SYS_kill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo,
    // Privileges.
    SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid,
    SYS_setfsuid, SYS_setfsgid, SYS_setgroups, SYS_capset, SYS_setns, SYS_unshare,
    SYS_personality,
    // File systems, and the metadata of files.
    SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_move_mount, SYS_open_tree, SYS_fsopen,
    SYS_fsconfig, SYS_fsmount, SYS_fspick, SYS_mount_setattr, SYS_quotactl, SYS_swapon,
    SYS_swapoff, SYS_acct, SYS_open_by_handle_at, SYS_name_to_handle_at, SYS_fchmod,
    SYS_fchmodat, SYS_fchown, SYS_fchownat, SYS_utimensat, SYS_setxattr, SYS_lsetxattr,
    SYS_fsetxattr, SYS_mknodat, SYS_fanotify_init,
    // The kernel, and interfaces that are mostly used by exploits.
    SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_reboot, SYS_syslog,
    SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_io_uring_setup, SYS_io_uring_enter,
    SYS_io_uring_register, SYS_add_key, SYS_request_key, SYS_keyctl, SYS_memfd_create, SYS_shmat,
    // The machine's name and clock.
    SYS_sethostname, SYS_setdomainname, SYS_settimeofday, SYS_clock_settime, SYS_adjtimex,
    SYS_clock_adjtime,
];

/// Older calls, which only this architecture has.
#[rustfmt::skip]
#[cfg(target_arch = "x86_64")]
const DENIED_HERE: &[c_long] = &[
    SYS_fork, SYS_vfork, SYS_chmod, SYS_chown, SYS_lchown, SYS_utime, SYS_utimes, SYS_futimesat,
    SYS_mknod, SYS_kexec_file_load, SYS_modify_ldt, SYS_iopl, SYS_ioperm, SYS_uselib,
];
#[cfg(not(target_arch = "x86_64"))]
const DENIED_HERE: &[c_long] = &[];

/// Address families of sockets that can be created.
const FAMILIES: [c_int; 4] = [AF_UNIX, AF_INET, AF_INET6, AF_NETLINK];

/// Denies this thread, and threads that it starts later, the listed calls, sockets of other families,
/// new processes and executable memory. Returns the number of calls that are always denied, or the
/// reason of a failure.
pub(super) fn restrict() -> Result<usize, String> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH)
        .map_err(|_| format!("no filter for {}", std::env::consts::ARCH))?;
    let rules = rules().map_err(|error| error.to_string())?;
    // Without clone3, glibc creates threads by `clone`, whose arguments a filter can check.
    let unknown = BTreeMap::from([(SYS_clone3, Vec::new())]);
    let count = DENIED.len() + DENIED_HERE.len();
    for (rules, error) in [(rules, EPERM), (unknown, ENOSYS)] {
        let deny = SeccompAction::Errno(error.unsigned_abs());
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, deny, architecture);
        let program: BpfProgram =
            filter.and_then(TryInto::try_into).map_err(|error| error.to_string())?;
        apply_filter(&program).map_err(|error| error.to_string())?;
    }
    Ok(count)
}

fn rules() -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let mut rules = BTreeMap::new();
    for call in DENIED.iter().chain(DENIED_HERE) {
        rules.insert(*call, Vec::new());
        // The kernel may accept them under x32 numbers, too.
        #[cfg(target_arch = "x86_64")]
        rules.insert(*call | 0x4000_0000, Vec::new());
    }
    let code = u64::from(PROT_EXEC.unsigned_abs());
    for call in [SYS_mmap, SYS_mprotect, SYS_pkey_mprotect] {
        let is_code = SeccompCondition::new(2, Qword, MaskedEq(code), code)?;
        rules.insert(call, vec![SeccompRule::new(vec![is_code])?]);
    }
    let thread = u64::from(CLONE_THREAD.unsigned_abs());
    let is_process = SeccompCondition::new(0, Qword, MaskedEq(thread), 0)?;
    rules.insert(SYS_clone, vec![SeccompRule::new(vec![is_process])?]);
    let is_other =
        |family: c_int| SeccompCondition::new(0, Dword, Ne, u64::from(family.unsigned_abs()));
    let is_other = FAMILIES.into_iter().map(is_other).collect::<Result<_, _>>()?;
    rules.insert(SYS_socket, vec![SeccompRule::new(is_other)?]);
    Ok(rules)
}

//! Landlock: restricts the files and TCP ports that a thread can access (landlock(7)).

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, NetPort, RestrictionStatus,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};

use super::SandboxPolicy;

/// Restricts this thread, and threads that it starts later, to the files and ports of `allowed`. New TCP
/// listeners and signals to other processes are denied. Skips what the kernel does not support: returns true if TCP
/// ports are restricted. The error is the reason why nothing is restricted.
pub(super) fn restrict(allowed: &SandboxPolicy) -> Result<bool, String> {
    match enforce(allowed).map_err(|error| error.to_string())?.landlock {
        LandlockStatus::Available { effective_abi, .. } => Ok(effective_abi >= ABI::V4),
        LandlockStatus::NotEnabled => Err("Landlock is disabled in this kernel".into()),
        LandlockStatus::NotImplemented => Err("this kernel has no Landlock".into()),
    }
}

fn enforce(allowed: &SandboxPolicy) -> Result<RestrictionStatus, RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    // To create, replace and remove files, and to create folders.
    let write = AccessFs::WriteFile
        | AccessFs::RemoveFile
        | AccessFs::MakeDir
        | AccessFs::MakeReg
        | AccessFs::Truncate;
    let readable = allowed.readable.iter().map(PathBuf::as_path);
    let readable = readable.chain([Path::new("/proc/self")]);
    let connectable =
        |port: &u16| Ok::<_, RulesetError>(NetPort::new(*port, AccessNet::ConnectTcp));
    let network: BitFlags<AccessNet> = match allowed.any_port {
        true => AccessNet::BindTcp.into(),
        false => AccessNet::from_all(ABI::V4),
    };
    // Port 0 stands for one that the kernel chooses. A socket with one cannot listen: seccomp denies that.
    let bound =
        allowed.any_port.then(|| Ok::<_, RulesetError>(NetPort::new(0, AccessNet::BindTcp)));
    Ruleset::default()
        .handle_access(AccessFs::from_all(ABI::V5))?
        .handle_access(network)?
        .scope(Scope::Signal)?
        .create()?
        // Paths that cannot be opened need no rule.
        .add_rules(path_beneath_rules(readable, read))?
        .add_rules(path_beneath_rules(&allowed.writable, read | write))?
        .add_rules(allowed.ports.iter().filter(|_| !allowed.any_port).map(connectable))?
        .add_rules(bound)?
        .restrict_self()
}

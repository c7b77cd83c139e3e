//! bpf(2): maps, programs, links and test runs.
//!
//! A direct interface to the system call, without libbpf and without BTF: the XDP program needs nothing
//! else. Every call needs CAP_BPF, and attaching CAP_NET_ADMIN; the verifier accepts offsets into frames
//! that are not constant only with CAP_PERFMON. Before Linux 5.8, it is CAP_SYS_ADMIN for all. Programs and
//! links are released when their descriptors close, so a process that dies leaves nothing attached.
//!
//! Instructions are words of 64 bits as they are in memory: opcode, registers, offset, immediate.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use super::{Mode, SetupError};

/// Commands of bpf(2).
mod command {
    pub(super) const MAP_CREATE: i32 = 0;
    pub(super) const MAP_LOOKUP_ELEM: i32 = 1;
    pub(super) const MAP_UPDATE_ELEM: i32 = 2;
    pub(super) const PROG_LOAD: i32 = 5;
    pub(super) const PROG_TEST_RUN: i32 = 10;
    pub(super) const OBJ_GET_INFO_BY_FD: i32 = 15;
    pub(super) const LINK_CREATE: i32 = 28;
    pub(super) const LINK_UPDATE: i32 = 29;
}

const KEY_LEN: u32 = size_of::<u32>() as u32;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
const XDP_FLAGS_GENERIC: u32 = 1 << 1;
const XDP_FLAGS_DRIVER: u32 = 1 << 2;
const TEST_RUN_LIVE_FRAMES: u32 = 1 << 1;

const LOG_INSTRUCTIONS: u32 = 1;
/// More than a verifier's last words need. If the log is longer, the kernel keeps its end (6.4 and
/// later) or its beginning.
const LOG_LEN: usize = 1 << 20;

const INSTRUCTION_SOURCE_SHIFT: u32 = 12;
const INSTRUCTION_IMMEDIATE_SHIFT: u32 = 32;
const PSEUDO_MAP_FD: u64 = 1;
const PSEUDO_MAP_VALUE: u64 = 2;

/// A map's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// An array.
    Array,
    /// An array that user space can map into its memory.
    MappableArray,
    /// AF_XDP sockets by queue.
    Sockets,
    /// Network devices by any number, for redirects.
    Devices,
}

/// The properties of a map that [`create_map`] creates. Its keys are numbers of 4 bytes.
#[derive(Clone, Copy, Debug)]
pub struct MapSpec {
    /// Its name for those who list maps: at most 15 letters, digits, dots and underscores.
    pub name: &'static str,
    /// Its kind.
    pub kind: MapKind,
    /// Bytes of a value.
    pub value_len: u32,
    /// Maximum number of entries.
    pub entries: u32,
}

/// The result of an XDP program for a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestRun {
    /// Its return value: an [`action`].
    pub action: u32,
    /// The frame after it.
    pub frame: Vec<u8>,
}

/// Return values of XDP programs.
pub mod action {
    /// The frame is dropped.
    pub const DROP: u32 = 1;
    /// The kernel processes the frame.
    pub const PASS: u32 = 2;
    /// The frame leaves through the interface that it came in by.
    pub const TX: u32 = 3;
    /// The frame goes to another interface or to an AF_XDP socket.
    pub const REDIRECT: u32 = 4;
}

/// Creates a map, filled with zeros.
///
/// # Errors
///
/// `PermissionDenied` without CAP_BPF; otherwise that of bpf(2).
pub fn create_map(spec: &MapSpec) -> io::Result<OwnedFd> {
    const BPF_F_MMAPABLE: u32 = 1 << 10;
    let (map_type, map_flags) = match spec.kind {
        MapKind::Array => (2, 0),
        MapKind::MappableArray => (2, BPF_F_MMAPABLE),
        MapKind::Sockets => (17, 0),
        MapKind::Devices => (14, 0),
    };
    let mut attributes = MapCreate {
        map_type,
        key_len: KEY_LEN,
        value_len: spec.value_len,
        entries: spec.entries,
        map_flags,
        name: object_name(spec.name),
        ..MapCreate::default()
    };
    // SAFETY: the attributes are those of the command and have no pointers.
    unsafe { bpf_descriptor(command::MAP_CREATE, &mut attributes) }
}

/// Sets the value of `key`.
///
/// # Errors
///
/// If there is no such key, or no room for it.
///
/// # Panics
///
/// Panics if `value` is not as long as `spec`, by which the map was made, says.
pub fn update_element(
    map: BorrowedFd<'_>,
    spec: &MapSpec,
    key: u32,
    value: &[u8],
) -> io::Result<()> {
    assert_eq!(value.len(), spec.value_len as usize);
    let mut attributes = Element::new(map, &key, value.as_ptr());
    // SAFETY: key and value live until the call returns, and have the lengths that the kernel reads.
    unsafe { bpf(command::MAP_UPDATE_ELEM, &mut attributes) }.map(drop)
}

/// Reads the value of `key` into `value`.
///
/// # Errors
///
/// `NotFound` if there is none.
///
/// # Panics
///
/// Panics if `value` is not as long as `spec`, by which the map was made, says.
pub fn look_up_element(
    map: BorrowedFd<'_>,
    spec: &MapSpec,
    key: u32,
    value: &mut [u8],
) -> io::Result<()> {
    assert_eq!(value.len(), spec.value_len as usize);
    let mut attributes = Element::new(map, &key, value.as_mut_ptr());
    // SAFETY: key and value live until the call returns, and have the lengths that the kernel reads and
    // writes.
    unsafe { bpf(command::MAP_LOOKUP_ELEM, &mut attributes) }.map(drop)
}

/// The address that an instruction pair loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// The address of the map, as helper functions take it.
    Map,
    /// The address of the value of an array with one entry, plus the number that the pair loads now.
    Value,
}

/// Returns the instructions of a program, each a little-endian word. The instruction pairs at the indexes in
/// `relocations` refer to the maps with these names, which must stay open until the program is loaded.
///
/// # Panics
///
/// Panics if there is no pair at an index.
pub fn link<'a, Name: Copy>(
    program: &[u8],
    relocations: &[(Name, &[usize])],
    map_of: impl Fn(Name) -> (BorrowedFd<'a>, Reference),
) -> Vec<u64> {
    let (words, rest) = program.as_chunks::<8>();
    debug_assert!(rest.is_empty(), "half an instruction");
    let mut instructions: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    for (name, indexes) in relocations {
        let (map, reference) = map_of(*name);
        for index in *indexes {
            relocate(&mut instructions, *index, map, reference);
        }
    }
    instructions
}

/// Makes the instruction pair at `index` (a load of 64 bits) refer to `map`.
fn relocate(instructions: &mut [u64], index: usize, map: BorrowedFd<'_>, reference: Reference) {
    let [first, second] = &mut instructions[index..index + 2] else {
        unreachable!("the range has two elements");
    };
    let (pseudo_source, offset) = match reference {
        Reference::Map => (PSEUDO_MAP_FD, 0),
        Reference::Value => (PSEUDO_MAP_VALUE, *first >> INSTRUCTION_IMMEDIATE_SHIFT),
    };
    let opcode_and_target = *first & 0xfff;
    *first = opcode_and_target
        | pseudo_source << INSTRUCTION_SOURCE_SHIFT
        | u64::from(map.as_raw_fd().cast_unsigned()) << INSTRUCTION_IMMEDIATE_SHIFT;
    *second = offset << INSTRUCTION_IMMEDIATE_SHIFT;
}

/// Loads an XDP program. `name` is for those who list programs: at most 15 letters, digits, dots and
/// underscores. Some helper functions are only for programs whose `license` the kernel counts as
/// compatible with the GPL.
///
/// # Errors
///
/// If the verifier refuses the program, with its reasons, or a right is missing.
pub fn load_program(
    name: &str,
    license: &CStr,
    instructions: &[u64],
) -> Result<OwnedFd, SetupError> {
    load(name, license, instructions, &mut []).or_else(|error| {
        // Only a refused program is worth the time that a log takes.
        let mut log = vec![0; LOG_LEN];
        load(name, license, instructions, &mut log).map_err(|_| refused(&error, text(&log)))
    })
}

fn refused(error: &io::Error, verifier_log: String) -> SetupError {
    let mut reason = format!("the kernel refused the XDP program: {error}");
    // The verifier's reason is in the last line but one; the last one has statistics.
    if let Some(line) = verifier_log.lines().rev().find(|line| !line.starts_with("processed ")) {
        reason = format!("{reason}: {line}");
    }
    SetupError { reason, verifier_log }
}

/// Loads a program. An empty `log` has the verifier write none.
fn load(name: &str, license: &CStr, instructions: &[u64], log: &mut [u8]) -> io::Result<OwnedFd> {
    let mut attributes = ProgLoad {
        prog_type: PROG_TYPE_XDP,
        instruction_count: instructions.len() as u32,
        instructions: address(instructions.as_ptr()),
        license: address(license.as_ptr()),
        log_level: if log.is_empty() { 0 } else { LOG_INSTRUCTIONS },
        log_len: log.len() as u32,
        log: if log.is_empty() { 0 } else { address(log.as_mut_ptr()) },
        name: object_name(name),
        attach_type: ATTACH_TYPE_XDP,
        ..ProgLoad::default()
    };
    // SAFETY: instructions, licence and log live until the call returns; the kernel reads as many
    // instructions as there are, the licence up to its zero, and writes no more than the log holds.
    unsafe { bpf_descriptor(command::PROG_LOAD, &mut attributes) }
}

/// Attaches a program to an interface and returns the link. The program is detached when the link
/// closes. With [`Mode::Auto`] the kernel chooses the driver if that has XDP at all.
///
/// # Errors
///
/// `EBUSY` if the interface has a program; `EOPNOTSUPP` if the driver has no XDP; `ERANGE` or `EINVAL`
/// if it has none with these settings (MTU, queues, LRO).
pub fn attach_xdp(program: BorrowedFd<'_>, ifindex: u32, mode: Mode) -> io::Result<OwnedFd> {
    let mut attributes = LinkCreate {
        program: program.as_raw_fd(),
        ifindex,
        attach_type: ATTACH_TYPE_XDP,
        flags: match mode {
            Mode::Auto => 0,
            Mode::Driver => XDP_FLAGS_DRIVER,
            Mode::Generic => XDP_FLAGS_GENERIC,
        },
    };
    // SAFETY: the attributes are those of the command and have no pointers.
    unsafe { bpf_descriptor(command::LINK_CREATE, &mut attributes) }
}

/// Exchanges the program of a link. Each frame is seen by the old one or by the new one.
///
/// # Errors
///
/// If `link` is no link of an XDP program, or a right is missing.
pub fn update_link(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let mut attributes = LinkUpdate {
        link: link.as_raw_fd(),
        program: program.as_raw_fd(),
        flags: 0,
        old_program: 0,
    };
    // SAFETY: the attributes are those of the command and have no pointers.
    unsafe { bpf(command::LINK_UPDATE, &mut attributes) }.map(drop)
}

/// Returns the index of the interface that a link attaches its program to; 0 if it is gone. Fails with `InvalidInput`
/// if the descriptor is no link of an XDP program.
pub(super) fn link_ifindex(link: BorrowedFd<'_>) -> io::Result<u32> {
    const LINK_TYPE_XDP: u32 = 6;
    let mut info = LinkInfo::default();
    let mut attributes = GetInfo {
        object: link.as_raw_fd(),
        info_len: size_of::<LinkInfo>() as u32,
        info: address(ptr::from_mut(&mut info)),
    };
    // SAFETY: the structure lives until the call returns, and the kernel writes no more than its length.
    unsafe { bpf(command::OBJ_GET_INFO_BY_FD, &mut attributes) }?;
    if info.link_type == LINK_TYPE_XDP {
        Ok(info.ifindex)
    } else {
        Err(io::ErrorKind::InvalidInput.into())
    }
}

/// Runs a program on a frame of at least 14 bytes. Redirects go nowhere. The frame comes in by queue 0 of the loopback device.
///
/// # Errors
///
/// `InvalidInput` if the frame is too short or too long; otherwise that of bpf(2).
pub fn test_run(program: BorrowedFd<'_>, frame: &[u8]) -> io::Result<TestRun> {
    // A program may have made it longer.
    let mut out = vec![0; frame.len() + 256];
    let mut attributes = ProgTestRun {
        program: program.as_raw_fd(),
        data_len_in: frame.len() as u32,
        data_len_out: out.len() as u32,
        data_in: address(frame.as_ptr()),
        data_out: address(out.as_mut_ptr()),
        repeat: 1,
        ..ProgTestRun::default()
    };
    // SAFETY: frame and output live until the call returns; the kernel reads and writes no more bytes
    // than the lengths say.
    unsafe { bpf(command::PROG_TEST_RUN, &mut attributes) }?;
    out.truncate(attributes.data_len_out as usize);
    Ok(TestRun { action: attributes.result, frame: out })
}

/// Runs a program on `repeat` copies of a frame, which really go where the program sends them: this is
/// the kernel's packet generator. The kernel takes up to `batch` frames (at most 256) at a time, and
/// keeps this thread until all are through.
///
/// Frames are recycled: the program must write all that it expects to find in them.
///
/// # Errors
///
/// `Interrupted` if a signal arrived; the frames up to then are through. `InvalidInput` before Linux
/// 5.18.
pub fn run_live(program: BorrowedFd<'_>, frame: &[u8], repeat: u32, batch: u32) -> io::Result<()> {
    let mut attributes = ProgTestRun {
        program: program.as_raw_fd(),
        data_len_in: frame.len() as u32,
        data_in: address(frame.as_ptr()),
        repeat,
        flags: TEST_RUN_LIVE_FRAMES,
        batch_len: batch,
        ..ProgTestRun::default()
    };
    // SAFETY: the frame lives until the call returns; the kernel reads no more bytes than its length.
    unsafe { bpf(command::PROG_TEST_RUN, &mut attributes) }.map(drop)
}

/// The attributes of `MAP_CREATE`, as far as Linux 5.10 has them. The layout of all of these structures
/// is that of `union bpf_attr`.
#[derive(Default)]
#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_len: u32,
    value_len: u32,
    entries: u32,
    map_flags: u32,
    inner_map: u32,
    numa_node: u32,
    name: [u8; 16],
}

#[repr(C)]
struct Element {
    map: i32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl Element {
    fn new(map: BorrowedFd<'_>, key: &u32, value: *const u8) -> Self {
        Self {
            map: map.as_raw_fd(),
            padding: 0,
            key: address(ptr::from_ref(key)),
            value: address(value),
            flags: 0,
        }
    }
}

#[derive(Default)]
#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_len: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    ifindex: u32,
    attach_type: u32,
}

#[derive(Default)]
#[repr(C)]
struct ProgTestRun {
    program: i32,
    result: u32,
    data_len_in: u32,
    data_len_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration_ns: u32,
    context_len_in: u32,
    context_len_out: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch_len: u32,
    padding: u32,
}

#[repr(C)]
struct LinkCreate {
    program: i32,
    ifindex: u32,
    attach_type: u32,
    flags: u32,
}

#[repr(C)]
struct GetInfo {
    object: i32,
    info_len: u32,
    info: u64,
}

/// `struct bpf_link_info` of a link of an XDP program.
#[derive(Default)]
#[repr(C)]
struct LinkInfo {
    link_type: u32,
    id: u32,
    program_id: u32,
    padding: u32,
    ifindex: u32,
    rest: [u32; 3],
}

#[repr(C)]
struct LinkUpdate {
    link: i32,
    program: i32,
    flags: u32,
    old_program: u32,
}

/// Calls bpf(2).
///
/// # Safety
///
/// `attributes` must be those of `command`, without padding, and what they point to must be valid for
/// the lengths in them.
unsafe fn bpf<T>(command: i32, attributes: &mut T) -> io::Result<i32> {
    // SAFETY: the kernel reads and writes no more than the length of the attributes; the rest is the
    // caller's promise.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            ptr::from_mut(attributes).cast::<c_void>(),
            size_of::<T>(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

/// Calls bpf(2) with a command that returns a descriptor. The kernel sets close-on-exec.
///
/// # Safety
///
/// As for [`bpf`].
unsafe fn bpf_descriptor<T>(command: i32, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let descriptor = unsafe { bpf(command, attributes) }?;
    // SAFETY: the kernel returned a new descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

/// Returns a name as the kernel wants it: up to 15 bytes, then zeros.
fn object_name(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (to, from) in bytes.iter_mut().take(15).zip(name.bytes()) {
        *to = from;
    }
    bytes
}

/// Returns the text before the first zero.
pub(super) fn text(bytes: &[u8]) -> String {
    let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..len]).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_programs_come_with_the_reason() {
        // Returns without a result.
        let exit = 0x95;
        let error = load_program("bad", c"Dual MIT/GPL", &[exit]).unwrap_err();
        if error.reason.contains("not permitted") {
            println!(
                "skipped: refused_programs_come_with_the_reason needs CAP_BPF and CAP_NET_ADMIN"
            );
            return;
        }
        assert!(error.reason.ends_with("R0 !read_ok"), "{error}: {}", error.verifier_log);
    }
}

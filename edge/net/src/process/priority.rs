//! Priorities of threads on busy cores. Linux.
//!
//! The scheduler considers two values. The nice value of a thread determines its share of a core. The
//! time slice that it requests determines its latency: a thread that wakes preempts one with a longer
//! slice, but has to wait for one with the same slice until that slice ends, or until the next tick
//! of the system, milliseconds later. Linux before 6.12 does not support slices of threads.
#![allow(unsafe_code)]

use std::io;
use std::mem::size_of;
use std::time::Duration;

/// Added to the nice value of low-priority threads. On a busy core such a thread gets a tenth of the
/// time of another one: little, but it makes progress.
const NICE_OFFSET: i32 = 10;
/// The slice of high-priority threads. Shorter than the system's slices, but longer than a batch of
/// requests takes, since these threads share cores with each other, too.
const SHORT_SLICE: Duration = Duration::from_micros(500);

/// Raises the priority of the calling thread, and of threads that it starts later: they get a core as
/// soon as they wake, before threads without this priority.
///
/// # Errors
///
/// If the system does not permit it.
pub fn raise_priority() -> io::Result<()> {
    change(|attributes| attributes.sched_runtime = SHORT_SLICE.as_nanos() as u64)
}

/// Lowers the priority of the calling thread, and of threads that it starts later: the process's other
/// threads run first.
///
/// # Errors
///
/// If the system does not permit it; all threads have equal shares then.
pub fn lower_priority() -> io::Result<()> {
    change(|attributes| {
        attributes.sched_nice = (attributes.sched_nice + NICE_OFFSET).min(19);
        // The system's default.
        attributes.sched_runtime = 0;
    })
}

/// Changes the attributes of the calling thread if it has a normal scheduling policy. If the operator has
/// chosen a real-time or idle policy for the process, the attributes are left unchanged.
fn change(change: impl FnOnce(&mut libc::sched_attr)) -> io::Result<()> {
    let mut attributes = attributes()?;
    if ![libc::SCHED_OTHER, libc::SCHED_BATCH].contains(&(attributes.sched_policy as libc::c_int)) {
        return Ok(());
    }
    change(&mut attributes);
    // SAFETY: 0 is the calling thread; the attributes say their size, and are only read.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the attributes of the calling thread.
fn attributes() -> io::Result<libc::sched_attr> {
    let size = size_of::<libc::sched_attr>() as u32;
    let mut attributes = libc::sched_attr {
        size,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: 0 is the calling thread; the kernel writes at most `size` bytes, the structure's length.
    let done = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if done == 0 { Ok(attributes) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Returns the nice value and the slice of the calling thread.
    fn own() -> (i32, u64) {
        let attributes = attributes().unwrap();
        (attributes.sched_nice, attributes.sched_runtime)
    }

    #[test]
    fn priorities_are_inherited_by_started_threads_only() {
        let before = own();
        let seen = thread::spawn(|| {
            raise_priority().unwrap();
            let raised = own();
            lower_priority().unwrap();
            [raised, own(), thread::spawn(own).join().unwrap()]
        });
        let [raised, lowered, started] = seen.join().unwrap();
        assert_eq!(raised.0, before.0);
        // Unchanged on systems without slices.
        assert!([before.1, SHORT_SLICE.as_nanos() as u64].contains(&raised.1), "{raised:?}");
        let behind = ((before.0 + NICE_OFFSET).min(19), before.1);
        assert_eq!([lowered, started], [behind; 2]);
        assert_eq!(own(), before);
    }
}

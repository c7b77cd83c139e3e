//! Which threads go first when a core has too much to do. Linux.
//!
//! Two things decide that. How nice a thread is says how much of a core it gets beside others. The slice
//! that it asks for says how soon: a thread that wakes takes the core from one with a longer slice, while one
//! with the same slice keeps it until its own is over, or until the next tick of the system, milliseconds
//! later. Systems before Linux 6.12 know no slices of threads.
#![allow(unsafe_code)]

use std::io;
use std::mem::size_of;
use std::time::Duration;

/// How much nicer than the process a thread is that steps back: where there is not enough for all, it gets a
/// tenth of what one of the others gets, which is little, but goes on.
const NICE_OFFSET: i32 = 10;
/// A fraction of the system's own slices, and more than a batch of requests takes, since those that go first
/// share cores with each other, too.
const SHORT_SLICE: Duration = Duration::from_micros(500);

/// Has the calling thread, and those that it starts from now on, get a core as soon as they have something
/// to do, if others there ask for no such thing. An error if the system does not permit that.
pub fn raise_priority() -> io::Result<()> {
    change(|attributes| attributes.sched_runtime = SHORT_SLICE.as_nanos() as u64)
}

/// Has the calling thread, and those that it starts from now on, leave its core to the process's other
/// threads while these have something to do. An error if the system does not permit that: then all
/// share it evenly.
pub fn lower_priority() -> io::Result<()> {
    change(|attributes| {
        attributes.sched_nice = (attributes.sched_nice + NICE_OFFSET).min(19);
        // The system's own.
        attributes.sched_runtime = 0;
    })
}

/// Changes attributes of the calling thread, if it is among those that share cores evenly. Where somebody has
/// given the process a real-time policy, or one for idle times only, that stays as it is.
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

/// Those of the calling thread.
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
    // SAFETY: 0 is the calling thread; there is room for as many bytes as it is told.
    let done = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if done == 0 { Ok(attributes) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// How nice the calling thread is, and the slice that it has.
    fn own() -> (i32, u64) {
        let attributes = attributes().unwrap();
        (attributes.sched_nice, attributes.sched_runtime)
    }

    #[test]
    fn a_thread_that_steps_back_takes_along_those_that_it_starts_and_no_other() {
        let before = own();
        let behind = ((before.0 + NICE_OFFSET).min(19), before.1);
        let seen = thread::spawn(|| {
            raise_priority().unwrap();
            lower_priority().unwrap();
            [own(), thread::spawn(own).join().unwrap()]
        });
        assert_eq!(seen.join().unwrap(), [behind; 2]);
        assert_eq!(own(), before);
    }

    #[test]
    fn a_thread_that_goes_first_is_as_nice_as_before() {
        let (nice, slice) = own();
        let (nice_then, slice_then) = thread::spawn(|| {
            raise_priority().unwrap();
            own()
        })
        .join()
        .unwrap();
        assert_eq!(nice_then, nice);
        // Where slices are not known, there is nothing to see.
        assert!(slice_then == slice || slice_then == SHORT_SLICE.as_nanos() as u64, "{slice_then}");
    }
}

//! Socket options that neither the standard library nor `socket2` supports.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Sets an option of type `int`. `level` and `name` are constants of libc.
pub(crate) fn set(socket: &impl AsFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as `socket` is borrowed; the kernel reads
    // `size_of::<i32>()` bytes from `value`, which lives until the call returns.
    let status = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option that is an array of 32-bit numbers into `values`, and returns the length that the kernel reports.
/// `level` and `name` are constants of libc.
pub(crate) fn get(
    socket: &impl AsFd,
    level: i32,
    name: i32,
    values: &mut [u32],
) -> io::Result<usize> {
    let mut len = size_of_val(values) as libc::socklen_t;
    // SAFETY: the descriptor is open for as long as `socket` is borrowed; the kernel writes at most `len` bytes to
    // `values`, which any bytes are valid for, and the length to `len`.
    let status = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            values.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if status == 0 { Ok(len as usize) } else { Err(io::Error::last_os_error()) }
}

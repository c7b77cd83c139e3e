//! The bytes that a connection has to keep: input that is not a whole request or frame yet, and
//! output that its socket does not take yet. Both are empty, and hold no memory, most of the time.

use std::io;
use std::mem::take;

use crate::stream::Stream;

/// Input that is not consumed yet.
#[derive(Debug, Default)]
pub(crate) struct InputBuffer(Vec<u8>);

impl InputBuffer {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Passes all input to `parse`: what was kept, then `fresh`. `parse` returns how many bytes it
    /// has consumed, and a result. The rest is kept. Nothing is copied if nothing was kept and all
    /// is consumed, as is usual.
    pub(crate) fn feed<T>(
        &mut self,
        fresh: &mut [u8],
        parse: impl FnOnce(&mut [u8]) -> (usize, T),
    ) -> T {
        if self.0.is_empty() {
            let (consumed, result) = parse(fresh);
            if consumed != fresh.len() {
                self.0.extend_from_slice(&fresh[consumed..]);
            }
            return result;
        }
        let mut input = take(&mut self.0);
        input.extend_from_slice(fresh);
        let (consumed, result) = parse(&mut input);
        if consumed != input.len() {
            input.drain(..consumed);
            // A few bytes must not hold the memory of a long message.
            if input.len() < input.capacity() / 4 {
                input.shrink_to_fit();
            }
            self.0 = input;
        }
        result
    }
}

/// The result of a write that does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    /// All bytes have left.
    Done,
    /// The socket takes no more for now.
    Blocked,
}

/// Writes until all of `bytes`, and all that TLS has sealed before, has left, or the socket is full.
/// Returns how many of `bytes` were taken.
pub(crate) fn write_now(stream: &impl Stream, bytes: &[u8]) -> io::Result<(usize, WriteOutcome)> {
    let mut sent = 0;
    loop {
        let left = &bytes[sent..];
        if left.is_empty() && !stream.is_pending() {
            return Ok((sent, WriteOutcome::Done));
        }
        match stream.write_now(left) {
            Ok(len) => sent += len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok((sent, WriteOutcome::Blocked));
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_is_kept_until_it_is_consumed() {
        let mut input = InputBuffer::default();
        for (fresh, consumed, all) in [
            ("one", 3, "one"),
            ("two", 1, "two"),
            ("", 0, "wo"),
            (" three", 2, "wo three"),
            ("", 6, " three"),
        ] {
            let passed = input.feed(&mut fresh.as_bytes().to_vec(), |all| (consumed, all.to_vec()));
            assert_eq!(passed, all.as_bytes());
        }
        assert!(input.is_empty() && input.0.capacity() == 0);
    }
}

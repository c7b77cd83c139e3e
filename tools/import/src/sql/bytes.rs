//! Bytes of a file that may be larger than the memory, one after the other, with the number of the line.

use std::io::Read;
use std::sync::Arc;

use memchr::memchr;

use crate::error::{ImportError, Place};

const BUFFER: usize = 64 * 1024;
pub(crate) struct Bytes<R> {
    input: R,
    file: Arc<str>,
    buffer: Box<[u8]>,
    at: usize,
    len: usize,
    line: u64,
}

impl<R: Read> Bytes<R> {
    pub(crate) fn new(input: R, file: &Arc<str>) -> Self {
        Self {
            input,
            file: Arc::clone(file),
            buffer: vec![0; BUFFER].into_boxed_slice(),
            at: 0,
            len: 0,
            line: 1,
        }
    }

    /// Returns the present place.
    pub(crate) fn place(&self) -> Place {
        Place { file: Arc::clone(&self.file), line: self.line }
    }

    /// Returns the bytes that are in memory; none at the end of the file.
    pub(crate) fn buffered(&mut self) -> Result<&[u8], ImportError> {
        if self.at == self.len {
            self.fill()?;
        }
        Ok(self.rest())
    }

    fn rest(&self) -> &[u8] {
        self.buffer.get(self.at..self.len).unwrap_or_default()
    }

    fn fill(&mut self) -> Result<(), ImportError> {
        (self.at, self.len) = (0, 0);
        loop {
            match self.input.read(&mut self.buffer) {
                Ok(len) => {
                    self.len = len;
                    return Ok(());
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.place().error(format_args!("cannot read: {error}"))),
            }
        }
    }

    /// Returns the next byte without passing it.
    pub(crate) fn peek(&mut self) -> Result<Option<u8>, ImportError> {
        Ok(self.buffered()?.first().copied())
    }

    /// Passes the next byte and returns it.
    pub(crate) fn bump(&mut self) -> Result<Option<u8>, ImportError> {
        let byte = self.peek()?;
        if let Some(byte) = byte {
            self.at += 1;
            self.line += u64::from(byte == b'\n');
        }
        Ok(byte)
    }

    /// Passes `count` bytes of those in memory.
    pub(crate) fn pass(&mut self, count: usize) {
        let count = count.min(self.len - self.at);
        let passed = self.rest().get(..count).unwrap_or_default();
        self.line += memchr::memchr_iter(b'\n', passed).count() as u64;
        self.at += count;
    }

    /// Passes the rest of the line and returns its first `keep` bytes; `None` at the end of the file.
    pub(crate) fn line(&mut self, keep: usize) -> Result<Option<Vec<u8>>, ImportError> {
        let mut line = Vec::new();
        loop {
            let buffered = self.buffered()?;
            if buffered.is_empty() {
                return Ok((!line.is_empty()).then_some(line));
            }
            let end = memchr(b'\n', buffered);
            let count = end.unwrap_or(buffered.len());
            let room = keep.saturating_sub(line.len());
            line.extend(buffered.iter().take(count.min(room)));
            self.pass(count + usize::from(end.is_some()));
            if end.is_some() {
                return Ok(Some(line));
            }
        }
    }
}

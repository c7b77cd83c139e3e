//! The front through real sockets: a worker serves, and blocking clients speak to it. Requests and most
//! messages are put together byte by byte, so that the codec does not check itself. Deadlines are
//! generous; a test waits for what it needs, and never for a time to pass.
#![expect(clippy::unwrap_used, reason = "a failure anywhere in here is a test's failure")]

extern crate tidegate_front as front;

mod http;
mod quiet;
mod site;
mod testing;
mod tls;
mod udp;
mod webtorrent;

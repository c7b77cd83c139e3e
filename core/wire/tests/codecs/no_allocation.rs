//! No request of any protocol makes a codec allocate. Allocations are counted for each thread.

mod http;
mod udp;
mod web;

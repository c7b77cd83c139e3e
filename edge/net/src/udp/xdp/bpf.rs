//! bpf(2): maps, programs, links.

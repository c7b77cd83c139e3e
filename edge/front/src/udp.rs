//! UDP (BEP 15): batches of datagrams from [`net`]'s engines, through `wire::udp`, to the tracker.

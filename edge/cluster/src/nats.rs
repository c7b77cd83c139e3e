//! The driver: NATS behind the seam of [`crate::Node`].

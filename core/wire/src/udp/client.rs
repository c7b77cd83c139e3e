//! The client's side: requests written, answers read.

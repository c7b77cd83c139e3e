//! UNIT3D: its tables and its calls. The site keeps its code: `TRACKER_HOST`, `TRACKER_PORT` and `TRACKER_KEY` name this
//! tracker.

pub(crate) mod calls;
pub(crate) mod load;
pub(crate) mod tables;

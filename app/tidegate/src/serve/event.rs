//! Events that wake the main thread.

use admin::Command;

use super::module::Notice;
use super::reload::ReadOutcome;
use super::workers::ThreadExit;

pub(super) enum Event {
    Signal(i32),
    /// A reload has read its files.
    Read(ReadOutcome),
    /// The id of the new process, which serves now; or why it does not.
    NewProcess(Result<u32, String>),
    ThreadExit(ThreadExit),
    Command(Command),
    Notice(Notice),
}

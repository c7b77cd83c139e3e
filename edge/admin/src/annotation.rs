//! Annotations: what happened to the tracker, shown beside statistics and kept in the records.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Annotations kept, in memory and in the records.
pub(crate) const ANNOTATIONS_MAX: usize = 500;

/// Subject of an annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnnotationKind {
    /// The tracker started.
    Start,
    /// The tracker was stopped.
    Stop,
    /// A new process took over without downtime.
    Upgrade,
    /// Configuration, lists and certificates were reloaded.
    Reload,
    /// A reload failed; the previous configuration stayed in force.
    ReloadFailed,
    /// Many networks were banned automatically within a minute.
    BanWave,
    /// The records could not be written.
    RecordsFailed,
    /// The journal of swarms could not be written.
    JournalFailed,
}

/// Something that happened, to be shown beside statistics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Annotation {
    /// Unix time, seconds.
    pub time: u64,
    /// Subject of the annotation.
    pub kind: AnnotationKind,
    /// Description of the event in a few words.
    pub text: String,
}

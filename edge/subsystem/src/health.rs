//! What an operator should know, in sentences: what is wrong, and what to do.

use serde::Serialize;
use utoipa::ToSchema;

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// All is well.
    Ok,
    /// Worth knowing.
    Info,
    /// Works, but will not for long, or not after a restart.
    Warning,
    /// Something does not work.
    Error,
}

/// What something is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names of the parts of a tracker")]
pub enum HealthArea {
    Listeners,
    Records,
    Journal,
    Cluster,
    Certificates,
    Memory,
    Config,
    Upgrade,
    Xdp,
    Site,
}

/// Something that an operator should know.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct HealthItem {
    /// How bad it is.
    pub level: Level,
    /// What it is about.
    pub area: HealthArea,
    /// What is wrong.
    pub text: String,
    /// What to do; null if the text says it, or if there is nothing to do.
    pub remedy: Option<String>,
}

impl HealthItem {
    /// Returns an item without a remedy.
    pub fn new(level: Level, area: HealthArea, text: impl Into<String>) -> Self {
        Self { level, area, text: text.into(), remedy: None }
    }

    /// Adds what to do.
    #[must_use]
    pub fn with_remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }
}

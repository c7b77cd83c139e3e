//! Sentences for operators: what is wrong, and what to do.

use serde::Serialize;
use utoipa::ToSchema;

/// The severity of something.
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

/// A part of the tracker that something is about.
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
    Lists,
}

/// The findings of a check of a configuration: sentences.
#[derive(Debug, Default)]
pub struct Findings {
    /// Reasons why this machine cannot serve the configuration as it says.
    pub problems: Vec<String>,
    /// Reasons why it works, but not as it should.
    pub warnings: Vec<String>,
    /// Ports that a running tidegate has, because the configuration may be meant for its next start or reload, and
    /// facts about the machine.
    pub notes: Vec<String>,
}

/// Something that an operator should know.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct HealthItem {
    /// The severity.
    pub level: Level,
    /// The part of the tracker that it is about.
    pub area: HealthArea,
    /// The sentence: what is wrong.
    pub text: String,
    /// The remedy; null if the text says it, or if nothing can be done.
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

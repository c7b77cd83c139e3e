//! What the API asks of the application: its configuration, its files, its log. The application takes
//! commands one by one, when it comes to it, and answers each through its own channel.

use serde::Serialize;
use serde_json::Value;
use tokio::sync::oneshot;
use utoipa::ToSchema;

use crate::log_levels::LogLevels;

/// An order, with where the answer goes. Who has given up waiting does not hear it.
pub enum Command {
    /// Say what is configured.
    Settings(oneshot::Sender<Vec<Setting>>),
    /// Read configuration, lists and certificates again, and put them in force: all or nothing.
    Reload(oneshot::Sender<Result<ReloadOutcome, Vec<String>>>),
    /// The same with these values, as JSON, before those of file and environment; `dry_run` puts
    /// nothing in force.
    SetOverrides {
        /// By the names of keys.
        values: Vec<(String, Value)>,
        /// Whether only to see if it would be good.
        dry_run: bool,
        /// What came of it, or the sentences that say what is wrong.
        reply: oneshot::Sender<Result<ReloadOutcome, Vec<String>>>,
    },
    /// Read lists and certificates again.
    ReloadFiles(oneshot::Sender<Result<(), Vec<String>>>),
    /// Set the levels of the log until the next reload, if there are some; and say what they are.
    LogLevels(Option<LogLevels>, oneshot::Sender<LogLevels>),
}

/// A key of the configuration.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Setting {
    /// `section.key`.
    pub name: String,
    /// What is in force.
    #[schema(value_type = Value)]
    pub value: Value,
    /// Where that comes from: `default`, `FILE:LINE`, a variable of the environment, or `api`.
    pub origin: String,
    /// Whether it can be changed while serving.
    pub reloadable: bool,
}

/// What a reload has come to.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct ReloadOutcome {
    /// Keys whose new values are in force.
    pub changed: Vec<String>,
    /// Keys whose new values need a restart or an upgrade.
    pub needs_restart: Vec<String>,
}

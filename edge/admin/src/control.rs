//! Commands that the API sends to the application, about configuration, files and log levels. The
//! application handles them one by one and replies to each through the channel inside it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::log_levels::LogLevels;
use utoipa::ToSchema;

/// A command, with the channel for its reply if it has one. The reply is dropped if the requester no longer waits.
pub enum Command {
    /// Returns the settings in force.
    Settings(oneshot::Sender<Settings>),
    /// Reloads configuration, lists and certificates: all of them, or nothing if one is wrong.
    Reload(oneshot::Sender<Result<ReloadOutcome, Vec<String>>>),
    /// Reloads with these values overriding the file and the environment. With `dry_run` they are only
    /// validated.
    SetOverrides {
        /// JSON values by setting name.
        values: Vec<(String, Value)>,
        /// True to validate only.
        dry_run: bool,
        /// Receives the outcome, or a sentence for each mistake.
        reply: oneshot::Sender<Result<ReloadOutcome, Vec<String>>>,
    },
    /// Reloads lists and certificates.
    ReloadFiles(oneshot::Sender<Result<ReloadOutcome, Vec<String>>>),
    /// Drops what a node of the cluster sends from now on, or no longer. [`crate::ignored_nodes`] returns those
    /// ignored at the start.
    NodeIgnored {
        /// Its number.
        node: u8,
        /// True if it is ignored.
        is_ignored: bool,
    },
    /// Returns the secrets of the cluster after a step of their change, as JSON to be recorded; or why it cannot be made.
    ChangeSecret {
        /// The step.
        step: SecretStep,
        /// Receives the secrets, or a sentence.
        reply: oneshot::Sender<Result<String, String>>,
    },
    /// The secrets of the cluster are recorded, as JSON. [`crate::Records::cluster_secrets`] returns those at the start.
    SecretsRecorded(String),
    /// Ends readiness, waits until clients have moved to other nodes, and stops. The reply is sent when that begins.
    Drain {
        /// Seconds after which it stops in any case.
        for_s: u32,
        /// Receives nothing.
        reply: oneshot::Sender<()>,
    },
    /// Sets the log levels until the next reload, if given, and returns those in force.
    LogLevels(Option<LogLevels>, oneshot::Sender<LogLevels>),
    /// Starts a new process that takes over. The reply is sent when that begins; it is a sentence if that is
    /// impossible now.
    Upgrade(oneshot::Sender<Result<(), String>>),
}

/// A step of a change of the cluster's secret.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretStep {
    /// The number of the new secret: one more than that of the present one.
    #[schema(minimum = 1)]
    pub number: u32,
    /// The new secret, 64 hex digits.
    #[schema(pattern = "^[0-9a-fA-F]{64}$")]
    pub secret: String,
    /// false: all nodes accept the secret. true: they issue by it, and accept the old one for as long as clients and the
    /// log need it.
    pub issue: bool,
}

/// The configuration in force.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Settings {
    /// Every key, in the order of the sections.
    pub settings: Vec<Setting>,
    /// Every section.
    pub sections: Vec<SettingSection>,
}

/// A section of the configuration.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SettingSection {
    /// Its name, as between brackets.
    pub name: String,
    /// Description of its keys.
    pub help: String,
}

/// A configuration key.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Setting {
    /// `section.key`.
    pub name: String,
    /// The value in force.
    #[schema(value_type = Value)]
    pub value: Value,
    /// Where the value comes from: `default`, `FILE:LINE`, an environment variable, or `api`.
    pub origin: String,
    /// True if it can be changed without a restart.
    pub reloadable: bool,
    /// The section it belongs to.
    pub section: String,
    /// Description of the key.
    pub help: String,
    /// The value without configuration.
    #[schema(value_type = Value)]
    pub default: Value,
    /// The type of its values.
    pub kind: SettingKind,
    /// The smallest integer; absent if the value is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<u32>,
    /// The largest integer; absent if the value is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// True if it may also be the text `auto`.
    pub accepts_auto: bool,
    /// The texts that it may be; absent if the kind is not `choice`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choices: Option<Vec<String>>,
    /// True if a `[[listener]]` table can override it.
    pub per_listener: bool,
    /// The value that takes effect after a restart or an upgrade; absent if it is the one in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub pending: Option<Value>,
}

/// The type of a setting's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SettingKind {
    /// An integer from `min` to `max`.
    Integer,
    /// true or false.
    Boolean,
    /// Any text.
    Text,
    /// One of `choices`.
    Choice,
    /// A list of texts.
    List,
    /// A list of objects with the texts `chain` and `key`, both paths.
    Certificates,
}

/// The outcome of a reload.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct ReloadOutcome {
    /// Keys whose new values were applied.
    pub changed: Vec<String>,
    /// Keys whose new values take effect after a restart or an upgrade.
    pub needs_restart: Vec<String>,
}

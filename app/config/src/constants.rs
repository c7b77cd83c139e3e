//! Keys of earlier versions that are no longer settings.
//!
//! A configuration that still has one is valid: the value is ignored, with a warning that names the key and the value
//! in use. Tests that need another value set the variable [`UNSTABLE`], which makes constants of the table settings
//! again. What a constant is called and whether it exists may change with every version.

use super::key::{Key, Origin, PerListener, Problem};
use super::setting::{AnySetting, toml};

/// The variable that lets tests change constants.
const UNSTABLE: &str = "TIDEGATE_UNSTABLE_KEYS";

/// Constants whose value depends on other keys, with a description of it.
const DERIVED: [(&str, &str); 8] = [
    ("tracker.peer_lifetime_s", "one and a half times tracker.interval_s"),
    ("limits.announces_burst", "a hundred times limits.announces_per_s"),
    ("limits.scrapes_burst", "a hundred times limits.scrapes_per_s"),
    ("limits.connects_burst", "a hundred times limits.connects_per_s"),
    ("state.swarms_mib", "four times limits.memory_mib, at least 512,"),
    ("process.group", "the group of process.user"),
    ("tls.acme.cache", "the folder acme/ in state.dir"),
    (
        "tls.acme.challenge",
        "tls-alpn-01, or http-01 if tidegate listens on port 80 and not on 443,",
    ),
];

/// Keys whose code is gone as well, with the value that they had by default. None of them can be set by the API or for
/// one listener.
const GONE: [(&str, &str); 2] = [("udp.pin_cores", "false"), ("udp.steer_by_core", "false")];

/// Returns true if the environment lets constants be changed.
pub(super) fn are_settable(environment: &[(String, String)]) -> bool {
    environment.iter().any(|(name, value)| name == UNSTABLE && value == "1")
}

/// Returns the warning that a constant has been set. `in_use` is its default.
pub(super) fn warning(in_use: &dyn AnySetting, origin: &Origin) -> Problem {
    let name = in_use.key().name;
    let derived = DERIVED.iter().find(|(derived, _)| *derived == name);
    let value = derived.map_or_else(|| toml(&in_use.json()), |(_, value)| (*value).to_owned());
    no_setting(name, &value, origin)
}

/// Returns the warning that a key whose code is gone has been set, if `name` is one.
pub(super) fn gone(name: &str, origin: &Origin) -> Option<Problem> {
    let (name, value) = GONE.iter().find(|(gone, _)| *gone == name)?;
    Some(no_setting(name, value, origin))
}

fn no_setting(name: &str, value: &str, origin: &Origin) -> Problem {
    Problem::new(origin, format!("{name} {NO_SETTING}: remove it; {value} is used"))
}

/// The part of these warnings by which they are recognised. `tidegate-import` knows it, too.
const NO_SETTING: &str = "is no longer a setting";

/// Returns true if a warning says that a key in the file is no longer a setting.
pub(super) fn is_in_file(warning: &Problem) -> bool {
    warning.is_in_file() && warning.text().contains(NO_SETTING)
}

/// Returns a warning if a `[[listener]]` table should not override this key.
pub(super) fn listener_warning(key: &Key, origin: &Origin) -> Option<Problem> {
    (key.per_listener == PerListener::Deprecated).then(|| {
        let text = format!(
            "{} in a [[listener]] is deprecated: set it in [{}] for all listeners, or serve this one by a tidegate of \
             its own",
            key.name,
            key.section()
        );
        Problem::new(origin, text)
    })
}

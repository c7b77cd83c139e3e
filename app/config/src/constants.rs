//! Keys of earlier versions that are no longer settings.
//!
//! A configuration that still has one is valid: the value is ignored, with a warning that names the key and the value
//! in use. Tests that need another value set the variable [`UNSTABLE`], which makes constants of the table settings
//! again. What a constant is called and whether it exists may change with every version.

use super::key::{Key, Origin, PerListener, Problem};
use super::setting::{AnySetting, toml};

/// The variable that lets tests change constants.
const UNSTABLE: &str = "TIDEGATE_UNSTABLE_KEYS";

const DERIVED: [(&str, &str); 10] = [
    ("tracker.peer_lifetime_s", "one and a half times tracker.interval_s"),
    ("tracker.interval_jitter_s", "a twentieth of tracker.interval_s"),
    ("tracker.external_address_for", "every private, loopback and link-local network"),
    ("limits.scrapes_per_s", "limits.announces_per_s, at least 500,"),
    ("limits.connects_per_s", "four times limits.announces_per_s, at least 2000,"),
    ("limits.announces_burst", "a hundred times limits.announces_per_s"),
    ("limits.scrapes_burst", "a hundred times limits.scrapes_per_s"),
    ("limits.connects_burst", "a hundred times limits.connects_per_s"),
    ("tls.acme.cache", "the folder acme/ in state.dir"),
    (
        "tls.acme.challenge",
        "tls-alpn-01, or http-01 if tidegate listens on port 80 and not on 443,",
    ),
];

/// Keys that tests cannot set either, with the value that they had by default.
const GONE: [(&str, &str); 36] = [
    ("access.jwt_verify_per_s", "2000"),
    ("access.torrent_names_mib", "64"),
    ("bans.bad_connection_ids_per_min", "0"),
    ("cluster.relay_mib_per_s", "32"),
    ("cluster.zone", "the zone of the join file"),
    ("geo.metrics_max", "20"),
    ("http.connections_per_network_percent", "20"),
    ("http.connections_per_prefix_max", "5000"),
    ("http.full_scrape_interval_s", "300"),
    ("http.full_scrapes_per_hour", "60"),
    ("http.idle_timeout_s", "60"),
    ("http.read_memory_mib", "8"),
    ("http.unsent_memory_mib", "32"),
    ("http.websocket_idle_timeout_s", "110"),
    ("http.websocket_paths", "every path"),
    ("http.websocket_message_bytes", "131072"),
    ("http.websocket_message_timeout_s", "20"),
    ("http.websocket_offer_bytes_per_s", "65536"),
    ("http.websocket_ping_s", "45"),
    ("http.websocket_send_buffer_bytes", "262144"),
    ("http.websocket_torrents_max", "10000"),
    ("http.write_timeout_s", "20"),
    ("limits.buckets", "65536"),
    ("limits.prefix_v4_bits", "32"),
    ("process.group", "the group of process.user"),
    ("state.swarms_mib", "four times limits.memory_mib, at least 512,"),
    ("tls.acme.contact", "no address"),
    ("tls.acme.terms_of_service_agreed", "true"),
    ("trace.endpoint", "\"\""),
    ("trace.sample_per_million", "100000"),
    ("tracker.connection_id_lifetime_s", "120"),
    ("tracker.numwant_default", "50"),
    ("udp.pin_cores", "false"),
    ("udp.simple_proxy", "true with udp.trusted_proxies, and false without,"),
    ("udp.steer_by_core", "false"),
    ("xdp.zero_copy", "false"),
];

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

pub(super) fn is_gone(name: &str) -> bool {
    GONE.iter().any(|(gone, _)| *gone == name)
}

pub(super) fn is_gone_section(name: &str) -> bool {
    name == "trace"
}

/// Returns the warning that a key of [`GONE`] has been set, if `name` is one.
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

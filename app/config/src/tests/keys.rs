//! Tests of the table of keys: defaults, constants and what a reload applies.

use super::{read_as_user, read_with, says};
use crate::key::{Key, Origin, PerListener};
use crate::keys::Sections;
use crate::setting::AnySetting;
use crate::*;

#[test]
fn defaults_are_a_valid_configuration() {
    let settings = Settings::default();
    let config = Config::from_settings(&settings).unwrap();
    let policy = Policy { interval_jitter_s: 90, ..Policy::default() };
    assert_eq!(config.policy, policy);
    assert_eq!(config.addresses(Transport::Udp).count(), 2);
    assert!(config.groups.iter().all(|group| group.is_default));
    assert!(!config.listens(Transport::Tls) && settings.listeners.is_empty());
    assert!(settings.sections.all().iter().all(|it| *it.origin() == Origin::Default));
}

#[test]
fn init_writes_every_default_as_a_comment() {
    // As it is, it sets nothing. Its comments without spaces are keys.
    let sets_nothing = read_as_user(&init(false)).unwrap();
    assert!(sets_nothing.sections.all().iter().all(|it| *it.origin() == Origin::Default));
    let is_key = |line: &str| line.starts_with(|first: char| first.is_ascii_lowercase());
    let uncommented = |text: &str| {
        let lines = text.lines().map(|line| match line.strip_prefix('#') {
            Some(key) if is_key(key) => key.to_owned() + "\n",
            _ => line.to_owned() + "\n",
        });
        read_as_user(&lines.collect::<String>()).unwrap()
    };
    let settings = uncommented(&init(false));
    for setting in settings.sections.settable() {
        assert_ne!(*setting.origin(), Origin::Default, "{} is missing", setting.key().name);
    }
    assert_eq!(settings.warnings, []);
    assert_eq!(changes(&settings, &Settings::default()), (vec![], vec![]));
    let sections: Vec<_> = init(false)
        .lines()
        .filter_map(|line| Some(line.strip_prefix('[')?.trim_end_matches(']').to_owned()))
        .collect();
    assert_eq!(sections[..5], ["state", "udp", "http", "access", "tls"]);
    let short = uncommented(&init(true));
    let count = short.sections.settable().filter(|it| *it.origin() != Origin::Default).count();
    assert_eq!(count, 12);
    assert!(init(true).lines().count() < 100);
}

/// More keys are more than an operator reads. A new one takes the place of another, or becomes a constant.
#[test]
fn there_are_few_keys() {
    let defaults = Sections::default();
    // Those of a site are apart: the site has a setting of its own for most of them.
    let is_of_site = |setting: &&dyn AnySetting| setting.key().section() == "site";
    let of_site = defaults.settable().filter(is_of_site).count();
    let count = defaults.settable().count() - of_site;
    assert!(count <= 84 && of_site <= 22, "{count} and {of_site}");
    let per_listener = |setting: &&dyn AnySetting| setting.key().per_listener == PerListener::Yes;
    let count = defaults.settable().filter(per_listener).count();
    assert!(count <= 15, "{count} of listeners");
}

#[test]
fn constants_are_ignored_with_a_warning() {
    let text = "[http]\nidle_timeout_s = 3\nmax = \"no number\"\n";
    assert_eq!(read_as_user(text).unwrap_err().len(), 1, "an unknown key is a mistake");
    let text = "[udp]\npin_cores = true\n[tracker]\npeer_lifetime_s = 600\nnumwant_default = \"many\"\ninterval_s = 600\n\
                [[listener]]\nprotocol = \"http\"\nlisten = [\"127.0.0.1:1\"]\nhttp.idle_timeout_s = 3\n";
    let variable = ("TIDEGATE_BANS__BAD_CONNECTION_IDS_PER_MIN".to_owned(), "7".to_owned());
    let settings = read_with(text, std::iter::once(variable)).unwrap();
    let config = Config::from_settings(&settings).unwrap();
    let warnings = config.warnings();
    let expected = [
        "TIDEGATE_BANS__BAD_CONNECTION_IDS_PER_MIN: bans.bad_connection_ids_per_min is no longer a setting: remove it; \
         0 is used",
        ".toml:2: udp.pin_cores is no longer a setting: remove it; false is used",
        ".toml:4: tracker.peer_lifetime_s is no longer a setting: remove it; one and a half times tracker.interval_s is \
         used",
        ".toml:5: tracker.numwant_default is no longer a setting: remove it; 50 is used",
        ".toml:10: http.idle_timeout_s is no longer a setting: remove it; 60 is used",
    ];
    assert_eq!(warnings.len(), expected.len(), "{warnings:?}");
    for (warning, expected) in warnings.iter().zip(expected) {
        assert!(warning.ends_with(expected), "{warning}");
    }
    assert!(config.has_removed_keys());
    assert_eq!(config.policy.peer_lifetime_s, 900);
    // Constants that an earlier version has recorded are ignored.
    let mut settings = Settings::default();
    let recorded = [("tracker.numwant_default".to_owned(), serde_json::json!(7))];
    assert_eq!(settings.apply_overrides(&recorded), []);
}

#[test]
fn constants_are_documented_nowhere() {
    let written = init(false) + &show(&Settings::default());
    let listed = list(&Settings::default(), &Settings::default());
    for setting in Sections::default().all().iter().filter(|it| it.key().constant) {
        let Key { name, .. } = setting.key();
        assert!(!written.contains(&format!("\n{name} = ")), "{name}");
        assert!(listed.settings.iter().all(|it| it.name != *name), "{name}");
    }
    assert!(!written.contains("[trace]") && listed.sections.iter().all(|it| it.name != "trace"));
    let found = says("[limits]\nbucket = 1\n");
    assert_eq!(found, ["2: unknown key `limits.bucket`"]);
}

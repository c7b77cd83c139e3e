//! Tests of the table of keys and of the messages about mistakes.

use std::path::Path;

use types::limits;

use super::key::{Key, Origin, PerListener};
use super::keys::Sections;
use super::setting::AnySetting;
use super::*;
use front::http::ForwardedHeader;
use pages::StatsForm;
use tracker::access::Mode;
use tracker::{ListenerPolicyId, PrivateAddresses};

/// Reads a file with the constants as settings.
pub(super) fn read(text: &str) -> Result<Settings, Vec<Problem>> {
    let unstable = ("TIDEGATE_UNSTABLE_KEYS".to_owned(), "1".to_owned());
    read_with(text, std::iter::once(unstable))
}

/// Reads a file as users have it.
fn read_as_user(text: &str) -> Result<Settings, Vec<Problem>> {
    read_with(text, std::iter::empty())
}

fn read_with(
    text: &str,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<Settings, Vec<Problem>> {
    let directory = harness::Directory::new().unwrap();
    let path = directory.write("tidegate.toml", text).unwrap();
    load(Some(&path), variables)
}

/// Returns the messages about a file, without its path.
pub(super) fn says(text: &str) -> Vec<String> {
    let problems = read(text).and_then(|settings| Config::from_settings(&settings));
    let problems = problems.unwrap_err();
    let line = |problem: &Problem| {
        let text = problem.to_string();
        text.split_once(".toml:").map_or_else(|| text.clone(), |(_, rest)| rest.to_owned())
    };
    problems.iter().map(line).collect()
}

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
fn messages_are_lines_whatever_a_name_contains() {
    let found = says("[tracker]\n\"a\\n\\u001b[31m\" = 1\n");
    assert_eq!(found, ["2: unknown key `tracker.a\\n\\u{1b}[31m`"]);
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
    // The short one has the keys that most users set.
    let short = uncommented(&init(true));
    let count = short.sections.settable().filter(|it| *it.origin() != Origin::Default).count();
    assert_eq!(count, 12);
    assert!(init(true).lines().count() < 100);
}

/// More keys are more than an operator reads. A new one takes the place of another, or becomes a constant.
#[test]
fn there_are_few_keys() {
    let defaults = Sections::default();
    let count = defaults.settable().count();
    assert!(count <= 95, "{count}");
    let per_listener = |setting: &&dyn AnySetting| setting.key().per_listener == PerListener::Yes;
    let count = defaults.settable().filter(per_listener).count();
    assert!(count <= 16, "{count} of listeners");
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
    let Policy { peer_lifetime_s, interval_jitter_s, numwant_default, .. } = config.policy;
    assert_eq!((peer_lifetime_s, interval_jitter_s, numwant_default), (900, 30, 50));
    assert_eq!(config.bans.bad_connection_ids_per_min, 0);
    assert_eq!(config.groups[3].http.idle_timeout_s, 60);
    // Nor does the API change them. What an earlier version has recorded is ignored.
    let mut settings = Settings::default();
    assert!(settings.is_constant("tracker.numwant_default"));
    assert!(!settings.is_constant("tracker.numwant_max"));
    let recorded = [("tracker.numwant_default".to_owned(), serde_json::json!(7))];
    assert_eq!(settings.apply_overrides(&recorded), []);
    assert_eq!(settings.sections.tracker.numwant_default.value, 50);
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
    // Nor are they suggested.
    let found = says("[limits]\nbucket = 1\n");
    assert_eq!(found, ["2: unknown key `limits.bucket`"]);
}

#[test]
fn deprecated_keys_of_listeners_apply_with_a_warning() {
    let text = "[[listener]]\nprotocol = \"http\"\nlisten = [\"127.0.0.1:1\"]\naccess.clients_deny = [\"-XL\"]\n";
    let config = Config::from_settings(&read_as_user(text).unwrap()).unwrap();
    let warnings = config.warnings();
    let expected = ":4: access.clients_deny in a [[listener]] is deprecated: set it in [access] for all listeners, or \
                    serve this one by a tidegate of its own";
    assert!(warnings.len() == 1 && warnings[0].ends_with(expected), "{warnings:?}");
    assert_ne!(config.listener_policies[1].clients, config.listener_policies[0].clients);
}

#[test]
fn accepts_every_default() {
    let defaults = Sections::default();
    for setting in defaults.all() {
        let name = setting.key().name;
        let mut copy = Sections::default();
        let accepted = copy.find_mut(name).unwrap().set(&setting.json(), Origin::Api);
        assert_eq!(accepted, Ok(()), "{name}");
    }
}

#[test]
fn reports_mistakes_with_line_key_and_suggestion() {
    let text =
        "[tracker]\ninterval = 5\ninterval_s = \"soon\"\nnumwant_max = 9999\n[acess]\nx = 1\n";
    let expected = [
        "1: ",
        "2: unknown key `tracker.interval`: did you mean `tracker.interval_s`?",
        "3: tracker.interval_s: expected an integer from 1 to 86400, found \"soon\"",
        "4: tracker.numwant_max: must be between 0 and 1000, found 9999",
        "5: unknown section [acess]: did you mean [access]?",
    ];
    let mut found = says(text);
    found.sort();
    assert_eq!(found, expected[1..]);
    assert_eq!(
        says("interval_s = 5\n")[0],
        "1: `interval_s` is outside any section, such as [tracker]"
    );
    assert!(says("[udp]\nlisten = \n")[0].starts_with("2: "));
    let list = says("[udp]\nlisten = [\"6969\"]\n");
    assert!(
        list[0].starts_with("2: udp.listen: `6969`: expected an IP address and a port"),
        "{list:?}"
    );
}

#[test]
fn says_what_was_expected_and_found() {
    let found = |line: &str| says(line).remove(0);
    for (value, described) in [
        ("[1, 2]", "a list of integers"),
        ("[\"a\", 1]", "a list of other values"),
        ("{ a = 1 }", "a table"),
        ("1979-05-27", "a value of another type"),
        ("true", "true"),
    ] {
        let text = format!("[udp]\nlisten = {value}\n");
        let message = format!("2: udp.listen: expected a list of strings, found {described}");
        assert_eq!(found(&text), message);
    }
    assert_eq!(
        found("[udp]\nworkers = 99999999999999999999\n"),
        "2: udp.workers: must be between 0 and 1024, found 1e+20"
    );
    let flag = "2: udp.simple_proxy: expected true or false, found \"yes\"";
    assert_eq!(found("[udp]\nsimple_proxy = \"yes\"\n"), flag);
}

#[test]
fn names_the_engines_there_are() {
    assert_eq!(
        says("[udp]\nengine = \"uring\"\n"),
        ["2: udp.engine: expected one of auto, mmsg, portable, shield, xdp, found \"uring\""]
    );
}

#[test]
fn requires_certificates_as_tables() {
    let listen = "[tls]\nlisten = [\"0.0.0.0:443\"]\n";
    assert_eq!(says(listen), ["2: tls.listen: requires tls.certificates or tls.acme.domains"]);
    let tables =
        "certificates = [{ chain = \"a\", key = \"b\" }, { key = \"d\", chain = \"c\" }]\n";
    let settings = read(&format!("{listen}{tables}")).unwrap();
    let config = Config::from_settings(&settings).unwrap();
    let chains: Vec<_> = config.certificates.iter().map(|files| files.chain.clone()).collect();
    assert_eq!(chains, [PathBuf::from("a"), PathBuf::from("c")]);
    let shown = show(&settings);
    assert!(shown.contains(r#"{ chain = "a", key = "b" }, { chain = "c", key = "d" }"#), "{shown}");
    for wrong in ["[\"a\"]", "[{ chain = \"a\" }]", "[{ chain = \"a\", keys = \"b\" }]", "\"a\""] {
        let text = format!("[tls]\ncertificates = {wrong}\n");
        assert!(says(&text)[0].contains("expected a list of tables { chain = "), "{text}");
    }
    let half = says("[tls]\ncertificates = [{ chain = \"a\", keys = \"b\" }]\n").remove(0);
    assert!(half.ends_with(", found a table with chain, keys"), "{half}");
    let empty = says("[tls]\ncertificates = [{ chain = \"a\", key = \"\" }]\n");
    assert_eq!(empty, ["2: tls.certificates: chain and key must both name a file"]);
}

const ACME: &str = "[state]\ndir = \"/s\"\n[tls]\nlisten = [\"0.0.0.0:443\"]\n[tls.acme]\ndomains = [\"T.example\"]\n";

#[test]
fn reads_subsections() {
    let settings = read(&format!("{ACME}contact = [\"a@b.example\"]\n")).unwrap();
    let acme = Config::from_settings(&settings).unwrap().acme.unwrap();
    let expected = AcmeConfig {
        domains: vec!["t.example".into()],
        contact: vec!["mailto:a@b.example".into()],
        directory: "https://acme-v02.api.letsencrypt.org/directory".into(),
        cache: "/s/acme".into(),
        challenge: Challenge::TlsAlpn,
        ca: None,
    };
    assert_eq!(acme, expected);
    let shown = show(&settings);
    assert!(shown.contains("tls.acme.domains = [\"T.example\"]  # "), "{shown}");
    let written = init(false);
    assert!(
        written.contains("\n[tls.acme]\n") && written.contains("\n#domains = []  # (reloadable)\n")
    );
    // The same from variables, and as an inline table.
    let variables = [("TIDEGATE_TLS__ACME__DOMAINS", "a.example, b.example")];
    let variables = variables.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let settings = load(None, variables.into_iter()).unwrap();
    assert_eq!(settings.sections.acme.domains.value, ["a.example", "b.example"]);
    let inline = read("[tls]\nacme = { contact = [\"a@b.example\"] }\nlisten = []\n").unwrap();
    assert_eq!(inline.sections.acme.contact.value, ["a@b.example"]);
    assert_eq!(
        says("[tls]\n[tls.acme]\ndomain = []\n"),
        ["3: unknown key `tls.acme.domain`: did you mean `tls.acme.domains`?"]
    );
    assert_eq!(says("[tls.amce]\n"), ["1: unknown section [tls.amce]: did you mean [tls.acme]?"]);
    assert_eq!(
        says("[tls]\nacme = 1\n"),
        ["2: `tls.acme` is a section, not a key: put its keys below [tls.acme]"]
    );
    let wrong = [("TIDEGATE_TLS__ACME__DOMAIN".to_owned(), "x".to_owned())];
    let problems = load(None, wrong.into_iter()).unwrap_err();
    assert!(problems[0].to_string().ends_with("did you mean `tls.acme.domains`?"));
}

//= rfc8555#terms
//= type=test
#[test]
fn checks_acme_settings() {
    let with = |more: &str| says(&format!("{ACME}{more}"));
    let without = |line: &str| says(&ACME.replace(line, ""));
    // Users agree to the terms by naming a domain, and none is named by default.
    assert!(Config::from_settings(&Settings::default()).unwrap().acme.is_none());
    assert_eq!(
        without("dir = \"/s\"\n"),
        ["5: tls.acme.domains: requires state.dir, where the certificates and their keys are kept"]
    );
    assert_eq!(
        without("listen = [\"0.0.0.0:443\"]\n"),
        ["5: tls.acme.domains: requires tls.listen, where the certificates are used"]
    );
    assert!(with("directory = \"http://a.example\"\n")[0].contains("that begins with https://"));
    assert!(
        with("contact = [\"me\"]\n")[0].starts_with("7: tls.acme.contact: `me`: expected a mail")
    );
    let domains = says(&ACME.replace("\"T.example\"", "\"a\", \"*.b\", \"A\""));
    assert_eq!(domains.len(), 2);
    assert!(domains[0].starts_with("6: tls.acme.domains: `*.b`: wildcard certificates cannot"));
    assert!(domains[1].ends_with("`A`: is listed twice"));
    let many: Vec<_> =
        (0..=limits::ACME_DOMAINS_MAX).map(|n| format!("\"h{n}.example\"")).collect();
    let many = says(&ACME.replace("\"T.example\"", &many.join(", ")));
    assert_eq!(many, ["6: tls.acme.domains: expected at most 100 domains, found 101"]);
    // That the authority may not reach the listener is only a warning.
    let config = |text: &str| Config::from_settings(&read(text).unwrap()).unwrap();
    assert!(config(ACME).warnings().is_empty());
    let warnings = config(&ACME.replace(":443", ":8443")).warnings();
    assert!(
        warnings[0]
            .contains("connects to port 443 (tls-alpn-01), but tls.listen does not have that port"),
        "{warnings:?}"
    );
    // The authority connects to a port that there is.
    let challenge = |text: &str| config(text).acme.unwrap().challenge;
    let with_80 = format!("{ACME}[http]\nlisten = [\"0.0.0.0:80\"]\n");
    assert_eq!(challenge(&with_80), Challenge::TlsAlpn);
    let only_80 = with_80.replace(":443", ":8443");
    assert_eq!(challenge(&only_80), Challenge::Http);
    assert!(config(&only_80).warnings().is_empty());
}

#[test]
fn finds_contradictions() {
    let found = says("[access]\nmode = \"both\"\nallow = \"a\"\n");
    assert_eq!(found, ["access.deny: must name a file because access.mode is \"both\""]);
    let found = says("[http]\nlisten = [\"127.0.0.1:7\"]\n[admin]\nlisten = [\"127.0.0.1:7\"]\n");
    assert_eq!(found, ["4: admin.listen: 127.0.0.1:7 is already used by [http]"]);
}

#[test]
fn requires_networks_of_trusted_proxies() {
    let found = says("[udp]\ntrusted_proxies = [\"10.0.0.0/33\"]\n");
    assert!(found[0].starts_with("2: udp.trusted_proxies: `10.0.0.0/33` is neither"), "{found:?}");
    let found = says("[udp]\nsimple_proxy = true\n[http]\nproxy_protocol = \"v1v2\"\n");
    let expected = [
        "http.trusted_proxies: must name the proxies because http.proxy_protocol is on",
        "udp.trusted_proxies: must name the proxies because udp.simple_proxy is on",
    ];
    assert_eq!(found, expected);
    let config = |text: &str| Config::from_settings(&read(text).unwrap()).unwrap();
    let nets = "trusted_proxies = [\"173.245.48.0/20\", \"::1\"]";
    let text = format!(
        "[udp]\nsimple_proxy = true\n{nets}\n[http]\nproxy_protocol = \"v1v2\"\n\
                        forwarded_header = \"forwarded\"\n{nets}\n[tracker]\n\
                        private_addresses = \"deny\"\n"
    );
    let all = config(&text);
    let proxies = Networks::parse(["173.245.48.0/20", "::1"]).unwrap();
    assert_eq!(all.groups.len(), 3);
    for group in &all.groups {
        assert_eq!(group.simple_proxies, Some(proxies.clone()));
        assert_eq!((group.http.proxy_protocol, &group.http.trusted_proxies), (true, &proxies));
        assert_eq!(group.http.forwarded_header, ForwardedHeader::Forwarded);
    }
    assert_eq!(all.listener_policies[0].private_addresses, PrivateAddresses::Deny);
    // Listed, but not turned on.
    assert_eq!(config(&format!("[udp]\n{nets}\n")).groups[0].simple_proxies, None);
    let everybody = config("[http]\ntrusted_proxies = [\"0.0.0.0/0\"]\n").warnings();
    assert!(
        everybody[0].starts_with("http.trusted_proxies contains every address"),
        "{everybody:?}"
    );
}

#[test]
fn caps_minimum_interval_and_warns_of_short_lifetimes() {
    let config = |text: &str| Config::from_settings(&read(text).unwrap()).unwrap();
    let short = config("[tracker]\ninterval_s = 5\n");
    assert_eq!((short.policy.interval_s, short.policy.interval_min_s), (5, 5));
    assert!(short.warnings().is_empty());
    let long = config("[tracker]\ninterval_s = 86400\n").warnings();
    let expected =
        "tracker.interval_s is 86400, but peers are removed 86400 s after their announce: lower it";
    assert_eq!(long, [expected]);
}

#[test]
fn journals_swarms_where_records_are() {
    let config = |text: &str| Config::from_settings(&read(text).unwrap()).unwrap();
    assert!(config("[state]\nswarms = true\n").swarms.is_none(), "there is no directory");
    assert!(config("[state]\ndir = \"d\"\nswarms = false\n").swarms.is_none());
    let swarms =
        config("[state]\ndir = \"d\"\nswarms_mib = 3\nswarms_sync_s = 0\n").swarms.unwrap();
    assert_eq!((swarms.dir.as_path(), swarms.bytes_max), (Path::new("d/swarms"), 3 << 20));
    // Bounded by default, as memory is.
    let bytes_max =
        |text: &str| config(&format!("[state]\ndir = \"d\"\n{text}")).swarms.unwrap().bytes_max;
    assert!(bytes_max("") >= 512 << 20);
    assert_eq!(bytes_max("[limits]\nmemory_mib = 1000\n"), 4000 << 20);
    assert_eq!(bytes_max("[limits]\nmemory_mib = 10\n"), 512 << 20);
    assert_eq!(bytes_max("[limits]\nmemory_mib = 0\n"), 0);
    assert_eq!(bytes_max("swarms_mib = 0\n"), 0);
    let seconds = [swarms.round, swarms.sync, swarms.restore_wait].map(|time| time.as_secs());
    assert_eq!(seconds, [600, 0, 10]);
}

#[test]
fn bounds_a_round_by_the_lifetime_of_peers() {
    let text = |round: &str, interval_s: u32| {
        format!(
            "[tracker]\ninterval_s = {interval_s}\ninterval_jitter_s = 0\npeer_lifetime_s = 2700\n[state]\ndir = \"d\"\n{round}"
        )
    };
    let config = |text: &str| Config::from_settings(&read(text).unwrap()).unwrap();
    let round_s = |config: &Config| config.swarms.clone().unwrap().round.as_secs();
    let longest = config(&text("swarms_round_s = 170\n", 2400));
    assert_eq!((round_s(&longest), longest.warnings().len()), (170, 0));
    // A longer one is shortened.
    assert_eq!(round_s(&config(&text("swarms_round_s = 181\n", 2400))), 180);
    assert_eq!(round_s(&config(&text("", 2400))), 180);
    let short = config(&text("swarms_round_s = 60\n", 2600));
    assert_eq!(round_s(&short), 60);
    let warning = &short.warnings()[0];
    assert!(
        warning.starts_with("tracker.interval_s is 2600: peers are removed 2700 s"),
        "{warning}"
    );
    let changed = changes(&read("").unwrap(), &read("[state]\nswarms_round_s = 70\n").unwrap());
    assert_eq!(changed, (vec!["state.swarms_round_s".into()], vec![]));
}

#[test]
fn reads_shutdown_timeout_and_sandbox() {
    let text = "[process]\nshutdown_timeout_s = 0\nsandbox = \"off\"\n[access]\nallow = \"a\"\ndeny = \"b\"\n";
    let config = Config::from_settings(&read(text).unwrap()).unwrap();
    assert_eq!((config.shutdown_timeout_s, config.sandbox), (0, false));
    assert_eq!(config.files().collect::<Vec<_>>(), [Path::new("a"), Path::new("b")]);
    let config = Config::from_settings(&Settings::default()).unwrap();
    assert_eq!((config.shutdown_timeout_s, config.sandbox, config.files().count()), (5, true, 0));
}

#[test]
fn mixes_private_and_open_listeners_only_if_told_to() {
    let table = "[[listener]]\nprotocol = \"http\"\nlisten = [\"127.0.0.1:1\"]\n";
    let mixed = format!("{table}access.private = true\n");
    let said = says(&mixed).remove(0);
    assert!(
        said.starts_with("4: access.private: [[listener]] http at 127.0.0.1:1 (")
            && said.contains(" is private and [udp] at 0.0.0.0:6969, [::]:6969 is open, but"),
        "{said}"
    );
    let accepted = |text: &str| Config::from_settings(&read(text).unwrap()).is_ok();
    assert!(accepted(&format!("[access]\nprivate_and_open = true\n{mixed}")));
    assert!(accepted(&format!("[access]\nprivate = true\n{mixed}")));
    // Sections without listeners do not count.
    assert!(accepted(&format!("[udp]\nlisten = []\n[http]\nlisten = []\n{mixed}")));
    // Tokens are a kind of their own.
    let keys = "[access]\njwt_keys = \"keys.json\"\n";
    let tokens = format!("{keys}{table}access.jwt = true\n");
    let said = says(&tokens).remove(0);
    assert!(
        said.starts_with("6: access.jwt: [[listener]] http at 127.0.0.1:1 (")
            && said.contains(" needs tokens (access.jwt) and ")
            && said.contains(":6969 is open, but"),
        "{said}"
    );
    assert!(accepted(&tokens.replacen(keys, &format!("{keys}private_and_open = true\n"), 1)));
    assert!(accepted(&format!("{keys}jwt = true\n{table}")));
    let said =
        says(&format!("{keys}jwt = true\n{table}access.jwt = false\naccess.private = true\n"));
    assert!(said[0].contains(" is private and ") && said[0].contains(" needs tokens"), "{said:?}");
}

#[test]
fn corrects_variables_with_a_single_underscore() {
    let says = |variable: &str| {
        let environment = [(variable.to_owned(), "0".to_owned())].into_iter();
        let problems = load(None, environment).err().unwrap_or_default();
        problems.iter().map(Problem::to_string).collect::<Vec<_>>()
    };
    for (variable, meant) in [
        ("TIDEGATE_UDP_LISTEN", "TIDEGATE_UDP__LISTEN"),
        ("TIDEGATE_TRACKER_INTERVAL_S", "TIDEGATE_TRACKER__INTERVAL_S"),
        ("TIDEGATE_TLS_ACME_DOMAINS", "TIDEGATE_TLS__ACME__DOMAINS"),
        ("TIDEGATE_state_dir", "TIDEGATE_STATE__DIR"),
    ] {
        let text = format!("{variable}: no such variable: did you mean `{meant}`?");
        assert_eq!(says(variable), [text]);
    }
    // Variables with other uses. Kubernetes sets the last ones for a service named tidegate.
    for other in ["ADMIN_TOKEN", "BOOTSTRAP_TOKEN", "CONFIG", "SERVICE_HOST", "PORT_6969_UDP_PORT"]
    {
        assert_eq!(says(&format!("TIDEGATE_{other}")), [""; 0]);
    }
}

#[test]
fn environment_overrides_file() {
    let variables = [
        ("TIDEGATE_TRACKER__INTERVAL_S", "77"),
        ("TIDEGATE_UDP__LISTEN", "127.0.0.1:1, [::1]:2"),
        ("TIDEGATE_HTTP__TRUSTED_PROXIES", "[\"10.0.0.0/8\"]"),
        ("TIDEGATE_ACCESS__MODE", "deny"),
        ("TIDEGATE_LOG", "ignored: no section"),
        ("PATH", "/bin"),
    ];
    let variables = variables.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let settings = load(None, variables.into_iter()).unwrap();
    assert_eq!(settings.sections.tracker.interval_s.value, 77);
    assert_eq!(settings.sections.udp.listen.value, ["127.0.0.1:1", "[::1]:2"]);
    assert_eq!(settings.sections.http.trusted_proxies.value, ["10.0.0.0/8"]);
    assert_eq!(settings.sections.access.mode.value, Mode::Deny);
    let shown = show(&settings);
    assert!(shown.contains("tracker.interval_s = 77  # TIDEGATE_TRACKER__INTERVAL_S\n"), "{shown}");
    let wrong = [("TIDEGATE_TRACKER__INTERVALS".to_owned(), "1".to_owned())];
    let problems = load(None, wrong.into_iter()).unwrap_err();
    let expected = "TIDEGATE_TRACKER__INTERVALS: unknown key `tracker.intervals`: did you mean `tracker.interval_s`?";
    assert_eq!(problems[0].to_string(), expected);
}

#[test]
fn reports_missing_file() {
    let problems = load(Some(Path::new("no/such.toml")), std::iter::empty()).unwrap_err();
    assert!(
        problems[0].to_string().starts_with("no/such.toml: cannot read the configuration file")
    );
}

#[test]
fn separates_reloadable_changes() {
    let new = read("[tracker]\ninterval_s = 900\n[udp]\nworkers = 3\n").unwrap();
    let expected = (vec!["tracker.interval_s".into()], vec!["udp.workers".into()]);
    assert_eq!(changes(&Settings::default(), &new), expected);
}

#[test]
fn memory_is_bounded_by_default() {
    let machine = memory_bytes();
    let config = Config::from_settings(&Settings::default()).unwrap();
    assert_eq!(config.memory_budget, Some(machine.map_or(512 << 20, |bytes| bytes / 2)));
    assert_eq!(config.assumes_memory, machine.is_none());
    let budgets = [(None, Some(8 << 30)), (None, None), (Some(7), None), (Some(0), Some(1 << 30))];
    let budgets = budgets.map(|(memory_mib, machine)| memory_budget(memory_mib, machine));
    assert_eq!(budgets, [Some(4 << 30), Some(512 << 20), Some(7 << 20), None]);
    let here = format!("limits.memory_mib = \"auto\"  # default, {} here\n", budget_mib(&config));
    assert!(show(&Settings::default()).contains(&here), "{}", show(&Settings::default()));
}

fn budget_mib(config: &Config) -> u64 {
    config.memory_budget.unwrap() >> 20
}

#[test]
fn reads_limits() {
    let limits = Config::from_settings(&Settings::default()).unwrap().limits;
    let cores = worker_count(0) as u32;
    let expected = Limits {
        announces: Rate { per_s: 500, burst: 50_000 },
        scrapes: Rate { per_s: 500, burst: 50_000 },
        connects: Rate { per_s: 2000, burst: 200_000 },
        openings: Rate { per_s: 1000, burst: 100_000 },
        handshakes: Rate { per_s: 200, burst: 5000 },
        unfinished_handshakes: 256,
        others: Rate { per_s: 500, burst: 50_000 },
        connections: 5000,
        network_connections: cores * 10_000,
        exempt: limits.exempt.clone(),
        ..Limits::default()
    };
    assert_eq!(limits, expected);
    let exempt = |ip: &str| limits.exempt.contains(ip.parse().unwrap());
    assert!(
        ["127.0.0.1", "10.9.9.9", "172.31.0.1", "192.168.0.1", "::1", "fd00::1"].map(exempt)
            == [true; 6]
    );
    assert!(["1.1.1.1", "172.32.0.1", "100.64.0.1", "2001:db8::1"].map(exempt) == [false; 4]);
    let text = "[limits]\nannounces_per_s = 20\nscrapes_per_s = 5\nscrapes_burst = 3\nprefix_v6_bits = 56\n";
    let config = Config::from_settings(&read(text).unwrap()).unwrap();
    assert_eq!(config.limits.announces, Rate { per_s: 20, burst: 2000 });
    assert_eq!(config.limits.others, limits.others);
    let others = |announces: &str| {
        Config::from_settings(&read(&format!("[limits]\n{announces}\n")).unwrap())
            .unwrap()
            .limits
            .others
    };
    assert_eq!(others("announces_per_s = 0"), Rate::default());
    assert_eq!(others("announces_per_s = 7000"), Rate { per_s: 7000, burst: 700_000 });
    assert_eq!((config.limits.prefix_v4, config.limits.prefix_v6), (32, 56));
    let handshakes = |per_s: u32| {
        let text = format!("[limits]\nannounces_per_s = {per_s}\n");
        Config::from_settings(&read(&text).unwrap()).unwrap().limits.handshakes.per_s
    };
    assert_eq!([0, 20, 500, 5000].map(handshakes), [0, 200, 200, 2000]);
    let network_connections = |percent: u32| {
        let text = format!(
            "[http]\nworkers = 3\nconnections_max = 7\nconnections_per_network_percent = {percent}\n"
        );
        Config::from_settings(&read(&text).unwrap()).unwrap().limits.network_connections
    };
    assert_eq!([1, 50, 99, 100].map(network_connections), [1, 10, 20, 21]);
    let said = says("[limits]\nexempt = [\"10.0.0.0/8\", \"10.0.0.0/33\"]\nprefix_v4_bits = 33\n");
    assert_eq!(said.len(), 1, "{said:?}");
    let said = says("[limits]\nexempt = [\"10.0.0.0/33\"]\n");
    assert!(said[0].starts_with("2: limits.exempt: `10.0.0.0/33` is neither"), "{said:?}");
}

const TABLES: &str = "[http]\ntrusted_proxies = [\"10.0.0.1\"]\n[access]\nmode = \"deny\"\ndeny = \"d\"\n\
                      [[listener]]\nprotocol = \"http\"\nlisten = [\"127.0.0.1:1\", \"[::1]:1\"]\n\
                      access.mode = \"allow\"\naccess.allow = \"a\"\nhttp.websocket = false\n\
                      http.trusted_proxies = []\nhttp.connections_max = 7\n\
                      [[listener]]\nprotocol = \"udp\"\nlisten = [\"127.0.0.1:1\"]\n\
                      udp.simple_proxy = true\nudp.trusted_proxies = [\"::1\"]\n\
                      tracker.private_addresses = \"deny\"\n";

#[test]
fn tables_override_sections() {
    let settings = read(TABLES).unwrap();
    let config = Config::from_settings(&settings).unwrap();
    let [.., http, udp] = &config.groups[..] else { panic!("{:?}", config.groups) };
    assert_eq!((config.groups.len(), config.listener_policies.len()), (5, 3));
    assert_eq!((http.transport, http.listener_policy), (Transport::Http, ListenerPolicyId(1)));
    assert_eq!(http.addresses, ["127.0.0.1:1".parse().unwrap(), "[::1]:1".parse().unwrap()]);
    assert!(!http.is_default && http.http.web.is_none());
    assert_eq!((http.http.listener_policy, http.http.connections_max), (ListenerPolicyId(1), 7));
    assert_eq!(http.http.trusted_proxies, Networks::default());
    assert_eq!((udp.transport, udp.listener_policy), (Transport::Udp, ListenerPolicyId(2)));
    assert_eq!(udp.simple_proxies, Some(Networks::parse(["::1"]).unwrap()));
    let sections = &config.groups[1];
    assert_eq!(
        (sections.listener_policy, sections.http.connections_max),
        (ListenerPolicyId(0), 50_000)
    );
    assert_eq!(sections.http.trusted_proxies, Networks::parse(["10.0.0.1"]).unwrap());
    assert!(sections.http.web.is_some() && sections.simple_proxies.is_none());
    let listener_policies = [0, 1, 2].map(|at| {
        (config.listener_policies[at].mode, config.listener_policies[at].private_addresses)
    });
    use PrivateAddresses::{Auto, Deny};
    assert_eq!(listener_policies, [(Mode::Deny, Auto), (Mode::Allow, Auto), (Mode::Deny, Deny)]);
    let files: Vec<_> = config.files().map(|path| path.display().to_string()).collect();
    assert_eq!(files, ["d", "a", "d", "d"]);
    // The output is a configuration itself, and the same one.
    let shown = show(&settings);
    assert!(
        shown.contains("access.mode = \"allow\"  # ") && shown.contains(".toml:10\n"),
        "{shown}"
    );
    let again = read(&shown).unwrap();
    assert_eq!(changes(&settings, &again), (vec![], vec![]));
    assert_eq!(show(&again).lines().count(), shown.lines().count());
}

#[test]
fn reports_mistakes_in_tables() {
    let table = |lines: &str| says(&format!("[[listener]]\n{lines}"));
    let good = "protocol = \"http\"\nlisten = [\"127.0.0.1:1\"]\n";
    assert!(read(&format!("[[listener]]\n{good}")).is_ok());
    assert_eq!(
        table("listen = [\"127.0.0.1:1\"]\n"),
        [
            "1: [[listener]]: missing key `protocol`: udp, http (with WebSocket) or tls (HTTPS and wss)"
        ]
    );
    assert!(table("protocol = \"udp\"\n")[0].starts_with("1: [[listener]]: missing key `listen`"));
    assert_eq!(
        table("protocol = \"ws\"\nlisten = []\n"),
        ["2: protocol: expected one of udp, http, tls, found \"ws\""]
    );
    let with = |line: &str| table(&format!("{good}{line}\n"));
    assert_eq!(
        with("tracker.interval_s = 5"),
        [
            "4: tracker.interval_s: applies to all listeners and cannot be set for one: move it to [tracker]"
        ]
    );
    assert_eq!(
        with("acess.mode = \"deny\""),
        ["4: unknown section [acess]: did you mean [access]?"]
    );
    assert_eq!(
        with("access.mod = \"deny\""),
        ["4: unknown key `access.mod`: did you mean `access.mode`?"]
    );
    assert!(with("mode = \"deny\"")[0].starts_with("4: unknown key `mode`"));
    assert!(with("access.mode = \"no\"")[0].starts_with("4: access.mode: expected one of"));
    assert_eq!(
        with("access.mode = \"deny\""),
        ["access.deny: must name a file because access.mode is \"deny\""]
    );
    assert_eq!(
        with("udp.simple_proxy = true"),
        ["4: udp.simple_proxy: does not apply to a listener of protocol http"]
    );
    let found = with("http.proxy_protocol = \"v1v2\"");
    assert_eq!(
        found,
        ["http.trusted_proxies: must name the proxies because http.proxy_protocol is on"]
    );
    let networks = with("http.trusted_proxies = [\"10.0.0.0/33\"]");
    assert!(networks[0].starts_with("4: http.trusted_proxies: `10.0.0.0/33` is neither"));
    assert_eq!(networks.len(), 1, "{networks:?}");
    let twice = table(&format!("{good}[[listener]]\n{good}[http]\nlisten = [\"127.0.0.1:1\"]\n"));
    assert_eq!(twice.len(), 2, "{twice:?}");
    assert_eq!(twice[0], "3: listen: 127.0.0.1:1 is already used by [http]");
    assert!(twice[1].starts_with("6: listen: 127.0.0.1:1 is already used by the [[listener]] at "));
    assert!(twice[1].ends_with(".toml:1"));
    let other = format!("[[listener]]\n{}[udp]\nlisten = [\"127.0.0.1:1\"]\n", good);
    assert!(read(&other).and_then(|it| Config::from_settings(&it)).is_ok(), "UDP is apart");
    let tls = table("protocol = \"tls\"\nlisten = [\"127.0.0.1:1\"]\n");
    assert!(tls[0].contains("listen: requires tls.certificates"), "{tls:?}");
    assert_eq!(
        says("[listener]\nprotocol = \"udp\"\n"),
        ["1: expected [[listener]] in double brackets: each listener is one table of a list"]
    );
    assert!(says("listener = [1]\n")[0].ends_with("[[listener]]: expected a table"));
}

#[test]
fn reload_changes_tables_but_not_their_number() {
    let old = read(TABLES).unwrap();
    let new = TABLES
        .replace("\"allow\"\naccess.allow = \"a\"", "\"open\"")
        .replace("connections_max = 7", "connections_max = 8")
        .replace(
            "protocol = \"udp\"\nlisten = [\"127.0.0.1:1\"]",
            "protocol = \"udp\"\nlisten = [\"127.0.0.1:2\"]",
        );
    let new = read(&new).unwrap();
    let (http, udp) = ("[[listener]] http 127.0.0.1:1 [::1]:1", "[[listener]] udp 127.0.0.1:");
    let (live, fixed) = changes(&old, &new);
    assert_eq!(live, [format!("access.mode of {http}"), format!("access.allow of {http}")]);
    assert_eq!(
        fixed,
        [format!("http.connections_max of {http}"), format!("{udp}2"), format!("{udp}1")]
    );
    let mut running = old.clone();
    running.take_reloadable(&new);
    assert_eq!(changes(&running, &new), (vec![], fixed));
    let config = Config::from_settings(&running).unwrap();
    assert_eq!(config.listener_policies[1].mode, Mode::Open);
    assert_eq!(config.groups[3].http.connections_max, 7);
    assert_eq!(config.groups[4].addresses, ["127.0.0.1:1".parse().unwrap()]);
    // A change in the sections applies to the tables that do not override the key.
    let open = read(&TABLES.replacen("mode = \"deny\"", "mode = \"open\"", 1)).unwrap();
    running.take_reloadable(&open);
    let config = Config::from_settings(&running).unwrap();
    assert_eq!(
        [0, 1, 2].map(|listener_policy| config.listener_policies[listener_policy].mode),
        [Mode::Open, Mode::Allow, Mode::Open]
    );
    // A listener that was removed from the file keeps serving, and lacks what was removed with it.
    let heir = "[access]\ndeny = \"d\"\n[[listener]]\nprotocol = \"udp\"\nlisten = []\naccess.mode = \"deny\"\n";
    let mut running = read(heir).unwrap();
    assert!(listener_policies(&running).is_ok());
    running.take_reloadable(&read("").unwrap());
    let problem = listener_policies(&running).unwrap_err().remove(0).to_string();
    assert!(problem.ends_with("must name a file because access.mode is \"deny\""), "{problem}");
}

#[test]
fn full_scrapes_do_not_go_with_private_listeners() {
    let found = says("[access]\nprivate = true\n[http]\nfull_scrape = true\n");
    let text = "does not go with access.private: any user could list all torrents";
    assert_eq!(found, [format!("4: http.full_scrape: {text}")]);
    let config = |text: &str| Config::from_settings(&read(text).unwrap()).unwrap();
    let listener =
        "[[listener]]\nprotocol = \"http\"\nlisten = [\"127.0.0.1:1\"]\nhttp.full_scrape = true\n";
    let policies = config(listener).listener_policies;
    assert_eq!(policies.iter().map(|it| it.full_scrape).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn statistics_and_public_host_are_checked() {
    let stats = |path: &str| says(&format!("[http]\nstats = \"page\"\nstats_path = \"{path}\"\n"));
    for path in
        ["", "/", "stats", "/announce", "/scrape/x", "/health", "/x/announce", "/a b", "/a?b"]
    {
        let expected = "3: http.stats_path: expected a path of its own, e.g. `/stats`";
        assert_eq!(stats(path), [expected], "{path}");
    }
    let config = |text: &str| Config::from_settings(&read(text).unwrap()).unwrap();
    let groups = config("[http]\nstats = \"opentracker\"\nstats_path = \"/secret\"\n").groups;
    let stats = groups[1].pages.stats.as_ref().unwrap();
    assert_eq!((stats.path.as_str(), stats.form), ("/secret", StatsForm::Opentracker));
    assert!(
        stats.networks.contains([10, 1, 2, 3].into()) && !stats.networks.contains([9; 4].into())
    );
    assert!(config("").groups[1].pages.stats.is_none());
    for host in ["http://a", "a:80", "a/b", "<b>"] {
        let found = says(&format!("[http]\npublic_host = \"{host}\"\n"));
        assert!(found[0].starts_with("2: http.public_host: expected a host name"), "{found:?}");
    }
    let host = config("[http]\npublic_host = \"[2001:db8::1]\"\n").public_host;
    assert_eq!(host.as_deref(), Some("[2001:db8::1]"));
}

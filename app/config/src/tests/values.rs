//! Tests of what the values of keys become, and of keys that contradict each other.

use std::path::Path;

use types::limits;

use super::{read, says};
use crate::*;

const ACME: &str = "[state]\ndir = \"/s\"\n[tls]\nlisten = [\"0.0.0.0:443\"]\n[tls.acme]\ndomains = [\"T.example\"]\n";

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
    let domains = says(&ACME.replace("\"T.example\"", "\"a\", \"*.b\", \"A\""));
    assert_eq!(domains.len(), 2);
    assert!(domains[0].starts_with("6: tls.acme.domains: `*.b`: wildcard certificates cannot"));
    assert!(domains[1].ends_with("`A`: is listed twice"));
    let many: Vec<_> =
        (0..=limits::ACME_DOMAINS_MAX).map(|n| format!("\"h{n}.example\"")).collect();
    let many = says(&ACME.replace("\"T.example\"", &many.join(", ")));
    assert_eq!(many, ["6: tls.acme.domains: expected at most 100 domains, found 101"]);
    let config = |text: &str| Config::from_settings(&read(text).unwrap()).unwrap();
    assert!(config(ACME).warnings().is_empty());
    let warnings = config(&ACME.replace(":443", ":8443")).warnings();
    assert!(
        warnings[0]
            .contains("connects to port 443 (tls-alpn-01), but tls.listen does not have that port"),
        "{warnings:?}"
    );
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
fn warns_of_what_is_probably_not_meant() {
    let tls = "[tls]\ncertificates = [{ chain = \"a\", key = \"b\" }]\n[admin]\ntls = true\n";
    let private = "[state]\ndir = \"/s\"\n[access]\nprivate = true\n[admin]\nlisten = []\n";
    let site = "[site]\nkind = \"unit3d\"\ndatabase = \"mysql://t@127.0.0.1/u\"\nlisten = \"127.0.0.1:1\"\n\
                tracker_key = \"/k\"\n";
    for (text, begin) in [
        (
            "[admin]\nlisten = [\"127.0.0.1:1\", \"0.0.0.0:1\"]",
            "admin.listen has 0.0.0.0:1 without TLS",
        ),
        ("[admin]\nlisten = [\"[::]:1\"]", "admin.listen has [::]:1 without TLS"),
        ("[admin]\nlisten = [\"8.8.8.8:1\"]", "admin.listen has 8.8.8.8:1 without TLS"),
        ("[admin]\nlisten = [\"127.0.0.1:1\", \"[::1]:1\", \"10.0.0.1:1\"]", ""),
        (&format!("{tls}listen = [\"0.0.0.0:1\"]"), ""),
        ("[tracker]\ninterval_s = 5", ""),
        (
            "[tracker]\ninterval_s = 86400",
            "tracker.interval_s is 86400, but peers are removed 86400 s",
        ),
        ("[state]\ndir = \"state/d\"", "state.dir is the relative path state/d, which is /"),
        ("[state]\ndir = \"/d\"", ""),
        ("[state]\ndir = \"auto\"", ""),
        (private, "access.private is on, but no user has a key"),
        (
            &format!("{private}[site]\nkind = \"feed\""),
            "access.private is on, but no user has a key",
        ),
        (&format!("{private}{site}"), ""),
        (
            "[limits]\nmemory_mib = 4294967295",
            "limits.memory_mib is 4294967295, but there are only",
        ),
        ("[limits]\nmemory_mib = 0", ""),
    ] {
        let warnings = Config::from_settings(&read(text).unwrap()).unwrap().warnings();
        assert!(warnings.len() == usize::from(!begin.is_empty()), "{text}: {warnings:?}");
        assert!(warnings.iter().all(|warning| warning.starts_with(begin)), "{text}: {warnings:?}");
    }
    let short = Config::from_settings(&read("[tracker]\ninterval_s = 5\n").unwrap()).unwrap();
    assert_eq!((short.policy.interval_s, short.policy.interval_min_s), (5, 5));
    let found = says("[state]\ndir = \"~/tidegate\"\n");
    assert!(found[0].contains("found `~/tidegate`: only shells replace ~"), "{found:?}");
}

#[test]
fn journals_swarms_where_records_are() {
    let config = |text: &str| Config::from_settings(&read(text).unwrap()).unwrap();
    assert!(config("[state]\nswarms = true\n").swarms.is_none(), "there is no directory");
    assert!(config("[state]\ndir = \"d\"\nswarms = false\n").swarms.is_none());
    let swarms = config("[state]\ndir = \"d\"\nswarms_sync_s = 0\n").swarms.unwrap();
    assert_eq!(swarms.dir, Path::new("d/swarms"));
    let bytes_max =
        |text: &str| config(&format!("[state]\ndir = \"d\"\n{text}")).swarms.unwrap().bytes_max;
    assert!(bytes_max("") >= 512 << 20);
    assert_eq!(bytes_max("[limits]\nmemory_mib = 1000\n"), 4000 << 20);
    assert_eq!(bytes_max("[limits]\nmemory_mib = 10\n"), 512 << 20);
    assert_eq!(bytes_max("[limits]\nmemory_mib = 0\n"), 0);
    let seconds = [swarms.round, swarms.sync, swarms.restore_wait].map(|time| time.as_secs());
    assert_eq!(seconds, [600, 0, 10]);
}

#[test]
fn bounds_a_round_by_the_lifetime_of_peers() {
    let text = |round: &str, interval_s: u32| {
        format!(
            "[tracker]\ninterval_s = {interval_s}\ninterval_jitter_s = 0\npeer_lifetime_s = 2700\n[state]\ndir = \"/d\"\n{round}"
        )
    };
    let config = |text: &str| Config::from_settings(&read(text).unwrap()).unwrap();
    let round_s = |config: &Config| config.swarms.clone().unwrap().round.as_secs();
    let longest = config(&text("swarms_round_s = 170\n", 2400));
    assert_eq!((round_s(&longest), longest.warnings().len()), (170, 0));
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
    let text = "[limits]\nannounces_per_s = 20\nprefix_v6_bits = 56\n";
    let config = Config::from_settings(&read(text).unwrap()).unwrap();
    assert_eq!(config.limits.announces, Rate { per_s: 20, burst: 2000 });
    assert_eq!(config.limits.prefix_v6, 56);
    let others = |per_s: u32| {
        let text = format!("[limits]\nannounces_per_s = {per_s}\n");
        let Limits { connects, scrapes, handshakes, others, .. } =
            Config::from_settings(&read(&text).unwrap()).unwrap().limits;
        [connects, scrapes, handshakes, others].map(|rate| rate.per_s)
    };
    assert_eq!(others(0), [0; 4]);
    assert_eq!([20, 500].map(others), [[2000, 500, 200, 500]; 2]);
    assert_eq!(others(5000), [20_000, 5000, 2000, 5000]);
    let said = says("[limits]\nexempt = [\"10.0.0.0/33\"]\n");
    assert!(said[0].starts_with("2: limits.exempt: `10.0.0.0/33` is neither"), "{said:?}");
}

#[test]
fn reads_quiet_refusals() {
    let quiet = |list: &str| format!("[access]\nquiet = [{list}]\n");
    let config = Config::from_settings(&read(&quiet("\"denied=60\", \"key_rate\"")).unwrap());
    let mut expected = QuietRefusals::default();
    expected.add(types::Refusal::Denied, Some(60));
    expected.add(types::Refusal::KeyRate, None);
    assert_eq!(config.unwrap().quiet, expected);
    for (item, text) in [
        ("banned", "expected one of not_allowed, denied, frozen"),
        ("denied=59", "expected an interval of 60 to 604800 seconds"),
        ("denied=", "expected an interval of"),
        ("denied=-60", "expected an interval of"),
    ] {
        let found = says(&quiet(&format!("\"{item}\"")));
        assert!(found[0].starts_with(&format!("2: access.quiet: `{item}`: {text}")), "{found:?}");
    }
}

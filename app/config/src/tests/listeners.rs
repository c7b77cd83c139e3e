//! Tests of listeners: their tables, their proxies, and what does not go together.

use front::http::ForwardedHeader;
use pages::StatsForm;
use tracker::PrivateAddresses;
use tracker::access::Mode;

use super::{read, read_as_user, says};
use crate::*;

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
fn requires_networks_of_trusted_proxies() {
    let found = says("[udp]\ntrusted_proxies = [\"10.0.0.0/33\"]\n");
    assert!(found[0].starts_with("2: udp.trusted_proxies: `10.0.0.0/33` is neither"), "{found:?}");
    let config = |text: &str| Config::from_settings(&read(text).unwrap()).unwrap();
    let nets = "trusted_proxies = [\"173.245.48.0/20\", \"::1\"]";
    let text = format!(
        "[udp]\n{nets}\n[http]\nproxy_protocol = \"v1v2\"\n\
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
    assert_eq!(config("").groups[0].simple_proxies, None);
    let everybody = config("[http]\ntrusted_proxies = [\"0.0.0.0/0\"]\n").warnings();
    assert!(
        everybody[0].starts_with("http.trusted_proxies contains every address"),
        "{everybody:?}"
    );
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

const TABLES: &str = "[http]\ntrusted_proxies = [\"10.0.0.1\"]\n[access]\nmode = \"deny\"\ndeny = \"d\"\n\
                      [[listener]]\nprotocol = \"http\"\nlisten = [\"127.0.0.1:1\", \"[::1]:1\"]\n\
                      access.mode = \"allow\"\naccess.allow = \"a\"\nhttp.websocket = false\n\
                      http.trusted_proxies = []\nhttp.connections_max = 7\n\
                      [[listener]]\nprotocol = \"udp\"\nlisten = [\"127.0.0.1:1\"]\n\
                      udp.trusted_proxies = [\"::1\"]\n\
                      tracker.private_addresses = \"deny\"\n";

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
    let applies_to_all =
        "4: tracker.interval_s: applies to all listeners and cannot be set for one";
    let lacks_proxies =
        "http.trusted_proxies: must name the proxies because http.proxy_protocol is on";
    for (line, expected) in [
        ("tracker.interval_s = 5", applies_to_all),
        ("acess.mode = \"deny\"", "4: unknown section [acess]: did you mean [access]?"),
        ("access.mod = \"deny\"", "4: unknown key `access.mod`: did you mean `access.mode`?"),
        ("mode = \"deny\"", "4: unknown key `mode`"),
        ("access.mode = \"no\"", "4: access.mode: expected one of"),
        ("access.mode = \"deny\"", "access.deny: must name a file because access.mode is \"deny\""),
        ("udp.trusted_proxies = []", "4: udp.trusted_proxies: does not apply to a listener of"),
        ("http.proxy_protocol = \"v1v2\"", lacks_proxies),
        ("http.trusted_proxies = [\"10.0.0.0/33\"]", "4: http.trusted_proxies: `10.0.0.0/33` is"),
    ] {
        let found = table(&format!("{good}{line}\n"));
        assert!(found.len() == 1 && found[0].starts_with(expected), "{line}: {found:?}");
    }
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
    assert_eq!(config("[http]\npage_text = \"a\\nb\"\n").page_text, "a\nb");
    let found = says(&format!("[http]\npage_text = \"{}\"\n", "x".repeat(4097)));
    assert_eq!(found, ["2: http.page_text: expected at most 4096 bytes, found 4097"]);
}

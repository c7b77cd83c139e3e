//! Tests of files and variables, and of the messages about mistakes in them.

use std::path::Path;

use tracker::access::Mode;

use super::{read, says};
use crate::*;

#[test]
fn messages_are_lines_whatever_a_name_contains() {
    let found = says("[tracker]\n\"a\\n\\u001b[31m\" = 1\n");
    assert_eq!(found, ["2: unknown key `tracker.a\\n\\u{1b}[31m`"]);
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
    // If no section is similar, all are named, but for [trace], which has no settings.
    let sections = "[state], [udp], [http], [access], [tls], [tls.acme], [tracker], [load], [limits], [bans], [admin], [log], \
                    [process], [geo], [cluster], [site], [xdp], [[listener]]";
    let unknown = format!("1: unknown section [webserver]: expected one of {sections}");
    assert_eq!(says("[webserver]\n"), [unknown]);
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
    for (value, described) in
        [("[1, \"a\"]", "[1, \"a\"]"), ("1979-05-27", "a value of another type"), ("true", "true")]
    {
        let text = format!("[udp]\nlisten = {value}\n");
        let message = format!("2: udp.listen: expected a list of strings, found {described}");
        assert_eq!(found(&text), message);
    }
    assert_eq!(
        found("[udp]\nworkers = 99999999999999999999\n"),
        "2: udp.workers: must be between 0 and 1024, found 1e+20"
    );
    let flag = "2: http.websocket: expected true or false, found \"yes\"";
    assert_eq!(found("[http]\nwebsocket = \"yes\"\n"), flag);
    for (level, expected) in [
        ("info,frnot=debug", "2: log.level: expected a log area (serve, "),
        ("front=loud", "2: log.level: expected a log level (error, "),
    ] {
        let message = found(&format!("[log]\nlevel = \"{level}\"\n"));
        assert!(message.starts_with(expected), "{message}");
    }
}

#[test]
fn says_how_to_write_values_without_quotes() {
    for (value, message) in [
        ("yes", "expected true or false, found `yes`: write true"),
        ("True", "expected true or false, found `True`: write true"),
        ("no  # for now", "expected true or false, found `no`: write false"),
        (
            "off",
            "expected true or false, found `off`: write false, or \"off\" if the key expects words",
        ),
        ("open", "expected a value, found `open` without quotes: write \"open\""),
        ("none", "expected a value, found `none` without quotes: write \"none\""),
    ] {
        let found = says(&format!("[access]\nprivate = {value}\n"));
        assert_eq!(found, [format!("2: {message}")]);
    }
    // Other messages of the parser stay.
    let found = says("[access]\nprivate = \"true\n");
    assert!(found[0].starts_with("2: ") && !found[0].contains("write"), "{found:?}");
}

#[test]
fn names_what_is_there_twice_and_where_it_is_first() {
    let key = "[udp]\nworkers = 1\n[http]\n workers=2\n# workers = 4\nworkers = 3\n";
    assert_eq!(
        says(key),
        ["6: `workers` is set twice, first in line 4: remove one of the two lines"]
    );
    let section = "[tracker] # ours\ninterval_s = 5\n[udp]\n\n[tracker]\nnumwant_max = 6\n";
    assert_eq!(
        says(section),
        ["5: [tracker] is there twice, first in line 1: put all its keys below one of them"]
    );
    let listener = "[[listener]]\nprotocol = \"http\"\nhttp.page = \"off\"\nhttp.page = \"urls\"\n";
    assert_eq!(
        says(listener),
        ["4: `http.page` is set twice, first in line 3: remove one of the two lines"]
    );
    let inline = "[tls]\ncertificates = [{ chain = \"a\", chain = \"b\" }]\n";
    assert_eq!(says(inline), ["2: `chain` is set twice: remove one of the two"]);
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
    let empty = says("[tls]\ncertificates = [{ chain = \"a\", key = \"\" }]\n");
    assert_eq!(empty, ["2: tls.certificates: chain and key must both name a file"]);
}

const ACME: &str = "[state]\ndir = \"/s\"\n[tls]\nlisten = [\"0.0.0.0:443\"]\n[tls.acme]\ndomains = [\"T.example\"]\n";

#[test]
fn reads_subsections() {
    let settings = read(&format!("{ACME}ca = \"ca.pem\"\n")).unwrap();
    let acme = Config::from_settings(&settings).unwrap().acme.unwrap();
    let expected = AcmeConfig {
        domains: vec!["t.example".into()],
        directory: "https://acme-v02.api.letsencrypt.org/directory".into(),
        cache: "/s/acme".into(),
        challenge: Challenge::TlsAlpn,
        ca: Some("ca.pem".into()),
    };
    assert_eq!(acme, expected);
    let shown = show(&settings);
    assert!(shown.contains("tls.acme.domains = [\"T.example\"]  # "), "{shown}");
    let variables = [("TIDEGATE_TLS__ACME__DOMAINS", "a.example, b.example")];
    let variables = variables.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let settings = load(None, variables.into_iter()).unwrap();
    assert_eq!(settings.sections.acme.domains.value, ["a.example", "b.example"]);
    let inline = read("[tls]\nacme = { domains = [\"a.example\"] }\nlisten = []\n").unwrap();
    assert_eq!(inline.sections.acme.domains.value, ["a.example"]);
    assert_eq!(
        says("[tls]\n[tls.acme]\ndomain = []\n"),
        ["3: unknown key `tls.acme.domain`: did you mean `tls.acme.domains`?"]
    );
    assert_eq!(says("[tls.amce]\n"), ["1: unknown section [tls.amce]: did you mean [tls.acme]?"]);
    assert_eq!(
        says("[tls]\nacme = 1\n"),
        ["2: `tls.acme` is a section, not a key: put its keys below [tls.acme]"]
    );
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

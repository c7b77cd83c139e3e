use serde_json::json;

use super::writer::{countries, systems, write};
use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn example() -> Vec<u8> {
    systems(&[
        ("1.2.0.0/16", 64500, "Example\nNet"),
        ("1.2.3.0/24", 64501, ""),
        ("2606:4700::/32", 64500, "Example\nNet"),
        ("8.0.0.0/7", 64502, &"x".repeat(100)),
    ])
}

#[test]
fn finds_systems_of_both_families() {
    let database = Database::from_bytes(example()).unwrap();
    let found = |text: &str| database.system(ip(text)).map(|system| (system.number, system.name));
    assert_eq!(found("1.2.9.9"), Some((64500, "ExampleNet".into())));
    assert_eq!(found("::ffff:1.2.3.4"), Some((64501, "".into())));
    assert_eq!(found("2606:4700::1"), Some((64500, "ExampleNet".into())));
    assert_eq!(found("9.9.9.9"), Some((64502, "x".repeat(64))));
    assert_eq!([found("1.3.0.0"), found("::1")], [None, None]);
    assert_eq!(database.kind(), "GeoLite2-ASN");
    let built = database.built().unwrap().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(built.as_secs(), 1_700_000_000);
}

#[test]
fn lists_the_networks_of_systems() {
    let database = Database::from_bytes(example()).unwrap();
    let found = |systems: &[u32]| {
        let mut found = Vec::new();
        let visit = |network: IpPrefix, system| {
            found.extend(systems.contains(&system).then(|| network.to_string()));
        };
        database.each_system(limits::GEO_NETWORKS_MAX, visit).unwrap();
        found.join(" ")
    };
    assert_eq!(found(&[64501, 64502]), "1.2.3.0/24 8.0.0.0/7");
    let networks = found(&[64500]);
    assert!(networks.starts_with("1.2.0.0/23 1.2.2.0/24 1.2.4.0/22"), "{networks}");
    assert!(networks.ends_with("1.2.128.0/17 2606:4700::/32"), "{networks}");
    assert_eq!(found(&[1]), "");
}

#[test]
fn reads_the_fields_of_several_vendors() {
    let file = write(
        "ipinfo",
        &[
            ("1.0.0.0/8", json!({ "asn": "AS77", "name": "Seven", "country": "DE" })),
            ("2.0.0.0/8", json!({ "asn": "x", "country_code": "FR" })),
            ("3.0.0.0/8", json!({ "country": "de" })),
            ("4.0.0.0/8", json!("no map")),
        ],
    );
    let database = Database::from_bytes(file).unwrap();
    assert_eq!(database.system(ip("1.1.1.1")), Some(System { number: 77, name: "Seven".into() }));
    let country = |text: &str| database.country(ip(text)).map(|country| country.to_string());
    assert_eq!([country("1.1.1.1"), country("2.2.2.2")], [Some("DE".into()), Some("FR".into())]);
    assert_eq!([country("3.3.3.3"), country("4.4.4.4"), country("5.5.5.5")], [None, None, None]);
    assert_eq!(database.system(ip("2.2.2.2")), None);
    let maxmind = Database::from_bytes(countries(&[("1.0.0.0/8", "NL")])).unwrap();
    assert_eq!(maxmind.country(ip("1.2.3.4")).unwrap().to_string(), "NL");
}

/// Damaged files are tested by the fuzzer's corpus.
#[test]
fn files_that_cannot_be_read_are_errors() {
    let says = Database::from_bytes(b"not a database".to_vec()).unwrap_err().to_string();
    assert!(says.starts_with("not a usable MMDB file: "), "{says}");
    let missing = Database::read(Path::new("/nonexistent/none.mmdb")).unwrap_err().to_string();
    assert!(missing.starts_with("/nonexistent/none.mmdb: cannot read the file: "), "{missing}");
}

/// A tree whose branches all lead to the next node has more paths than anyone could follow.
#[test]
fn a_tree_with_countless_paths_is_left() {
    let mut bytes = example();
    let count = bytes.windows(16).position(|window| window == [0; 16]).unwrap();
    let nodes = count / 8;
    for node in 0..nodes {
        for branch in 0..2 {
            let at = node * 8 + branch * 4;
            let next = if node + 1 < nodes { node + 1 } else { nodes };
            bytes[at..at + 4].copy_from_slice(&(next as u32).to_be_bytes());
        }
    }
    let database = Database::from_bytes(bytes).unwrap();
    assert!(nodes > 100, "{nodes} nodes");
    assert!(database.each_system(1000, |_, _| {}).is_err());
}

//! MMDB files: a damaged one is refused, or read without harm.

use std::net::IpAddr;

use geo::Database;

/// Networks that are visited: enough for a file of a few kilobytes.
const NETWORKS_MAX: usize = 2000;

/// MMDB files are refused, or read without harm and within bounds.
pub fn check(bytes: &[u8]) {
    let database = match Database::from_bytes(bytes.to_vec()) {
        Ok(database) => database,
        Err(error) => {
            let text = error.to_string();
            assert!(!text.is_empty() && !text.contains(char::is_control), "{text:?}");
            return;
        }
    };
    assert!(database.kind().chars().count() <= 64 && !database.kind().contains(char::is_control));
    let _ = database.built();
    for ip in ["1.2.3.4", "10.0.0.1", "255.255.255.255", "::", "2001:db8::1", "2606:4700::1"] {
        let ip: IpAddr = ip.parse().unwrap();
        let (system, country) = (database.system(ip), database.country(ip));
        if let Some(system) = &system {
            assert!(system.name.chars().count() <= 64 && !system.name.contains(char::is_control));
        }
        if let Some(country) = country {
            assert!(country.to_string().bytes().all(|byte| byte.is_ascii_uppercase()));
        }
    }
    let mut networks = 0;
    let _ = database.each_system(NETWORKS_MAX, |_, _| networks += 1);
    assert!(networks <= NETWORKS_MAX);
}

//! Networks that are refused: those on the deny list, and all that are not on the allow list.

#[cfg_attr(not(feature = "geo"), path = "../without/systems.rs")]
mod systems;

use anyhow::{Result, bail};
use tracker::Networks;
use types::limits::NETWORK_RANGES_MAX;

use config::Config;
use systems::Systems;

/// Returns the networks that `config` refuses.
///
/// # Errors
///
/// If the file of systems cannot be read, or there are too many networks.
pub(super) fn refused(config: &Config) -> Result<Networks> {
    let rules = &config.networks;
    let systems = Systems::read(config)?;
    let denied = systems.expand(&rules.deny, "access.networks_deny")?;
    if rules.allow.is_empty() {
        return check(denied);
    }
    let allowed = systems.expand(&rules.allow, "access.networks_allow")?;
    let allowed = allowed.union(&proxies(config));
    check(allowed.complement().union(&denied))
}

/// Returns the proxies that are trusted: their own requests carry those of clients.
fn proxies(config: &Config) -> Networks {
    let all = config.groups.iter().flat_map(|group| {
        [Some(&group.http.trusted_proxies), group.simple_proxies.as_ref()].into_iter().flatten()
    });
    all.fold(Networks::default(), |all, proxies| all.union(proxies))
}

fn check(refused: Networks) -> Result<Networks> {
    if refused.len() > NETWORK_RANGES_MAX {
        bail!(
            "access.networks_allow and networks_deny come to {} ranges of addresses: expected at most \
             {NETWORK_RANGES_MAX}",
            refused.len()
        );
    }
    Ok(refused)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use geo::writer::systems;
    use harness::Directory;

    use super::*;
    use config::{Settings, load};

    fn config(directory: &Directory, text: &str) -> Config {
        let path = directory.path("tidegate.toml");
        fs::write(&path, text.replace("FILE", directory.path("asn.mmdb").to_str().unwrap()))
            .unwrap();
        let settings: Settings = load(Some(&path), std::iter::empty()).unwrap();
        Config::from_settings(&settings).unwrap()
    }

    fn example() -> Directory {
        let directory = Directory::new().unwrap();
        let file = systems(&[
            ("198.51.100.0/24", 64500, "one"),
            ("2001:db8::/32", 64500, "one"),
            ("192.0.2.0/24", 64501, "two"),
        ]);
        fs::write(directory.path("asn.mmdb"), file).unwrap();
        directory
    }

    #[test]
    fn systems_become_their_networks() {
        let directory = example();
        let refused = |text: &str| {
            let text = format!("[geo]\nasn = \"FILE\"\n[access]\n{text}");
            refused(&config(&directory, &text))
                .map(|networks| move |ip: &str| networks.contains(ip.parse().unwrap()))
        };
        let is_refused = refused("networks_deny = [\"AS64500\", \"203.0.113.9\"]").unwrap();
        assert!(
            is_refused("198.51.100.7") && is_refused("2001:db8::1") && is_refused("203.0.113.9")
        );
        assert!(!is_refused("192.0.2.1") && !is_refused("203.0.113.8") && !is_refused("::1"));
        let is_refused = refused(
            "networks_allow = [\"AS64500\", \"10.0.0.0/8\"]\nnetworks_deny = [\"198.51.100.7\"]\n\
             [http]\ntrusted_proxies = [\"127.0.0.1\"]",
        )
        .unwrap();
        assert!(!is_refused("198.51.100.6") && is_refused("198.51.100.7"));
        assert!(!is_refused("10.1.1.1") && is_refused("11.1.1.1"));
        assert!(!is_refused("2001:db8::1") && is_refused("2001:db9::1"));
        assert!(!is_refused("127.0.0.1") && is_refused("127.0.0.2"));
        let error = refused("networks_deny = [\"AS7\"]").map(drop).unwrap_err().to_string();
        assert!(error.starts_with("access.networks_deny: AS7 has no networks in "), "{error}");
        let everything = refused("").unwrap();
        assert!(!everything("1.2.3.4"));
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let directory = example();
        fs::write(directory.path("asn.mmdb"), "no database").unwrap();
        let config =
            config(&directory, "[geo]\nasn = \"FILE\"\n[access]\nnetworks_deny = [\"AS64500\"]\n");
        let error = refused(&config).unwrap_err().to_string();
        assert!(error.starts_with("geo.asn: ") && error.contains("not a usable MMDB"), "{error}");
    }
}

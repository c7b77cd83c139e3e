//! Networks of the configuration: which clients are refused, or get less.

#[cfg_attr(not(feature = "geo"), path = "../without/systems.rs")]
mod systems;

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use tracker::{IpPrefix, NetworkAction, NetworkTable, Networks};
use types::limits::NETWORK_RANGES_MAX;

use super::lists::ListReader;
use config::{Config, ListSource, NetworkRule, NetworkSet};
use systems::Systems;

pub(super) fn table(config: &Config, reader: &mut ListReader) -> Result<NetworkTable> {
    let rules = &config.networks;
    let systems = Systems::read(config)?;
    let mut denied = expand(&rules.deny, "access.networks_deny", &systems, reader)?;
    if !rules.allow.is_empty() {
        let allowed = expand(&rules.allow, "access.networks_allow", &systems, reader)?;
        let proxies = proxies(config);
        let allowed = allowed.into_values().fold(proxies, |all, some| all.union(&some));
        let of_deny = denied.entry(NetworkAction::Deny).or_default();
        *of_deny = of_deny.union(&allowed.complement());
    }
    let table = NetworkTable::new(denied);
    if table.ranges() > NETWORK_RANGES_MAX {
        bail!(
            "access.networks_allow and networks_deny come to {} ranges of addresses: expected at most \
             {NETWORK_RANGES_MAX}",
            table.ranges()
        );
    }
    Ok(table)
}

#[derive(Default)]
struct Entries<'a> {
    prefixes: Vec<IpPrefix>,
    systems: Vec<u32>,
    countries: Vec<&'a str>,
    lists: Vec<&'a ListSource>,
}

fn expand(
    rules: &[NetworkRule],
    key: &'static str,
    systems: &Systems,
    reader: &mut ListReader,
) -> Result<BTreeMap<NetworkAction, Networks>> {
    let mut by_action: BTreeMap<NetworkAction, Entries<'_>> = BTreeMap::new();
    for rule in rules {
        let entries = by_action.entry(rule.action).or_default();
        match &rule.set {
            NetworkSet::Prefix(prefix) => entries.prefixes.push(*prefix),
            NetworkSet::System(number) => entries.systems.push(*number),
            NetworkSet::Country(code) => entries.countries.push(code),
            NetworkSet::List(source) => entries.lists.push(source),
        }
    }
    let mut expanded = BTreeMap::new();
    for (action, entries) in by_action {
        let mut networks: Networks = entries.prefixes.into_iter().collect();
        let of_systems = systems.expand(&entries.systems, &entries.countries, key)?;
        networks = networks.union(&of_systems);
        for source in entries.lists {
            networks = networks.union(&reader.networks(key, source).context(key)?);
        }
        expanded.insert(action, networks);
    }
    Ok(expanded)
}

/// Returns the proxies that are trusted: their own requests carry those of clients.
fn proxies(config: &Config) -> Networks {
    let all = config.groups.iter().flat_map(|group| {
        [Some(&group.http.trusted_proxies), group.simple_proxies.as_ref()].into_iter().flatten()
    });
    all.fold(Networks::default(), |all, proxies| all.union(proxies))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use geo::writer::{countries, systems};
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

    fn read(directory: &Directory, text: &str) -> Result<NetworkTable> {
        table(&config(directory, text), &mut ListReader::default())
    }

    #[test]
    fn systems_become_their_networks() {
        let directory = example();
        let refused = |text: &str| {
            let text = format!("[geo]\nasn = \"FILE\"\n[access]\n{text}");
            let table = read(&directory, &text);
            table.map(|table| {
                move |ip: &str| table.find(ip.parse().unwrap()) == Some(NetworkAction::Deny)
            })
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
    fn entries_have_actions_of_their_own() {
        let directory = example();
        let file = countries(&[("203.0.113.0/24", "ZZ"), ("198.51.100.0/24", "ZZ")]);
        fs::write(directory.path("country.mmdb"), file).unwrap();
        let (list, country) = (directory.path("bad.txt"), directory.path("country.mmdb"));
        fs::write(&list, "# bad\nsome: one:192.0.2.4-192.0.2.5\n192.0.2.128/25\n").unwrap();
        let text = format!(
            "[geo]\nasn = \"FILE\"\ncountry = {country:?}\n[access]\nnetworks_deny = [\"AS64500=quiet\", \
             \"country:ZZ=numwant:10\", \"file:{}\", \"192.0.2.5=numwant:3\", \"192.0.2.7=numwant:3\"]",
            list.display()
        );
        let mut reader = ListReader::default();
        let table = table(&config(&directory, &text), &mut reader).unwrap();
        let action = |ip: &str| table.find(ip.parse().unwrap());
        assert_eq!(action("198.51.100.7"), Some(NetworkAction::Quiet));
        assert_eq!(action("203.0.113.7"), Some(NetworkAction::Numwant(10)));
        assert_eq!(action("192.0.2.5"), Some(NetworkAction::Deny));
        assert_eq!(action("192.0.2.200"), Some(NetworkAction::Deny));
        assert_eq!(action("192.0.2.7"), Some(NetworkAction::Numwant(3)));
        assert_eq!(action("192.0.2.8"), None);
        fs::write(&list, "192.0.2.4\n192.0.2.300\n").unwrap();
        let error = format!("{:#}", read(&directory, &text).unwrap_err());
        assert!(error.starts_with("access.networks_deny: ") && error.contains("line 2"), "{error}");
        let missing = "[geo]\ncountry = \"/none\"\n[access]\nnetworks_deny = [\"country:ZZ\"]";
        let error = read(&directory, missing).unwrap_err().to_string();
        assert!(error.starts_with("geo.country: /none"), "{error}");
    }
}

//! Counts peers by autonomous system and by country, every few minutes, on a thread of its own with low priority.
//! No request waits for it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::Result;
use geo::{Country, CountryPeers, Database, NetworkFile, NetworkStatus, ROWS_MAX, SystemPeers};
use net::process::lower_priority;
use tokio::sync::watch;
use tracing::{error, info, warn};
use tracker::{Near, Tracker, ZoneNetwork, Zones};
use types::limits;

use super::module::{Findings, Module, Running};
use super::workers::follow;
use crate::access::{FileState, file_state};
use config::{Config, GeoConfig, NearConfig};

/// A count that took 1 s is not repeated within 20 s: counting takes at most 5 % of a core.
const PAUSE_FACTOR: u32 = 20;
/// Peers that are looked up in one count: a second's work. Of more, every second, third, … one is.
const SAMPLE_MAX: u64 = 1_000_000;

#[derive(Default)]
pub(super) struct GeoModule {
    configs: watch::Sender<GeoConfig>,
}

impl Module for GeoModule {
    fn check(&self, config: &Config, _is_running: bool, findings: &mut Findings) {
        for (key, path) in [("geo.asn", &config.geo.asn), ("geo.country", &config.geo.country)] {
            if !path.as_os_str().is_empty()
                && let Err(error) = Database::read(path)
            {
                findings.problems.push(format!("{key}: {error}"));
            }
        }
    }

    fn serve(&mut self, running: &mut Running<'_>) -> Result<()> {
        self.configure(running.config);
        let status = Arc::<Mutex<NetworkStatus>>::default();
        let shown = Arc::clone(&status);
        let subsystems = &running.workers.metric_sources().subsystems;
        subsystems.add("geo", move || shown.lock().unwrap_or_else(PoisonError::into_inner).clone());
        let mut counter = GeoCounter {
            tracker: Arc::clone(&running.shared.tracker),
            status,
            asn: GeoSource::default(),
            country: GeoSource::default(),
            near: None,
        };
        let (configs, stop) = (self.configs.subscribe(), running.workers.stopping());
        running.workers.start("geo", lower_priority, move || {
            follow(configs, stop, async |config| counter.run(&config).await)
        })
    }

    fn configure(&mut self, config: &Config) {
        self.configs.send_replace(config.geo.clone());
    }
}

struct GeoCounter {
    tracker: Arc<Tracker>,
    status: Arc<Mutex<NetworkStatus>>,
    asn: GeoSource,
    country: GeoSource,
    /// The sources of the zones of near peers; `None` = there are no zones.
    near: Option<(NearConfig, Option<FileState>)>,
}

/// A file that says where networks belong, as it was when it was last read.
#[derive(Default)]
struct GeoSource {
    path: PathBuf,
    seen: Option<FileState>,
    database: Option<Database>,
    problem: Option<String>,
}

/// The peers of a count so far, by what their networks belong to.
#[derive(Default)]
struct Sums {
    peers: u64,
    sampled: u64,
    systems: BTreeMap<u32, (String, u64)>,
    systems_unknown: u64,
    countries: BTreeMap<Country, u64>,
    countries_unknown: u64,
}

impl GeoCounter {
    async fn run(&mut self, config: &GeoConfig) {
        loop {
            let began = Instant::now();
            // A file may be made to do harm. What a panic leaves behind is replaced as a whole.
            if catch_unwind(AssertUnwindSafe(|| self.count(config))).is_err() {
                error!("counting peers by network panicked (see the message above)");
            }
            let pause = Duration::from_secs(config.interval_s.into());
            tokio::time::sleep(pause.max(began.elapsed() * PAUSE_FACTOR)).await;
        }
    }

    /// Makes the zones of near peers, if they are on and something has changed.
    fn follow_near(&mut self, config: &NearConfig) {
        let wanted = (config.percent > 0).then(|| (config.clone(), self.asn.seen));
        if wanted == self.near {
            return;
        }
        let near = wanted.is_some().then(|| Arc::new(near(config, self.asn.database.as_ref())));
        if let Some(near) = &near {
            let bytes = near.own.memory_bytes() + near.systems.memory_bytes();
            info!(percent = near.percent, bytes, "responses have peers of the client's zone");
        }
        self.tracker.set_near(near);
        self.near = wanted;
    }

    fn count(&mut self, config: &GeoConfig) {
        self.asn.follow("geo.asn", &config.asn);
        self.country.follow("geo.country", &config.country);
        self.follow_near(&config.near);
        let sources = [("asn", &self.asn), ("country", &self.country)];
        let files = sources.iter().filter_map(|(kind, source)| source.file(kind)).collect();
        let problems = sources.iter().filter_map(|(_, source)| source.problem.clone()).collect();
        let mut status = NetworkStatus { files, problems, ..NetworkStatus::default() };
        let (asn, country) = (self.asn.database.as_ref(), self.country.database.as_ref());
        if asn.is_some() || country.is_some() {
            let known = self.tracker.totals();
            let all = [known.v4, known.v6].map(|role| role.seeders + role.leechers);
            let every = all.iter().sum::<u64>().div_ceil(SAMPLE_MAX).max(1);
            let sums = sums(every, asn, country, |see| self.tracker.store().each_address(see));
            status = sums.complete(status);
        }
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }
}

/// Returns zones and systems for responses with near peers. Systems that cannot be read are left out.
fn near(config: &NearConfig, asn: Option<&Database>) -> Near {
    let own = (0..).zip(&config.zones).flat_map(|(zone, networks)| {
        networks.iter().map(move |network| ZoneNetwork { network: *network, zone })
    });
    let mut systems = Vec::new();
    let add = |network, zone| systems.push(ZoneNetwork { network, zone });
    let read = asn.map_or(Ok(()), |asn| asn.each_system(limits::GEO_NETWORKS_MAX, add));
    if let Err(error) = read {
        warn!("geo.near_percent: systems are not used: {error}");
        systems.clear();
    }
    Near { percent: config.percent, own: Zones::new(own), systems: Zones::new(systems) }
}

fn sums(
    every: u64,
    asn: Option<&Database>,
    country: Option<&Database>,
    visit: impl FnOnce(&mut dyn FnMut(IpAddr)),
) -> Sums {
    let mut sums = Sums::default();
    visit(&mut |ip| {
        sums.peers += 1;
        if sums.peers % every != 0 {
            return;
        }
        sums.sampled += 1;
        match asn.map(|asn| asn.system(ip)) {
            Some(Some(it)) => sums.systems.entry(it.number).or_insert((it.name, 0)).1 += 1,
            Some(None) => sums.systems_unknown += 1,
            None => {}
        }
        match country.map(|country| country.country(ip)) {
            Some(Some(country)) => *sums.countries.entry(country).or_default() += 1,
            Some(None) => sums.countries_unknown += 1,
            None => {}
        }
    });
    sums
}

impl Sums {
    /// Completes a status with these counts, scaled to all peers.
    fn complete(self, status: NetworkStatus) -> NetworkStatus {
        let (peers, sampled) = (self.peers, self.sampled);
        let scaled = |count: u64| {
            (u128::from(count) * u128::from(peers) / u128::from(sampled.max(1))) as u64
        };
        let system = |(asn, (name, count))| SystemPeers { asn, name, peers: scaled(count) };
        let mut systems: Vec<_> = self.systems.into_iter().map(system).collect();
        let country = |(country, count): (Country, u64)| CountryPeers {
            country: country.to_string(),
            peers: scaled(count),
        };
        let mut countries: Vec<_> = self.countries.into_iter().map(country).collect();
        let (systems_total, countries_total) = (systems.len() as u64, countries.len() as u64);
        // Stable: equal counts stay in the order of numbers and letters.
        systems.sort_by_key(|row| Reverse(row.peers));
        countries.sort_by_key(|row| Reverse(row.peers));
        systems.truncate(ROWS_MAX);
        countries.truncate(ROWS_MAX);
        NetworkStatus {
            counted_at: Some(Instant::now()),
            peers,
            sampled,
            systems,
            systems_total,
            systems_unknown: scaled(self.systems_unknown),
            countries,
            countries_total,
            countries_unknown: scaled(self.countries_unknown),
            ..status
        }
    }
}

impl GeoSource {
    /// Reads the file at `path` if it is another one than before, which stays in use if that fails.
    fn follow(&mut self, key: &str, path: &Path) {
        if self.path != path {
            *self = Self { path: path.to_owned(), ..Self::default() };
        }
        if path.as_os_str().is_empty() {
            return;
        }
        let seen = file_state(path);
        if seen.is_some() && seen == self.seen {
            return;
        }
        match Database::read(path) {
            Ok(database) => {
                info!(file = %path.display(), kind = database.kind(), "read {key}");
                (self.database, self.problem) = (Some(database), None);
            }
            Err(error) => {
                let problem = format!("{key}: {error}");
                if self.problem.as_ref() != Some(&problem) {
                    warn!("{problem}");
                }
                self.problem = Some(problem);
            }
        }
        self.seen = seen;
    }

    fn file(&self, kind: &'static str) -> Option<NetworkFile> {
        let database = self.database.as_ref()?;
        let built = database.built().and_then(|built| built.duration_since(UNIX_EPOCH).ok());
        Some(NetworkFile {
            kind,
            r#type: database.kind(),
            built: built.map(|built| built.as_secs()),
        })
    }
}

#[cfg(test)]
mod tests {
    use geo::writer::{countries, systems};
    use harness::Directory;

    use super::*;

    #[test]
    fn counts_are_by_network_and_scaled_from_a_sample() {
        let asn = systems(&[("10.0.0.0/8", 64500, "ten"), ("11.0.0.0/8", 64501, "eleven")]);
        let asn = Database::from_bytes(asn).unwrap();
        let country = Database::from_bytes(countries(&[("10.0.0.0/9", "DE")])).unwrap();
        let visit = |see: &mut dyn FnMut(IpAddr)| {
            for number in 0..1000_u32 {
                let [_, _, high, low] = number.to_be_bytes();
                // Three of ten are in no file's networks.
                let first = [10, 10, 10, 10, 10, 11, 11, 12, 12, 12][number as usize % 10];
                see(IpAddr::from([first, high, low, 1]));
            }
        };
        let whole = sums(1, Some(&asn), Some(&country), visit);
        let whole = whole.complete(NetworkStatus::default());
        let system = |asn, name: &str, peers| SystemPeers { asn, name: name.into(), peers };
        assert_eq!(whole.systems, [system(64500, "ten", 500), system(64501, "eleven", 200)]);
        assert_eq!((whole.systems_unknown, whole.peers, whole.sampled), (300, 1000, 1000));
        assert_eq!(whole.countries, [CountryPeers { country: "DE".into(), peers: 500 }]);
        assert_eq!(whole.countries_unknown, 500);
        let sample = sums(7, Some(&asn), None, visit).complete(NetworkStatus::default());
        assert_eq!((sample.peers, sample.sampled, sample.countries), (1000, 142, Vec::new()));
        let ten = sample.systems[0].peers;
        assert!((400..600).contains(&ten), "{ten}");
    }

    #[test]
    fn a_file_is_followed_and_a_damaged_one_changes_nothing() {
        let directory = Directory::new().unwrap();
        let path = directory.path("asn.mmdb");
        let number = |source: &GeoSource| {
            source.database.as_ref()?.system([10, 0, 0, 1].into()).map(|system| system.number)
        };
        let mut source = GeoSource::default();
        source.follow("geo.asn", &path);
        assert!(source.problem.as_ref().unwrap().starts_with("geo.asn: "));
        std::fs::write(&path, systems(&[("10.0.0.0/8", 1, "one")])).unwrap();
        source.follow("geo.asn", &path);
        assert_eq!((number(&source), source.problem.clone()), (Some(1), None));
        std::fs::write(&path, "damaged").unwrap();
        source.follow("geo.asn", &path);
        assert!(number(&source) == Some(1) && source.problem.is_some());
        std::fs::write(&path, systems(&[("10.0.0.0/8", 2, "a longer name")])).unwrap();
        source.follow("geo.asn", &path);
        assert_eq!((number(&source), source.problem.clone()), (Some(2), None));
        assert_eq!(source.file("asn").unwrap().r#type, "GeoLite2-ASN");
        source.follow("geo.asn", Path::new(""));
        assert!(source.database.is_none() && source.problem.is_none());
    }
}

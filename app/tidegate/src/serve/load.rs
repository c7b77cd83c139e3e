//! Paces clients by load: every few seconds, takes what the workers have counted and the processor time that they have
//! used, and puts longer intervals and budgets in force.

use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use anyhow::Result;
use net::process::thread_times;
use pace::{DayFile, Pacer, Processors};
use tracker::counters::MetricsRegistry;
use tracker::{BytesOfDay, LoadTime, Tracker};

use super::module::{Loading, Module, Opening, Running};
use super::time::unix_ms;
use super::upgrade::Upgrader;
use config::{Config, worker_count};

/// Beginnings of the names of UDP and TCP workers.
const WORKERS: [&str; 2] = ["udp-", "http-"];

pub(super) struct LoadModule {
    started: Instant,
    pacer: Option<Pacer>,
    serving: Option<Serving>,
    step: Duration,
    last: Instant,
    processors: Processors,
    day: Option<DayFile>,
}

struct Serving {
    tracker: Arc<Tracker>,
    registry: Arc<MetricsRegistry>,
}

impl Default for LoadModule {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            started: now,
            pacer: None,
            serving: None,
            step: Duration::ZERO,
            last: now,
            processors: Processors::default(),
            day: None,
        }
    }
}

impl LoadModule {
    fn now(&self) -> LoadTime {
        let steady_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        LoadTime { steady_ms, unix_s: unix_ms() / 1000 }
    }

    fn decide(&mut self) {
        let now = self.now();
        let (Some(pacer), Some(serving)) = (&mut self.pacer, &self.serving) else { return };
        let processors = Processors { used: thread_times(WORKERS), ..self.processors };
        pacer.step(&serving.tracker, now, &serving.registry.read(), &processors);
        self.last = Instant::now();
    }

    /// Continues the bytes of today, which the process before this one has left.
    fn read_day(&mut self) {
        let (Some(day), Some(pacer)) = (&self.day, &mut self.pacer) else { return };
        match day.read() {
            Ok(before) => before.iter().for_each(|before| pacer.resume(before)),
            Err(error) => tracing::warn!(
                target: "load",
                "cannot read {}: {error}; the bytes of today are counted from now on",
                day.path().display()
            ),
        }
    }

    fn write_day(&mut self, write: impl FnOnce(&mut DayFile, &BytesOfDay) -> io::Result<()>) {
        let (Some(day), Some(pacer)) = (&mut self.day, &self.pacer) else { return };
        let Some(today) = pacer.bytes_of_day() else { return };
        if let Err(error) = write(day, &today) {
            tracing::warn!(
                target: "load",
                "cannot write {}: {error}; a restart renews the bytes of today",
                day.path().display()
            );
        }
    }
}

impl Module for LoadModule {
    /// Before swarms are restored, whose peers may have the longest intervals.
    fn open(&mut self, opening: &mut Opening<'_>) -> Result<()> {
        let config = &*opening.config;
        self.processors.workers = [config.udp_workers, config.http_workers].map(worker_count);
        // The limits of a container are files that the sandbox hides.
        self.processors.cores = available_parallelism().map_or(1, NonZero::get);
        self.pacer = Some(Pacer::new(config.load.rules.clone(), opening.tracker, self.now()));
        self.step = Duration::from_secs(config.load.step_s.into());
        Ok(())
    }

    fn load(&mut self, loading: &mut Loading<'_>) -> Result<()> {
        self.day = loading.config.state_dir.as_deref().map(DayFile::new);
        self.read_day();
        Ok(())
    }

    fn serve(&mut self, running: &mut Running<'_>) -> Result<()> {
        let sources = running.workers.metric_sources();
        let tracker = Arc::clone(&running.shared.tracker);
        self.serving = Some(Serving { tracker, registry: Arc::clone(&sources.registry) });
        if let Some(pacer) = &self.pacer {
            sources.subsystems.add("load", pacer.status_source());
        }
        // Metrics have all services from the start.
        self.decide();
        Ok(())
    }

    /// Reads once more what the old process wrote when it handed over.
    fn take_over(&mut self, _upgrader: &mut Upgrader) {
        self.read_day();
    }

    fn tick(&mut self) {
        if self.last.elapsed() < self.step {
            return;
        }
        self.decide();
        let (now, step) = (self.started.elapsed(), self.step);
        self.write_day(|day, today| day.keep(now, step, today));
    }

    fn configure(&mut self, config: &Config) {
        self.step = Duration::from_secs(config.load.step_s.into());
        if let Some(pacer) = &mut self.pacer {
            pacer.set_rules(config.load.rules.clone());
        }
    }

    fn hand_over(&mut self) -> Result<()> {
        self.decide();
        self.write_day(|day, today| day.write(today));
        Ok(())
    }

    fn stop(&mut self, _deadline: Instant) {
        self.decide();
        self.write_day(|day, today| day.write(today));
    }
}

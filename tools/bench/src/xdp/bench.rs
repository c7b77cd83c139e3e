//! Code that the benchmarks share: the network, the trackers in it, and one measurement.

use std::fs;
use std::net::UdpSocket;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::generator::{Counter, FrameCounts, Generator, Pace, Snapshot};
use super::maps::{CLASSES, SLOTS};
use super::network::{ADDRESS, Arrangement, Network, TRACKER_DEVICE, napi_threads};
use super::traffic::{self, Clients, HOSTILE, LoadKind, Witness};
use super::{ENGINES, XdpArgs};
use crate::lab::{Lab, NoiseMonitor, Place, Protocol, RunningTracker, Subject};
use crate::record::Figures;
use crate::session::print_line;

/// Frames of a burst. A network interface hands over many at a time, too.
pub(super) const BURST: u32 = 32;
/// Before a measurement.
const WARM_UP: Duration = Duration::from_millis(300);
/// Time for every client to announce twice.
const POPULATED: Duration = Duration::from_secs(20);
/// Longest time after a tracker's end until its port is free.
const PORT_FREE: Duration = Duration::from_secs(30);
/// One step of the search for a rate.
const STEP: Duration = Duration::from_millis(150);
/// Losing more than this is too fast. A search that finds a tracker at its limit goes this far below.
pub(super) const LOST_MAX: f64 = 0.01;
const BELOW_LIMIT: f64 = 0.9;

/// A tracker with its settings.
pub(super) struct Entrant {
    pub(super) name: String,
    pub(super) subject: Subject,
    environment: Vec<(&'static str, String)>,
}

/// The lab.
pub(super) struct Bench {
    pub(super) lab: Lab,
    pub(super) network: Network,
    pub(super) counter: Counter,
    time: Duration,
    /// The tracker's processor, and the generator's.
    processors: [usize; 2],
}

/// A tracker that runs, and what is known of it.
pub(super) struct Running {
    pub(super) tracker: RunningTracker,
    pub(super) clients: Clients,
    witness: Witness,
}

impl Bench {
    /// Sets up the lab.
    pub(super) fn new(arguments: &XdpArgs, lab: Lab) -> Result<Self> {
        let processors = processors(&lab)?;
        fs::write(lab.folder.path("hashes"), traffic::info_hashes())?;
        let network = Network::new()?;
        let counter = Counter::attach(&network)?;
        let time = Duration::from_millis(arguments.milliseconds.into());
        Ok(Self { lab, network, counter, time, processors })
    }

    /// Returns tidegate's engines and other trackers, as far as they are installed.
    pub(super) fn entrants(&self, only: &[String]) -> Result<Vec<Entrant>> {
        let tidegate = self.lab.tidegate()?;
        let engine = |name: &str| Entrant {
            name: name.to_owned(),
            subject: tidegate.clone(),
            environment: environment(name),
        };
        let mut all: Vec<Entrant> = ENGINES.iter().map(|name| engine(name)).collect();
        let (subjects, missing) = self.lab.subjects((Protocol::Udp, "xdp"), &[])?;
        missing.iter().for_each(|sentence| print_line(sentence));
        let entrant =
            |subject: Subject| Entrant { name: subject.name(), subject, environment: Vec::new() };
        all.extend(subjects.into_iter().skip(1).map(entrant));
        if let Some(name) = only.iter().find(|name| all.iter().all(|one| one.name != **name)) {
            let names: Vec<_> = all.iter().map(|one| &*one.name).collect();
            bail!("unknown tracker {name}: expected one of {}", names.join("; "));
        }
        all.retain(|one| only.is_empty() || only.contains(&one.name));
        Ok(all)
    }

    /// Starts a tracker, and connects all clients.
    pub(super) fn start(&self, entrant: &Entrant) -> Result<Running> {
        self.arrange(Arrangement::Sender)?;
        let address = ADDRESS.into();
        self.wait_for_port()?;
        let namespace = Some(&self.network.tracker);
        let place = Place { namespace, address, processors: &self.processors[..1] };
        let own = entrant.environment.iter().map(|(name, value)| (*name, &**value));
        let environment: Vec<(&str, &str)> = own.collect();
        let started = self.lab.start_at(&entrant.subject, Protocol::Udp, place, &environment);
        let tracker = started.with_context(|| format!("cannot start {}", entrant.name))?;
        let clients = Clients::connect(&self.network);
        let clients = clients.with_context(|| entrant.name.clone())?;
        let witness = self.network.generator.run(Witness::new)?;
        Ok(Running { tracker, clients, witness })
    }

    /// Waits until the port is free: io_uring closes the sockets of a process some time after its end.
    fn wait_for_port(&self) -> Result<()> {
        let end = Instant::now() + PORT_FREE;
        while let Err(error) = self.network.tracker.run(|| UdpSocket::bind(ADDRESS)) {
            ensure!(Instant::now() < end, "{ADDRESS} stays in use: {error}");
            sleep(STEP);
        }
        Ok(())
    }

    /// Decides which processor pays for receiving.
    pub(super) fn arrange(&self, arrangement: Arrangement) -> Result<()> {
        self.network.arrange(arrangement, self.processors[0])
    }

    /// Has every client announce, so that torrents have their peers.
    pub(super) fn populate(&self, running: &Running) -> Result<()> {
        let frames = running.clients.load(LoadKind::Announces);
        let generator = Generator::new(&self.network, &frames)?;
        generator.pace(Pace { per_s: 60_000.0, burst: BURST })?;
        self.while_sending(&generator, || {
            let end = Instant::now() + POPULATED;
            let is_sent = |one: &FrameCounts| one.sent >= 2 * SLOTS as u64;
            while !generator.snapshot(&self.counter)?.tallies.iter().any(is_sent) {
                ensure!(Instant::now() < end, "the generator is too slow");
                sleep(Duration::from_millis(20));
            }
            Ok(())
        })
    }

    /// Sends the generator's frames while `work` runs.
    pub(super) fn while_sending<T>(
        &self,
        generator: &Generator,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        generator.run(&self.network, self.processors[1], work)
    }

    /// Searches the highest rate, in bursts of this many frames, at which the tracker loses almost
    /// nothing, from a guess in this many steps, and returns one a little below. The generator must be
    /// sending.
    pub(super) fn find_rate(
        &self,
        generator: &Generator,
        (guess, burst): (f64, u32),
        steps: u32,
    ) -> Result<f64> {
        let (mut rate, mut best, mut factor) = (guess, f64::NAN, 1.3);
        for _ in 0..steps {
            generator.pace(Pace { per_s: rate, burst })?;
            sleep(STEP / 4);
            let before = generator.snapshot(&self.counter)?;
            sleep(STEP);
            let (seconds, tallies) = generator.snapshot(&self.counter)?.since(&before);
            let sent_s = tallies.iter().map(|one| one.sent).sum::<u64>() as f64 / seconds;
            if lost_part(&tallies) > LOST_MAX {
                // A higher rate that passed earlier was luck.
                best = f64::min(best, rate / factor);
                rate /= factor;
                factor = f64::sqrt(factor);
            } else if sent_s < 0.95 * rate {
                // The generator is the limit.
                return Ok(sent_s * BELOW_LIMIT);
            } else {
                best = f64::max(best, rate);
                rate *= factor;
            }
        }
        Ok(if best.is_nan() { rate } else { best } * BELOW_LIMIT)
    }

    /// Measures a tracker while the generator sends.
    pub(super) fn measure(&self, running: &mut Running, generator: &Generator) -> Result<Figures> {
        sleep(WARM_UP);
        let [tracker, _] = self.processors;
        let noise = NoiseMonitor::start(vec![tracker])?;
        let process = running.tracker.process();
        let busy_before_s = busy_s(process, tracker)?;
        let before = generator.snapshot(&self.counter)?;
        while before.at.elapsed() < self.time {
            running.witness.ask()?;
        }
        let after = generator.snapshot(&self.counter)?;
        let busy_s = busy_s(process, tracker)? - busy_before_s;
        running.tracker.check()?;
        let noise = noise.noise(busy_s)?;
        Ok(figures(&before, &after, busy_s).with("noise", noise))
    }

    /// Makes sure that the tracker still answers, and returns how many whole replies were checked.
    pub(super) fn confirm(&self, running: &mut Running) -> Result<f64> {
        running.witness.confirm()?;
        Ok(running.witness.verified as f64)
    }
}

/// Returns the tracker's processor, and that of the generator and of everything else.
pub(super) fn processors(lab: &Lab) -> Result<[usize; 2]> {
    let split = lab.split(1)?;
    let first = |all: &[usize]| all.first().copied().context("no processor");
    Ok([first(&split.tracker)?, first(&split.load)?])
}

/// Returns the settings of an engine.
fn environment(engine: &str) -> Vec<(&'static str, String)> {
    let (name, mode) = engine.split_once(", ").unwrap_or((engine, "driver"));
    let mut settings = vec![
        ("TIDEGATE_UDP__ENGINE", name.to_owned()),
        ("TIDEGATE_UDP__LISTEN", format!("[\"{ADDRESS}\"]")),
        ("TIDEGATE_HTTP__LISTEN", "[]".to_owned()),
    ];
    if name != ENGINES[0] {
        settings.extend([
            ("TIDEGATE_XDP__INTERFACES", format!("[\"{TRACKER_DEVICE}\"]")),
            ("TIDEGATE_XDP__MODE", mode.to_owned()),
            ("TIDEGATE_XDP__REQUIRED", "true".to_owned()),
        ]);
    }
    settings
}

/// Returns the part of the requests without a reply. Of hostile ones there is none: honest ones among
/// them fare as they do.
fn lost_part(tallies: &[FrameCounts; CLASSES]) -> f64 {
    let asking = || tallies.iter().enumerate().filter(|(class, _)| *class != usize::from(HOSTILE));
    let sent: u64 = asking().map(|(_, one)| one.sent).sum();
    let answered: u64 = asking().map(|(_, one)| one.answered()).sum();
    1.0 - answered as f64 / sent.max(1) as f64
}

fn figures(before: &Snapshot, after: &Snapshot, busy_s: f64) -> Figures {
    let (seconds, tallies) = after.since(before);
    let sum = |of: fn(&FrameCounts) -> u64| tallies.iter().map(of).sum::<u64>() as f64;
    let lost = lost_part(&tallies);
    let hostile = &tallies[usize::from(HOSTILE)];
    // Requests that the tracker has dealt with.
    let done =
        sum(FrameCounts::answered) - hostile.answered() as f64 + hostile.sent as f64 * (1.0 - lost);
    let announces = sum(|one| one.announces);
    // Trackers that answer hostile requests send errors.
    let bytes = sum(|one| one.bytes) - hostile.bytes as f64;
    let mut figures = Figures::default()
        .with("seconds", seconds)
        .with("sent_s", sum(|one| one.sent) / seconds)
        .with("responses_s", done / seconds)
        .with("hostile_answered_s", hostile.answered() as f64 / seconds)
        .with("errors_s", sum(|one| one.errors + one.others) / seconds)
        .with("per_cpu_s", done / busy_s)
        .with("lost_part", lost.max(0.0))
        .with("busy_part", busy_s / seconds);
    if announces > 0.0 {
        // Of the bytes of all replies, those that connects do not have are the announces'.
        let of_connects = (sum(|one| one.connects) - hostile.connects as f64) * 24.0;
        figures.set("reply_bytes", (bytes - of_connects) / announces - 8.0);
    }
    figures
}

/// Returns for how long the tracker's threads have run, and the kernel's threads that receive for it, in seconds. Time of
/// interrupts is charged to the thread that they interrupt.
fn busy_s(process: u32, processor: usize) -> Result<f64> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).context("the tracker has ended")?;
    let tasks = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok());
    let threads = tasks.chain(napi_threads()).chain(softirq_thread(processor));
    Ok(threads.filter_map(run_time_s).sum())
}

fn run_time_s(thread: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{thread}/schedstat")).ok()?;
    Some(text.split_whitespace().next()?.parse::<f64>().ok()? / 1e9)
}

/// Returns the thread that does what interrupts leave on a processor.
fn softirq_thread(processor: usize) -> Option<u32> {
    let name = format!("ksoftirqd/{processor}");
    // The kernel's threads have the first numbers.
    (2..200).find(|number| {
        fs::read_to_string(format!("/proc/{number}/comm")).is_ok_and(|text| text.trim() == name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdp::traffic::HONEST;

    #[test]
    fn hostile_requests_need_no_reply() {
        let mut tallies = [FrameCounts::default(); CLASSES];
        tallies[usize::from(HOSTILE)].sent = 1000;
        tallies[usize::from(HONEST)] =
            FrameCounts { sent: 10, announces: 9, ..FrameCounts::default() };
        assert!((lost_part(&tallies) - 0.1).abs() < 1e-9);
        let at = Instant::now();
        let before = Snapshot { at, tallies: [FrameCounts::default(); CLASSES] };
        let after = Snapshot { at: at + Duration::from_secs(2), tallies };
        let figures = figures(&before, &after, 1.0);
        let figure = |name| figures.get(name).unwrap();
        assert!(
            (figure("per_cpu_s") - 909.0).abs() < 1e-6 && (figure("sent_s") - 505.0).abs() < 1e-6
        );
    }
}

//! The generator: frames made beforehand, sent by the kernel on the generator's processor at a chosen
//! rate, and the counts of the replies.

use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, ScopedJoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use nix::sys::pthread::{Pthread, pthread_kill, pthread_self};
use nix::sys::signal::Signal;
use xdp::Mode;
use xdp::bpf::{self, MapKind, MapSpec};

use super::maps::{self, GeneratorMaps};
use super::network::Network;
use crate::lab::on;

const LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";
/// Frames that the kernel takes at a time.
const BATCH: u32 = 64;
/// Ends when a signal arrives.
const FOREVER: u32 = 1 << 30;
/// Interrupts the thread of the generator. Its handler only has to exist.
const INTERRUPT: Signal = Signal::SIGUSR1;
const PATIENCE: Duration = Duration::from_secs(5);

const SLOTS: MapSpec = MapSpec {
    name: "tg_slots",
    kind: MapKind::Array,
    value_len: maps::SLOT as u32,
    entries: maps::SLOTS as u32,
};
const CONTROL: MapSpec = single("tg_control", 8 * maps::CONTROL_WORDS);
const STATE: MapSpec = single("tg_state", 8 * maps::STATE_WORDS);
const COUNTS: MapSpec = single("tg_counts", 8 * maps::COUNT_WORDS);

const fn single(name: &'static str, len: usize) -> MapSpec {
    MapSpec { name, kind: MapKind::Array, value_len: len as u32, entries: 1 }
}

/// A frame of a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// By which it is counted.
    pub(super) class: u8,
    pub(super) frame: Vec<u8>,
}

/// Rate at which frames leave, and the size of bursts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pace {
    /// Frames per second; infinite = as fast as the processor can.
    pub(super) per_s: f64,
    /// Frames that leave together.
    pub(super) burst: u32,
}

/// Counts of the frames of a class that were sent, and of the replies to them by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FrameCounts {
    pub(super) sent: u64,
    pub(super) connects: u64,
    pub(super) announces: u64,
    pub(super) errors: u64,
    pub(super) others: u64,
    /// UDP headers and payloads of all that came back.
    pub(super) bytes: u64,
}

/// Frames sent and replies received until a moment, by class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Snapshot {
    pub(super) at: Instant,
    pub(super) tallies: [FrameCounts; maps::CLASSES],
}

/// Counts the replies at the generator's end; until dropped.
pub(super) struct Counter {
    counts: OwnedFd,
    _link: OwnedFd,
}

/// The generator with the frames of a load.
pub(super) struct Generator {
    control: OwnedFd,
    state: OwnedFd,
    program: OwnedFd,
    /// The index of the generator's device.
    device: u32,
    /// Frames are as long as the longest when the program gets them.
    template: Vec<u8>,
}

impl FrameCounts {
    fn since(&self, before: &Self) -> Self {
        Self {
            sent: self.sent - before.sent,
            connects: self.connects - before.connects,
            announces: self.announces - before.announces,
            errors: self.errors - before.errors,
            others: self.others - before.others,
            bytes: self.bytes - before.bytes,
        }
    }

    /// Returns the number of replies to connects and announces.
    pub(super) fn answered(&self) -> u64 {
        self.connects + self.announces
    }
}

impl Snapshot {
    /// Returns what was sent and came back since an earlier one, and the seconds between them.
    pub(super) fn since(&self, before: &Self) -> (f64, [FrameCounts; maps::CLASSES]) {
        let mut tallies = self.tallies;
        for (tally, before) in tallies.iter_mut().zip(&before.tallies) {
            *tally = tally.since(before);
        }
        ((self.at - before.at).as_secs_f64(), tallies)
    }
}

impl Counter {
    /// Attaches the counting program to the generator's end.
    pub(super) fn attach(network: &Network) -> Result<Self> {
        let counts = create(&COUNTS)?;
        let code = maps::counter(counts.as_fd());
        let device = network.generator_device()?;
        let program = bpf::load_program("tg_counter", LICENSE, &code)?;
        let attach = || bpf::attach_xdp(program.as_fd(), device, Mode::Driver);
        let link = network.generator.run(attach).context("cannot attach to the veth pair")?;
        Ok(Self { counts, _link: link })
    }
}

impl Generator {
    /// Makes a generator of these frames, of which there may be up to [`maps::SLOTS`]; that many
    /// must be a multiple of theirs.
    pub(super) fn new(network: &Network, frames: &[Slot]) -> Result<Self> {
        let len = frames.iter().map(|one| one.frame.len()).max().context("a load has no frames")?;
        ensure!(maps::SLOTS.is_multiple_of(frames.len()), "{} frames", frames.len());
        let (slots, control, state) = (create(&SLOTS)?, create(&CONTROL)?, create(&STATE)?);
        for (number, slot) in frames.iter().cycle().take(maps::SLOTS).enumerate() {
            set(&slots, &SLOTS, number as u32, &slot.bytes())?;
        }
        let maps =
            GeneratorMaps { slots: slots.as_fd(), control: control.as_fd(), state: state.as_fd() };
        let code = maps::generator(maps);
        let program = bpf::load_program("tg_generator", LICENSE, &code)?;
        // The program keeps the slots.
        let device = network.generator_device()?;
        Ok(Self { control, state, program, device, template: vec![0; len] })
    }

    /// Changes how fast frames leave.
    pub(super) fn pace(&self, pace: Pace) -> Result<()> {
        let interval = f64::from(pace.burst) / pace.per_s * 1e9;
        let len = self.template.len() as u64;
        let words = [interval.round() as u64, pace.burst.max(1).into(), len, self.device.into()];
        set(&self.control, &CONTROL, 0, words.map(u64::to_ne_bytes).as_flattened())
    }

    /// Returns what was sent and what came back until now.
    pub(super) fn snapshot(&self, counter: &Counter) -> Result<Snapshot> {
        let at = Instant::now();
        let sent = words(&value(&self.state, &STATE)?);
        let counts = words(&value(&counter.counts, &COUNTS)?);
        let mut tallies = [FrameCounts::default(); maps::CLASSES];
        for (class, tally) in tallies.iter_mut().enumerate() {
            let of_all = |kind: usize| {
                let first = counts.iter().skip(class * maps::COUNTS + kind);
                first.step_by(maps::CLASSES * maps::COUNTS).sum()
            };
            *tally = FrameCounts {
                sent: sent[maps::SENT + class],
                connects: of_all(0),
                announces: of_all(1),
                errors: of_all(2),
                others: of_all(3),
                bytes: of_all(maps::BYTES),
            };
        }
        Ok(Snapshot { at, tallies })
    }

    /// Sends frames on this processor while `work` runs.
    pub(super) fn run<T>(
        &self,
        network: &Network,
        processor: usize,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        // Without a handler the signal would end the process.
        let _flag = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(INTERRUPT as i32, _flag).context("cannot handle a signal")?;
        let stop = AtomicBool::new(false);
        let (name_thread, thread_name) = mpsc::channel();
        thread::scope(|scope| {
            let sender = scope.spawn(|| -> Result<()> {
                let name = pthread_self();
                let _inside = network.generator.enter()?;
                on(&[processor], || {
                    let _ = name_thread.send(name);
                    self.send(&stop)
                })?
            });
            let name = thread_name.recv_timeout(PATIENCE).ok();
            let done = match name {
                Some(_) => work(),
                None => Err(anyhow!("the generator did not start")),
            };
            stop.store(true, Ordering::Relaxed);
            end(name, &sender);
            sender.join().map_err(|_| anyhow!("the generator panicked"))??;
            done
        })
    }

    fn send(&self, stop: &AtomicBool) -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            match bpf::run_live(self.program.as_fd(), &self.template, FOREVER, BATCH) {
                Err(error) if error.kind() != ErrorKind::Interrupted => {
                    return Err(error).context("cannot send live frames (needs Linux 5.18)");
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Interrupts the generator's thread until it has ended.
fn end<T>(name: Option<Pthread>, thread: &ScopedJoinHandle<'_, T>) {
    while !thread.is_finished() {
        if let Some(name) = name {
            // It was alive a moment ago; its name is valid until it is joined.
            let _ = pthread_kill(name, INTERRUPT);
        }
        sleep(Duration::from_millis(5));
    }
}

impl Slot {
    /// Returns the slot as the generator's program reads it.
    pub(super) fn bytes(&self) -> [u8; maps::SLOT] {
        let mut bytes = [0; maps::SLOT];
        bytes[..2].copy_from_slice(&(self.frame.len() as u16).to_ne_bytes());
        bytes[2] = self.class;
        bytes[maps::SLOT_HEAD..][..self.frame.len()].copy_from_slice(&self.frame);
        bytes
    }
}

fn create(spec: &MapSpec) -> Result<OwnedFd> {
    bpf::create_map(spec).context("cannot create a BPF map (needs CAP_BPF)")
}

fn set(map: &OwnedFd, spec: &MapSpec, key: u32, value: &[u8]) -> Result<()> {
    bpf::update_element(map.as_fd(), spec, key, value).context(spec.name)
}

fn value(map: &OwnedFd, spec: &MapSpec) -> Result<Vec<u8>> {
    let mut value = vec![0; spec.value_len as usize];
    bpf::look_up_element(map.as_fd(), spec, 0, &mut value).context(spec.name)?;
    Ok(value)
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().copied().map(u64::from_ne_bytes).collect()
}

//! Two network namespaces and a veth pair between them: the tracker's and the generator's.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::sched::{CloneFlags, setns};

use super::frames::{Family, GENERATOR_MAC, TRACKER_MAC};
use super::report::CASES;

/// The veth pair's end in each namespace.
pub(super) const TRACKER_DEVICE: &str = "tgt0";
const GENERATOR_DEVICE: &str = "tgg0";
/// Every tracker has a namespace of its own, and this port.
pub(super) const PORT: u16 = 6969;
/// Addresses of both ends, for documentation (RFC 5737, RFC 3849): to a tracker they are public.
const TRACKER_V4: &str = "203.0.113.1";
const GENERATOR_V4: &str = "203.0.113.2";
const TRACKER_V6: &str = "2001:db8:1::1";
const GENERATOR_V6: &str = "2001:db8:1::2";
/// Names of all namespaces begin so; the number of the process follows.
const PREFIX: &str = "tg-bench-";
const NAMESPACES: &str = "/run/netns";
/// Real-time priority of the NAPI thread: above all that is not. At any other, a busy tracker keeps it
/// from emptying the ring of 256 frames.
const NAPI_PRIORITY: &str = "50";

/// The processor that pays for receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrangement {
    /// V1: the generator's processor, which hands the frames over.
    Sender,
    /// V2: the tracker's processor, by a NAPI thread of its end of the pair.
    Tracker,
}

impl Arrangement {
    /// Returns those that are wanted, all if none is named, with their names in records.
    pub(super) fn wanted(only: Option<&str>) -> impl Iterator<Item = (Self, &'static str)> {
        let all = [Self::Sender, Self::Tracker].into_iter().zip(CASES);
        all.filter(move |(_, name)| only.is_none_or(|only| only == *name))
    }
}

/// The namespaces; removed on drop.
pub(super) struct Network {
    tracker: String,
    generator: String,
}

impl Network {
    /// Sets up both namespaces. Leftovers of processes that were killed are removed first.
    pub(super) fn new() -> Result<Self> {
        remove_leftovers();
        let name = |end: &str| format!("{PREFIX}{}-{end}", std::process::id());
        let network = Self { tracker: name("t"), generator: name("g") };
        network.set_up().context("cannot set up network namespaces (they need CAP_SYS_ADMIN, CAP_NET_ADMIN, iproute2 and ethtool)")?;
        Ok(network)
    }

    fn set_up(&self) -> Result<()> {
        let Self { tracker, generator } = self;
        let mac = |bytes: [u8; 6]| bytes.map(|byte| format!("{byte:02x}")).join(":");
        let (tracker_mac, generator_mac) = (mac(TRACKER_MAC), mac(GENERATOR_MAC));
        for line in [
            format!("netns add {tracker}"),
            format!("netns add {generator}"),
            format!(
                "-n {tracker} link add {TRACKER_DEVICE} address {tracker_mac} type veth \
                 peer name {GENERATOR_DEVICE} address {generator_mac} netns {generator}"
            ),
            format!("-n {tracker} link set lo up"),
            format!("-n {generator} link set lo up"),
        ] {
            ip(&line)?;
        }
        for (name, device, v4, v6) in [
            (tracker, TRACKER_DEVICE, TRACKER_V4, TRACKER_V6),
            (generator, GENERATOR_DEVICE, GENERATOR_V4, GENERATOR_V6),
        ] {
            ip(&format!("-n {name} addr add {v4}/24 dev {device}"))?;
            ip(&format!("-n {name} addr add {v6}/64 dev {device} nodad"))?;
            ip(&format!("-n {name} link set {device} up"))?;
        }
        for (name, device, peer, peer_mac) in [
            (tracker, TRACKER_DEVICE, [GENERATOR_V4, GENERATOR_V6], generator_mac),
            (generator, GENERATOR_DEVICE, [TRACKER_V4, TRACKER_V6], tracker_mac),
        ] {
            for peer in peer {
                ip(&format!("-n {name} neigh replace {peer} lladdr {peer_mac} dev {device}"))?;
            }
        }
        // Clients are local to the generator's namespace, so that ordinary sockets can be any of them.
        for (clients, gateway) in
            [("198.18.0.0/15", GENERATOR_V4), ("2001:db8:2::/47", GENERATOR_V6)]
        {
            ip(&format!("-n {tracker} route add {clients} via {gateway}"))?;
            ip(&format!("-n {generator} route add local {clients} dev lo"))?;
        }
        inside(tracker, || {
            for device in ["all", TRACKER_DEVICE] {
                fs::write(format!("/proc/sys/net/ipv4/conf/{device}/rp_filter"), "0")?;
            }
            Ok(())
        })?;
        inside(generator, || Ok(fs::write("/proc/sys/net/ipv6/ip_nonlocal_bind", "1")?))?;
        // Frames that arrive by XDP need NAPI at the receiving end: GRO or a program brings it.
        run(self.command("ethtool").args(["-K", TRACKER_DEVICE, "gro", "on"]))
    }

    /// Returns the tracker's address.
    pub(super) fn address(family: Family) -> SocketAddr {
        let ip = match family {
            Family::V4 => TRACKER_V4.parse().map(std::net::IpAddr::V4),
            Family::V6 => TRACKER_V6.parse().map(std::net::IpAddr::V6),
        };
        SocketAddr::new(ip.expect("the constants are addresses"), PORT)
    }

    /// Returns the name of the tracker's namespace.
    pub(super) fn tracker(&self) -> &str {
        &self.tracker
    }

    /// Runs something in the generator's namespace, by a thread of its own.
    pub(super) fn in_generator<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        inside(&self.generator, work)
    }

    /// The same in the tracker's.
    pub(super) fn in_tracker<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        inside(&self.tracker, work)
    }

    /// Moves this thread into the generator's namespace.
    pub(super) fn enter_generator(&self) -> Result<()> {
        enter(&self.generator)
    }

    /// Returns the index of the generator's device.
    pub(super) fn generator_device(&self) -> Result<u32> {
        self.in_generator(|| {
            nix::net::if_::if_nametoindex(GENERATOR_DEVICE).context("the veth pair is gone")
        })
    }

    /// Decides which processor pays for receiving. The tracker must be running: its XDP program may bring the NAPI
    /// thread.
    pub(super) fn arrange(&self, arrangement: Arrangement, processor: usize) -> Result<()> {
        let is_threaded = arrangement == Arrangement::Tracker;
        let file = format!("/sys/class/net/{TRACKER_DEVICE}/threaded");
        let line = format!("echo {} > {file}", u8::from(is_threaded));
        run(self.command("sh").args(["-c", &line]))?;
        if is_threaded {
            let threads = napi_threads();
            ensure!(!threads.is_empty(), "{TRACKER_DEVICE} has no NAPI thread");
            for thread in threads {
                let (thread, processor) = (thread.to_string(), processor.to_string());
                run(Command::new("taskset").args(["-p", "-c", &processor, &thread]))?;
                run(Command::new("chrt").args(["-f", "-p", NAPI_PRIORITY, &thread]))?;
            }
        }
        Ok(())
    }

    /// Returns a command in the tracker's namespace, with its /sys.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.tracker, program]);
        command
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in [&self.tracker, &self.generator] {
            // What could not be set up cannot be removed.
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

/// Returns the NAPI threads of the tracker's device.
pub(super) fn napi_threads() -> Vec<u32> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = processes.flatten().filter_map(|one| one.file_name().to_str()?.parse().ok());
    let name = format!("napi/{TRACKER_DEVICE}-");
    let is_one = |number: &u32| {
        let command = fs::read_to_string(format!("/proc/{number}/comm"));
        command.is_ok_and(|command| command.starts_with(&name))
    };
    numbers.filter(is_one).collect()
}

/// Runs something in a network namespace, by a thread of its own, which need not return.
fn inside<T: Send>(namespace: &str, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            enter(namespace)?;
            work()
        });
        thread.join().map_err(|_| anyhow!("a thread in {namespace} panicked"))?
    })
}

/// Moves this thread into a network namespace.
fn enter(namespace: &str) -> Result<()> {
    let file = File::open(Path::new(NAMESPACES).join(namespace))
        .with_context(|| format!("no network namespace {namespace}"))?;
    setns(file, CloneFlags::CLONE_NEWNET).context("cannot enter a network namespace")
}

/// Removes namespaces of processes that have ended.
fn remove_leftovers() {
    let Ok(names) = fs::read_dir(NAMESPACES) else { return };
    for name in names.flatten().filter_map(|one| one.file_name().into_string().ok()) {
        let Some((process, _)) = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'))
        else {
            continue;
        };
        if !Path::new("/proc").join(process).exists() {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

fn ip(line: &str) -> Result<()> {
    run(Command::new("ip").args(line.split_whitespace())).with_context(|| format!("ip {line}"))
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output();
    let program = command.get_program().to_string_lossy().into_owned();
    let output = output.with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        bail!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

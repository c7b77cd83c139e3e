//! Two network namespaces and a veth pair between them: the tracker's and the generator's.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use harness::network::Namespace;

use super::frames::{GENERATOR_MAC, TRACKER_MAC};
use super::report::CASES;

/// The veth pair's end in each namespace.
pub(super) const TRACKER_DEVICE: &str = "tgt0";
const GENERATOR_DEVICE: &str = "tgg0";
/// The tracker's address, and that of the generator: both are for documentation (RFC 5737), and public to a tracker.
pub(super) const ADDRESS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 1), 6969);
const GENERATOR: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);
const CLIENTS: &str = "198.18.0.0/15";
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

/// The namespaces. Nothing is left of them when this process has ended.
pub(super) struct Network {
    pub(super) tracker: Namespace,
    pub(super) generator: Namespace,
}

impl Network {
    /// Sets up both namespaces.
    pub(super) fn new() -> Result<Self> {
        let obstacle = harness::network::Network::obstacle();
        ensure!(obstacle.is_none(), "no network namespaces {}", obstacle.unwrap_or_default());
        let network = Self { tracker: Namespace::new()?, generator: Namespace::new()? };
        network.set_up().context("cannot set up network namespaces (with iproute2 and ethtool)")?;
        Ok(network)
    }

    fn set_up(&self) -> Result<()> {
        let mac = |bytes: [u8; 6]| bytes.map(|byte| format!("{byte:02x}")).join(":");
        let (tracker_mac, generator_mac) = (mac(TRACKER_MAC), mac(GENERATOR_MAC));
        let tracker = *ADDRESS.ip();
        let end = |device: &str, own: Ipv4Addr, peer: Ipv4Addr, peer_mac: &str| {
            format!(
                "link set lo up\naddress add {own}/24 dev {device}\nlink set {device} up\n\
                 neighbour replace {peer} lladdr {peer_mac} dev {device}\n"
            )
        };
        self.tracker.ip(&format!(
            "link add {TRACKER_DEVICE} address {tracker_mac} type veth \
             peer name {GENERATOR_DEVICE} address {generator_mac} netns {}\n{}",
            self.generator.path(),
            end(TRACKER_DEVICE, tracker, GENERATOR, &generator_mac)
        ))?;
        self.generator.ip(&end(GENERATOR_DEVICE, GENERATOR, tracker, &tracker_mac))?;
        // Clients are local to the generator's namespace, so that ordinary sockets can be any of them.
        self.tracker.ip(&format!("route add {CLIENTS} via {GENERATOR}\n"))?;
        self.generator.ip(&format!("route add local {CLIENTS} dev lo\n"))?;
        for device in ["all", TRACKER_DEVICE] {
            self.tracker.set(&format!("net/ipv4/conf/{device}/rp_filter"), "0")?;
        }
        // Frames that arrive by XDP need NAPI at the receiving end: GRO or a program brings it.
        self.tracker.run_command("ethtool", &["-K", TRACKER_DEVICE, "gro", "on"]).map(drop)
    }

    /// Returns the index of the generator's device.
    pub(super) fn generator_device(&self) -> Result<u32> {
        let index = self.generator.run(|| nix::net::if_::if_nametoindex(GENERATOR_DEVICE));
        index.context("the veth pair is gone")
    }

    /// Decides which processor pays for receiving. The tracker must be running: its XDP program may bring
    /// the NAPI thread.
    pub(super) fn arrange(&self, arrangement: Arrangement, processor: usize) -> Result<()> {
        let is_threaded = arrangement == Arrangement::Tracker;
        // The files of /sys are of the namespace in which it is mounted.
        let line = format!(
            "mount -t sysfs sysfs /sys && echo {} > /sys/class/net/{TRACKER_DEVICE}/threaded",
            u8::from(is_threaded)
        );
        self.tracker.run_command("unshare", &["--mount", "sh", "-c", &line])?;
        if is_threaded {
            let threads = napi_threads();
            ensure!(!threads.is_empty(), "{TRACKER_DEVICE} has no NAPI thread");
            for thread in threads {
                let (thread, processor) = (thread.to_string(), processor.to_string());
                run("taskset", &["-p", "-c", &processor, &thread])?;
                run("chrt", &["-f", "-p", NAPI_PRIORITY, &thread])?;
            }
        }
        Ok(())
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

fn run(program: &str, words: &[&str]) -> Result<()> {
    let mut command = Command::new(program);
    command.args(words);
    harness::output(command).context("taskset and chrt are in util-linux").map(drop)
}

//! A veth pair between two network namespaces: the tracker's and the load's.
//!
//! Engines before the socket cannot be measured over loopback, which has no driver. A NAPI thread on the tracker's
//! processor takes the frames from the pair, as a network card's driver does.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use harness::network::{Namespace, Network};

/// The end of the pair in each namespace. Definitions of trackers name the first.
const TRACKER_DEVICE: &str = "tgt0";
const LOAD_DEVICE: &str = "tgl0";
const TRACKER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const LOAD: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PORT: u16 = 6969;
/// Link-layer addresses of both ends. They are known to both, so that nothing waits for ARP.
const TRACKER_MAC: &str = "02:00:00:00:00:01";
const LOAD_MAC: &str = "02:00:00:00:00:02";
/// GRO brings NAPI at the receiving end. Without TSO of the sender's, all frames take that way, with a program or
/// without, and so the tracker's processor receives them. Each datagram is a frame, as on a wire.
const FEATURES: &[&str] = &["gro", "on", "tso", "off", "gso", "off", "tx-udp-segmentation", "off"];
/// Real-time priority of the NAPI thread: above all that is not. At any other, a busy tracker keeps it
/// from emptying the ring of 256 frames.
const NAPI_PRIORITY: &str = "50";

/// The namespaces. Nothing is left of them when this process has ended.
pub(crate) struct VethPair {
    pub(crate) tracker: Namespace,
    pub(crate) load: Namespace,
}

impl VethPair {
    /// The tracker's address.
    pub(crate) const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(TRACKER), PORT);

    /// Sets up both namespaces.
    ///
    /// # Errors
    ///
    /// Fails without root, iproute2 and ethtool.
    pub(crate) fn new() -> Result<Self> {
        let obstacle = Network::obstacle();
        ensure!(obstacle.is_none(), "no network namespaces {}", obstacle.unwrap_or_default());
        let pair = Self { tracker: Namespace::new()?, load: Namespace::new()? };
        pair.set_up().context("cannot set up a veth pair (with iproute2 and ethtool)")?;
        Ok(pair)
    }

    fn set_up(&self) -> Result<()> {
        let end = |device: &str, own: Ipv4Addr, peer: Ipv4Addr, peer_mac: &str| {
            format!(
                "link set lo up\naddress add {own}/24 dev {device}\nlink set {device} up\n\
                 neighbour replace {peer} lladdr {peer_mac} dev {device}\n"
            )
        };
        self.tracker.ip(&format!(
            "link add {TRACKER_DEVICE} address {TRACKER_MAC} type veth \
             peer name {LOAD_DEVICE} address {LOAD_MAC} netns {}\n{}",
            self.load.path(),
            end(TRACKER_DEVICE, TRACKER, LOAD, LOAD_MAC)
        ))?;
        self.load.ip(&end(LOAD_DEVICE, LOAD, TRACKER, TRACKER_MAC))?;
        for (namespace, device) in [(&self.tracker, TRACKER_DEVICE), (&self.load, LOAD_DEVICE)] {
            namespace.run_command("ethtool", &[&["-K", device], FEATURES].concat())?;
        }
        Ok(())
    }

    /// Has the tracker's processor receive. Returns the kernel's threads that do it. The tracker must be running: its
    /// XDP program may bring the NAPI thread.
    pub(crate) fn receive_on(&self, processor: usize) -> Result<Vec<u32>> {
        // The files of /sys are of the namespace in which it is mounted.
        let line = format!(
            "mount -t sysfs sysfs /sys && echo 1 > /sys/class/net/{TRACKER_DEVICE}/threaded"
        );
        self.tracker.run_command("unshare", &["--mount", "sh", "-c", &line])?;
        let mut threads = kernel_threads(&format!("napi/{TRACKER_DEVICE}-"));
        ensure!(!threads.is_empty(), "{TRACKER_DEVICE} has no NAPI thread");
        for thread in &threads {
            let thread = thread.to_string();
            run("taskset", &["-p", "-c", &processor.to_string(), &thread])?;
            run("chrt", &["-f", "-p", NAPI_PRIORITY, &thread])?;
        }
        // It does what interrupts leave.
        threads.extend(kernel_threads(&format!("ksoftirqd/{processor}")));
        Ok(threads)
    }
}

/// Returns the threads of the kernel that have this name, or begin with it if it ends with `-`.
fn kernel_threads(name: &str) -> Vec<u32> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = processes.flatten().filter_map(|one| one.file_name().to_str()?.parse().ok());
    let is_one = |number: &u32| {
        let command = fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
        command.trim_end() == name || name.ends_with('-') && command.starts_with(name)
    };
    numbers.filter(is_one).collect()
}

fn run(program: &str, words: &[&str]) -> Result<()> {
    let mut command = Command::new(program);
    let output = command.args(words).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {program} (util-linux)"))?;
    let message = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {message}", words.join(" "));
    Ok(())
}

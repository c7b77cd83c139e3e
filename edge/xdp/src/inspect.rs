//! Reports to operators, before a start, what they should know about XDP on this machine.

use std::fs;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::sys::utsname::uname;

use super::ethtool::Ethtool;
use super::handover::InheritedXdp;
use super::interface::{Interface, Network};
use super::netlink::Netlink;
use super::{Inspection, Listener, Mode, Xdp, XdpOptions};
use net::process::{Capability, missing_capabilities};

/// The oldest kernel that the program is made for, and the oldest that is recommended.
const KERNEL_MIN: (u32, u32) = (5, 10);
const KERNEL_RECOMMENDED: (u32, u32) = (6, 1);
/// The longest packets, in bytes, of most drivers whose programs see frames of one page.
const MTU_USUAL_MAX: u32 = 3498;
/// Bytes of a frame of an AF_XDP socket.
const FRAME_LEN: u64 = 4096;

impl Inspection {
    /// Looks at kernel, rights and interfaces, and sets the program up for a moment if nothing is in the
    /// way. Some drivers restart an interface for that.
    pub fn new(options: &XdpOptions, listeners: Vec<Listener>) -> Self {
        let mut this = Self::default();
        this.inspect_kernel();
        let interfaces = this.inspect_interfaces(options, &listeners);
        if options.redirect {
            let queues: u32 = interfaces.iter().map(|it| it.queues).sum();
            this.inspect_memory(u64::from(queues) * u64::from(options.frames) * FRAME_LEN);
        }
        match Xdp::open(options, listeners, InheritedXdp::default()) {
            Ok(xdp) => {
                for it in xdp.control.interfaces() {
                    this.notes.push(format!(
                        "{}: the program was attached and detached again: driver {}, {} mode",
                        it.name,
                        it.driver,
                        it.mode.label(),
                    ));
                    if it.mode == Mode::Generic && options.mode == Mode::Auto {
                        this.warnings.push(format!(
                            "{}: the driver has no XDP, or not with these settings: generic mode is slower",
                            it.name
                        ));
                    }
                }
                this.warnings.extend(xdp.warnings);
            }
            Err(error) => this.obstacle = Some(error.reason),
        }
        this
    }

    fn inspect_kernel(&mut self) {
        let release = uname().ok().map(|it| it.release().to_string_lossy().into_owned());
        let release = release.unwrap_or_default();
        let version = version(&release);
        if version < Some(KERNEL_MIN) {
            self.warnings.push(format!("Linux {release} is older than 5.10: not tested"));
        } else if version < Some(KERNEL_RECOMMENDED) {
            self.warnings.push(format!("Linux {release}: 6.1 or newer is recommended"));
        }
        let is_off = fs::read_to_string("/proc/sys/net/core/bpf_jit_enable");
        if is_off.is_ok_and(|text| text.trim() == "0") {
            self.warnings.push(
                "net.core.bpf_jit_enable is 0: the program is interpreted, which takes ten times as long"
                    .into(),
            );
        }
    }

    /// Describes the interfaces that get the program. Obstacles are left to the attempt.
    fn inspect_interfaces(
        &mut self,
        options: &XdpOptions,
        listeners: &[Listener],
    ) -> Vec<Interface> {
        let chosen = || {
            let mut netlink = Netlink::open().ok()?;
            let network = Network::read(&mut netlink).ok()?;
            let ethtool = Ethtool::open().ok()?;
            network.choose(options, listeners, &ethtool, |_| true).ok()
        };
        let interfaces = chosen().unwrap_or_default();
        for interface in &interfaces {
            self.inspect_interface(interface, options);
        }
        interfaces
    }

    fn inspect_interface(&mut self, interface: &Interface, options: &XdpOptions) {
        let Interface { name, driver, queues, mtu, features, .. } = interface;
        let workers = options.workers;
        self.notes.push(format!("{name}: driver {driver}, receive queues: {queues}, MTU {mtu}"));
        if *mtu > MTU_USUAL_MAX {
            self.warnings.push(format!(
                "{name}: most drivers have no XDP with an MTU of more than {MTU_USUAL_MAX}: it is {mtu}"
            ));
        }
        for (is_on, feature) in [(features.lro, "lro"), (features.gro_hw, "rx-gro-hw")] {
            if is_on {
                self.warnings.push(format!(
                    "{name}: the hardware joins frames: `ethtool -K {name} {feature} off`"
                ));
            }
        }
        if interface.is_veth {
            let gro = if features.gro { "" } else { ", and GRO on" };
            self.warnings.push(format!(
                "{name} is a veth: replies arrive only if the other end has an XDP program, too{gro}"
            ));
        }
        let queues = *queues as usize;
        if options.redirect && queues > workers {
            self.notes.push(format!(
                "{name}: fewer workers ({workers}) than queues ({queues}): `ethtool -L {name} combined {workers}` \
                 gives each one"
            ));
        } else if options.redirect && queues < workers {
            self.notes.push(format!(
                "{name}: fewer queues ({queues}) than workers ({workers}): the others have UDP sockets only"
            ));
        }
    }

    fn inspect_memory(&mut self, needed: u64) {
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        let Ok((_, hard)) = getrlimit(Resource::RLIMIT_MEMLOCK) else { return };
        let has_right = missing_capabilities(&[Capability::CAP_IPC_LOCK]).is_empty();
        if has_right || hard == RLIM_INFINITY || hard >= needed {
            self.notes.push(format!("{} MiB of memory are locked", mib(needed)));
        } else {
            self.warnings.push(format!(
                "{} MiB of memory are to be locked, and the limit is {} MiB: raise LimitMEMLOCK (ulimit -l) \
                 or give CAP_IPC_LOCK",
                mib(needed),
                mib(hard)
            ));
        }
    }
}

/// Returns the first two numbers of a kernel's version.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

//! Where a test's tracker and its clients are: on this host's loopback addresses, or on two hosts of a network
//! with one of the engines of `udp.engine` between them.
//!
//! A test of UDP is written once. [`on_engines`] repeats it on the network with each engine. The test's thread
//! is then in the clients' namespace, and so are all sockets that it opens.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use harness::network::{self, Entered, MTU, Network};

/// Declares tests that repeat others with each engine, as `mmsg::NAME`, `shield::NAME` and so on. Without the
/// rights to set up a network they pass and print that they were skipped.
macro_rules! on_engines {
    ($($test:ident),+ $(,)?) => {
        crate::site::on_engines! { @
            mmsg Mmsg, shield Shield, xdp_driver XdpDriver, xdp_generic XdpGeneric; [$($test),+]
        }
    };
    (@ $($module:ident $engine:ident),+; $tests:tt) => {
        $(
            mod $module {
                crate::site::on_engines! { @@ $engine $tests }
            }
        )+
    };
    (@@ $engine:ident [$($test:ident),+]) => {
        $(
            #[test]
            fn $test() {
                crate::site::on(crate::site::Engine::$engine, super::$test);
            }
        )+
    };
}
pub(crate) use on_engines;

thread_local! {
    static SITE: RefCell<Option<Rc<Site>>> = const { RefCell::new(None) };
}

/// An IPv4 address of the tracker's host. It listens at number 1; tests may add listeners at 2 to 4.
pub(crate) fn tracker(number: u8) -> Ipv4Addr {
    if current().is_some() { network::tracker(number) } else { Ipv4Addr::new(127, 0, 0, number) }
}

/// Where it listens for IPv6.
pub(crate) fn tracker_v6() -> Ipv6Addr {
    if current().is_some() { network::tracker_v6(1) } else { Ipv6Addr::LOCALHOST }
}

/// An IPv4 address of a client: `number` is 1 to 8.
pub(crate) fn client(number: u8) -> Ipv4Addr {
    if current().is_some() { network::client(number) } else { Ipv4Addr::new(127, 0, 0, number) }
}

/// The address with which a client reaches `tracker`. There is one loopback address of IPv6 only.
pub(crate) fn client_of(number: u8, tracker: SocketAddr) -> IpAddr {
    match tracker {
        SocketAddr::V4(_) => client(number).into(),
        SocketAddr::V6(_) if current().is_some() => network::client_v6(number).into(),
        SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    }
}

/// The start of a configuration of a tracker at [`tracker`], with `port` for its IPv4 listeners and
/// `admin_port`: all but what follows its sections.
pub(crate) fn configuration(port: u16, admin_port: u16) -> String {
    let (v4, v6) = (tracker(1), tracker_v6());
    let listen = format!("listen = [\"{v4}:{port}\", \"[{v6}]:0\"]\nworkers = 2\n");
    format!(
        "[udp]\n{listen}receive_buffer_bytes = 65536\n{}[http]\n{listen}\
         [admin]\nlisten = [\"{v4}:{admin_port}\"]\n",
        engine()
    )
}

/// Engine by which trackers receive and send datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Mmsg,
    /// In the driver.
    Shield,
    XdpDriver,
    XdpGeneric,
}

/// A network, whose clients' host this thread is.
pub(crate) struct Site {
    // Dropped first: the thread leaves the network before its end.
    _inside: Entered,
    pub(crate) network: Network,
    /// Of trackers that are started from now on.
    pub(crate) engine: Cell<Engine>,
}

impl Engine {
    /// Lines of the section `[udp]`, and the section `[xdp]`.
    fn configuration(self) -> &'static str {
        match self {
            Self::Mmsg => "engine = \"mmsg\"\n",
            Self::Shield => "engine = \"shield\"\n[xdp]\nmode = \"driver\"\nrequired = true\n",
            Self::XdpDriver => "engine = \"xdp\"\n[xdp]\nmode = \"driver\"\nrequired = true\n",
            Self::XdpGeneric => "engine = \"xdp\"\n[xdp]\nmode = \"generic\"\nrequired = true\n",
        }
    }

    /// Returns true if datagrams go to AF_XDP sockets.
    pub(crate) fn is_xdp(self) -> bool {
        matches!(self, Self::XdpDriver | Self::XdpGeneric)
    }
}

/// Calls `test` in a network in which trackers have this engine.
pub(crate) fn on(engine: Engine, test: impl FnOnce()) {
    in_network(|site| {
        site.engine.set(engine);
        test();
    });
}

/// Calls `test` in a network, unless there is something in the way of setting one up.
pub(crate) fn in_network(test: impl FnOnce(&Site)) {
    in_network_of(MTU, test);
}

/// The same with packets of up to `mtu` bytes.
pub(crate) fn in_network_of(mtu: u32, test: impl FnOnce(&Site)) {
    if let Some(obstacle) = Network::obstacle() {
        let thread = std::thread::current();
        eprintln!("skipped {obstacle}: {}", thread.name().unwrap_or_default());
        return;
    }
    let network = Network::new(mtu).unwrap();
    let _inside = network.clients.enter().unwrap();
    let site = Rc::new(Site { _inside, network, engine: Cell::new(Engine::Mmsg) });
    SITE.set(Some(Rc::clone(&site)));
    let _ends = Ends;
    test(&site);
}

/// Forgets the site of this thread, also after a panic.
struct Ends;

impl Drop for Ends {
    fn drop(&mut self) {
        SITE.set(None);
    }
}

/// The network of this thread. None on loopback addresses.
fn current() -> Option<Rc<Site>> {
    SITE.with_borrow(Clone::clone)
}

/// The engine of trackers that are started here. None on loopback addresses.
pub(crate) fn current_engine() -> Option<Engine> {
    current().map(|site| site.engine.get())
}

fn engine() -> &'static str {
    current_engine().map(Engine::configuration).unwrap_or_default()
}

/// Starts a tracker on the tracker's host.
pub(crate) fn start(
    command: Command,
    folder: &Path,
    configuration: &str,
) -> anyhow::Result<harness::Tracker> {
    match current() {
        None => harness::Tracker::start(command, folder, configuration),
        Some(site) => {
            let namespace = &site.network.tracker;
            harness::Tracker::start_in(namespace, command, folder, configuration)
        }
    }
}

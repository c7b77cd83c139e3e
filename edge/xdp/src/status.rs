//! The state of the program, as the API, metrics and the dashboard show it.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use subsystem::{HealthArea, HealthItem, Level, Page, Subsystem, Value, escape, json};
use utoipa::ToSchema;

use crate::{ListenerCounts, Mode, RingDrops};

/// The XDP program before the UDP listeners.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Xdp)]
pub struct XdpStatus {
    /// The interfaces that it is attached to.
    pub interfaces: Vec<InterfaceStatus>,
    /// AF_XDP sockets by state.
    pub sockets: BTreeMap<&'static str, usize>,
}

/// An interface with the XDP program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = XdpInterface)]
pub struct InterfaceStatus {
    /// Its name.
    pub name: String,
    /// Its driver.
    pub driver: String,
    /// Where the program runs: driver or generic.
    #[serde(serialize_with = "label")]
    #[schema(value_type = String)]
    pub mode: Mode,
    /// False: the driver never writes into the tracker's memory.
    pub zero_copy: bool,
    /// True if the interface is there, is up and has a carrier.
    #[serde(rename = "up")]
    pub is_up: bool,
    /// Datagrams for listeners by what was done with them.
    #[serde(rename = "frames", serialize_with = "by_result")]
    #[schema(value_type = BTreeMap<String, u64>)]
    pub counts: ListenerCounts,
    /// Frames that AF_XDP sockets lost, over all queues, by ring.
    #[serde(rename = "ring_drops", serialize_with = "by_ring")]
    #[schema(value_type = BTreeMap<String, u64>)]
    pub sockets: Vec<QueueState>,
    /// Receive queues.
    #[serde(skip)]
    pub queues: u32,
}

/// An AF_XDP socket of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueState {
    /// The queue of the interface.
    pub queue: u32,
    /// False if it was closed because of an error.
    pub is_open: bool,
    /// Frames and replies that it has lost.
    pub drops: RingDrops,
}

fn label<S: Serializer>(mode: &Mode, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(mode.label())
}

fn by_result<S: Serializer>(counts: &ListenerCounts, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(counts.by_result())
}

fn by_ring<S: Serializer>(sockets: &[QueueState], to: S) -> Result<S::Ok, S::Error> {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for (ring, frames) in sockets.iter().flat_map(|socket| socket.drops.by_ring()) {
        *sums.entry(ring).or_default() += frames;
    }
    to.collect_map(sums)
}

impl ListenerCounts {
    fn by_result(&self) -> [(&'static str, u64); 9] {
        [
            ("connect", self.connects),
            ("steered", self.steered),
            ("passed", self.passed),
            ("banned", self.banned),
            ("blocked", self.blocked),
            ("rate", self.over_rate),
            ("bad_connection_id", self.bad_connection_ids),
            ("wrong_magic", self.wrong_magic),
            ("too_short", self.too_short),
        ]
    }
}

impl RingDrops {
    fn by_ring(&self) -> [(&'static str, u64); 5] {
        [
            ("rx_full", self.rx_full),
            ("fill_empty", self.fill_empty),
            ("rx_invalid", self.rx_invalid),
            ("tx_invalid", self.tx_invalid),
            ("tx_full", self.tx_full),
        ]
    }
}

impl XdpStatus {
    /// Returns the state of the program on these interfaces.
    pub fn new(interfaces: Vec<InterfaceStatus>) -> Self {
        let mut sockets = BTreeMap::from([("open", 0), ("closed", 0)]);
        for socket in interfaces.iter().flat_map(|it| &it.sockets) {
            let state = if socket.is_open { "open" } else { "closed" };
            *sockets.entry(state).or_default() += 1;
        }
        Self { interfaces, sockets }
    }
}

impl Subsystem for XdpStatus {
    fn to_json(&self) -> Value {
        json(self)
    }

    fn metrics(&self, page: &mut Page) {
        // An interface's name may have any character but a slash and white space.
        let interfaces: Vec<_> = self.interfaces.iter().map(|it| (escape(&it.name), it)).collect();
        let name = "tidegate_xdp_info";
        page.family(name, "gauge", "Interfaces with the XDP program, and how it runs. Always 1.");
        for (interface, it) in &interfaces {
            let labels = [
                ("interface", &**interface),
                ("mode", it.mode.label()),
                ("zero_copy", "false"),
                ("driver", &escape(&it.driver)),
            ];
            page.labelled_sample(name, &labels, 1);
        }
        let help = "Whether the interface is up.";
        let up = interfaces.iter().map(|(interface, it)| (interface, u8::from(it.is_up)));
        page.by_label("tidegate_xdp_interface_up", "gauge", help, "interface", up);
        let name = "tidegate_xdp_frames_total";
        let help = "Datagrams for listeners that the XDP program has seen, by result.";
        page.family(name, "counter", help);
        for (interface, it) in &interfaces {
            for (result, count) in it.counts.by_result() {
                page.labelled_sample(name, &[("interface", interface), ("result", result)], count);
            }
        }
        let name = "tidegate_xdp_ring_drops_total";
        let help = "Frames that AF_XDP sockets lost, by interface, queue and ring.";
        page.family(name, "counter", help);
        for (interface, it) in &interfaces {
            for socket in &it.sockets {
                let queue = socket.queue.to_string();
                for (ring, frames) in socket.drops.by_ring() {
                    let labels = [("interface", &**interface), ("queue", &queue), ("ring", ring)];
                    page.labelled_sample(name, &labels, frames);
                }
            }
        }
        let help = "AF_XDP sockets, by state.";
        page.by_label("tidegate_xdp_sockets", "gauge", help, "state", &self.sockets);
    }

    fn problems(&self) -> Vec<HealthItem> {
        let down = self.interfaces.iter().filter(|it| !it.is_up).map(|it| {
            let text = format!("The interface {} with the XDP program is down or gone.", it.name);
            HealthItem::new(Level::Warning, HealthArea::Xdp, text)
                .with_remedy("Check the interface, and xdp.interfaces.")
        });
        down.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> XdpStatus {
        let drops = RingDrops { rx_full: 8, ..RingDrops::default() };
        let interface = InterfaceStatus {
            name: "eth\"0".into(),
            driver: "veth".into(),
            mode: Mode::Driver,
            counts: ListenerCounts { connects: 5, passed: 6, ..ListenerCounts::default() },
            sockets: [3, 4].map(|queue| QueueState { queue, is_open: true, drops }).into(),
            ..InterfaceStatus::default()
        };
        XdpStatus::new(vec![interface])
    }

    #[test]
    fn metrics_have_each_queue_and_the_api_their_sum() {
        let mut page = Page::default();
        status().metrics(&mut page);
        let page = page.into_text();
        for expected in [
            r#"tidegate_xdp_info{interface="eth\"0",mode="driver",zero_copy="false",driver="veth"} 1"#,
            r#"tidegate_xdp_interface_up{interface="eth\"0"} 0"#,
            r#"tidegate_xdp_frames_total{interface="eth\"0",result="connect"} 5"#,
            r#"tidegate_xdp_ring_drops_total{interface="eth\"0",queue="3",ring="rx_full"} 8"#,
            r#"tidegate_xdp_sockets{state="open"} 2"#,
        ] {
            assert!(page.lines().any(|line| line == expected), "{expected}\n{page}");
        }
        let interface = &status().to_json()["interfaces"][0];
        assert_eq!(
            (&interface["ring_drops"]["rx_full"], &interface["up"]),
            (&16.into(), &false.into())
        );
        assert_eq!(
            (&interface["frames"]["passed"], &interface["mode"]),
            (&6.into(), &"driver".into())
        );
    }

    #[test]
    fn an_interface_that_is_down_is_a_warning() {
        let problems = status().problems();
        assert_eq!((problems.len(), problems[0].level), (1, Level::Warning));
    }
}

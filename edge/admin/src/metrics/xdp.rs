//! Metrics of the XDP program and its sockets.

use crate::sources::XdpStats;
use subsystem::{Page, escape};

/// Renders nothing if there is no program.
pub(super) fn render_xdp(page: &mut Page, stats: &XdpStats) {
    if stats.interfaces.is_empty() {
        return;
    }
    // An interface's name may have any character but a slash and white space.
    let interfaces = || stats.interfaces.iter().map(|it| (escape(&it.name), it));
    let name = "tidegate_xdp_info";
    page.family(name, "gauge", "Interfaces with the XDP program, and how it runs. Always 1.");
    for (interface, it) in interfaces() {
        let zero_copy = if it.zero_copy { "true" } else { "false" };
        let driver = escape(&it.driver);
        let labels = [
            ("interface", &*interface),
            ("mode", it.mode),
            ("zero_copy", zero_copy),
            ("driver", &driver),
        ];
        page.labelled_sample(name, &labels, 1);
    }
    let name = "tidegate_xdp_interface_up";
    page.family(name, "gauge", "Whether the interface is up.");
    for (interface, it) in interfaces() {
        page.sample(name, ("interface", &interface), u8::from(it.is_up));
    }
    let name = "tidegate_xdp_frames_total";
    page.family(
        name,
        "counter",
        "Datagrams for listeners that the XDP program has seen, by result.",
    );
    for (interface, it) in interfaces() {
        for (result, count) in &it.frames {
            page.labelled_sample(name, &[("interface", &*interface), ("result", result)], count);
        }
    }
    let name = "tidegate_xdp_ring_drops_total";
    page.family(name, "counter", "Frames that AF_XDP sockets lost, by interface, queue and ring.");
    for (interface, it) in interfaces() {
        for drops in &it.ring_drops {
            let queue = drops.queue.to_string();
            let labels = [("interface", &*interface), ("queue", &queue), ("ring", drops.ring)];
            page.labelled_sample(name, &labels, drops.frames);
        }
    }
    let name = "tidegate_xdp_sockets";
    page.family(name, "gauge", "AF_XDP sockets, by state.");
    for (state, count) in &stats.sockets {
        page.sample(name, ("state", state), count);
    }
}

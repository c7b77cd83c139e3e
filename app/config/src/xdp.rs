//! `[xdp]`: the XDP program before the UDP sockets.

use std::collections::BTreeSet;
use xdp::{Mode, ReplyMac};

use super::key::Problem;
use super::keys::XdpSection;
use super::setting::Setting;

const INTERFACE_NAME_MAX: usize = 15;
const VLAN_MAX: u16 = 4094;

/// Options of the XDP program.
#[derive(Clone, Debug)]
pub struct XdpConfig {
    /// Empty = those of the default routes and of the listeners' addresses.
    pub interfaces: Vec<String>,
    /// The place where the program runs.
    pub mode: Mode,
    /// Of each queue; a power of two.
    pub frames: u32,
    /// VLAN ids of tagged frames that are for this tracker.
    pub vlans: Vec<u16>,
    /// The address that replies go to in the link layer.
    pub reply_mac: ReplyMac,
    /// True if the program answers connects.
    pub answer_connects: bool,
    /// True if the start fails without the program.
    pub required: bool,
}

impl XdpConfig {
    pub(super) fn from_section(section: &XdpSection, problems: &mut Vec<Problem>) -> Self {
        let frames = section.frames.value;
        if !frames.is_power_of_two() {
            let text = format!("expected a power of two, found {frames}");
            problems.push(section.frames.problem(text));
        }
        let reply_mac = section.reply_mac.value.parse().unwrap_or_else(|error| {
            let text = format!("{error}, found `{}`", section.reply_mac.value);
            problems.push(section.reply_mac.problem(text));
            ReplyMac::Swap
        });
        Self {
            interfaces: interfaces(&section.interfaces, problems),
            mode: section.mode.value,
            frames,
            vlans: vlans(&section.vlans, problems),
            reply_mac,
            answer_connects: section.answer_connects.value,
            required: section.required.value,
        }
    }
}

fn interfaces(list: &Setting<Vec<String>>, problems: &mut Vec<Problem>) -> Vec<String> {
    let mut known = BTreeSet::new();
    list.items(problems, |name| {
        let is_wrong_byte = |byte: u8| byte == b'/' || byte.is_ascii_whitespace();
        if name.is_empty() || name.len() > INTERFACE_NAME_MAX || name.bytes().any(is_wrong_byte) {
            return Err("expected the name of a network interface, 1 to 15 bytes such as `eth0`");
        }
        if known.insert(name.to_owned()) { Ok(name.to_owned()) } else { Err("is listed twice") }
    })
}

fn vlans(list: &Setting<Vec<String>>, problems: &mut Vec<Problem>) -> Vec<u16> {
    list.items(problems, |text| match text.parse() {
        Ok(id) if (1..=VLAN_MAX).contains(&id) => Ok(id),
        _ => Err("expected a VLAN id from 1 to 4094"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::tests::{read, says};

    #[test]
    fn reads_interfaces_vlans_and_addresses() {
        let settings = read(
            "[udp]\nengine = \"shield\"\n[xdp]\ninterfaces = [\"eth0\", \"eth1\"]\nmode = \"generic\"\nvlans = \
             [\"7\", \"4094\"]\nreply_mac = \"02:00:00:00:00:01\"\nframes = 8192\n",
        );
        let config = Config::from_settings(&settings.unwrap()).unwrap();
        let XdpConfig { interfaces, mode, vlans, reply_mac, frames, .. } = config.xdp;
        assert_eq!(config.engine, net::Engine::Shield);
        assert_eq!(interfaces, ["eth0", "eth1"]);
        assert_eq!((mode, vlans, frames), (Mode::Generic, vec![7, 4094], 8192));
        assert_eq!(reply_mac, ReplyMac::Fixed([2, 0, 0, 0, 0, 1]));
    }

    #[test]
    fn says_what_it_expected() {
        let found = says(
            "[xdp]\ninterfaces = [\"eth0\", \"eth0\", \"an-interface-name\"]\nvlans = [\"0\", \"4095\", \
             \"x\"]\nframes = 3000\nreply_mac = \"router\"\n",
        );
        let expected = [
            "2: xdp.interfaces: `eth0`: is listed twice",
            "2: xdp.interfaces: `an-interface-name`: expected the name of a network interface, 1 to 15 \
             bytes such as `eth0`",
            "3: xdp.vlans: `0`: expected a VLAN id from 1 to 4094",
            "3: xdp.vlans: `4095`: expected a VLAN id from 1 to 4094",
            "3: xdp.vlans: `x`: expected a VLAN id from 1 to 4094",
            "4: xdp.frames: expected a power of two, found 3000",
            "5: xdp.reply_mac: expected `swap`, `gateway` or the MAC address of one interface, found \
             `router`",
        ];
        assert_eq!(found, expected);
    }
}

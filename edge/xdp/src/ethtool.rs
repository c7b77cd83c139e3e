//! Asks drivers for their name, queues and features (the ioctl SIOCETHTOOL).
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;

use socket2::{Domain, Socket, Type};

use super::bpf::text;

const GET_DRIVER: u32 = 0x03;
const GET_STRINGS: u32 = 0x1b;
const GET_SET_INFO: u32 = 0x37;
const GET_FEATURES: u32 = 0x3a;
const GET_CHANNELS: u32 = 0x3c;
/// The set of strings that are the features' names.
const FEATURE_NAMES: u32 = 4;
/// Bytes of a name.
const NAME_LEN: usize = 32;
const WORD: usize = size_of::<u32>();
/// `struct ethtool_drvinfo`.
const DRIVER_INFO_LEN: usize = 196;

/// A socket for requests about interfaces.
pub(super) struct Ethtool(Socket);

/// Offloads that matter to XDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Features {
    /// VLAN tags are taken off frames before the program sees them.
    pub(super) strips_vlan: bool,
    /// Frames are joined by the hardware.
    pub(super) lro: bool,
    pub(super) gro_hw: bool,
    /// Frames are joined by the kernel.
    pub(super) gro: bool,
}

impl Ethtool {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self(Socket::new(Domain::IPV4, Type::DGRAM, None)?))
    }

    pub(super) fn driver(&self, interface: &str) -> io::Result<String> {
        let mut info = [0; DRIVER_INFO_LEN / WORD];
        info[0] = GET_DRIVER;
        self.request(interface, &mut info)?;
        Ok(text(&bytes(&info)[WORD..][..NAME_LEN]))
    }

    /// Returns the number of receive queues.
    pub(super) fn queues(&self, interface: &str) -> io::Result<u32> {
        // Command; the most of receive, transmit, other and combined ones; how many there are of each.
        let mut channels = [0; 9];
        channels[0] = GET_CHANNELS;
        self.request(interface, &mut channels)?;
        let [_, _, _, _, _, receive, _, _, combined] = channels;
        Ok(receive + combined)
    }

    /// Returns which offloads are on.
    pub(super) fn features(&self, interface: &str) -> io::Result<Features> {
        // Command, padding, a mask of sets (64 bits), the number of strings of the set.
        let mut set_info = [GET_SET_INFO, 0, 1 << FEATURE_NAMES, 0, 0];
        if cfg!(target_endian = "big") {
            set_info.swap(2, 3);
        }
        self.request(interface, &mut set_info)?;
        let count = set_info[4] as usize;
        // The kernel writes all of them, whatever the length says. Their number is a constant of the
        // kernel that runs.
        let mut names = vec![0; 3 + count * NAME_LEN / WORD];
        names[..3].copy_from_slice(&[GET_STRINGS, FEATURE_NAMES, count as u32]);
        self.request(interface, &mut names)?;
        // For each 32 features: which can be changed, which are wanted, which are on, which never change.
        let blocks = count.div_ceil(32);
        let mut states = vec![0; 2 + 4 * blocks];
        states[..2].copy_from_slice(&[GET_FEATURES, blocks as u32]);
        self.request(interface, &mut states)?;
        let names = bytes(&names[3..]);
        let is_on = |wanted: &str| {
            let at = names.chunks_exact(NAME_LEN).position(|name| text(name) == wanted);
            at.is_some_and(|at| states[2 + 4 * (at / 32) + 2] >> (at % 32) & 1 == 1)
        };
        Ok(Features {
            strips_vlan: is_on("rx-vlan-hw-parse"),
            lro: is_on("rx-lro"),
            gro_hw: is_on("rx-gro-hw"),
            gro: is_on("rx-gro"),
        })
    }

    /// Sends a request, whose first word is the command, and receives the answer in its place.
    fn request(&self, interface: &str, data: &mut [u32]) -> io::Result<()> {
        let mut name = [0; libc::IFNAMSIZ];
        if interface.len() >= name.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (to, from) in name.iter_mut().zip(interface.bytes()) {
            *to = from as libc::c_char;
        }
        let mut request = libc::ifreq {
            ifr_name: name,
            ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: data.as_mut_ptr().cast() },
        };
        // SAFETY: the request names the interface by a string with a zero at its end, and points to
        // `data`, which outlives the call. Each caller's `data` has the length that the kernel reads and
        // writes for its command.
        let result =
            unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Returns words as the bytes that the kernel wrote.
fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_features_by_name() {
        let ethtool = Ethtool::open().unwrap();
        // A loopback device always has GRO, and nothing of the others.
        let expected = Features { gro: true, ..Features::default() };
        assert_eq!(ethtool.features("lo").unwrap(), expected);
    }

    #[test]
    fn unknown_interfaces_are_errors() {
        let ethtool = Ethtool::open().unwrap();
        for name in ["no-such-one", "a-name-that-is-too-long"] {
            assert!(ethtool.driver(name).is_err(), "{name}");
            assert!(ethtool.queues(name).is_err(), "{name}");
            assert!(ethtool.features(name).is_err(), "{name}");
        }
    }
}

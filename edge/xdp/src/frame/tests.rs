//! Frames against a plain builder and a plain checksum.

use super::*;
use crate::test_frames::{
    CLIENT_MAC, SERVER_MAC, frame_between, naive_checksum, tagged, udp_checksum, with,
};

/// The four forms of frames: both families, with a VLAN tag and without.
fn forms() -> impl Iterator<Item = Form> {
    let v4 = ["198.18.7.9:51413", "203.0.113.80:6969"];
    let v6 = ["[2001:db8::7:9]:51413", "[2001:db8:1::80]:6969"];
    [v4, v6].into_iter().flat_map(|ends| {
        let [from, to] = ends.map(|end| end.parse().unwrap());
        [None, Some(0x123)].map(|vlan| Form { from, to, vlan })
    })
}

#[derive(Clone, Copy, Debug)]
struct Form {
    from: SocketAddr,
    to: SocketAddr,
    vlan: Option<u16>,
}

impl Form {
    /// Returns a frame as a client's kernel sends it.
    fn frame(&self, payload: &[u8]) -> Vec<u8> {
        let frame = frame_between(self.from, self.to, payload);
        match self.vlan {
            Some(vlan) => tagged(&frame, vlan),
            None => frame,
        }
    }

    /// Returns the offset of the IP header.
    fn ip_at(&self) -> usize {
        if self.vlan.is_some() { 18 } else { 14 }
    }
}

/// Returns bytes that differ with the length. Of every third length, all are ones: their sums have many carries.
fn payload(len: usize) -> Vec<u8> {
    let byte = |at| if len.is_multiple_of(3) { 0xff } else { (at * 31 + len) as u8 };
    (0..len).map(byte).collect()
}

/// Returns the reply frame with `payload`, to where the request came from.
fn reply(request: &Datagram, payload: &[u8], id: u16) -> Vec<u8> {
    let mut buffer = vec![0xee; HEADERS_MAX];
    buffer.extend(payload);
    let begin = request.write_reply_headers(&mut buffer, request.from_mac, id);
    assert!(buffer[..begin].iter().all(|byte| *byte == 0xee), "bytes before the frame");
    buffer.split_off(begin)
}

#[test]
fn replies_parse_and_have_right_checksums() {
    for form in forms() {
        let request = Datagram::parse(&form.frame(b"request")).unwrap();
        for len in 0..=1472 {
            let bytes = payload(len);
            let frame = reply(&request, &bytes, 0xabcd);
            let ip = &frame[form.ip_at()..];
            assert_eq!(udp_checksum(ip), 0);
            assert_eq!(frame.len(), request.reply_headers_len() + len);
            let back = Datagram::parse(&frame).unwrap();
            // Short frames are padded.
            let padded = [&frame[..], &[0; 30]].concat();
            assert_eq!(Datagram::parse(&padded), Some(back.clone()));
            assert_eq!((back.from, back.to, back.tag), (form.to, form.from, request.tag));
            assert_eq!(frame[back.payload], bytes);
            assert_eq!(frame[..12], [CLIENT_MAC, SERVER_MAC].concat());
            if form.from.is_ipv4() {
                assert_eq!(naive_checksum(&ip[..20]), 0);
                let expected = if len <= 1252 { [0, 0, 0x40, 0] } else { [0xab, 0xcd, 0, 0] };
                assert_eq!((&ip[4..8], ip[8]), (&expected[..], 64));
            } else {
                assert_eq!((ip[0], ip[7]), (0x60, 64));
            }
        }
    }
}

#[test]
fn a_checksum_of_zero_is_sent_as_its_other_form() {
    for form in forms() {
        let request = Datagram::parse(&form.frame(b"")).unwrap();
        let zero = |first: u8, second: u8| {
            let frame = reply(&request, &[first, second], 0);
            frame[frame.len() - 4..frame.len() - 2] == [0xff, 0xff]
        };
        let found = (0..=u16::MAX).filter(|word| {
            let [first, second] = word.to_be_bytes();
            zero(first, second)
        });
        // One payload word has a sum of zero; in ones' complement the other form of it has it, too.
        assert!((1..=2).contains(&found.count()));
    }
}

#[test]
fn other_frames_are_refused() {
    for form in forms() {
        let frame = form.frame(&payload(40));
        let ip_at = form.ip_at();
        let refused = |at: usize, bytes: &[u8]| {
            assert_eq!(
                Datagram::parse(&with(&frame, at, bytes)),
                None,
                "{bytes:?} at {at} of {form:?}"
            );
        };
        // ARP, two tags, a wrong ethertype.
        refused(ip_at - 2, &[8, 6]);
        refused(ip_at - 2, &[0x81, 0]);
        refused(ip_at - 2, &[0x88, 0xa8]);
        // A UDP length that is too short for its header, or disagrees with that of IP.
        let udp_at = frame.len() - 48;
        for len in [0, 7, 8, 47, 49, u16::MAX] {
            refused(udp_at + 4, &len.to_be_bytes());
        }
        if form.from.is_ipv4() {
            refused(ip_at, &[0x46]);
            refused(ip_at, &[0x65]);
            refused(ip_at + 6, &[0x20, 0]);
            refused(ip_at + 6, &[0, 1]);
            refused(ip_at + 9, &[6]);
            for len in [0, 19, 27, 67, 69] {
                refused(ip_at + 2, &u16::to_be_bytes(len));
            }
        } else {
            refused(ip_at, &[0x45]);
            for next in [0, 44, 60, 6] {
                refused(ip_at + 6, &[next]);
            }
            for len in [0, 7, 47, 49] {
                refused(ip_at + 4, &u16::to_be_bytes(len));
            }
        }
    }
}

//! Measures the time that the program takes. Not a test: it prints figures for `bench/record`.

use std::os::fd::AsFd;

use super::frames::{announce, connect, frame, with};
use super::{IdSlots, KEY, Program, model};
use crate::ConnectRate;
use crate::bpf::{
    MapKind, MapSpec, create_map, load_program, relocate_to_map, test_run, verify_program,
};
use crate::maps::{InterfaceMaps, LICENSE, Maps, instructions};

const V4: (&str, &str) = ("198.18.0.1:4096", "192.0.2.1:6969");
const V6: (&str, &str) = ("[2001:db8:1::2]:4096", "[2001:db8::1]:6969");

/// A million runs at a time; the lowest of this many times.
const RUNS: u32 = 1_000_000;
const TIMES: usize = 9;

struct Figures {
    program: Program,
    /// Nanoseconds that a frame for another port takes.
    base_ns: u32,
}

impl Figures {
    fn measure(&self, frame: &[u8]) -> u32 {
        let run = || test_run(self.program.program.as_fd(), frame, RUNS).unwrap().duration_ns;
        (0..TIMES).map(|_| run()).min().unwrap()
    }

    fn print(&self, what: &str, frame: &[u8]) {
        let ns = self.measure(frame);
        println!("| {what} | {ns} | {} |", ns.saturating_sub(self.base_ns));
    }

    /// A connect becomes its own answer, so each run begins with writing it anew. The same is subtracted.
    fn print_connect(&self, what: &str, (from, to): (&str, &str)) {
        let frame = connect(from, to);
        let port_at = frame.len() - 16 - 8 + 2;
        let other = with(&frame, port_at, &[0, 1]);
        let Program { maps, interface, .. } = &self.program;
        let [base, whole] = [other, frame].map(|frame| {
            let instructions = with_frame(maps, interface, &frame);
            let program = load_program("figures", LICENSE, &instructions).unwrap();
            let run = || test_run(program.as_fd(), &frame, RUNS).unwrap().duration_ns;
            (0..TIMES).map(|_| run()).min().unwrap()
        });
        let ns = whole.saturating_sub(base);
        println!("| {what} | {} | {ns} |", self.base_ns + ns);
    }
}

/// Returns an instruction.
fn instruction(opcode: u64, target: u64, source: u64, offset: i16, immediate: u32) -> u64 {
    let offset = u64::from(offset.cast_unsigned());
    opcode | target << 8 | source << 12 | offset << 16 | u64::from(immediate) << 32
}

/// Returns the program after instructions that write a frame, and then let so much time pass that what
/// was written has left the processor's store buffer.
fn with_frame(maps: &Maps, interface: &InterfaceMaps, frame: &[u8]) -> Vec<u64> {
    let offsets: Vec<usize> = (0..frame.len() - 8).step_by(8).chain([frame.len() - 8]).collect();
    let mut all = vec![
        instruction(0xbf, 6, 1, 0, 0),
        // r2 = data, r3 = data_end; over the stores if the frame is shorter.
        instruction(0x61, 2, 1, 0, 0),
        instruction(0x61, 3, 1, 4, 0),
        instruction(0xbf, 4, 2, 0, 0),
        instruction(0x07, 4, 0, 0, frame.len() as u32),
        instruction(0x2d, 4, 3, offsets.len() as i16 * 3, 0),
    ];
    for offset in offsets {
        let word = u64::from_le_bytes(frame[offset..offset + 8].try_into().unwrap());
        all.push(instruction(0x18, 5, 0, 0, word as u32));
        all.push(word >> 32 << 32);
        all.push(instruction(0x7b, 2, 5, offset as i16, 0));
    }
    // Reads the clock.
    all.extend([instruction(0x85, 0, 0, 0, 5); 4]);
    all.push(instruction(0xbf, 1, 6, 0, 0));
    all.extend(instructions(maps, interface));
    all
}

/// `cargo test --release -p tidegate-xdp xdp::program_tests::figures -- --ignored --nocapture`
#[test]
#[ignore = "measures, and asserts nothing: see its command"]
fn figures() {
    let Some(mut program) = Program::load("figures", model()) else { return };
    // One endpoint of each family, as most servers have; 4 networks that are always passed.
    program.model.endpoints.truncate(2);
    program.model.passed = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"]
        .map(|network| network.parse().unwrap())
        .to_vec();
    program.model.passed.extend(
        ["fc00::/7", "fe80::/10"].map(|network| network.parse::<super::IpPrefix>().unwrap()),
    );
    program.model.blocked.clear();
    program.model.bans.clear();
    program.apply();
    let instructions = instructions(&program.maps, &program.interface);
    let verified = verify_program(LICENSE, &instructions).unwrap();
    println!("{} instructions, {verified:?}", instructions.len());

    let other_port = with(&connect(V4.0, V4.1), 37, &[0]);
    let base_ns = Figures { program, base_ns: 0 };
    let base = base_ns.measure(&other_port);
    let mut figures = Figures { base_ns: base, ..base_ns };
    println!("| frame | ns | less the first line |\n|---|---|---|");
    println!("| for another port | {base} | |");
    for (pair, family) in [(V4, "IPv4"), (V6, "IPv6")] {
        let ip = pair.0.parse::<std::net::SocketAddr>().unwrap().ip();
        let id = |slice| figures.program.model.id(slice, ip);
        let (good, old) = (id(7), id(6));
        figures.print_connect(&format!("connect, {family}"), pair);
        figures.print(&format!("announce, {family}"), &announce(pair.0, pair.1, good));
        figures.print(&format!("id of the slice before, {family}"), &announce(pair.0, pair.1, old));
        figures.print(&format!("bad id, {family}"), &announce(pair.0, pair.1, good ^ 1));
        figures.print(&format!("too short, {family}"), &frame(pair.0, pair.1, &[0; 15]));
    }
    figures.program.model.ids = Some(IdSlots { key: KEY, current: 7, accepts_next: true });
    figures.program.apply();
    figures.print("bad id while the next slice is accepted, IPv4", &announce(V4.0, V4.1, 1));

    let good = figures.program.model.id(7, "198.18.0.1".parse().unwrap());
    figures.program.model.bans = model().bans;
    figures.program.apply();
    figures.print("announce, IPv4, with bans", &announce(V4.0, V4.1, good));
    figures.print("announce of a banned network", &announce("198.18.77.7:9", V4.1, good));
    figures.program.model.blocked =
        (0..32).map(|at| format!("198.18.1{at:02}.0/24").parse().unwrap()).collect();
    figures.program.apply();
    figures.print("announce, IPv4, with bans and 32 blocks", &announce(V4.0, V4.1, good));

    figures.program.model.blocked.clear();
    figures.program.model.bans.clear();
    figures.program.apply();
    let rate = ConnectRate { per_s: 1000, burst: 2000, prefix_v4: 32, prefix_v6: 64 };
    figures.program.maps.set_rate(Some(rate));
    figures.print_connect("connect, IPv4, with a rate", V4);
    // The first is answered; no more.
    figures.program.maps.set_cost(1 << 40, 0);
    figures.program.run(&connect(V4.0, V4.1));
    figures.print("connect over the rate, IPv4", &connect(V4.0, V4.1));
}

/// Measures the time that an entry of a new prefix would take in a hash table of the kernel (decision 18).
/// `cargo test -p tidegate-net entries_of_hash_tables -- --ignored --nocapture`
#[test]
#[ignore = "measures, and asserts nothing: see its command"]
fn entries_of_hash_tables() {
    let table = MapSpec {
        name: "figures",
        kind: MapKind::LruHash,
        key_len: 8,
        value_len: 8,
        entries: 1 << 16,
    };
    let map = create_map(&table).unwrap();
    // The key is the time: the first part reads it, which alone is the base of the comparison.
    let read_clock = [
        instruction(0x85, 0, 0, 0, 5),
        instruction(0x7b, 10, 0, -8, 0),
        instruction(0x7b, 10, 0, -16, 0),
    ];
    let set_key =
        [instruction(0xbf, 2, 10, 0, 0), instruction(0x07, 2, 0, 0, (-8_i32).cast_unsigned())];
    let set_value = [
        instruction(0xbf, 3, 10, 0, 0),
        instruction(0x07, 3, 0, 0, (-16_i32).cast_unsigned()),
        instruction(0xb7, 4, 0, 0, 0),
    ];
    let load_map = [instruction(0x18, 1, 0, 0, 0), 0];
    let end = [instruction(0xb7, 0, 0, 0, 2), instruction(0x95, 0, 0, 0, 0)];
    let call = |helper| [instruction(0x85, 0, 0, 0, helper)];
    let (look_up, update) = (call(1), call(2));
    let measure = |what: &str, parts: &[&[u64]]| {
        let mut instructions = parts.concat();
        if let Some(at) = instructions.iter().position(|word| word & 0xff == 0x18) {
            relocate_to_map(&mut instructions, at, map.as_fd());
        }
        let program = load_program("figures", LICENSE, &instructions).unwrap();
        let run = || test_run(program.as_fd(), &[0; 60], RUNS).unwrap().duration_ns;
        println!("{what}: {} ns", (0..TIMES).map(|_| run()).min().unwrap());
    };
    measure("the clock", &[&read_clock, &end]);
    measure("and a key that is not there", &[&read_clock, &set_key, &load_map, &look_up, &end]);
    measure("and a new entry", &[&read_clock, &set_key, &set_value, &load_map, &update, &end]);
}

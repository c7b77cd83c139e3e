//! The corpora, and mutations of them that are the same in every run.

use std::fs;
use std::path::Path;
use std::process::Command;

use harness::Directory;

/// Mutations tried of all inputs of a target together.
const MUTATIONS: u32 = 200_000;
/// Those of a target that fills a store with each input.
const STORE_MUTATIONS: u32 = 20_000;
/// Those of a target that starts threads, writes files or sends requests.
const SLOW_MUTATIONS: u32 = 4000;

fn replay(name: &str, target: fn(&[u8])) {
    replay_with(name, target, MUTATIONS);
}

fn replay_with(name: &str, target: fn(&[u8]), mutations: u32) {
    let mut inputs = inputs(name);
    inputs.sort();
    assert!(inputs.len() >= 5, "a corpus of {} inputs", inputs.len());
    inputs.iter().for_each(|input| target(input));
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below.max(1)
    };
    for _ in 0..mutations {
        let mut input = inputs[random(inputs.len())].clone();
        for _ in 0..=random(4) {
            let at = random(input.len() + 1);
            match random(4) {
                0 => input.truncate(at),
                1 => input.insert(at, random(256) as u8),
                2 => {
                    let other = &inputs[random(inputs.len())];
                    input.truncate(at);
                    input.extend(&other[random(other.len() + 1)..]);
                }
                _ if at < input.len() => input[at] = random(256) as u8,
                _ => {}
            }
        }
        target(&input);
    }
}

/// Returns the committed inputs of a target.
fn inputs(name: &str) -> Vec<Vec<u8>> {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let folder = Directory::within(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("--extract").arg("--file").arg(archive.with_extension("tar"));
    assert!(tar.arg("--directory").arg(folder.root()).status().unwrap().success());
    let files = fs::read_dir(folder.root()).unwrap();
    files.map(|file| fs::read(file.unwrap().path()).unwrap()).collect()
}

#[test]
fn udp() {
    replay("udp", tidegate_fuzz::udp);
}

#[test]
fn http() {
    replay("http", tidegate_fuzz::http);
}

#[test]
fn bencode() {
    replay("bencode", tidegate_fuzz::bencode);
}

#[test]
fn proxy() {
    replay("proxy", tidegate_fuzz::proxy);
}

#[test]
fn ws() {
    replay("ws", tidegate_fuzz::ws);
}

#[test]
fn webtorrent() {
    replay("webtorrent", tidegate_fuzz::webtorrent);
}

#[test]
fn forwarded() {
    replay("forwarded", tidegate_fuzz::forwarded);
}

#[test]
fn torrent() {
    replay("torrent", tidegate_fuzz::torrent);
}

#[test]
fn lists() {
    replay("lists", tidegate_fuzz::lists);
}

#[test]
fn config() {
    replay_with("config", tidegate_fuzz::config, SLOW_MUTATIONS);
}

#[test]
fn api() {
    replay_with("api", tidegate_fuzz::api, SLOW_MUTATIONS);
}

#[test]
fn letters() {
    replay("letters", tidegate_fuzz::letters);
}

#[test]
fn block() {
    replay_with("block", tidegate_fuzz::block, STORE_MUTATIONS);
}

#[test]
fn journal() {
    replay_with("journal", tidegate_fuzz::journal, SLOW_MUTATIONS);
}

#[test]
fn frame() {
    replay("frame", tidegate_fuzz::frame);
}

#[test]
fn cluster() {
    replay_with("cluster", tidegate_fuzz::cluster, STORE_MUTATIONS);
}

#[test]
fn dns() {
    replay("dns", tidegate_fuzz::dns);
}

#[test]
fn geo() {
    replay_with("geo", tidegate_fuzz::geo, STORE_MUTATIONS);
}

#[test]
fn jwt() {
    replay_with("jwt", tidegate_fuzz::jwt, STORE_MUTATIONS);
}

#[test]
fn site() {
    replay("site", tidegate_fuzz::site);
}

#[test]
fn import() {
    replay_with("import", tidegate_fuzz::import, STORE_MUTATIONS);
}

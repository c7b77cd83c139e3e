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

fn replay(name: &str, target: fn(&[u8]), mutations: u32) {
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

/// Writes a test for each target, so that they run side by side.
macro_rules! replayed {
    ($($name:ident: $($target:ident)::+, $mutations:ident;)*) => {
        $(#[test]
        fn $name() {
            replay(stringify!($name), tidegate_fuzz::$($target)::+, $mutations);
        })*
    };
}

replayed! {
    udp: udp, MUTATIONS;
    http: http, MUTATIONS;
    bencode: bencode, MUTATIONS;
    proxy: proxy, MUTATIONS;
    ws: ws::check, MUTATIONS;
    webtorrent: webtorrent, MUTATIONS;
    forwarded: forwarded::check, MUTATIONS;
    torrent: torrent::check, MUTATIONS;
    lists: lists::check, MUTATIONS;
    config: config::check, SLOW_MUTATIONS;
    api: api::check, SLOW_MUTATIONS;
    letters: letters::check, MUTATIONS;
    block: block::check, STORE_MUTATIONS;
    journal: journal::check, SLOW_MUTATIONS;
    frame: frame::check, MUTATIONS;
    cluster: cluster::check, STORE_MUTATIONS;
    dns: dns::check, MUTATIONS;
    networks: networks::check, MUTATIONS;
    geo: geo::check, STORE_MUTATIONS;
    jwt: jwt::check, STORE_MUTATIONS;
    site: site::check, MUTATIONS;
    import: import::check, STORE_MUTATIONS;
}

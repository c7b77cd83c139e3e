//! The corpora, and mutations of them that are the same in every run.

use std::fs;
use std::path::Path;
use std::process::Command;

use harness::Directory;
use tidegate_fuzz::Parser;

fn replay(name: &str) {
    let Parser { check, mutations, .. } = *tidegate_fuzz::parser(name).unwrap();
    let mut inputs = inputs(name);
    inputs.sort();
    assert!(inputs.len() >= 5, "a corpus of {} inputs", inputs.len());
    inputs.iter().for_each(|input| check(input));
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
        check(&input);
    }
}

/// Returns the committed inputs of a parser.
fn inputs(name: &str) -> Vec<Vec<u8>> {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let folder = Directory::within(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("--extract").arg("--file").arg(archive.with_extension("tar"));
    assert!(tar.arg("--directory").arg(folder.root()).status().unwrap().success());
    let files = fs::read_dir(folder.root()).unwrap();
    files.map(|file| fs::read(file.unwrap().path()).unwrap()).collect()
}

/// Declares a test for each parser, so that they run side by side.
macro_rules! replayed {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            replay(stringify!($name));
        })*
    };
}

replayed! {
    bencode block cluster config dns forwarded frame geo http import journal jwt letters lists networks proxy site
    torrent udp webtorrent ws
}

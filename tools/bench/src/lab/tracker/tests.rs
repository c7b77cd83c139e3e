//! Tests that start this test program itself, as a stand-in: see [`a_stand_in`].

use super::*;
use crate::lab::LabArgs;
use crate::lab::definition::Definition;
use std::net::UdpSocket;

/// The name of the test below, and what tells it where to listen.
const STAND_IN: &str = "lab::tracker::tests::a_stand_in";
const LISTEN: &str = "STAND_IN_LISTEN";

/// Listens if it was started to do so; as a test it does nothing.
#[test]
fn a_stand_in() {
    let Ok(address) = std::env::var(LISTEN) else { return };
    let _udp = UdpSocket::bind(&address).unwrap();
    let _tcp = TcpListener::bind(&address).unwrap();
    sleep(Duration::from_secs(60));
}

fn definition(text: &str) -> Definition {
    toml::from_str(&format!("name = 'a'\nspeaks = ['udp']\nprogram = 'x'\n{text}")).unwrap()
}

fn found(definition: Definition) -> Program {
    let path = std::env::current_exe().unwrap();
    Program { definition, path, version: "1".into() }
}

fn listener() -> Program {
    let start = format!("start = ['{{program}}', '--exact', '{STAND_IN}']");
    let environment = format!("environment = {{ {LISTEN} = '{{address}}' }}");
    found(definition(&format!("{start}\n{environment}\nconfiguration = 'plain {{port}}'\n")))
}

fn lab() -> Lab {
    let definitions = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench");
    Lab::new(&LabArgs { program: Vec::new(), rivals: "/nowhere".into(), definitions }).unwrap()
}

fn start(lab: &Lab, subject: &Subject, protocol: Protocol) -> Result<RunningTracker> {
    lab.start(subject, protocol, &[0])
}

#[test]
fn a_front_stands_before_it() {
    let lab = lab();
    let mut front = listener();
    front.definition.configuration = "before {backend_port}, not {port}, {cores} core".into();
    let subject = Subject { tracker: listener(), front: Some(front) };
    let running = start(&lab, &subject, Protocol::Https).unwrap();
    let read = |name: &str| fs::read_to_string(lab.folder.path(name)).unwrap();
    let behind: u16 = read("tracker.conf").strip_prefix("plain ").unwrap().parse().unwrap();
    let port = running.address.port();
    assert_ne!(port, behind);
    assert_eq!(read("front.conf"), format!("before {behind}, not {port}, 1 core"));
    let address = running.address;
    drop(running);
    for port in [behind, port] {
        UdpSocket::bind((address.ip(), port)).unwrap();
    }
}

#[test]
fn a_tracker_that_ends_takes_its_front_along() {
    let launch = |words: &[&str]| Launch {
        words: words.iter().map(|word| (*word).to_owned()).collect(),
        environment: vec![("PLACE".into(), "it's here".into())],
    };
    let short = launch(&["sh", "-c", "echo \"$PLACE\"; echo \"$1\"", "sh", "it's gone"]);
    let mut command = command(short, Some(launch(&["sleep", "60"]))).unwrap();
    let mut child = command.process_group(0).stdout(Stdio::piped()).spawn().unwrap();
    let status = child.wait().unwrap();
    // The sleeper is still there, and holds the pipe.
    killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL).unwrap();
    let mut text = String::new();
    io::Read::read_to_string(child.stdout.as_mut().unwrap(), &mut text).unwrap();
    assert!(!status.success());
    assert_eq!(text, "it's here\nit's gone\n");
}

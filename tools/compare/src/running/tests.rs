//! What is started here is this test program itself, as a stand-in: see [`a_stand_in`].

use super::*;
use crate::definition::Tracker;
use std::collections::BTreeMap;
use std::net::UdpSocket;

/// The name of the test below, and what tells it where to listen.
const STAND_IN: &str = "running::tests::a_stand_in";
const LISTEN: &str = "STAND_IN_LISTEN";

/// Listens if it was started to do so; as a test it does nothing.
#[test]
fn a_stand_in() {
    let Ok(address) = std::env::var(LISTEN) else { return };
    let _udp = UdpSocket::bind(&address).unwrap();
    let _tcp = TcpListener::bind(&address).unwrap();
    sleep(Duration::from_secs(60));
}

fn definition(text: &str) -> Tracker {
    toml::from_str(&format!("name = 'a'\nspeaks = ['udp']\nprogram = 'x'\n{text}")).unwrap()
}

fn found(definition: Tracker) -> InstalledProgram {
    let program = std::env::current_exe().unwrap();
    InstalledProgram { definition, program, version: "1".into() }
}

fn listener() -> InstalledProgram {
    let start = format!("start = ['{{program}}', '--exact', '{STAND_IN}']");
    let environment = format!("environment = {{ {LISTEN} = '{{address}}' }}");
    found(definition(&format!("{start}\n{environment}\nconfiguration = 'plain {{port}}'\n")))
}

struct Set {
    folder: PathBuf,
    certificate: Certificate,
    places: ProgramPaths,
}

impl Set {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("compare-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let certificate = Certificate::make(&folder).unwrap();
        let none = PathBuf::from("/nowhere");
        let (own, bench, rivals) = (none.clone(), none.clone(), none);
        Self {
            folder,
            certificate,
            places: ProgramPaths { own, bench, rivals, given: BTreeMap::new() },
        }
    }

    fn start(&self, subject: &Subject, protocol: Protocol) -> Result<RunningTracker> {
        let run_context = RunContext {
            protocol,
            places: &self.places,
            folder: &self.folder,
            certificate: &self.certificate,
        };
        RunningTracker::start(subject, &run_context, &[0])
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn a_tracker_is_started_watched_and_stopped() {
    let set = Set::new("started");
    for protocol in [Protocol::Udp, Protocol::Http] {
        let subject = Subject { tracker: listener(), front: None };
        let mut running = set.start(&subject, protocol).unwrap();
        running.check().unwrap();
        let text = fs::read_to_string(set.folder.join("tracker.conf")).unwrap();
        assert_eq!(text, format!("plain {}", running.address.port()));
        assert!(running.usage().unwrap().resident_bytes > 0);
        let address = running.address;
        drop(running);
        // It is gone: its port is free.
        UdpSocket::bind(address).unwrap();
    }
}

#[test]
fn a_front_stands_before_it() {
    let set = Set::new("front");
    let mut front = listener();
    front.definition.configuration = "before {backend_port}, not {port}, {cores} core".into();
    let subject = Subject { tracker: listener(), front: Some(front) };
    let running = set.start(&subject, Protocol::Https).unwrap();
    let read = |name: &str| fs::read_to_string(set.folder.join(name)).unwrap();
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
    let start = |words: &[&str]| Launch {
        words: words.iter().map(|word| (*word).to_owned()).collect(),
        environment: vec![("PLACE".into(), "it's here".into())],
    };
    let short = start(&["sh", "-c", "echo \"$PLACE\"; echo \"$1\"", "sh", "it's gone"]);
    let mut command = command(short, Some(start(&["sleep", "60"]))).unwrap();
    let mut child = command.process_group(0).stdout(Stdio::piped()).spawn().unwrap();
    let status = child.wait().unwrap();
    // The sleeper is still there, and holds the pipe.
    killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL).unwrap();
    let mut text = String::new();
    io::Read::read_to_string(child.stdout.as_mut().unwrap(), &mut text).unwrap();
    assert!(!status.success());
    assert_eq!(text, "it's here\nit's gone\n");
}

#[test]
fn who_ends_at_once_is_told_with_its_last_words() {
    let set = Set::new("ends");
    let start = "start = ['sh', '-c', 'echo first; echo no such key >&2; exit 3']";
    let subject = Subject { tracker: found(definition(start)), front: None };
    let error = set.start(&subject, Protocol::Udp).err().unwrap().to_string();
    assert!(error.contains("exit status: 3") && error.ends_with(": no such key"), "{error}");
    let start = "start = ['{program}', '{hashse}']";
    let subject = Subject { tracker: found(definition(start)), front: None };
    let error = set.start(&subject, Protocol::Udp).err().unwrap().to_string();
    assert!(error.contains("{hashse}"), "{error}");
}

#[test]
fn sockets_are_found_in_the_kernel_s_table() {
    let table = "  sl  local_address rem_address   st\n\
                 1234: 0100007F:0BB9 00000000:0000 07 00000000:00000000\n";
    assert!(lists_port(table, 3001) && !lists_port(table, 3002) && !lists_port("", 3001));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    assert!(has_udp_socket(socket.local_addr().unwrap().port()));
}

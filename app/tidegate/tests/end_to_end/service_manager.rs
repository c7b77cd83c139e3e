//! Notifications to a service manager such as systemd.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Command;

use crate::process::{Directory, PATIENCE, Signal, Tracker, tidegate, unused_address};

struct Watcher {
    socket: UnixDatagram,
    name: String,
}

impl Watcher {
    fn new() -> Self {
        let name = format!("tidegate-watched-{}", unused_address());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { socket, name }
    }

    /// Returns the binary with a watchdog timeout of one second. A shell sets WATCHDOG_PID, which must
    /// be the binary's own.
    fn command(&self) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", "WATCHDOG_PID=$$ exec \"$0\" \"$@\""]).arg(tidegate(&[]).get_program());
        shell.env("NOTIFY_SOCKET", format!("@{}", self.name)).env("WATCHDOG_USEC", "1000000");
        shell.stdin(std::process::Stdio::null());
        shell
    }

    fn hear(&self) -> String {
        let mut buffer = [0; 4096];
        let len = self.socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..len].to_vec()).unwrap()
    }

    /// Receives the next notification that is not a watchdog ping.
    fn hear_news(&self) -> String {
        loop {
            let message = self.hear();
            if message != "WATCHDOG=1" {
                return message;
            }
        }
    }

    fn hear_signs_of_life(&self) {
        for _ in 0..3 {
            assert_eq!(self.hear(), "WATCHDOG=1");
        }
    }
}

#[test]
fn notifies_the_service_manager_of_every_change() {
    let watcher = Watcher::new();
    let mut tracker = Tracker::start_by(watcher.command(), Directory::new(), "");
    assert_eq!(watcher.hear_news(), "READY=1\nSTATUS=serving");
    watcher.hear_signs_of_life();
    tracker.reload();
    let message = watcher.hear_news();
    let since = message.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
    let (since_us, status) = since.split_once('\n').unwrap();
    assert!(since_us.parse::<u64>().unwrap() > 0 && status == "STATUS=reloading");
    assert_eq!(watcher.hear_news(), "READY=1\nSTATUS=serving");
    // The same for a reload that fails.
    tracker.configure("[tracker]\ninterval_s = 0\n");
    tracker.reload();
    assert!(watcher.hear_news().starts_with("RELOADING=1\n"));
    assert_eq!(watcher.hear_news(), "READY=1\nSTATUS=serving");
    for number in ["1", "2"] {
        tracker.signal(Signal::SIGUSR2);
        let failed = watcher.hear_news();
        assert_eq!(failed, "STATUS=serving; failed upgrades: ".to_owned() + number);
    }
    tracker.configure("");
    tracker.upgrade();
    let pid = tracker.pid();
    let handed_over = format!("MAINPID={pid}\nSTATUS=handed over to process {pid}");
    assert_eq!(watcher.hear_news(), handed_over);
    assert_eq!(watcher.hear_news(), "READY=1\nSTATUS=serving");
    // The new process sends watchdog pings as well.
    watcher.hear_signs_of_life();
    assert_eq!(tracker.wait_for_end().code(), Some(0), "{}", tracker.log());
    tracker.stop();
    assert!(watcher.hear_news().starts_with("STOPPING=1\n"));
}

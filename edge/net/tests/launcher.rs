//! The launcher starts this program, as it starts the tracker. It is forked while there is one thread, which the
//! harness of Rust does not leave a test.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a failure anywhere is the test's")]

#[cfg(target_os = "linux")]
mod linux {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use tidegate_net::process::{InheritedSockets, Launcher};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Runs as the program that was started, until the other end of its stream is closed. Returns false if this
    /// process was not started by the launcher.
    pub(crate) fn was_started() -> bool {
        let mut inherited = InheritedSockets::from_environment(&[]).unwrap();
        let Some(mut stream) = inherited.take_stream("stream") else { return false };
        stream.write_all(b"started\n").unwrap();
        let _ = stream.read(&mut [0]);
        true
    }

    /// Orders a start. Returns the stream to the new process, and what it or the launcher says.
    fn start(launcher: &Launcher) -> (UnixStream, String) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        launcher.launch(&[("stream".into(), theirs.into())]).unwrap();
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut said = String::new();
        BufReader::new(&ours).read_line(&mut said).unwrap();
        (ours, said)
    }

    pub(crate) fn one_program_at_a_time() {
        let launcher = Launcher::spawn(|_, _| Ok(())).unwrap();
        let (first, said) = start(&launcher);
        assert_eq!(said, "started\n");
        for _ in 0..3 {
            let (_stream, said) = start(&launcher);
            assert!(said.starts_with("failed process "), "{said}");
            assert!(said.contains(", which was started before, still runs"), "{said}");
        }
        // It ends.
        drop(first);
        harness::wait_until("another start", || start(&launcher).1 == "started\n");
    }
}

fn main() {
    const NAME: &str = "one_program_at_a_time";
    let is = |flag: &str| std::env::args().any(|argument| argument == flag);
    // Lists the tests, as cargo-nextest expects of a test program.
    if is("--list") {
        if !is("--ignored") {
            println!("{NAME}: test");
        }
        return;
    }
    #[cfg(target_os = "linux")]
    if !linux::was_started() {
        linux::one_program_at_a_time();
        println!("test {NAME} ... ok");
    }
}

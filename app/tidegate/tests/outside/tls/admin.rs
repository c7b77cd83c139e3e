//! The management API over TLS, as `tidegate admin` reaches it.

use std::process::Child;
use std::time::{Duration, Instant};

use super::*;
use crate::admin::VARIABLE;
use crate::api::TOKEN;
use crate::process::{PATIENCE, config, tidegate};

/// Ends with its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_api_is_reached_by_whom_its_certificate_convinces() {
    let directory = Directory::new();
    make_authority(&directory);
    issue(&directory, "here", "IP:127.0.0.1", (ECDSA, "30"));
    let [port, admin_port] = [free_port(), free_port()];
    let [chain, key, ca] = ["here.pem", "here.key", "ca.pem"].map(|name| directory.path(name));
    let more =
        format!("tls = true\n[tls]\ncertificates = [{{ chain = {chain:?}, key = {key:?} }}]\n");
    let file = directory.write("tidegate.toml", &config(port, admin_port, &more));
    let mut command = tidegate(&["--config"]);
    command.arg(&file).env(VARIABLE, TOKEN).stdout(Stdio::null()).stderr(Stdio::null());
    let _running = Running(command.spawn().unwrap());
    // Where it is, the configuration says: at https://127.0.0.1.
    let ask = |task: &str, more: &[&str]| {
        let mut command = tidegate(&["admin", task, "--config"]);
        command.arg(&file).args(more).env(VARIABLE, TOKEN).output().unwrap()
    };
    let trusting = ["--ca", ca.to_str().unwrap()];
    let deadline = Instant::now() + PATIENCE;
    while !ask("health", &trusting).status.success() {
        assert!(Instant::now() < deadline, "{}", stderr(&ask("health", &trusting)));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(stdout(&ask("stats", &trusting)).contains("uptime_s"));
    let doubtful = ask("stats", &[]);
    assert_eq!(doubtful.status.code(), Some(1));
    let said = stderr(&doubtful);
    assert!(
        said.contains("UnknownIssuer") && said.contains("--ca FILE names the authority"),
        "{said}"
    );
    // The certificate is for the address alone.
    let url = format!("https://localhost:{admin_port}");
    let other = ask("stats", &[trusting.as_slice(), &["--url", &url]].concat());
    assert_eq!(other.status.code(), Some(1));
    assert!(stderr(&other).contains("cannot be reached"), "{}", stderr(&other));
}

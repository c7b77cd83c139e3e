//! The systemd units match the binary, and systemd accepts them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{Directory, run, stderr, stdout};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist")
}

/// Returns all values of a key in a unit file, in order.
fn values(unit: &str, key: &str) -> Vec<String> {
    let text = fs::read_to_string(folder().join(unit)).unwrap();
    let value = |line: &str| line.strip_prefix(key)?.strip_prefix('=').map(String::from);
    text.lines().filter_map(value).collect()
}

fn value(unit: &str, key: &str) -> String {
    let mut values = values(unit, key);
    assert_eq!(values.len(), 1, "{unit}: {key}: {values:?}");
    values.remove(0)
}

/// Returns the default value of a configuration key.
fn default(key: &str) -> String {
    let shown = stdout(&run(&["config", "show"]));
    let line = shown.lines().find_map(|line| line.strip_prefix(&format!("{key} = ")));
    line.unwrap().rsplit_once("  # ").unwrap().0.to_owned()
}

#[test]
fn matches_the_service_unit_with_the_command_line() {
    let command = value("tidegate.service", "ExecStart");
    let arguments: Vec<&str> = command.split(' ').skip(1).collect();
    let installed = "/etc/tidegate/tidegate.toml";
    assert!(arguments.contains(&installed));
    // The arguments are valid; only the file is missing.
    let directory = Directory::new();
    let absent = directory.path("tidegate.toml").display().to_string();
    let found =
        |argument: &&str| if *argument == installed { absent.clone() } else { (*argument).into() };
    let arguments: Vec<String> = arguments.iter().map(found).collect();
    let output = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("tidegate.toml: cannot read the configuration file"),
        "{}",
        stderr(&output)
    );
    let folder = value("tidegate.service", "ConfigurationDirectory");
    assert_eq!(Path::new(installed).parent().unwrap(), Path::new("/etc").join(folder));
    let stop_s: u32 = value("tidegate.service", "TimeoutStopSec").parse().unwrap();
    // Responses in progress have 5 s, threads 3 s more.
    assert!(stop_s > 5 + 3);
    assert_eq!(value("tidegate.service", "Type"), "notify");
    // It would hide /proc/meminfo, and with it the bound of limits.memory_mib = "auto".
    assert_eq!(values("tidegate.service", "ProcSubset"), [""; 0]);
    assert_eq!(value("tidegate.service", "ExecReload"), "/bin/kill -HUP $MAINPID");
}

#[test]
fn matches_the_socket_unit_with_the_default_listeners() {
    let quoted = |key: &str| format!("{:?}", values("tidegate.socket", key));
    assert_eq!(quoted("ListenDatagram"), default("udp.listen"));
    assert_eq!(quoted("ListenStream"), default("http.listen"));
    assert_eq!(value("tidegate.socket", "BindIPv6Only"), "ipv6-only");
    assert_eq!(value("tidegate.socket", "Service"), "tidegate.service");
    // As the tracker's own sockets have.
    assert_eq!(value("tidegate.socket", "ReceiveBuffer"), "8M");
}

#[test]
fn adds_the_rights_of_xdp_by_a_drop_in() {
    let unit = "tidegate-xdp.conf";
    let needed = ["CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_IPC_LOCK"];
    for key in ["AmbientCapabilities", "CapabilityBoundingSet"] {
        let given = value(unit, key);
        assert_eq!(given.split(' ').collect::<Vec<_>>(), needed);
    }
    assert_eq!(value(unit, "LimitMEMLOCK"), "infinity");
    // Lists of the unit itself are extended, not replaced.
    assert_eq!(value(unit, "RestrictAddressFamilies"), "AF_XDP");
    assert_eq!(value(unit, "SystemCallFilter"), "bpf");
    let filters = values("tidegate.service", "SystemCallFilter");
    assert!(filters.iter().any(|calls| calls.split(' ').any(|call| call == "capset")));
}

#[test]
fn accepts_the_example_of_a_node() {
    let file = folder().join("cluster/tidegate.toml").display().to_string();
    let shown = run(&["config", "show", "--config", &file]);
    assert_eq!(shown.status.code(), Some(0), "{}", stderr(&shown));
    let shown = stdout(&shown);
    let join = "cluster.join = \"/run/credentials/tidegate.service/join\"";
    assert!(shown.contains(join), "{shown}");
}

#[test]
fn accepts_the_configuration_of_packages() {
    let file = folder().join("tidegate.toml").display().to_string();
    let shown = stdout(&run(&["config", "show", "--config", &file]));
    let state = format!("state.dir = \"/var/lib/{}\"", value("tidegate.service", "StateDirectory"));
    assert!(shown.contains(&state), "{shown}");
}

/// The files that the compose file with monitoring mounts exist, and their programs accept them.
#[test]
fn has_what_the_compose_file_with_monitoring_mounts() {
    let folder = folder().join("compose/monitored");
    let compose = fs::read_to_string(folder.join("compose.yaml")).unwrap();
    let mounts = compose.lines().filter_map(|line| line.trim().strip_prefix("- ."));
    let files: Vec<&str> = mounts.filter_map(|mount| mount.split(':').next()).collect();
    assert_eq!(files.len(), 7, "{files:?}");
    assert!(files.iter().all(|file| folder.join(format!(".{file}")).is_file()), "{files:?}");
    let file = folder.join("tidegate.toml").display().to_string();
    let shown = run(&["config", "show", "--config", &file]);
    assert!(stdout(&shown).contains("tls.acme.domains = [\"tracker.example.org\"]"));
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "config", "--syntax-only"]).arg(folder.join("prometheus.yml"));
    assert!(promtool.status().unwrap().success());
}

/// The drop-in and the compose file put the files where the example of a node looks for them.
#[test]
fn passes_secrets_to_the_example_of_a_node() {
    let example = fs::read_to_string(folder().join("cluster/tidegate.toml")).unwrap();
    let compose = fs::read_to_string(folder().join("cluster/compose.yaml")).unwrap();
    let mounted =
        |inside: &str| compose.lines().any(|line| line.ends_with(&format!(":{inside}:ro")));
    for credential in values("cluster/cluster.conf", "LoadCredential") {
        let (name, file) = credential.split_once(':').unwrap();
        let inside = format!("/run/credentials/tidegate.service/{name}");
        assert!(example.contains(&format!("\"{inside}\"")), "{credential}");
        assert!(compose.contains(&format!("- {file}:{inside}:ro")), "{credential}");
    }
    assert_eq!(values("cluster/cluster.conf", "LoadCredential").len(), 1);
    assert!(["/etc/tidegate", "/etc/nats"].into_iter().all(mounted), "{compose}");
    let state = format!("/var/lib/{}", value("tidegate.service", "StateDirectory"));
    assert!(
        example.contains(&format!("dir = \"{state}\""))
            && compose.contains(&format!("- {state}:{state}"))
    );
    let unit = value("cluster/nats.service", "ExecStart");
    let path = "/etc/nats/nats-server.conf";
    assert!(unit.ends_with(path) && compose.contains(&format!("\"{path}\"")), "{unit}");
}

#[test]
fn passes_systemd_analyze() {
    // Skipped without systemd; the other tests run everywhere.
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return;
    }
    let directory = Directory::new();
    let service = fs::read_to_string(folder().join("tidegate.service")).unwrap();
    let service = service.replace("/usr/bin/tidegate", env!("CARGO_BIN_EXE_tidegate"));
    let socket = fs::read_to_string(folder().join("tidegate.socket")).unwrap();
    let units = [
        directory.write("tidegate.service", &service),
        directory.write("tidegate.socket", &socket),
    ];
    let mut verify = Command::new("systemd-analyze");
    let output = verify.args(["verify", "--man=no"]).args(&units).output().unwrap();
    let message = stderr(&output);
    assert!(output.status.success() && !message.contains("tidegate"), "{message}");
    let drop_in = fs::read_to_string(folder().join("tidegate-xdp.conf")).unwrap();
    fs::create_dir(directory.path("tidegate.service.d")).unwrap();
    directory.write("tidegate.service.d/xdp.conf", &drop_in);
    let mut verify = Command::new("systemd-analyze");
    let output = verify.args(["verify", "--man=no"]).args(&units).output().unwrap();
    let message = stderr(&output);
    assert!(output.status.success() && !message.contains("xdp.conf"), "{message}");
    fs::remove_dir_all(directory.path("tidegate.service.d")).unwrap();
    let mut security = Command::new("systemd-analyze");
    security.args(["security", "--offline=yes", "--threshold=20"]).arg(&units[0]);
    let output = security.output().unwrap();
    assert!(output.status.success(), "above 2.0:\n{}", stdout(&output));
}

//! Information that the program prints about itself: version, manual pages, completions.

use std::fs;
use std::process::Command;

use crate::process::{Directory, run, stderr, stdout};

#[test]
fn prints_how_it_was_built() {
    let output = run(&["version", "--json"]);
    let version: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert!(version["rustc"].as_str().unwrap().starts_with("rustc 1."), "{version}");
    assert!(version["target"].as_str().unwrap().contains(std::env::consts::ARCH), "{version}");
    let engines = version["udp_engines"].as_array().unwrap();
    assert!(engines.contains(&"portable".into()), "{version}");
    for key in ["commit", "commit_date", "profile", "allocator"] {
        assert!(version.get(key).is_some(), "{key}: {version}");
    }
    let text = stdout(&run(&["version"]));
    let first = text.lines().next();
    assert_eq!(first, Some(concat!("tidegate ", env!("CARGO_PKG_VERSION"))));
    assert!(text.contains(version["target"].as_str().unwrap()), "{text}");
}

#[test]
fn writes_a_page_for_each_command() {
    let directory = Directory::new();
    let folder = directory.path("man");
    let out = folder.to_str().unwrap();
    let absent = run(&["man", "--out", out]);
    assert_eq!(absent.status.code(), Some(2));
    assert!(stderr(&absent).contains("--out: cannot write"), "{}", stderr(&absent));
    fs::create_dir(&folder).unwrap();
    assert!(run(&["man", "--out", out]).status.success());
    let names: Vec<_> = fs::read_dir(&folder).unwrap().map(|it| it.unwrap().file_name()).collect();
    for name in ["tidegate.1", "tidegate-serve.1", "tidegate-admin-keys-create.1"] {
        assert!(names.contains(&name.into()), "{names:?}");
    }
    let first = fs::read_to_string(folder.join("tidegate.1")).unwrap();
    assert_eq!(first, stdout(&run(&["man"])));
    assert!(first.contains("SIGUSR2") && first.contains("tidegate\\-serve(1)"), "{first}");
    if Command::new("groff").arg("--version").output().is_err() {
        return;
    }
    // The formatter warns about what it does not understand.
    for name in names {
        let mut groff = Command::new("groff");
        let output = groff
            .args(["-man", "-k", "-K", "utf8", "-ww", "-z"])
            .arg(folder.join(&name))
            .output()
            .unwrap();
        let warnings = stderr(&output);
        assert!(output.status.success() && warnings.is_empty(), "{name:?}: {warnings}");
    }
}

#[test]
fn completes_in_shells() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell]);
        assert!(output.status.success(), "{shell}");
        assert!(stdout(&output).contains("rotate-secret"), "{shell}");
    }
    assert_eq!(run(&["completions", "tcsh"]).status.code(), Some(2));
    // bash accepts the script, and completes by it.
    let script = "source \"$1\"; COMP_WORDS=(tidegate che); COMP_CWORD=1; _tidegate tidegate che tidegate; \
                  echo \"${COMPREPLY[@]}\"";
    let directory = Directory::new();
    let file = directory.write("tidegate.bash", &stdout(&run(&["completions", "bash"])));
    if let Ok(output) = Command::new("bash").args(["-c", script, "bash"]).arg(&file).output() {
        assert_eq!(stdout(&output).trim(), "check", "{}", stderr(&output));
    }
}

//! The walk-throughs of the book do what they say: their commands run as they stand there, one after the other,
//! and print what the page shows.
//!
//! The word after the language of a fenced block says what it is:
//!
//! | block | what it is |
//! |---|---|
//! | `sh,run` | commands, run by one shell for the whole page. Each must succeed |
//! | `sh,run,stay` | commands that stay in a terminal of their own. They run in the background until the page ends |
//! | `sh,run,client` | commands for another machine |
//! | `sh,run,each` | commands for each of several machines, which run them at once. `N` is the machine's number |
//! | `text,seen` | what the commands before it print: these lines in this order, maybe with others between them. `…` stands for any text |
//! | `text,seen,soon` | the same, but the commands before it are repeated until they print that |
//!
//! Nothing is replaced: ports, paths and host names are those of the page. The commands run on a machine of their
//! own, which `host.sh` makes: it sees the files of this one, writes only to memory, has tidegate installed as by
//! its package, and is the tracker's host of a `harness::network`, with the address 203.0.113.2 and the name
//! tracker.example.org. A page about several machines has these beside it: t1.example.org and so on, in a
//! `harness::network::sites`. There is no systemd: `systemctl.sh` and `journalctl.sh` stand in for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use harness::network::sites::{Backbone, Sites};
use harness::network::{MTU, Namespace, Network};
use harness::{PATIENCE, Process, nats, pebble};

/// The folder of the scripts.
const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/end_to_end/walkthroughs");
/// Pause between two looks at a command's output.
const PERIOD: Duration = Duration::from_millis(100);

/// Declares a test for each page, by its path below `docs`, with the programs that its commands need.
macro_rules! pages {
    ($($name:ident: $page:literal, $needs:expr;)+) => {
        $(
            #[test]
            fn $name() {
                walk($page, &$needs);
            }
        )+

        const PAGES: &[&str] = &[$($page),+];
    };
}

pages! {
    backup: "operate/backup.md", Needs { prelude: Some("running.sh"), ..needs(&["curl", "tar"]) };
    cluster: "cluster.md", Needs { tools: || vec![nats::program()], machines: Some((3, "example")), ..needs(&["tc"]) };
    configure: "configure/index.md", needs(&[]);
    gazelle: "run/gazelle.md", Needs { prelude: Some("mariadb.sh"), site: Some("gazelle"), ..needs(&["mariadb", "mariadbd"]) };
    opentracker: "migrate/opentracker.md", Needs { tools: || vec![importer()], prelude: Some("opentracker.sh"), ..needs(&["opentracker"]) };
    private: "run/private.md", needs(&[]);
    proxy: "run/proxy.md", needs(&["nginx", "haproxy", "caddy"]);
    public: "run/public.md", needs(&[]);
    site: "run/site.md", needs(&["python3", "php"]);
    start: "start.md", needs(&[]);
    tls: "run/tls.md", Needs { tools: pebble::programs, prelude: Some("acme.sh"), ..needs(&["openssl"]) };
    unit3d: "run/unit3d.md", Needs { prelude: Some("mariadb.sh"), site: Some("unit3d"), ..needs(&["mariadb", "mariadbd"]) };
    upgrade: "operate/upgrade.md", Needs { prelude: Some("running.sh"), ..needs(&[]) };
    verify: "install/verify.md", Needs { prelude: Some("release.sh"), ..needs(&["minisign", "tar"]) };
    webtorrent: "run/webtorrent.md", needs(&[]);
    xdp: "xdp.md", needs(&[]);
}

/// Requirements of a page, and what its host has.
struct Needs {
    /// Debian packages have these programs.
    programs: &'static [&'static str],
    /// Programs that `cargo xtask setup` builds.
    tools: fn() -> Vec<PathBuf>,
    /// A script beside `host.sh` that is run before the page.
    prelude: Option<&'static str>,
    /// The site whose tables are in the database of the same name, with a user and a torrent.
    site: Option<&'static str>,
    /// Other machines: how many, and the folder below `~` that the page has the reader copy to them.
    machines: Option<(u8, &'static str)>,
}

/// Returns what most pages need: curl, and these programs.
const fn needs(programs: &'static [&'static str]) -> Needs {
    Needs { programs, tools: Vec::new, prelude: None, site: None, machines: None }
}

/// Returns the program tidegate-import, which another package builds.
fn importer() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_tidegate")).with_file_name("tidegate-import")
}

/// A fenced block with a mark.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    /// The line of the page.
    line: usize,
    kind: Kind,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Run,
    Stay,
    Client,
    Each,
    Seen { soon: bool },
}

/// Returns the marked blocks of a page.
fn blocks(page: &str) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    let mut lines = (1..).zip(page.lines());
    while let Some((line, text)) = lines.next() {
        let indent = text.len() - text.trim_start().len();
        let Some(info) = text.trim_start().strip_prefix("```") else { continue };
        let inside = lines.by_ref().map(|(_, text)| text);
        let inside = inside.take_while(|text| text.trim() != "```");
        // Blocks in lists are indented.
        let inside = inside
            .map(|text| text.get(indent..).unwrap_or_else(|| text.trim_start()).to_owned() + "\n");
        let text: String = inside.collect();
        let marks: Vec<&str> = info.split(',').collect();
        let kind = match marks[..] {
            ["sh", "run"] => Kind::Run,
            ["sh", "run", "stay"] => Kind::Stay,
            ["sh", "run", "client"] => Kind::Client,
            ["sh", "run", "each"] => Kind::Each,
            ["text", "seen"] => Kind::Seen { soon: false },
            ["text", "seen", "soon"] => Kind::Seen { soon: true },
            _ if info.contains("run") || info.contains("seen") => {
                bail!("line {line}: unknown marks {info}")
            }
            _ => continue,
        };
        blocks.push(Block { line, kind, text });
    }
    Ok(blocks)
}

/// Returns the first line of `expected` that `output` lacks, if any. Lines must come in order.
fn first_missing<'a>(expected: &'a str, output: &str) -> Option<&'a str> {
    let mut found = output.lines();
    let mut expected = expected.lines().filter(|line| !line.trim().is_empty());
    expected.find(|line| !found.any(|found| matches(line.trim_end(), found.trim_end())))
}

/// Returns whether a line is as expected; `…` stands for any text.
fn matches(expected: &str, line: &str) -> bool {
    let mut pieces = expected.split('…');
    let Some(mut rest) = line.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
    let mut last = None;
    for piece in pieces {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
        last = Some(piece);
    }
    // Text that ends with `…` may continue; other text must reach the end of the line.
    rest.is_empty() || last.is_some_and(|piece| piece.is_empty() || line.ends_with(piece))
}

/// A machine of a walk-through.
struct Host {
    process: Process,
    folder: harness::Directory,
    /// Number of commands so far.
    count: usize,
    _root: harness::Directory,
}

struct Hosts {
    /// The one that most commands are for.
    main: Host,
    /// Those of [`Kind::Each`].
    machines: Vec<Host>,
    _network: Wires,
}

enum Wires {
    One(Network),
    Several(Sites),
}

impl Hosts {
    fn start(tools: &[PathBuf], machines: u8) -> Result<Self> {
        let wires = match machines {
            0 => Wires::One(Network::new(MTU)?),
            count => Wires::Several(Sites::new(count, Backbone::Bridge)?),
        };
        let main = match &wires {
            Wires::One(network) => Host::start((&network.tracker, &network.clients), 0, tools)?,
            Wires::Several(sites) => Host::start((sites.clients(), sites.clients()), 0, tools)?,
        };
        let start = |number| match &wires {
            Wires::One(_) => bail!("there is one machine"),
            Wires::Several(sites) => {
                Host::start((sites.host(number), sites.clients()), number, tools)
            }
        };
        let machines = (1..=machines).map(start).collect::<Result<_>>()?;
        Ok(Self { main, machines, _network: wires })
    }

    /// Copies a folder of the main machine to the others.
    fn copy(&mut self, name: &str) -> Result<()> {
        let file = "copied.tar";
        self.main.run(&format!("tar -C ~ -cf /run/walk/folder/{file} {name}"))?;
        for machine in &mut self.machines {
            fs::copy(self.main.folder.path(file), machine.folder.path(file))?;
            machine.run(&format!("tar -C ~ -xf /run/walk/folder/{file}"))?;
        }
        Ok(())
    }

    /// Returns the machines that commands are for.
    fn of(&mut self, kind: Kind) -> Vec<&mut Host> {
        match kind {
            Kind::Each => self.machines.iter_mut().collect(),
            _ => vec![&mut self.main],
        }
    }
}

impl Host {
    fn start(
        (place, clients): (&Namespace, &Namespace),
        number: u8,
        tools: &[PathBuf],
    ) -> Result<Self> {
        let (folder, root) = (harness::Directory::new()?, harness::Directory::new()?);
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "bash"]);
        command.arg(Path::new(HERE).join("host.sh")).arg(root.root());
        command
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
            .arg(env!("CARGO_BIN_EXE_tidegate"));
        command.arg(clients.path()).arg(folder.root()).arg(number.to_string()).args(tools);
        let process = {
            let _inside = place.enter()?;
            Process::start_with_one_log(command, folder.root(), "host")?
        };
        Ok(Self { process, folder, count: 0, _root: root })
    }

    /// Starts a command. Returns the file that the output goes to.
    fn begin(&mut self, script: &str) -> Result<PathBuf> {
        let number = self.count;
        self.count += 1;
        self.folder.write(&format!("{number}.sh"), script)?;
        Ok(self.folder.path(&format!("{number}.out")))
    }

    /// Waits for the end of a command. Returns its output, or an error with it if the command fails.
    fn finish(&mut self, script: &str, output: &Path) -> Result<String> {
        let done = output.with_extension("done");
        let waited = self.process.wait_until(script, PATIENCE, |_| done.exists());
        let text = String::from_utf8_lossy(&fs::read(output).unwrap_or_default()).into_owned();
        waited.with_context(|| text.clone())?;
        Ok(text)
    }

    fn run(&mut self, script: &str) -> Result<String> {
        let output = self.begin(script)?;
        self.finish(script, &output)
    }
}

/// Executes a page, unless something that it needs cannot be had here.
fn walk(page: &str, needs: &Needs) {
    let is_there = |program: &&&str| {
        ["/usr/bin", "/usr/sbin"].iter().any(|folder| Path::new(folder).join(program).exists())
    };
    let programs = ["curl", "ip", "ethtool", "unshare"];
    let missing = programs.iter().chain(needs.programs).find(|program| !is_there(program));
    let tools = (needs.tools)();
    let missing = match (missing, tools.iter().find(|path| !path.is_file())) {
        (Some(program), _) => Some(format!("without {program}")),
        (_, Some(path)) => Some(format!("without {}", path.display())),
        _ if !fs::read_to_string("/proc/filesystems").unwrap_or_default().contains("overlay") => {
            Some("without overlays in the kernel".into())
        }
        _ => Network::obstacle(),
    };
    if let Some(obstacle) = missing {
        return eprintln!("skipped {page}: {obstacle}: run `cargo xtask setup`, as root");
    }
    execute(page, needs, &tools).unwrap_or_else(|error| panic!("docs/{page}: {error:#}"));
}

/// Returns a script that makes the database of a site: the tables that edge/site is tested with, and rows.
fn tables(site: &str) -> Result<String> {
    let here = Path::new(HERE);
    let tables = here.join(format!("../../../../../edge/site/tests/site/{site}.sql"));
    let tables = fs::read_to_string(tables)?;
    let rows = fs::read_to_string(here.join(format!("{site}.sql")))?;
    Ok(format!(
        "mariadb --socket=/run/mysqld/mysqld.sock <<'END'\nCREATE DATABASE {site};\nUSE {site};\n{tables}\n{rows}END\n\
         cd /root\n"
    ))
}

fn execute(page: &str, needs: &Needs, tools: &[PathBuf]) -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let blocks = blocks(&fs::read_to_string(path)?)?;
    ensure!(!blocks.is_empty(), "nothing is marked to be executed");
    let mut hosts = Hosts::start(tools, needs.machines.map_or(0, |(count, _)| count))?;
    if let Some(prelude) = needs.prelude {
        hosts.main.run(&fs::read_to_string(Path::new(HERE).join(prelude))?)?;
    }
    if let Some(site) = needs.site {
        hosts.main.run(&tables(site)?)?;
    }
    let mut copies = needs.machines.map(|(_, folder)| folder);
    let mut before: Option<(&Block, Vec<PathBuf>)> = None;
    for (block, next) in blocks.iter().zip(blocks.iter().skip(1).map(Some).chain([None])) {
        let context = || format!("line {}", block.line);
        if block.kind == Kind::Each
            && let Some(folder) = copies.take()
        {
            hosts.copy(folder).with_context(context)?;
        }
        if let Kind::Seen { soon } = block.kind {
            let (command, outputs) = before.as_ref().with_context(context)?;
            for (host, output) in hosts.of(command.kind).into_iter().zip(outputs) {
                see(host, command, output, &block.text, soon).with_context(context)?;
            }
            continue;
        }
        let is_repeated = next.is_some_and(|next| next.kind == Kind::Seen { soon: true });
        let mut begun = Vec::new();
        for host in hosts.of(block.kind) {
            let script = script(host, block.kind, &block.text)?;
            let script = if is_repeated { repeatable(&script) } else { script };
            let output = host.begin(&script)?;
            begun.push((host, script, output));
        }
        let mut outputs = Vec::new();
        for (host, script, output) in begun {
            host.finish(&script, &output).with_context(context)?;
            outputs.push(output);
        }
        before = Some((block, outputs));
    }
    Ok(())
}

/// Returns what the host's shell is given for a block.
fn script(host: &Host, kind: Kind, text: &str) -> Result<String> {
    let name = format!("{}.block", host.count);
    host.folder.write(&name, text)?;
    Ok(match kind {
        // With a terminal, as a reader has one.
        Kind::Stay => format!("script -qfc 'bash -e /run/walk/folder/{name}' /dev/null &"),
        Kind::Client => format!("nsenter --net=/run/walk/clients bash -e /run/walk/folder/{name}"),
        _ => text.to_owned(),
    })
}

/// Returns what runs a script as often as needed: it may fail until it prints what is expected.
fn repeatable(script: &str) -> String {
    format!("( {script}\n) || true\n")
}

/// Compares a command's output with the expected lines: at once, unless it stays or is to be repeated.
fn see(host: &mut Host, command: &Block, output: &Path, expected: &str, soon: bool) -> Result<()> {
    let mut found = fs::read_to_string(output).unwrap_or_default();
    let deadline = Instant::now() + PATIENCE;
    while let Some(missing) = first_missing(expected, &found) {
        let may_come = command.kind == Kind::Stay || soon;
        ensure!(
            may_come && Instant::now() < deadline,
            "expected the line\n{missing}\nfound\n{found}"
        );
        sleep(PERIOD);
        if command.kind == Kind::Stay {
            host.process.check()?;
            found = fs::read_to_string(output)?;
        } else {
            let script = script(host, command.kind, &command.text)?;
            found = host.run(&repeatable(&script))?;
        }
    }
    Ok(())
}

/// Otherwise pages would pass whatever they say, and change the machine of the developer.
#[test]
fn a_host_notices_failures_and_writes_to_memory() {
    if let Some(obstacle) = Network::obstacle() {
        return eprintln!("skipped: {obstacle}");
    }
    let mut hosts = Hosts::start(&[], 0).unwrap();
    let host = &mut hosts.main;
    let file = "/etc/tidegate-was-here";
    assert_eq!(host.run(&format!("touch {file} && ls {file}")).unwrap(), format!("{file}\n"));
    assert!(!Path::new(file).exists());
    let error = host.run("echo why; false; echo no").unwrap_err();
    let message = format!("{error:#}");
    assert!(message.contains("why\n") && !message.contains("no\n"), "{message}");
}

#[test]
fn compares_lines_in_order() {
    let output = "one\ntwo  \nthree 3 of 4\nfour\n";
    for (expected, missing) in [
        ("one\nfour", None),
        ("two\n\nthree … of 4", None),
        ("three …", None),
        ("… 4", None),
        ("…", None),
        ("four\none", Some("one")),
        ("three … of", Some("three … of")),
        ("on", Some("on")),
        ("one\none", Some("one")),
        ("three … of … 5", Some("three … of … 5")),
    ] {
        assert_eq!(first_missing(expected, output), missing, "{expected}");
    }
}

/// A page whose blocks are marked and that is not in the list above would not be executed.
#[test]
fn every_marked_page_is_executed() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut folders = vec![docs.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                let page = path.strip_prefix(&docs).unwrap().to_str().unwrap();
                let text = fs::read_to_string(&path).unwrap();
                let found = blocks(&text).unwrap_or_else(|error| panic!("docs/{page}: {error}"));
                assert_eq!(!found.is_empty(), PAGES.contains(&page), "docs/{page}");
            }
        }
    }
}

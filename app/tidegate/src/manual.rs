//! `tidegate completions` and `tidegate man`: files that packages install beside the program. They are made from the
//! definition of the command line, so they cannot lack a command or an option.

use std::fs;
use std::io;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli::{self, UsageError};

/// Print a script that completes commands and options in a shell.
///
/// For bash: `source <(tidegate completions bash)`. Packages install the scripts for bash, fish and zsh.
#[derive(Args)]
pub(crate) struct Completions {
    shell: Shell,
}

/// Print the manual page, or write the pages of all commands.
#[derive(Args)]
pub(crate) struct Manual {
    /// Existing directory to write one page per command to [default: print the first page].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Completions {
    pub(crate) fn run(&self, mut command: Command) -> Result<bool, UsageError> {
        let name = command.get_name().to_owned();
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, name, &mut script);
        cli::print(&String::from_utf8_lossy(&script))
    }
}

impl Manual {
    pub(crate) fn run(&self, command: Command) -> Result<bool, UsageError> {
        let mut command = command.disable_help_subcommand(true);
        command.build();
        let mut pages = Vec::new();
        render(&command, &mut pages)
            .map_err(|error| UsageError(format!("cannot make a page: {error}")))?;
        let Some(folder) = &self.out else {
            let (_, first) = &pages[0];
            return cli::print(&String::from_utf8_lossy(first));
        };
        for (name, page) in pages {
            let path = folder.join(name);
            fs::write(&path, page).map_err(|error| {
                UsageError(format!("--out: cannot write {}: {error}", path.display()))
            })?;
        }
        Ok(true)
    }
}

fn render(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    let man = Man::new(command.clone()).manual("tidegate");
    let mut page = Vec::new();
    man.render(&mut page)?;
    let has_parent = !pages.is_empty();
    page.extend_from_slice(if has_parent { SEE_ALSO } else { MORE }.as_bytes());
    pages.push((man.get_filename(), page));
    command.get_subcommands().filter(|it| !it.is_hide_set()).try_for_each(|it| render(it, pages))
}

const SEE_ALSO: &str = ".SH \"SEE ALSO\"\n.BR tidegate (1)\n";

/// Sections of the first page besides options and commands.
const MORE: &str = r#".SH SIGNALS
.TP
SIGTERM, SIGINT
Finish the requests in progress and exit with 0. A second signal exits at once.
.TP
SIGHUP
Reload the configuration, lists and certificates. A reload applies completely or not at all.
.TP
SIGUSR2
Upgrade: a new process of the program at the same path takes over sockets and swarms. No client is refused.
.SH ENVIRONMENT
.TP
TIDEGATE_SECTION__KEY
Overrides a key of the configuration file, such as TIDEGATE_UDP__WORKERS=2.
.TP
TIDEGATE_ADMIN_TOKEN
The token for \fBtidegate admin\fR and \fBtidegate top\fR.
.SH FILES
.TP
/etc/tidegate/tidegate.toml
The configuration that packages install. \fBtidegate config init\fR prints every key with its default and meaning.
.TP
/var/lib/tidegate
The directory that packages set as state.dir: records and the journal of swarms. Without a configuration it is
tidegate/ in $XDG_STATE_HOME or ~/.local/state.
.TP
/var/lib/tidegate/first-token
A token with full access, written by the first start. It ends when another such token is used.
"#;

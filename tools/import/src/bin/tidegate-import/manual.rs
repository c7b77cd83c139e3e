//! The manual page and the completions that packages install beside the program. They are made from the definition of
//! the command line.

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

/// Texts for packages.
#[derive(Args)]
pub(super) struct Texts {
    /// Print the manual page.
    #[arg(long, exclusive = true)]
    _man: bool,
    /// Print a script that completes options in a shell.
    #[arg(long, value_name = "SHELL", exclusive = true)]
    completions: Option<Shell>,
}

impl Texts {
    /// Prints the text that the user asks for.
    pub(super) fn print(&self, mut command: Command) -> Result<(), Vec<String>> {
        let mut text = Vec::new();
        if let Some(shell) = self.completions {
            let name = command.get_name().to_owned();
            clap_complete::generate(shell, &mut command, name, &mut text);
        } else {
            // Otherwise this page would name one about the command, which does not exist.
            let page = Man::new(command.mut_subcommand("config", |it| it.hide(true)));
            let page = page.manual("tidegate");
            page.render(&mut text).map_err(|error| vec![format!("cannot make a page: {error}")])?;
            text.extend_from_slice(MORE);
        }
        crate::print(&String::from_utf8_lossy(&text))
    }
}

/// Sections behind those that the command line defines.
const MORE: &[u8] = b".SH \"CONFIGURATIONS OF TIDEGATE\"\n\
.B tidegate\\-import config\n[\n.B \\-\\-write\n] <FILE>\n.PP\n\
Prints a configuration of an earlier tidegate without keys that are no longer settings, or replaces the file. A comment\n\
with the value in use takes the place of each of these keys.\n\
.SH \"SEE ALSO\"\n.BR tidegate (1)\n";

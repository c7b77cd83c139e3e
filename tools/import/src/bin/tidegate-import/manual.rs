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
            let page = Man::new(command).manual("tidegate");
            page.render(&mut text).map_err(|error| vec![format!("cannot make a page: {error}")])?;
            text.extend_from_slice(SEE_ALSO);
        }
        crate::print(&String::from_utf8_lossy(&text))
    }
}

const SEE_ALSO: &[u8] = b".SH \"SEE ALSO\"\n.BR tidegate (1)\n";

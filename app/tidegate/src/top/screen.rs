//! The terminal, which is restored at the end.

use std::io::{self, Stdout, Write};
use std::os::fd::AsFd;
use std::time::Duration;
use std::{process, thread};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::style::{PrintStyledContent, Stylize, style as unstyled};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{execute, queue};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::frame::{Style, StyledLine};
use crate::admin::{ApiError, Sort};

pub(super) struct Screen {
    out: Stdout,
    is_coloured: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    None,
    Redraw,
    Sort(Sort),
    Quit,
}

impl Screen {
    pub(super) fn enter() -> Result<Self, ApiError> {
        enable_raw_mode().map_err(|error| failed(&error))?;
        // Constructed before anything else can fail, so that dropping it restores the terminal.
        let is_coloured = std::env::var_os("NO_COLOR").is_none_or(|text| text.is_empty());
        let mut screen = Self { out: io::stdout(), is_coloured };
        let entered = execute!(screen.out, EnterAlternateScreen, Hide);
        entered.map_err(|error| failed(&error))?;
        exit_on_hangup();
        Ok(screen)
    }

    pub(super) fn size(&self) -> (usize, usize) {
        let (width, height) = size().unwrap_or((80, 24));
        (width.into(), height.into())
    }

    pub(super) fn draw(&mut self, lines: &[StyledLine]) -> Result<(), ApiError> {
        self.put(lines).map_err(|error| failed(&error))
    }

    fn put(&mut self, lines: &[StyledLine]) -> io::Result<()> {
        queue!(self.out, BeginSynchronizedUpdate)?;
        for (at, line) in (0..).zip(lines) {
            queue!(self.out, MoveTo(0, at))?;
            for (style, text) in &line.0 {
                self.word(*style, text)?;
            }
            queue!(self.out, Clear(ClearType::UntilNewLine))?;
        }
        if let Ok(below) = u16::try_from(lines.len())
            && usize::from(below) < self.size().1
        {
            queue!(self.out, MoveTo(0, below), Clear(ClearType::FromCursorDown))?;
        }
        queue!(self.out, EndSynchronizedUpdate)?;
        self.out.flush()
    }

    fn word(&mut self, style: Style, text: &str) -> io::Result<()> {
        let word = unstyled(text);
        let word = match style {
            _ if !self.is_coloured => word,
            Style::Plain => word,
            Style::Bold => word.bold(),
            Style::Dim => word.dim(),
            Style::Chart => word.dark_cyan(),
            Style::Warning => word.dark_yellow(),
        };
        queue!(self.out, PrintStyledContent(word))
    }

    pub(super) fn next_action(&mut self, wait: Duration) -> Result<Action, ApiError> {
        let is_there = match event::poll(wait) {
            Ok(is_there) => is_there,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => false,
            Err(error) => return Err(failed(&error)),
        };
        if !is_there {
            return Ok(Action::None);
        }
        Ok(match event::read().map_err(|error| failed(&error))? {
            Event::Resize(..) => Action::Redraw,
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
                match key.code {
                    KeyCode::Char('c') if is_control => Action::Quit,
                    KeyCode::Char('q') | KeyCode::Esc => Action::Quit,
                    KeyCode::Char('s') => Action::Sort(Sort::Seeders),
                    KeyCode::Char('l') => Action::Sort(Sort::Leechers),
                    KeyCode::Char('d') => Action::Sort(Sort::Downloads),
                    KeyCode::Char('a') => Action::Sort(Sort::Age),
                    _ => Action::None,
                }
            }
            _ => Action::None,
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(self.out, Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

fn failed(error: &io::Error) -> ApiError {
    ApiError::Failed(format!("cannot use the terminal: {error}"))
}

/// Ends the process when the terminal on standard input is closed, for programs started with SIGHUP
/// ignored. crossterm does not report the end of its input: it reads it again and again, for ever.
fn exit_on_hangup() {
    thread::spawn(|| {
        let stdin = io::stdin();
        // Hang-ups are reported whether or not they are requested.
        let mut inputs = [PollFd::new(stdin.as_fd(), PollFlags::empty())];
        while poll(&mut inputs, PollTimeout::NONE) == Err(Errno::EINTR) {}
        process::exit(1);
    });
}

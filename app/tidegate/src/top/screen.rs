//! The terminal: taken over while figures are shown, and given back as it was.

use std::io::{self, Stdout, Write};
use std::time::Duration;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::style::{Attribute, Color, Print, ResetColor, SetAttribute, SetForegroundColor};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{execute, queue};

use super::frame::{Line, Look};
use crate::admin::{Sort, Stop};

/// The terminal, until it is dropped.
pub(super) struct Screen {
    out: Stdout,
    is_coloured: bool,
}

/// What the user wants.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    Nothing,
    /// The terminal has another size.
    Redraw,
    Sort(Sort),
    End,
}

impl Screen {
    /// Takes the terminal over.
    pub(super) fn enter() -> Result<Self, Stop> {
        enable_raw_mode().map_err(|error| failed(&error))?;
        // Made before anything else can fail, so that whatever fails, it is given back.
        let is_coloured = std::env::var_os("NO_COLOR").is_none_or(|text| text.is_empty());
        let mut screen = Self { out: io::stdout(), is_coloured };
        let entered = execute!(screen.out, EnterAlternateScreen, Hide);
        entered.map_err(|error| failed(&error))?;
        Ok(screen)
    }

    /// Columns and lines.
    pub(super) fn size(&self) -> (usize, usize) {
        let (width, height) = size().unwrap_or((80, 24));
        (width.into(), height.into())
    }

    /// Shows a frame, all at once.
    pub(super) fn draw(&mut self, lines: &[Line]) -> Result<(), Stop> {
        self.put(lines).map_err(|error| failed(&error))
    }

    fn put(&mut self, lines: &[Line]) -> io::Result<()> {
        queue!(self.out, BeginSynchronizedUpdate)?;
        for (at, line) in (0..).zip(lines) {
            queue!(self.out, MoveTo(0, at))?;
            for (look, text) in &line.0 {
                self.word(*look, text)?;
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

    fn word(&mut self, look: Look, text: &str) -> io::Result<()> {
        if !self.is_coloured {
            return queue!(self.out, Print(text));
        }
        match look {
            Look::Plain => queue!(self.out, Print(text)),
            Look::Strong => self.stressed(Attribute::Bold, text),
            Look::Soft => self.stressed(Attribute::Dim, text),
            Look::Course => self.coloured(Color::DarkCyan, text),
            Look::Warning => self.coloured(Color::DarkYellow, text),
        }
    }

    fn stressed(&mut self, how: Attribute, text: &str) -> io::Result<()> {
        queue!(self.out, SetAttribute(how), Print(text), SetAttribute(Attribute::Reset))
    }

    fn coloured(&mut self, colour: Color, text: &str) -> io::Result<()> {
        queue!(self.out, SetForegroundColor(colour), Print(text), ResetColor)
    }

    /// What the user wants within that time.
    pub(super) fn wish(&mut self, wait: Duration) -> Result<Wish, Stop> {
        let is_there = match event::poll(wait) {
            Ok(is_there) => is_there,
            // By a signal, which is looked at elsewhere.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => false,
            Err(error) => return Err(failed(&error)),
        };
        if !is_there {
            return Ok(Wish::Nothing);
        }
        Ok(match event::read().map_err(|error| failed(&error))? {
            Event::Resize(..) => Wish::Redraw,
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
                match key.code {
                    KeyCode::Char('c') if is_control => Wish::End,
                    KeyCode::Char('q') | KeyCode::Esc => Wish::End,
                    KeyCode::Char('s') => Wish::Sort(Sort::Seeders),
                    KeyCode::Char('l') => Wish::Sort(Sort::Leechers),
                    KeyCode::Char('d') => Wish::Sort(Sort::Downloads),
                    KeyCode::Char('a') => Wish::Sort(Sort::Age),
                    _ => Wish::Nothing,
                }
            }
            _ => Wish::Nothing,
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = execute!(self.out, Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

fn failed(error: &io::Error) -> Stop {
    Stop::Failed(format!("the terminal cannot be used: {error}"))
}

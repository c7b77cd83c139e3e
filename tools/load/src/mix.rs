//! The ratio of request kinds.

use std::str::FromStr;

use crate::random::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Connect,
    Announce,
    Scrape,
}

pub(crate) const SCRAPE_TORRENTS: usize = 10;

/// Weights of the request kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Connects.
    pub connect: u32,
    /// Announces.
    pub announce: u32,
    /// Scrapes.
    pub scrape: u32,
}

impl FromStr for Mix {
    type Err = String;

    /// Parses `CONNECT:ANNOUNCE:SCRAPE`.
    fn from_str(text: &str) -> Result<Self, String> {
        let weights = text.split(':').map(|word| word.parse().ok().filter(|it| *it <= WEIGHT_MAX));
        let weights: Option<Vec<u32>> = weights.collect();
        let mix = match weights.as_deref() {
            Some([connect, announce, scrape]) => {
                Self { connect: *connect, announce: *announce, scrape: *scrape }
            }
            _ => return Err(format!("expected weights such as 1:100:1, found `{text}`")),
        };
        if mix.connect + mix.announce + mix.scrape == 0 {
            return Err(format!("`{text}`: all weights are 0"));
        }
        Ok(mix)
    }
}

const WEIGHT_MAX: u32 = 1_000_000;

impl Mix {
    pub(crate) fn draw(self, random: &mut Random) -> RequestKind {
        let Self { connect, announce, scrape } = self;
        match random.below((connect + announce + scrape) as usize) as u32 {
            number if number < connect => RequestKind::Connect,
            number if number < connect + announce => RequestKind::Announce,
            _ => RequestKind::Scrape,
        }
    }
}

//! What a key of the configuration is.

/// A key of the configuration.
#[derive(Debug)]
pub(crate) struct Key {
    /// `section.key`; a section below another one has a dot in its name.
    pub(crate) name: &'static str,
    /// What values it takes.
    pub(crate) kind: Kind,
    /// Its default, as TOML.
    pub(crate) default: &'static str,
    /// Whether a reload puts it in force.
    pub(crate) live: bool,
    /// Whether a `[[listener]]` may have its own.
    pub(crate) own: bool,
    /// What it does: the comment that `config init` writes, without the hash signs.
    pub(crate) help: &'static str,
}

impl Key {
    /// The section that it stands in.
    pub(crate) fn section(&self) -> &'static str {
        self.name.rsplit_once('.').map_or("", |(section, _)| section)
    }
}

/// What values a key takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A whole number from the first to the second.
    Int(u32, u32),
    /// true or false.
    Flag,
    /// Any text.
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A list of texts.
    List,
    /// A list of tables, each with these keys, whose values are texts.
    Tables(&'static [&'static str]),
}

pub(super) const fn key(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    help: &'static str,
) -> Key {
    Key { name, kind, default, live: false, own: false, help }
}

/// The same for a key that a reload puts in force.
pub(super) const fn live(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    help: &'static str,
) -> Key {
    Key { name, kind, default, live: true, own: false, help }
}

/// The same for a key that a `[[listener]]` may have, too.
pub(super) const fn own(key: Key) -> Key {
    Key { own: true, ..key }
}

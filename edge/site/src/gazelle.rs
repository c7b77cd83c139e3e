//! Gazelle: the tables and calls of its tracker, Ocelot. The site keeps its code and settings.

pub(crate) mod calls;
pub(crate) mod load;
pub(crate) mod tables;
pub(crate) mod tokens;

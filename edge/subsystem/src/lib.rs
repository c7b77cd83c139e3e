//! The interface by which a subsystem shows its state: JSON for the API, metrics, and sentences about what is wrong.
//!
//! Management knows subsystems by the trait [`Subsystem`] only. Each implements it for a type with its figures, beside
//! its own code.
#![forbid(unsafe_code)]

mod health;
mod page;

use std::sync::{PoisonError, RwLock};

use serde::Serialize;

pub use health::{Findings, HealthArea, HealthItem, Level};
pub use page::{Page, escape};
pub use serde_json::Value;

/// The state of a part of the tracker at one moment.
pub trait Subsystem: Send + Sync {
    /// Returns all of it, as the API shows it.
    fn to_json(&self) -> Value;

    /// Returns the part that `/status` and the dashboard's first page show; all of it unless it is large.
    fn digest(&self) -> Value {
        self.to_json()
    }

    /// Writes the metrics.
    fn metrics(&self, page: &mut Page);

    /// Returns what an operator should know.
    fn problems(&self) -> Vec<HealthItem>;

    /// Returns the number of times since the start that data could not be written to the disk.
    fn write_failures(&self) -> u64 {
        0
    }

    /// Returns false while load balancers should send clients elsewhere.
    fn is_ready(&self) -> bool {
        true
    }
}

/// The subsystems that run. They are added as they start.
#[derive(Default)]
pub struct Subsystems(RwLock<Vec<Source>>);

/// Reads the state of a subsystem.
struct Source {
    name: &'static str,
    read: Box<dyn Fn() -> Box<dyn Subsystem> + Send + Sync>,
}

impl Subsystems {
    /// Adds a subsystem. `read` returns its state as it is now.
    pub fn add<S: Subsystem + 'static>(
        &self,
        name: &'static str,
        read: impl Fn() -> S + Send + Sync + 'static,
    ) {
        let source = Source { name, read: Box::new(move || Box::new(read())) };
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(source);
    }

    /// Returns the states of all, in the order in which they were added.
    pub fn read_all(&self) -> Vec<Box<dyn Subsystem>> {
        let sources = self.0.read().unwrap_or_else(PoisonError::into_inner);
        sources.iter().map(|source| (source.read)()).collect()
    }

    /// Returns the state of the subsystem of this name, or `None` if it does not run.
    pub fn read(&self, name: &str) -> Option<Box<dyn Subsystem>> {
        let sources = self.0.read().unwrap_or_else(PoisonError::into_inner);
        sources.iter().find(|source| source.name == name).map(|source| (source.read)())
    }
}

/// Returns the JSON of a type with text keys and finite numbers only, which cannot fail.
pub fn json(value: &impl Serialize) -> Value {
    let json = serde_json::to_value(value);
    debug_assert!(json.is_ok(), "expected a type that has a JSON form: {json:?}");
    json.unwrap_or_default()
}

//! How a subsystem shows its state: JSON for the API, metrics, and sentences about what is wrong.
//!
//! Management knows subsystems by the trait [`Subsystem`] only. Each implements it beside its own code, so its figures
//! are fields of one type there.
#![forbid(unsafe_code)]

mod health;
mod page;

use std::sync::{Arc, PoisonError, RwLock};

use serde::Serialize;
use serde_json::Value;

pub use health::{HealthArea, HealthItem, Level};
pub use page::{Page, escape};

/// A part of the tracker that shows its state: a type with its figures, or a function that reads them as they are now.
pub trait Subsystem: Send + Sync {
    /// Returns the name by which management finds it, such as `cluster`.
    fn name(&self) -> &'static str;

    /// Returns the whole state, as the API shows it.
    fn to_json(&self) -> Value;

    /// Returns the part of the state that `/status` and the dashboard's first page show; all of it unless it is large.
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

impl<S: Subsystem, F: Fn() -> S + Send + Sync> Subsystem for F {
    fn name(&self) -> &'static str {
        self().name()
    }

    fn to_json(&self) -> Value {
        self().to_json()
    }

    fn digest(&self) -> Value {
        self().digest()
    }

    fn metrics(&self, page: &mut Page) {
        self().metrics(page);
    }

    fn problems(&self) -> Vec<HealthItem> {
        self().problems()
    }

    fn write_failures(&self) -> u64 {
        self().write_failures()
    }

    fn is_ready(&self) -> bool {
        self().is_ready()
    }
}

/// The subsystems that run. They are added as they start.
#[derive(Default)]
pub struct Subsystems(RwLock<Vec<Named>>);

/// A subsystem with its name, so that finding one reads no other.
#[derive(Clone)]
struct Named {
    name: &'static str,
    subsystem: Arc<dyn Subsystem>,
}

impl Subsystems {
    /// Adds a subsystem.
    pub fn add(&self, subsystem: impl Subsystem + 'static) {
        let subsystem = Named { name: subsystem.name(), subsystem: Arc::new(subsystem) };
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(subsystem);
    }

    /// Returns all, in the order in which they were added.
    pub fn all(&self) -> Vec<Arc<dyn Subsystem>> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|it| Arc::clone(&it.subsystem)).collect()
    }

    /// Returns the subsystem of this name, if it runs.
    pub fn find(&self, name: &str) -> Option<Arc<dyn Subsystem>> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|it| it.name == name).map(|it| Arc::clone(&it.subsystem))
    }

    /// Returns the digest of the subsystem of this name; `None` if it does not run.
    pub fn digest(&self, name: &str) -> Option<Value> {
        self.find(name).map(|subsystem| subsystem.digest())
    }
}

/// Returns the JSON of a type with text keys and finite numbers only, which cannot fail.
pub fn json(value: &impl Serialize) -> Value {
    let json = serde_json::to_value(value);
    debug_assert!(json.is_ok(), "expected a type that has a JSON form: {json:?}");
    json.unwrap_or_default()
}

//! The tasks of a worker. A panic in one of them ends the worker.
//!
//! tokio catches the panic of a task and continues without it. A worker without the task that accepts
//! connections would answer no client, while it still published its counters. So every task is
//! watched, and the worker's thread panics after any of them has; the process ends when that thread
//! does.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// Spawns a worker's tasks and watches them.
#[derive(Default)]
pub(crate) struct Tasks {
    has_panicked: Cell<bool>,
    panicked: Notify,
}

impl Tasks {
    /// Starts a task on the current `LocalSet`.
    pub(crate) fn spawn(self: &Rc<Self>, task: impl Future<Output = ()> + 'static) -> AbortHandle {
        tokio::task::spawn_local(Watched { task, tasks: Rc::clone(self) }).abort_handle()
    }

    pub(crate) async fn panicked(&self) {
        while !self.has_panicked() {
            self.panicked.notified().await;
        }
    }

    pub(crate) fn has_panicked(&self) -> bool {
        self.has_panicked.get()
    }
}

pin_project! {
    /// A task that reports its panic.
    struct Watched<F> {
        #[pin]
        task: F,
        tasks: Rc<Tasks>,
    }
}

impl<F: Future<Output = ()>> Future for Watched<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let _report = ReportPanic(this.tasks);
        this.task.poll(context)
    }
}

/// Reports a panic if it is dropped by one.
struct ReportPanic<'a>(&'a Tasks);

impl Drop for ReportPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.has_panicked.set(true);
            self.0.panicked.notify_one();
        }
    }
}

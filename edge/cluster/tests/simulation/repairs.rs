//! The repair of a process: its future, which is polled in steps of virtual time, and its messages.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use cluster::{BoxFuture, Neighbour, Repaired, RowsError, repair};

use crate::rows::TestRows;

/// Virtual time that an answer may take, and that changes are waited for.
const ANSWER_MS: u64 = 5000;
const PAUSE_MS: u64 = 1000;

/// State that the future and the process share.
#[derive(Default)]
struct Shared {
    now_ms: u64,
    /// Questions to be sent, and their numbers.
    questions: VecDeque<(u64, Vec<u8>)>,
    asked: u64,
    answers: BTreeMap<u64, Vec<u8>>,
}

#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Shared>>);

/// A repair that is under way.
pub(crate) struct Repair {
    pub(crate) node: u8,
    shared: Asked,
    future: BoxFuture<'static, Result<Repaired, RowsError>>,
}

impl Repair {
    pub(crate) fn begin(rows: &Arc<TestRows>, node: u8, kinds: Vec<u8>) -> Self {
        let (rows, shared) = (Arc::clone(rows), Asked::default());
        let neighbour = shared.clone();
        let future = Box::pin(async move { repair(&*rows, node, &kinds, &neighbour).await });
        Self { node, shared, future }
    }

    /// Continues the repair. Returns the questions to be sent, and true if it has ended.
    pub(crate) fn step(&mut self, now_ms: u64) -> (Vec<(u64, Vec<u8>)>, bool) {
        self.shared.lock().now_ms = now_ms;
        let polled = self.future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        (self.shared.lock().questions.drain(..).collect(), polled.is_ready())
    }

    pub(crate) fn answer(&mut self, number: u64, answer: Vec<u8>) {
        self.shared.lock().answers.insert(number, answer);
    }
}

impl Asked {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().expect("no thread panicked")
    }
}

impl Neighbour for Asked {
    fn ask(&self, question: Vec<u8>) -> BoxFuture<'_, Result<Vec<u8>, RowsError>> {
        let mut shared = self.lock();
        let (number, until_ms) = (shared.asked, shared.now_ms + ANSWER_MS);
        shared.asked += 1;
        shared.questions.push_back((number, question));
        Box::pin(poll_fn(move |_| {
            let mut shared = self.lock();
            match shared.answers.remove(&number) {
                Some(answer) => Poll::Ready(Ok(answer)),
                None if shared.now_ms >= until_ms => Poll::Ready(Err("no answer".into())),
                None => Poll::Pending,
            }
        }))
    }

    fn pause(&self) -> BoxFuture<'_, ()> {
        let until_ms = self.lock().now_ms + PAUSE_MS;
        Box::pin(poll_fn(move |_| {
            if self.lock().now_ms >= until_ms { Poll::Ready(()) } else { Poll::Pending }
        }))
    }
}

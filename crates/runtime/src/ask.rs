//! Questions to a stage: a closure that runs on the stage's own thread, between two batches, with its state at hand.
//!
//! Answers should be pages: a question that walks a whole table stops routing for as long as it walks.

use crate::ring::Wake;
use crossbeam_channel as channel;
use std::cell::Cell;
use std::fmt;
use std::time::Duration;

/// How long an asker waits before it says that the stage is busy.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Questions that may wait at one stage; a further one waits at its asker.
const WAITING: usize = 64;

/// A question, as it crosses to the stage.
pub type Question<S> = Box<dyn FnOnce(&mut S) + Send>;

/// The asking side. Clones ask the same stage.
pub struct Asker<S> {
    stage: &'static str,
    tx: channel::Sender<Question<S>>,
    wake: Option<Wake>,
}

impl<S> Clone for Asker<S> {
    fn clone(&self) -> Self {
        Asker { stage: self.stage, tx: self.tx.clone(), wake: self.wake.clone() }
    }
}

/// The stage's side.
pub struct Asked<S> {
    rx: channel::Receiver<Question<S>>,
    /// Set when the stage has found out that every asker is gone.
    closed: Cell<bool>,
}

/// Makes both sides for the stage called `stage`.
pub fn pair<S>(stage: &'static str) -> (Asker<S>, Asked<S>) {
    let (tx, rx) = channel::bounded(WAITING);
    (Asker { stage, tx, wake: None }, Asked { rx, closed: Cell::new(false) })
}

/// Why there is no answer. Displays as a sentence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoAnswer {
    stage: &'static str,
    stopped: bool,
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.stopped {
            write!(f, "the {} stage has stopped; its log says why", self.stage)
        } else {
            write!(
                f,
                "the {} stage did not answer within {} s; it is busy, try again",
                self.stage,
                CALL_TIMEOUT.as_secs()
            )
        }
    }
}

impl std::error::Error for NoAnswer {}

impl<S> Asker<S> {
    /// The same asker, which also calls `wake`, if there is one, after each question: for stages that sleep in a poll.
    pub fn with_wake(mut self, wake: Option<Wake>) -> Self {
        self.wake = wake;
        self
    }

    /// Runs `question` on the stage's thread and waits for its answer.
    ///
    /// # Errors
    /// [`NoAnswer`] when the stage has stopped or is too busy.
    pub fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut S) -> R + Send + 'static,
    ) -> Result<R, NoAnswer> {
        let (question, answered) = with_answer(question);
        let gone = |stopped| NoAnswer { stage: self.stage, stopped };
        self.tx.send_timeout(question, CALL_TIMEOUT).map_err(|e| gone(e.is_disconnected()))?;
        self.wake();
        answered.recv_timeout(CALL_TIMEOUT).map_err(|e| gone(e.is_disconnected()))
    }

    /// As [`Asker::ask`], but waits as long as it takes: for what must not happen after its asker has given up.
    ///
    /// # Errors
    /// [`NoAnswer`] when the stage has stopped.
    pub fn wait<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut S) -> R + Send + 'static,
    ) -> Result<R, NoAnswer> {
        self.start(question)?.wait()
    }

    /// As [`Asker::wait`], but without waiting: several stages can be at work on their answers at the same time.
    ///
    /// # Errors
    /// [`NoAnswer`] when the stage has stopped.
    pub fn start<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut S) -> R + Send + 'static,
    ) -> Result<Answer<R>, NoAnswer> {
        let (question, answered) = with_answer(question);
        let stopped = NoAnswer { stage: self.stage, stopped: true };
        self.tx.send(question).map_err(|_| stopped)?;
        self.wake();
        Ok(Answer { answered, stopped })
    }

    fn wake(&self) {
        if let Some(wake) = &self.wake {
            wake();
        }
    }
}

/// An answer that a stage has been asked for.
#[must_use]
pub struct Answer<R> {
    answered: channel::Receiver<R>,
    stopped: NoAnswer,
}

impl<R> Answer<R> {
    /// Waits for it.
    ///
    /// # Errors
    /// [`NoAnswer`] when the stage has stopped.
    pub fn wait(self) -> Result<R, NoAnswer> {
        self.answered.recv().map_err(|_| self.stopped)
    }
}

/// A question that sends its answer to whoever holds the receiver.
fn with_answer<S, R: Send + 'static>(
    question: impl FnOnce(&mut S) -> R + Send + 'static,
) -> (Question<S>, channel::Receiver<R>) {
    let (answer, answered) = channel::bounded(1);
    let question = move |state: &mut S| {
        // The caller may have timed out; then the answer is dropped.
        let _ = answer.send(question(state));
    };
    (Box::new(question), answered)
}

impl<S> Asked<S> {
    /// Answers every question that waits.
    pub fn serve(&self, state: &mut S) {
        while let Some(question) = self.question() {
            question(state);
        }
    }

    /// The next question, if one waits: for a state that owns this end.
    pub fn question(&self) -> Option<Question<S>> {
        match self.rx.try_recv() {
            Ok(question) => Some(question),
            Err(channel::TryRecvError::Empty) => None,
            Err(channel::TryRecvError::Disconnected) => {
                self.closed.set(true);
                None
            }
        }
    }

    /// Lets `select` see when a question waits; [`Asked::question`] or [`Asked::serve`] takes it. Without askers the
    /// channel would always be ready, so it leaves the select once the stage has found that out.
    pub fn watch<'a>(&'a self, select: &mut channel::Select<'a>) {
        if !self.closed.get() {
            select.recv(&self.rx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stage_answers_with_its_own_state() {
        let (asker, asked) = pair::<Vec<u32>>("shard");
        let stage = std::thread::spawn(move || {
            let mut state = vec![1, 2, 3];
            let mut select = channel::Select::new();
            asked.watch(&mut select);
            select.ready();
            asked.serve(&mut state);
        });
        let first = asker.start(|v| v.iter().sum::<u32>()).unwrap();
        assert_eq!(first.wait(), Ok(6));
        stage.join().unwrap();
        assert!(asker.wait(|v| v.len()).is_err());
        let says = asker.ask(|v| v.len()).unwrap_err().to_string();
        assert_eq!(says, "the shard stage has stopped; its log says why");
    }

    #[test]
    fn watch_without_askers_select_sleeps() {
        let (asker, asked) = pair::<()>("shard");
        drop(asker);
        let is_ready = || {
            let mut select = channel::Select::new();
            asked.watch(&mut select);
            select.ready_timeout(Duration::from_millis(1)).is_ok()
        };
        assert!(is_ready(), "the stage does not know yet");
        asked.serve(&mut ());
        assert!(!is_ready());
    }
}

//! A bounded channel on loom's lock, with as much of crossbeam's interface as the modelled code uses.
//!
//! Models show faults of the code around channels; crossbeam's own tests are about its channels. A
//! lock orders more than crossbeam does: here also [`Sender::len`] and a failed attempt order the
//! stores before them. No timeout expires, so a wake-up that only a timeout would replace is a
//! deadlock, which loom reports.

pub use crossbeam_channel::{
    ReadyTimeoutError, RecvError, RecvTimeoutError, SendError, SendTimeoutError, TryRecvError, TrySendError,
};

use loom::sync::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

struct Shared<T> {
    capacity: usize,
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    waiting: VecDeque<T>,
    senders: usize,
    receivers: usize,
    /// Of the selects that sleep here.
    selects: Vec<Arc<Signal>>,
}

/// Wakes one select.
struct Signal {
    is_set: Mutex<bool>,
    changed: Condvar,
}

/// Makes a channel of at most `capacity` items; with 0 nothing can be sent.
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let state = State { waiting: VecDeque::new(), senders: 1, receivers: 1, selects: Vec::new() };
    let shared = Arc::new(Shared { capacity, state: Mutex::new(state), changed: Condvar::new() });
    (Sender(shared.clone()), Receiver(shared))
}

/// Makes the receiving end of a channel on which nothing comes.
pub fn never<T>() -> Receiver<T> {
    let (tx, rx) = bounded(0);
    std::mem::forget(tx);
    rx
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap()
    }

    /// Wakes everything that waits, after a change.
    fn wake(&self, state: MutexGuard<'_, State<T>>) {
        let selects = state.selects.clone();
        drop(state);
        self.changed.notify_all();
        for select in selects {
            *select.is_set.lock().unwrap() = true;
            select.changed.notify_one();
        }
    }
}

pub struct Sender<T>(Arc<Shared<T>>);

pub struct Receiver<T>(Arc<Shared<T>>);

impl<T> Sender<T> {
    pub fn try_send(&self, item: T) -> Result<(), TrySendError<T>> {
        let mut state = self.0.lock();
        if state.receivers == 0 {
            return Err(TrySendError::Disconnected(item));
        }
        if state.waiting.len() >= self.0.capacity {
            return Err(TrySendError::Full(item));
        }
        state.waiting.push_back(item);
        self.0.wake(state);
        Ok(())
    }

    pub fn send(&self, item: T) -> Result<(), SendError<T>> {
        let mut state = self.0.lock();
        while state.receivers > 0 && state.waiting.len() >= self.0.capacity {
            state = self.0.changed.wait(state).unwrap();
        }
        if state.receivers == 0 {
            return Err(SendError(item));
        }
        state.waiting.push_back(item);
        self.0.wake(state);
        Ok(())
    }

    pub fn send_timeout(&self, item: T, _: Duration) -> Result<(), SendTimeoutError<T>> {
        self.send(item).map_err(|e| SendTimeoutError::Disconnected(e.0))
    }

    pub fn len(&self) -> usize {
        self.0.lock().waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn is_full(&self) -> bool {
        self.len() >= self.0.capacity
    }
}

impl<T> Receiver<T> {
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let mut state = self.0.lock();
        match state.waiting.pop_front() {
            Some(item) => {
                self.0.wake(state);
                Ok(item)
            }
            None if state.senders == 0 => Err(TryRecvError::Disconnected),
            None => Err(TryRecvError::Empty),
        }
    }

    pub fn recv(&self) -> Result<T, RecvError> {
        let mut state = self.0.lock();
        loop {
            if let Some(item) = state.waiting.pop_front() {
                self.0.wake(state);
                return Ok(item);
            }
            if state.senders == 0 {
                return Err(RecvError);
            }
            state = self.0.changed.wait(state).unwrap();
        }
    }

    pub fn recv_timeout(&self, _: Duration) -> Result<T, RecvTimeoutError> {
        self.recv().map_err(|RecvError| RecvTimeoutError::Disconnected)
    }

    pub fn len(&self) -> usize {
        self.0.lock().waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.lock().senders += 1;
        Sender(self.0.clone())
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.0.lock().receivers += 1;
        Receiver(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.senders -= 1;
        self.0.wake(state);
    }
}

impl<T> Drop for Receiver<T> {
    /// The last one drops what waits, as crossbeam's does: a call that no stage takes ends its caller.
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.receivers -= 1;
        let left = if state.receivers == 0 { std::mem::take(&mut state.waiting) } else { VecDeque::new() };
        self.0.wake(state);
        drop(left);
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiver")
    }
}

/// Waits at several channels.
#[derive(Default)]
pub struct Select<'a>(Vec<&'a dyn Selected>);

/// An end of a channel in a select.
trait Selected {
    fn is_ready(&self) -> bool;
    fn selects(&self, change: &mut dyn FnMut(&mut Vec<Arc<Signal>>));
}

impl<T> Selected for Sender<T> {
    fn is_ready(&self) -> bool {
        let state = self.0.lock();
        state.receivers == 0 || state.waiting.len() < self.0.capacity
    }

    fn selects(&self, change: &mut dyn FnMut(&mut Vec<Arc<Signal>>)) {
        change(&mut self.0.lock().selects);
    }
}

impl<T> Selected for Receiver<T> {
    fn is_ready(&self) -> bool {
        let state = self.0.lock();
        state.senders == 0 || !state.waiting.is_empty()
    }

    fn selects(&self, change: &mut dyn FnMut(&mut Vec<Arc<Signal>>)) {
        change(&mut self.0.lock().selects);
    }
}

impl<'a> Select<'a> {
    pub fn new() -> Self {
        Select(Vec::new())
    }

    pub fn recv<T>(&mut self, receiver: &'a Receiver<T>) -> usize {
        self.0.push(receiver);
        self.0.len() - 1
    }

    pub fn send<T>(&mut self, sender: &'a Sender<T>) -> usize {
        self.0.push(sender);
        self.0.len() - 1
    }

    pub fn ready(&mut self) -> usize {
        let signal = Arc::new(Signal { is_set: Mutex::new(false), changed: Condvar::new() });
        self.0.iter().for_each(|end| end.selects(&mut |all| all.push(signal.clone())));
        let ready = loop {
            if let Some(ready) = self.0.iter().position(|end| end.is_ready()) {
                break ready;
            }
            let mut is_set = signal.is_set.lock().unwrap();
            while !*is_set {
                is_set = signal.changed.wait(is_set).unwrap();
            }
            *is_set = false;
        };
        let is_other = |other: &Arc<Signal>| !Arc::ptr_eq(other, &signal);
        self.0.iter().for_each(|end| end.selects(&mut |all| all.retain(is_other)));
        ready
    }

    pub fn ready_timeout(&mut self, _: Duration) -> Result<usize, ReadyTimeoutError> {
        Ok(self.ready())
    }
}

//! One process after the other: a connection is read when those of processes that came before have been read to their end.
//!
//! A process that is killed leaves octets in its connections, which are read until there are no more. What the one in its place
//! says is newer, though it may come sooner over a connection of its own.

use super::zmtp::Process;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The connections that are read, or wait to be, in the order in which they came.
#[derive(Clone, Default, Debug)]
pub(super) struct Turns(Arc<(Mutex<Line>, Condvar)>);

#[derive(Default, Debug)]
struct Line {
    came: u64,
    connections: Vec<(u64, Process)>,
}

impl Turns {
    /// Waits for the turn of a connection of this process, which lasts until what is returned is dropped.
    pub(super) fn wait(&self, process: Process) -> Turn {
        let mut line = self.line();
        line.came += 1;
        let number = line.came;
        line.connections.push((number, process));
        let is_before = |line: &mut Line| {
            line.connections.iter().take_while(|(n, _)| *n != number).any(|(_, other)| *other != process)
        };
        if is_before(&mut line) {
            crate::report("who connected waits until all is read that another process sent");
        }
        drop(self.0.1.wait_while(line, is_before));
        Turn { turns: self.clone(), number }
    }

    /// Whether no other process has a connection that is not read to its end.
    pub(super) fn is_alone(&self, process: Process) -> bool {
        self.line().connections.iter().all(|(_, other)| *other == process)
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The turn of a connection.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Turns,
    number: u64,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.line().connections.retain(|(number, _)| *number != self.number);
        self.turns.0.1.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn a_process_waits_for_those_before_it_and_not_for_itself() {
        let [former, latter, last] = [1, 2, 3].map(Process::numbered);
        let turns = Turns::default();
        let of_former = [turns.wait(former), turns.wait(former)];
        assert!(turns.is_alone(former) && !turns.is_alone(latter));
        let (tell, told) = mpsc::sync_channel(2);
        let wait = |process| {
            let before = turns.line().came;
            let (turns, tell) = (turns.clone(), tell.clone());
            let of = turns.clone();
            let waits = thread::spawn(move || {
                let turn = of.wait(process);
                tell.send(process).unwrap();
                turn
            });
            while turns.line().came == before {
                thread::yield_now();
            }
            waits
        };
        let of_latter = wait(latter);
        let of_last = wait(last);
        let [one, other] = of_former;
        drop(other);
        assert!(told.try_recv().is_err() && !turns.is_alone(latter));
        drop(one);
        assert_eq!(told.recv(), Ok(latter));
        assert!(told.try_recv().is_err());
        drop(of_latter.join().unwrap());
        assert_eq!(told.recv(), Ok(last));
        assert!(turns.is_alone(last));
        drop(of_last.join().unwrap());
    }
}

//! Paged reads of a table: the position between two pages.

use super::Refusal;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Concurrent reads at most; a further one ends the oldest.
const READS: usize = 16;

/// The reads of a list. `R` is the list of remaining keys, made at the start of the read and
/// sorted on the thread of the API. So pages are ordered, and a page costs the stages only its own
/// routes.
pub(crate) struct Reads<R> {
    list: &'static str,
    most: usize,
    reads: Mutex<Stored<R>>,
}

/// The number of the last read, and those under way, each with what it is of, and since when it waits for its next page.
type Stored<R> = (u64, BTreeMap<u64, (String, Instant, R)>);

impl<R> Reads<R> {
    /// Of a list with this name, which cursors begin with.
    pub(crate) fn new(list: &'static str) -> Reads<R> {
        Reads { list, most: READS, reads: Mutex::new((0, BTreeMap::new())) }
    }

    /// One read at a time: it holds much memory.
    pub(crate) fn single(list: &'static str) -> Reads<R> {
        Reads { most: 1, ..Reads::new(list) }
    }

    /// Stores a read and returns its cursor. `of`: the parameters that the read was begun with.
    pub(super) fn put(&self, of: &str, read: R) -> String {
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        reads.0 += 1;
        let id = reads.0;
        reads.1.insert(id, (of.into(), Instant::now(), read));
        while reads.1.len() > self.most {
            reads.1.pop_first();
        }
        format!("{}-{id}", self.list)
    }

    /// Removes and returns the read of a cursor. A cursor works once.
    ///
    /// # Errors
    /// The cursor is of another list, of a list with other parameters than `of`, or of no read under way.
    pub(super) fn take(&self, cursor: &str, of: &str) -> Result<R, Refusal> {
        let refusal = |why: String| Err(Refusal::Bad(format!("cursor: {why}; begin again without a cursor")));
        let Some((list, id)) = cursor.rsplit_once('-') else {
            return refusal(format!("\"{cursor}\" is none; a cursor is `next` of a page"));
        };
        if list != self.list {
            return refusal(format!("\"{cursor}\" is of the list \"{list}\", and this is \"{}\"", self.list));
        }
        let reads = &mut self.reads.lock().unwrap_or_else(PoisonError::into_inner).1;
        let read = match id.parse().ok().map(|id| (id, reads.get(&id).is_none_or(|(begun, ..)| begun == of)))
        {
            Some((_, false)) => {
                return refusal(format!(
                    "\"{cursor}\" is of a read with other parameters; send those of its first page, where only limit may \
                     differ"
                ));
            }
            Some((id, true)) => reads.remove(&id),
            None => None,
        };
        match read {
            Some((.., read)) => Ok(read),
            None => refusal(format!("\"{cursor}\" is of no read under way")),
        }
    }

    /// Ends the reads that have waited for their next page at least this long at `now`, such as those of clients that were
    /// interrupted. Returns them, because to drop them may take long.
    pub(crate) fn end_waiting(&self, longer: Duration, now: Instant) -> Vec<R> {
        let reads = &mut self.reads.lock().unwrap_or_else(PoisonError::into_inner).1;
        let waits = |since: &Instant| now.saturating_duration_since(*since) >= longer;
        let ids: Vec<u64> =
            reads.iter().filter(|(_, (_, since, _))| waits(since)).map(|(id, _)| *id).collect();
        ids.into_iter().filter_map(|id| reads.remove(&id)).map(|(.., read)| read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_goes_on_once_and_the_oldest_ends_when_there_are_too_many() {
        let reads = Reads::new("routes");
        let cursors: Vec<String> = (0..=READS).map(|n| reads.put("", n)).collect();
        assert!(reads.take(&cursors[0], "").is_err() && reads.take("banana", "").is_err());
        assert_eq!(reads.take(&cursors[1], "").ok(), Some(1));
        assert!(reads.take(&cursors[1], "").is_err());
    }

    #[test]
    fn a_read_ends_when_it_has_waited_too_long_for_its_next_page() {
        let reads = Reads::single("check");
        let limit = Duration::from_secs(60);
        let cursor = reads.put("", 7);
        let now = Instant::now();
        assert!(reads.end_waiting(limit, now).is_empty());
        assert_eq!(reads.end_waiting(limit, now + limit), [7]);
        assert!(reads.take(&cursor, "").is_err() && reads.end_waiting(limit, now + limit).is_empty());
    }

    #[test]
    fn a_cursor_of_another_list_or_of_other_parameters_is_refused() {
        let reads = Reads::new("routes");
        let cursor = reads.put("shard 1", 7);
        let why = |cursor: &str, of| reads.take(cursor, of).unwrap_err().sentence().to_owned();
        assert!(
            why("advertised-1", "shard 1").contains("is of the list \"advertised\", and this is \"routes\"")
        );
        assert!(why(&cursor, "shard 2").contains("of a read with other parameters"));
        assert!(why("routes-x", "shard 1").contains("no read under way"));
        assert!(why("7", "shard 1").contains("a cursor is `next` of a page"));
        assert_eq!(reads.take(&cursor, "shard 1").ok(), Some(7), "a wrong request ends no read");
    }
}

//! When batches were made. A route has the number of the batch that last changed it, so a journal of numbers and times gives
//! its age without a byte in the route.

/// Entries at most: enough for years. A full journal keeps an entry only where it is [`SHARE`] of its age, and [`SPAN`], from
/// the next, so the error of a time grows with its age.
const ENTRIES: usize = 2048;
const SHARE: u64 = 128;
/// Batches within so many milliseconds share an entry.
const SPAN: u64 = 1000;

/// The numbers of some batches with their times, oldest first.
#[derive(Debug, Default)]
pub(crate) struct BatchTimes(Vec<(u64, u64)>);

impl BatchTimes {
    /// Batch `seq` is made at the time `now`, in milliseconds.
    pub(crate) fn note(&mut self, seq: u64, now: u64) {
        if self.0.last().is_some_and(|(_, last)| now < last + SPAN) {
            return;
        }
        if self.0.len() >= ENTRIES {
            self.thin(now);
        }
        self.0.push((seq, now));
    }

    fn thin(&mut self, now: u64) {
        let mut next = now;
        let mut kept: Vec<(u64, u64)> = Vec::with_capacity(ENTRIES);
        let oldest = self.0.first().copied();
        for (seq, time) in self.0.drain(..).rev() {
            if next - time >= SPAN.max((now - next) / SHARE) {
                kept.push((seq, time));
                next = time;
            }
        }
        // It stands for all before it.
        kept.extend(oldest.filter(|oldest| kept.last() != Some(oldest)));
        kept.reverse();
        self.0 = kept;
    }

    /// The time of the latest batch before `latest`, itself included, whose number has the low half `low`; no later than it
    /// was made.
    pub(crate) fn of(&self, low: u32, latest: u64) -> Option<u64> {
        let seq = latest.checked_sub(u64::from((latest as u32).wrapping_sub(low)))?;
        let entries = self.0.partition_point(|(number, _)| *number <= seq);
        self.0.get(entries.checked_sub(1)?).map(|(_, time)| *time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_the_time_of_its_second_and_an_old_one_nearly() {
        let mut times = BatchTimes::default();
        // A batch each 100 ms, for three days.
        let at = |seq: u64| 100 * seq;
        for seq in 1..=2_592_000 {
            times.note(seq, at(seq));
        }
        assert!(times.0.len() <= ENTRIES);
        let latest = 2_592_000;
        for seq in [1, 7, 1000, 1_000_000, 2_000_000, 2_591_000, 2_591_999, latest] {
            let time = times.of(seq as u32, latest).unwrap();
            let age = at(latest) - at(seq);
            assert!(time <= at(seq) && at(seq) - time <= 2 * SPAN + age / 32, "{seq}: {time}");
        }
        assert_eq!(BatchTimes::default().of(1, 5), None);
    }

    #[test]
    fn numbers_go_on_beyond_their_low_half() {
        let mut times = BatchTimes::default();
        let base = u64::from(u32::MAX);
        times.note(base - 1, 5_000);
        times.note(base + 3, 9_000);
        assert_eq!(times.of((base + 3) as u32, base + 4), Some(9_000));
        assert_eq!(times.of((base + 2) as u32, base + 4), Some(5_000));
        assert_eq!(times.of((base - 1) as u32, base + 4), Some(5_000));
    }
}

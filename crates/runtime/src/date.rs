//! Dates of the Gregorian calendar, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

/// Year, month and day of a number of days since 1970.
pub fn date(days: u64) -> (u64, u64, u64) {
    // Years begin in March, so that a leap day is the last one; 400 of them have 146,097 days.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// A time in UTC, with microseconds (RFC 3339).
pub fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, micros) = (since.as_secs(), since.subsec_micros());
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_written_in_utc() {
        let time = UNIX_EPOCH + Duration::from_micros(951_782_401_000_007);
        assert_eq!(rfc3339(time), "2000-02-29T00:00:01.000007Z");
    }

    #[test]
    fn leap_years_have_29_february() {
        // `date -u -d @SECONDS` is the judge.
        let of = |seconds: u64| date(seconds / 86_400);
        assert_eq!((of(0), of(951_782_400), of(951_868_800)), ((1970, 1, 1), (2000, 2, 29), (2000, 3, 1)));
        assert_eq!((of(4_107_542_399), of(4_107_542_400)), ((2100, 2, 28), (2100, 3, 1)));
    }
}

//! The layout of SONiC's ZeroMQ table messages (sonic-swss-common, `common/binaryserializer.h`): a
//! count of pairs, then pairs of texts, each after its length. Numbers are 64 bits, least
//! significant byte first.
//!
//! The first pair is database and table. Each change follows as its key and, in decimal text, its
//! number of fields, then the fields; no field means deletion.

use std::io::Write as _;

/// A message under construction.
#[derive(Debug)]
pub(super) struct Writer {
    bytes: Vec<u8>,
    pairs: u64,
    fields: Vec<u8>,
}

impl Writer {
    pub(super) fn new(database: &str, table: &str) -> Writer {
        let mut writer = Writer { bytes: vec![0; 8], pairs: 1, fields: Vec::new() };
        text(&mut writer.bytes, database.as_bytes());
        text(&mut writer.bytes, table.as_bytes());
        writer
    }

    /// Adds a change. `fields` passes the row's fields; a row without fields would read as a
    /// deletion.
    #[inline]
    pub(super) fn change(&mut self, key: &str, fields: impl FnOnce(&mut dyn FnMut(&str, &str))) {
        let mut count = 0u64;
        let scratch = &mut self.fields;
        fields(&mut |field, value| {
            count += 1;
            text(scratch, field.as_bytes());
            text(scratch, value.as_bytes());
        });
        text(&mut self.bytes, key.as_bytes());
        // Decimal digits of 64 bits; writing to them cannot fail.
        let mut digits = [0; 20];
        let mut rest = &mut digits[..];
        let _ = write!(rest, "{count}");
        let len = 20 - rest.len();
        text(&mut self.bytes, &digits[..len]);
        self.bytes.append(scratch);
        self.pairs += 1 + count;
    }

    /// Its length so far.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes[..8].copy_from_slice(&self.pairs.to_le_bytes());
        self.bytes
    }
}

fn text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&(text.len() as u64).to_le_bytes());
    out.extend_from_slice(text);
}

/// The bytes are not in this layout, or not UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Malformed;

/// A message: database, table, and the changes as an iterator.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    pub(super) database: &'a str,
    pub(super) table: &'a str,
    rest: &'a [u8],
    pairs: u64,
}

/// One change of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Change<'a> {
    pub(super) key: &'a str,
    /// The encoded fields of the row; empty for a deletion.
    pub(super) fields: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(message: &'a [u8]) -> Result<Reader<'a>, Malformed> {
        let (pairs, mut rest) = message.split_first_chunk::<8>().ok_or(Malformed)?;
        let pairs = u64::from_le_bytes(*pairs).checked_sub(1).ok_or(Malformed)?;
        let database = utf8(take(&mut rest)?)?;
        let table = utf8(take(&mut rest)?)?;
        Ok(Reader { database, table, rest, pairs })
    }

    /// The next change; `None` after the last.
    pub(super) fn next(&mut self) -> Result<Option<Change<'a>>, Malformed> {
        let Some(pairs) = self.pairs.checked_sub(1) else {
            return if self.rest.is_empty() { Ok(None) } else { Err(Malformed) };
        };
        let key = utf8(take(&mut self.rest)?)?;
        let count: u64 = utf8(take(&mut self.rest)?)?.parse().map_err(|_| Malformed)?;
        self.pairs = pairs.checked_sub(count).ok_or(Malformed)?;
        let before = self.rest;
        for _ in 0..count {
            take(&mut self.rest)?;
            take(&mut self.rest)?;
        }
        Ok(Some(Change { key, fields: &before[..before.len() - self.rest.len()] }))
    }
}

/// The pairs of [`Change::fields`].
pub(super) fn pairs(mut fields: &[u8]) -> Result<Vec<(&str, &str)>, Malformed> {
    let mut all = Vec::new();
    while !fields.is_empty() {
        all.push((utf8(take(&mut fields)?)?, utf8(take(&mut fields)?)?));
    }
    Ok(all)
}

fn take<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let (len, tail) = rest.split_first_chunk::<8>().ok_or(Malformed)?;
    let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| Malformed)?;
    let (text, tail) = tail.split_at_checked(len).ok_or(Malformed)?;
    *rest = tail;
    Ok(text)
}

fn utf8(text: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(text).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn golden() -> Vec<u8> {
        let mut writer = Writer::new("test_db", "test_table");
        writer.change("test_key", |put| put("key", "value"));
        writer.change("test_key_2", |_| {});
        writer.finish()
    }

    #[test]
    fn the_layout_is_sonics() {
        // The test vector of SONiC.
        let hex = "0400000000000000 0700000000000000 746573745f6462 0a00000000000000 746573745f7461626c65 \
                   0800000000000000 746573745f6b6579 0100000000000000 31 0300000000000000 6b6579 \
                   0500000000000000 76616c7565 0a00000000000000 746573745f6b65795f32 0100000000000000 30";
        let ours: String = golden().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(ours, hex.replace(' ', ""));
        assert_eq!(ours.len(), 2 * 117);
    }

    #[test]
    fn what_was_written_is_read() {
        let message = golden();
        let mut reader = Reader::new(&message).unwrap();
        assert_eq!((reader.database, reader.table), ("test_db", "test_table"));
        let set = reader.next().unwrap().unwrap();
        assert_eq!((set.key, pairs(set.fields).unwrap()), ("test_key", vec![("key", "value")]));
        assert_eq!(reader.next(), Ok(Some(Change { key: "test_key_2", fields: &[] })));
        assert_eq!(reader.next(), Ok(None));
    }

    #[test]
    fn a_message_that_is_cut_is_refused() {
        let message = golden();
        let read = |bytes| {
            let mut reader = Reader::new(bytes)?;
            while reader.next()?.is_some() {}
            Ok::<(), Malformed>(())
        };
        for end in 0..message.len() {
            assert_eq!(read(&message[..end]), Err(Malformed), "{end}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_end_well(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..117, with in any::<u8>()) {
            let mut broken = golden();
            broken[at] = with;
            for bytes in [bytes, broken] {
                if let Ok(mut reader) = Reader::new(&bytes) {
                    while let Ok(Some(change)) = reader.next() {
                        let _ = pairs(change.fields);
                    }
                }
            }
        }
    }
}

//! Reading many hashes: keys a page at a time, and the fields of a page in one question.

use super::Error;
use ribtide_tables::{Connection, Reply, TableError};

/// Keys that one question is about.
pub(super) const PAGE: usize = 1000;

/// Every hash whose key begins with `prefix`: the rest of the key, and its fields.
pub(super) fn hashes(
    connection: &mut Connection,
    prefix: &str,
    mut each: impl FnMut(&str, &[(String, String)]),
) -> Result<(), Error> {
    connection.scan(&format!("{prefix}*"), |connection, names| {
        let fields = connection.ask_all(names.iter().map(|name| ["HGETALL", name]))?;
        for (name, fields) in names.iter().zip(fields) {
            let (Some(name), fields) = (name.strip_prefix(prefix), fields.into_pairs()) else { continue };
            // One that went meanwhile has no fields.
            if !fields.is_empty() {
                each(name, &fields);
            }
        }
        Ok(())
    })?;
    Ok(())
}

/// The replies to one command of each key, a page at a time.
pub(super) fn replies<const N: usize>(
    connection: &mut Connection,
    keys: &[String],
    command: for<'a> fn(&'a str) -> [&'a str; N],
) -> Result<Vec<Reply>, TableError> {
    let mut all = Vec::with_capacity(keys.len());
    for keys in keys.chunks(PAGE) {
        all.extend(connection.ask_all(keys.iter().map(|key| command(key)))?);
    }
    Ok(all)
}

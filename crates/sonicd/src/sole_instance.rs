//! A second daemon on the same databases would take rows and replies of the first.
//!
//! Each connection of a daemon has a name at the server, which goes with the connection. So a daemon
//! that was killed leaves nothing behind, and one that starts sees whether another one runs.

use super::Error;
use ribtide_runtime::thread::Stop;
use ribtide_tables::{Connection, Database, TableError};
use std::time::{Duration, Instant};

/// The server notices within this time that a daemon has ended.
const ENDS_WITHIN: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(100);

/// Opens a connection to the daemon's main database, and waits until no earlier connection to it has
/// the daemon's name. The name lasts as long as the connection.
///
/// # Errors
/// Another daemon runs, or the server cannot be reached.
pub(super) fn check(name: &str, database: &Database, stop: &Stop) -> Result<Connection, Error> {
    let mut connection = Connection::open(database, stop)?;
    let until = Instant::now() + ENDS_WITHIN;
    while let Some(other) = other(&mut connection)? {
        if Instant::now() >= until || stop.stopped() {
            return Err(Error::Listen(format!(
                "another {name} works on {} (its connection to Redis: {other}); stop it first, since two would take each \
                 other's rows and replies",
                database.db.name()
            )));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(connection)
}

/// The address of an earlier client of the same name and database.
fn other(connection: &mut Connection) -> Result<Option<String>, TableError> {
    let own = connection.query(&["CLIENT", "ID"])?.as_integer().unwrap_or_default();
    let database = connection.database();
    let (name, number) = (database.client.clone().unwrap_or_default(), database.id);
    let clients = connection.query(&["CLIENT", "LIST", "TYPE", "normal"])?.into_text().unwrap_or_default();
    Ok(clients.lines().find_map(|client| earlier(client, own, &name, number)).map(str::to_owned))
}

/// The address of a client by its line of `CLIENT LIST`, if it came before `own` and is another
/// process of this name on this database.
fn earlier<'a>(client: &'a str, own: i64, name: &str, database: u32) -> Option<&'a str> {
    let field = |wanted: &str| {
        client.split(' ').find_map(|field| field.split_once('=').filter(|(key, _)| *key == wanted))
    };
    let value = |wanted| field(wanted).map(|(_, value)| value);
    let (daemon, process) = name.rsplit_once('-')?;
    let is = value("name")?.rsplit_once('-').is_some_and(|(of, other)| of == daemon && other != process)
        && value("db")?.parse() == Ok(database)
        && value("id")?.parse::<i64>().is_ok_and(|id| id < own);
    is.then(|| value("addr")).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_clients_of_the_same_name_and_database_count() {
        let line = |id, name, db| {
            format!("id={id} addr=127.0.0.1:5 laddr=127.0.0.1:6379 fd=8 name={name} age=1 db={db} sub=0")
        };
        let found = |line: &str| earlier(line, 7, "ribtide-syncd-a1", 1).map(str::to_owned);
        assert_eq!(found(&line(5, "ribtide-syncd-b2", 1)).as_deref(), Some("127.0.0.1:5"));
        assert_eq!(found(&line(5, "ribtide-syncd-a1", 1)), None, "the same process");
        assert_eq!(found(&line(9, "ribtide-syncd-b2", 1)), None, "a later one, which refuses to start");
        assert_eq!(found(&line(5, "ribtide-syncd-b2", 2)), None, "another switch's database");
        assert_eq!(found(&line(5, "ribtide-orchagent-b2", 1)), None);
        assert_eq!(found("id=5"), None);
    }
}

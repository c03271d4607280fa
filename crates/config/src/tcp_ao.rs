//! Keys of TCP connections: TCP-AO (RFC 5925), and which of it and TCP-MD5 a neighbour has.

use super::check::{BgpConfig, Both, Checker, NeighborSettings};
use super::diagnosis::{Step, key};
use super::private_file;
use schemars::JsonSchema;
use serde::Deserialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The longest key that the kernel takes, for TCP-AO and TCP-MD5, in bytes.
const SECRET_MAX: usize = 80;
/// Keys of a neighbour. A rollover has two at a time.
const KEYS_MAX: usize = 16;

/// A secret. Its text appears in no log and no output.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// The bytes, at most 80.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Secret {
        Secret(text.as_bytes().into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The TCP-AO keys of a neighbour.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TcpAoConfig {
    /// The keys, at least one. No two have one `send_id` or one `recv_id` (RFC 5925 section 3.1).
    pub keys: Vec<TcpAoKey>,
    /// The `send_id` of the key that signs at first. Later the peer chooses (RFC 5925 section 7.5.1).
    pub current: u8,
    /// The `recv_id` of the key that the peer is asked to sign with.
    pub rnext: u8,
}

/// A master key tuple of TCP-AO (RFC 5925 section 3.1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TcpAoKey {
    /// The KeyID of segments that we sign with it.
    pub send_id: u8,
    /// The KeyID of segments that the peer signs with it.
    pub recv_id: u8,
    /// The algorithm.
    pub algorithm: TcpAoAlgorithm,
    /// The master key, 1 to 80 bytes.
    pub secret: Secret,
}

/// The algorithms of RFC 5926.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, serde::Serialize, JsonSchema)]
pub enum TcpAoAlgorithm {
    /// HMAC-SHA-1-96.
    #[default]
    #[serde(rename = "hmac-sha-1-96")]
    HmacSha1,
    /// AES-128-CMAC-96.
    #[serde(rename = "aes-128-cmac-96")]
    AesCmac128,
}

impl TcpAoAlgorithm {
    /// The kernel's name of its MAC. Linux derives the traffic keys with the function that RFC 5926 has for it.
    pub fn kernel_name(self) -> &'static str {
        match self {
            TcpAoAlgorithm::HmacSha1 => "hmac(sha1)",
            TcpAoAlgorithm::AesCmac128 => "cmac(aes128)",
        }
    }
}

impl TcpAoConfig {
    /// Whether the keys of an established connection can be replaced by `new` while it lasts: what both name by an ID is one key.
    pub fn is_live_change(&self, new: &TcpAoConfig) -> bool {
        let conflicts = |key: &TcpAoKey| new.keys.iter().any(|other| key.shares_an_id(other) && key != other);
        !self.keys.iter().any(conflicts)
    }
}

impl TcpAoKey {
    /// Whether one connection cannot have both, unless they are one key.
    fn shares_an_id(&self, other: &TcpAoKey) -> bool {
        self.send_id == other.send_id || self.recv_id == other.recv_id
    }
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct TcpAoTable {
    /// The keys, at least one.
    #[schemars(extend("x-default" = "required"))]
    keys: Vec<TcpAoKeyTable>,
    /// The send-id of the key that new sessions sign with; the peer may ask for another. A reload that changes it
    /// changes the key of present sessions at once.
    #[schemars(extend("x-default" = "that of the first key"))]
    current: Option<u8>,
    /// The recv-id of the key that the peer is asked to sign with (RNextKeyID).
    #[schemars(extend("x-default" = "that of the first key"))]
    rnext: Option<u8>,
}

#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TcpAoKeyTable {
    /// Both IDs, 0 to 255, in place of `send-id` and `recv-id`.
    id: Option<u8>,
    /// The KeyID with which we sign: the peer's recv-id.
    send_id: Option<u8>,
    /// The KeyID with which the peer signs: its send-id.
    recv_id: Option<u8>,
    /// `"hmac-sha-1-96"` or `"aes-128-cmac-96"` (RFC 5926).
    #[schemars(extend("default" = TcpAoAlgorithm::default()))]
    algorithm: Option<TcpAoAlgorithm>,
    /// The master key, 1 to 80 bytes.
    secret: Option<String>,
    /// A file with the master key on its one line, in place of `secret`. A relative path starts at the folder of the
    /// configuration. Others than the owner and the group must have no permission on the file.
    secret_file: Option<PathBuf>,
}

impl fmt::Debug for TcpAoKeyTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TcpAoKeyTable {{ id: {:?}, .. }}", self.id.or(self.send_id))
    }
}

impl Checker {
    /// The password and the TCP-AO keys of a neighbour: one or the other. What it sets itself wins over its group's.
    pub(super) fn session_keys(&mut self, both: &Both<'_>) -> (Option<Secret>, Option<Arc<TcpAoConfig>>) {
        let (own_password, group_password) = both.each(|n| n.password.clone(), |g| g.password.clone());
        let (own_ao, group_ao) = both.each(|n| n.tcp_ao.clone(), |g| g.tcp_ao.clone());
        for (password, tcp_ao, place) in
            [(&own_password, &own_ao, both.place), (&group_password, &group_ao, both.in_group)]
        {
            let place = |name: &str| [place, key![name]].concat();
            if password.as_ref().is_some_and(|p| p.is_empty() || p.len() > SECRET_MAX) {
                self.problem(&place("password"), "a TCP-MD5 password has 1 to 80 bytes");
            }
            if password.is_some() && tcp_ao.is_some() {
                let message =
                    "a session has a password (TCP-MD5) or tcp-ao keys, not both; remove one of them";
                self.problem(&place("tcp-ao"), message);
            }
        }
        let is_own = own_password.is_some() || own_ao.is_some();
        let (password, table, place) = match is_own {
            true => (own_password, own_ao, both.place),
            false => (group_password, group_ao, both.in_group),
        };
        let place = [place, key!["tcp-ao"]].concat();
        let tcp_ao = table.map(|table| Arc::new(self.tcp_ao(&table, &place)));
        (password.as_deref().map(Secret::from), tcp_ao)
    }

    fn tcp_ao(&mut self, table: &TcpAoTable, place: &[Step]) -> TcpAoConfig {
        let at = |rest: &[Step]| [place, rest].concat();
        let mut keys: Vec<TcpAoKey> = Vec::new();
        for (i, key) in table.keys.iter().enumerate() {
            let (send_id, recv_id) = (key.send_id.or(key.id), key.recv_id.or(key.id));
            let has_both_forms = key.id.is_some() && (key.send_id.is_some() || key.recv_id.is_some());
            let (Some(send_id), Some(recv_id), false) = (send_id, recv_id, has_both_forms) else {
                let message = "a key needs its IDs; write send-id and recv-id, or id where they are equal";
                self.problem(&at(key!["keys", i]), message);
                continue;
            };
            let secret = self.secret(key, &at(key!["keys", i]));
            let key = TcpAoKey { send_id, recv_id, algorithm: key.algorithm.unwrap_or_default(), secret };
            if keys.iter().any(|other| other.shares_an_id(&key)) {
                let message = format!(
                    "another key has send-id {send_id} or recv-id {recv_id} already; each ID names one key (RFC 5925)"
                );
                self.problem(&at(key!["keys", i]), message);
            }
            keys.push(key);
        }
        if table.keys.is_empty() || table.keys.len() > KEYS_MAX {
            self.problem(&at(key!["keys"]), format!("write 1 to {KEYS_MAX} keys"));
        }
        let first = keys.first();
        let current = table.current.or(first.map(|key| key.send_id)).unwrap_or_default();
        let rnext = table.rnext.or(first.map(|key| key.recv_id)).unwrap_or_default();
        if !keys.is_empty() && !keys.iter().any(|key| key.send_id == current) {
            self.problem(&at(key!["current"]), format!("no key has send-id {current}; write that of a key"));
        }
        if !keys.is_empty() && !keys.iter().any(|key| key.recv_id == rnext) {
            self.problem(&at(key!["rnext"]), format!("no key has recv-id {rnext}; write that of a key"));
        }
        TcpAoConfig { keys, current, rnext }
    }

    fn secret(&mut self, key: &TcpAoKeyTable, place: &[Step]) -> Secret {
        let (secret, name) = match (&key.secret, &key.secret_file) {
            (Some(secret), None) => (Ok(secret.clone()), "secret"),
            (None, Some(file)) => {
                let path = self.folder.join(file);
                self.files.push(path.clone());
                (secret_of(&path), "secret-file")
            }
            _ => (Err("a key has one secret; write secret or secret-file".into()), "secret"),
        };
        let secret = secret.and_then(|secret| match secret.len() {
            1..=SECRET_MAX => Ok(Secret::from(secret.as_str())),
            len => Err(format!("the secret has {len} bytes; a TCP-AO master key has 1 to {SECRET_MAX}")),
        });
        secret.unwrap_or_else(|message| {
            self.problem(&[place, key![name]].concat(), message);
            Secret::from("")
        })
    }

    /// Refuses keys that a listening socket cannot have together: it knows a connection by its address alone, so what a
    /// range has concerns every neighbour in it (RFC 5925 section 3.1).
    pub(super) fn overlapping_keys(&mut self, bgp: &BgpConfig) {
        let neighbors =
            bgp.neighbors.values().map(|n| (n.address.to_string(), n.address, u8::MAX, &n.settings));
        let ranges =
            bgp.dynamic.iter().map(|d| (d.range.to_string(), d.range.addr(), d.range.len(), &d.settings));
        let inner: Vec<_> = neighbors.chain(ranges).collect();
        for range in &bgp.dynamic {
            for (name, address, len, settings) in &inner {
                if !range.range.contains(*address) || *len <= range.range.len() {
                    continue;
                }
                if let Some(message) = conflict(&range.settings, settings) {
                    let message = format!(
                        "{name} is in the range {} of group \"{}\": {message}",
                        range.range, range.settings.group
                    );
                    self.problem(key!["bgp", "group", settings.group.as_str()], message);
                }
            }
        }
    }
}

/// Why neighbours with these settings cannot be in a range with those.
fn conflict(range: &NeighborSettings, inner: &NeighborSettings) -> Option<&'static str> {
    match (&range.tcp_ao, &inner.tcp_ao) {
        (Some(range), Some(inner)) if !range.is_live_change(inner) => Some(
            "their tcp-ao keys have an ID in common; give one of the two other IDs, or both the same key",
        ),
        // TCP-MD5 knows no exception from the password of a range (tcp(7), TCP_MD5SIG_EXT).
        (None, None) if range.password.is_some() && inner.password.is_none() => {
            Some("the range has a password (TCP-MD5), with which it must sign too; give it a password")
        }
        (Some(_), Some(_)) | (None, None) => None,
        (Some(_), None) => {
            Some("the range has tcp-ao keys, with which it must sign too; give it tcp-ao keys")
        }
        (None, Some(_)) if range.password.is_some() => Some(
            "the range has a password (TCP-MD5), and the kernel then takes no tcp-ao keys for an address in it",
        ),
        (None, Some(_)) => None,
    }
}

/// The secret in a file, without the end of its line.
fn secret_of(path: &Path) -> Result<String, String> {
    let text = private_file::read(path, "key", 2 * SECRET_MAX)?;
    Ok(text.trim_end_matches(['\r', '\n']).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConfigError, parse, parse_in};
    use std::os::unix::fs::PermissionsExt as _;

    fn text(group: &str, neighbor: &str) -> String {
        format!(
            "[router]\nasn = 65001\nrouter-id = \"10.0.0.1\"\n[bgp.group.up]\ntype = \"external\"\npeer-asn = 65002\n\
             {group}\n[[bgp.group.up.neighbor]]\naddress = \"192.0.2.1\"\n{neighbor}\n"
        )
    }

    fn settings(group: &str, neighbor: &str) -> Result<NeighborSettings, String> {
        let text = text(group, neighbor);
        let config = parse(&text).map_err(|e| ConfigError::new(Path::new("r.toml"), &text, e).to_string())?;
        Ok(config.bgp.unwrap().neighbors.into_values().next().unwrap().settings)
    }

    const ONE: &str = "tcp-ao = { keys = [{ id = 7, secret = \"topsecret\" }] }";

    #[test]
    fn keys_of_a_group_are_those_of_its_neighbours() {
        let keys = "tcp-ao = { keys = [{ send-id = 1, recv-id = 2, secret = \"a\", algorithm = \"aes-128-cmac-96\" }, \
                    { id = 3, secret = \"b\" }], current = 3, rnext = 2 }";
        let found = settings(keys, "").unwrap().tcp_ao.unwrap();
        let key = |send_id, recv_id, algorithm, secret: &str| TcpAoKey {
            send_id,
            recv_id,
            algorithm,
            secret: secret.into(),
        };
        let first = key(1, 2, TcpAoAlgorithm::AesCmac128, "a");
        let second = key(3, 3, TcpAoAlgorithm::HmacSha1, "b");
        assert_eq!(*found, TcpAoConfig { keys: vec![first, second], current: 3, rnext: 2 });
        let found = settings(keys, ONE).unwrap().tcp_ao.unwrap();
        assert_eq!((found.keys.len(), found.current, found.rnext), (1, 7, 7), "its own ones, whole");
    }

    #[test]
    fn password_and_tcp_ao_are_not_together_and_the_neighbours_own_wins() {
        let md5 = "password = \"old\"";
        for (group, neighbor) in [(format!("{md5}\n{ONE}"), ""), (String::new(), &*format!("{md5}\n{ONE}"))] {
            let message = settings(&group, neighbor).unwrap_err();
            assert!(message.contains("not both"), "{message}");
        }
        let moved = settings(md5, ONE).unwrap();
        assert!(moved.password.is_none() && moved.tcp_ao.is_some());
        let back = settings(ONE, md5).unwrap();
        assert!(back.password.is_some() && back.tcp_ao.is_none());
    }

    #[test]
    fn keys_that_cannot_be_are_refused_with_their_place() {
        for (keys, wrong) in [
            ("[]", "write 1 to 16 keys"),
            ("[{ id = 1 }]", "write secret or secret-file"),
            ("[{ id = 1, secret = \"a\", secret-file = \"b\" }]", "write secret or secret-file"),
            ("[{ id = 1, secret = \"\" }]", "has 0 bytes"),
            ("[{ send-id = 1, secret = \"a\" }]", "send-id and recv-id"),
            ("[{ id = 1, send-id = 1, secret = \"a\" }]", "send-id and recv-id"),
            ("[{ id = 256, secret = \"a\" }]", "256"),
            ("[{ id = 1, secret = \"a\", algorithm = \"md5\" }]", "unknown variant"),
            (
                "[{ id = 1, secret = \"a\" }, { send-id = 2, recv-id = 1, secret = \"b\" }]",
                "each ID names one key",
            ),
            ("[{ id = 1, secret-file = \"/nonexistent/key\" }]", "cannot read"),
        ] {
            let message = settings(&format!("tcp-ao = {{ keys = {keys} }}"), "").unwrap_err();
            assert!(message.contains(wrong) && message.contains("r.toml:7:"), "{keys}: {message}");
        }
        for (name, wrong) in [("current", "send-id 9"), ("rnext", "recv-id 9")] {
            let message = settings(&ONE.replace(" }] }", &format!(" }}], {name} = 9 }}")), "").unwrap_err();
            assert!(message.contains(wrong), "{message}");
        }
    }

    #[test]
    fn secrets_are_in_no_output() {
        let settings = settings(ONE, "").unwrap();
        let md5 = super::tests::settings("password = \"topsecret\"", "").unwrap();
        let refused = super::tests::settings(&ONE.replace("id = 7", "id = 7, colour = 1"), "").unwrap_err();
        let twice = super::tests::settings(&format!("{ONE}\npassword = \"topsecret\""), "").unwrap_err();
        for shown in [format!("{settings:?}"), format!("{md5:?}"), refused, twice] {
            assert!(!shown.contains("topsecret"), "{shown}");
        }
    }

    #[test]
    fn a_secret_file_is_read_from_the_folder_and_must_be_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let text = text("tcp-ao = { keys = [{ id = 1, secret-file = \"key\" }] }", "");
        for (content, mode, expected) in [
            ("from a file\n", 0o600, Ok("from a file")),
            ("from a file\n", 0o644, Err("is no secret")),
            (&*"x".repeat(81), 0o600, Err("has 81 bytes")),
        ] {
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            match (parse_in(&text, folder.path()), expected) {
                (Ok(config), Ok(secret)) => {
                    assert_eq!(config.files, std::slice::from_ref(&path));
                    let neighbor = config.bgp.unwrap().neighbors.into_values().next().unwrap();
                    let keys = neighbor.settings.tcp_ao.unwrap();
                    assert_eq!(keys.keys[0].secret.bytes(), secret.as_bytes());
                }
                (Err(problems), Err(wrong)) => assert!(problems[0].message.contains(wrong), "{problems:?}"),
                (found, _) => panic!("{found:?}"),
            }
        }
    }

    #[test]
    fn keys_of_a_range_and_of_a_neighbour_in_it_must_fit() {
        let dynamic = |of_range: &str, own: &str| {
            settings(&format!("{of_range}\ndynamic-neighbors = [\"192.0.2.0/24\"]"), own).map(drop)
        };
        assert_eq!(dynamic(ONE, ""), Ok(()));
        assert_eq!(dynamic(ONE, &ONE.replace("id = 7", "id = 8")), Ok(()));
        let message = dynamic(ONE, &ONE.replace("topsecret", "other")).unwrap_err();
        assert!(message.contains("an ID in common"), "{message}");
        let message = dynamic(ONE, "password = \"old\"").unwrap_err();
        assert!(message.contains("must sign too"), "{message}");
        assert_eq!(dynamic("password = \"old\"", ""), Ok(()), "it has the password of its group");
        assert_eq!(dynamic("password = \"old\"", "password = \"own\""), Ok(()));
        let message = dynamic("password = \"old\"", ONE).unwrap_err();
        assert!(message.contains("takes no tcp-ao keys"), "{message}");
    }

    #[test]
    fn a_change_is_live_unless_one_id_names_two_keys() {
        let config =
            |keys: &str| settings(&format!("tcp-ao = {{ keys = [{keys}] }}"), "").unwrap().tcp_ao.unwrap();
        let (one, two) = ("{ id = 1, secret = \"a\" }", "{ id = 2, secret = \"b\" }");
        let (first, both, second) = (config(one), config(&format!("{one}, {two}")), config(two));
        assert!(first.is_live_change(&both) && both.is_live_change(&second) && first.is_live_change(&second));
        assert!(!first.is_live_change(&config("{ id = 1, secret = \"other\" }")));
        assert!(!first.is_live_change(&config("{ send-id = 1, recv-id = 3, secret = \"a\" }")));
    }
}

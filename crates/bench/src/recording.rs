//! The contents of an MRT file as UPDATEs, from table entries and messages alike, so that the
//! router's strict parser reads all attributes.

use crate::Error;
use crate::mrt_file::{Cut, MrtFile};
use ribtide_prefix::{Afi, AfiSafi, AnyPrefix, Map};
use ribtide_wire::bgp::attribute::{Attributes, code, flags};
use ribtide_wire::bgp::message::{MAX_EXTENDED_LEN, MessageType, frame};
use ribtide_wire::bgp::update::{Disposition, UpdateContext, parse};
use ribtide_wire::bgp::{Update, build, nlri};
use ribtide_wire::mrt::{AttributeForm, Body, Record, Rib, TableDump, rib_next_hop};
use std::net::IpAddr;
use std::path::Path;

/// A peer of the collector.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize)]
pub struct RecordedPeer {
    /// Its address.
    pub address: IpAddr,
    /// Its AS number.
    pub asn: u32,
}

/// One recorded event.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The peer of the route.
    pub peer: RecordedPeer,
    /// An entry of a table, not a message of a stream.
    pub table: bool,
    /// When it was recorded, in seconds since 1970.
    pub seconds: u32,
    /// The path identifier of a table's entry that has one.
    pub path_id: Option<u32>,
    /// The UPDATE.
    pub update: &'a Update<'a>,
}

/// Counts of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Summary {
    /// Records read.
    pub records: u64,
    /// Table entries and UPDATEs among them.
    pub events: u64,
    /// Entries and UPDATEs whose attributes a router could not use (RFC 7606).
    pub unusable: u64,
    /// UPDATEs with path identifiers in them (RFC 8050), which are left out.
    pub add_path: u64,
    /// Records that could not be read.
    pub bad: u64,
    /// What was wrong with the first of those.
    pub first_bad: Option<String>,
    /// The place where the file is cut, if it is.
    pub cut: Option<Cut>,
}

/// Reads a file and passes each event of the peers that `selects` takes to `each`.
///
/// `external`: attributes are read as from a peer of another AS, whose LOCAL_PREF is ignored, or as
/// from an internal one.
///
/// # Errors
/// The file cannot be read, or `each` failed. Faults inside a record are counted and not fatal.
pub fn read(
    path: &Path,
    external: bool,
    selects: impl FnMut(RecordedPeer) -> bool,
    each: impl FnMut(Event<'_>) -> Result<(), Error>,
) -> Result<Summary, Error> {
    let mut file = MrtFile::open(path)?;
    let mut reader = RecordReader {
        external,
        selects,
        each,
        peers: Vec::new(),
        scratch: Vec::new(),
        summary: Summary::default(),
    };
    while let Some(record) = file.next_record()? {
        reader.summary.records += 1;
        if let Err(Trouble(what)) = reader.record(&record)? {
            reader.summary.bad += 1;
            let number = reader.summary.records;
            reader.summary.first_bad.get_or_insert_with(|| format!("record {number}: {what}"));
        }
    }
    reader.summary.cut = file.cut();
    Ok(reader.summary)
}

/// A fault inside a record: counted and not fatal.
struct Trouble(String);

impl<E: std::fmt::Display> From<E> for Trouble {
    fn from(error: E) -> Trouble {
        Trouble(error.to_string())
    }
}

struct RecordReader<W, E> {
    external: bool,
    selects: W,
    each: E,
    /// By number, of the last peer table.
    peers: Vec<RecordedPeer>,
    scratch: Vec<u8>,
    summary: Summary,
}

impl<W, E> RecordReader<W, E>
where
    W: FnMut(RecordedPeer) -> bool,
    E: FnMut(Event<'_>) -> Result<(), Error>,
{
    fn record(&mut self, record: &Record<'_>) -> Result<Result<(), Trouble>, Error> {
        let seconds = record.seconds;
        let body = match record.body() {
            Ok(body) => body,
            Err(e) => return Ok(Err(e.into())),
        };
        match body {
            Body::PeerIndexTable(table) => {
                self.peers.clear();
                for peer in table.peers() {
                    match peer {
                        Ok(p) => self.peers.push(RecordedPeer { address: p.address, asn: p.asn }),
                        Err(e) => return Ok(Err(e.into())),
                    }
                }
            }
            Body::TableDump(e) => {
                let peer = RecordedPeer { address: e.peer.address, asn: e.peer.asn };
                self.entry(seconds, peer, e.prefix, None, e.attributes, TableDump::FORM)?;
            }
            Body::Rib(rib) => {
                for entry in rib.entries() {
                    let e = match entry {
                        Ok(e) => e,
                        Err(e) => return Ok(Err(e.into())),
                    };
                    let Some(peer) = self.peers.get(usize::from(e.peer)).copied() else {
                        return Ok(Err(Trouble(format!("the peer table has no peer number {}", e.peer))));
                    };
                    self.entry(seconds, peer, rib.prefix, e.path_id, e.attributes, Rib::FORM)?;
                }
            }
            // Messages that the collector sent are no routes of a peer.
            Body::Message(m) if !m.local => {
                let peer = RecordedPeer { address: m.session.peer, asn: m.session.peer_asn };
                match frame(m.bytes, MAX_EXTENDED_LEN) {
                    Ok(Some(f)) if f.kind == MessageType::Update && (self.selects)(peer) => {
                        if m.add_path {
                            self.summary.add_path += 1;
                        } else {
                            self.event(seconds, peer, None, m.four_octet_as, f.body, false)?;
                        }
                    }
                    Ok(Some(_)) => {}
                    Ok(None) => return Ok(Err(Trouble("the BGP message in it is cut".into()))),
                    Err(n) => return Ok(Err(n.into())),
                }
            }
            Body::Message(_) | Body::StateChange(_) | Body::Other => {}
        }
        Ok(Ok(()))
    }

    fn entry(
        &mut self,
        seconds: u32,
        peer: RecordedPeer,
        prefix: AnyPrefix,
        path_id: Option<u32>,
        attributes: &[u8],
        form: AttributeForm,
    ) -> Result<(), Error> {
        if !(self.selects)(peer) {
            return Ok(());
        }
        let mut body = std::mem::take(&mut self.scratch);
        entry_update(&mut body, prefix, peer.address, attributes);
        let result = self.event(seconds, peer, path_id, form.four_octet_as, &body, true);
        self.scratch = body;
        result
    }

    fn event(
        &mut self,
        seconds: u32,
        peer: RecordedPeer,
        path_id: Option<u32>,
        four_octet_as: bool,
        body: &[u8],
        table: bool,
    ) -> Result<(), Error> {
        self.summary.events += 1;
        let Ok(update) = parse(body, &UpdateContext::new(four_octet_as, self.external)) else {
            self.summary.unusable += 1;
            return Ok(());
        };
        let usable = update.disposition() == Disposition::Normal;
        self.summary.unusable += u64::from(!usable);
        // An unusable table entry is skipped; the routes of an unusable message are withdrawn.
        if usable || !table {
            (self.each)(Event { peer, table, seconds, path_id, update: &update })?;
        }
        Ok(())
    }
}

/// Writes the body of the UPDATE that carried `prefix` with the recorded `attributes` from `peer`.
///
/// A table's MP_REACH_NLRI has no prefix and often nothing but the next hop (RFC 6396 section 4.3.4), so it is made
/// again; for IPv4, NEXT_HOP is enough unless only the other is there. Some writers leave the next hop of IPv6 routes
/// out altogether: then it is the peer.
fn entry_update(out: &mut Vec<u8>, prefix: AnyPrefix, peer: IpAddr, attributes: &[u8]) {
    out.clear();
    out.extend([0, 0, 0, 0]);
    let find = |code| Attributes::new(attributes).find(|a| a.code == code);
    let classic = prefix.afi() == Afi::Ipv4 && find(code::NEXT_HOP).is_some();
    if !classic {
        let mut mp = Vec::new();
        mp.extend(AfiSafi::unicast(prefix.afi()).to_bytes());
        match find(code::MP_REACH_NLRI).and_then(|a| rib_next_hop(a.value)).unwrap_or(peer) {
            IpAddr::V4(a) => {
                mp.push(4);
                mp.extend(a.octets());
            }
            IpAddr::V6(a) => {
                mp.push(16);
                mp.extend(a.octets());
            }
        }
        mp.push(0);
        push_prefix(&mut mp, prefix);
        build::attribute(out, flags::OPTIONAL, code::MP_REACH_NLRI, &mp);
    }
    let mut all = Attributes::new(attributes);
    for a in all.by_ref() {
        let replaced = matches!(a.code, code::MP_REACH_NLRI | code::MP_UNREACH_NLRI);
        // BIRD 2.0 writes no flags with these attributes of its tables. The flags are its own, not those of a peer.
        let bare = matches!(a.code, code::NEXT_HOP | code::LOCAL_PREF);
        let flags = if bare { flags::TRANSITIVE } else { a.flags };
        if !(replaced || a.code == code::NEXT_HOP && !classic) {
            build::attribute(out, flags, a.code, a.value);
        }
    }
    // The incomplete rest stays, for the parser of attributes to reject.
    out.extend(all.remainder());
    let len = u16::try_from(out.len() - 4).unwrap_or(u16::MAX);
    out[2..4].copy_from_slice(&len.to_be_bytes());
    if classic {
        push_prefix(out, prefix);
    }
}

fn push_prefix(out: &mut Vec<u8>, prefix: AnyPrefix) {
    match prefix {
        AnyPrefix::V4(p) => nlri::encode(p, out),
        AnyPrefix::V6(p) => nlri::encode(p, out),
    }
}

/// The peers of a file with their counts.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Peers in the order of their numbers: of the peer table, or of appearance in a file that has none.
    pub peers: Vec<(RecordedPeer, u64)>,
    /// The file has entries of a table.
    pub table: bool,
}

impl Survey {
    /// The peer with the highest count, the first of equals; `None` without peers.
    pub fn busiest(&self) -> Option<RecordedPeer> {
        let most = self.peers.iter().map(|(_, count)| *count).max().filter(|count| *count > 0)?;
        self.peers.iter().find(|(_, count)| *count == most).map(|(peer, _)| *peer)
    }
}

/// Counts the table entries of every peer or, in a file without a table, its messages.
///
/// # Errors
/// The file cannot be read.
pub fn survey(path: &Path) -> Result<Survey, Error> {
    let mut file = MrtFile::open(path)?;
    let mut survey = Survey::default();
    let mut numbers: Map<RecordedPeer, usize> = Map::default();
    let mut indexed: Vec<usize> = Vec::new();
    let mut number_of = |survey: &mut Survey, peer: RecordedPeer| {
        *numbers.entry(peer).or_insert_with(|| {
            survey.peers.push((peer, 0));
            survey.peers.len() - 1
        })
    };
    while let Some(record) = file.next_record()? {
        match record.body() {
            Ok(Body::PeerIndexTable(table)) => {
                let peers = table.peers().flatten().map(|p| RecordedPeer { address: p.address, asn: p.asn });
                indexed = peers.map(|peer| number_of(&mut survey, peer)).collect();
            }
            Ok(Body::Rib(rib)) => {
                survey.table = true;
                for entry in rib.entries().flatten() {
                    if let Some(number) = indexed.get(usize::from(entry.peer)) {
                        survey.peers[*number].1 += 1;
                    }
                }
            }
            Ok(Body::TableDump(entry)) => {
                survey.table = true;
                let peer = RecordedPeer { address: entry.peer.address, asn: entry.peer.asn };
                let number = number_of(&mut survey, peer);
                survey.peers[number].1 += 1;
            }
            Ok(Body::Message(message)) if !survey.table => {
                let session = message.session;
                let number =
                    number_of(&mut survey, RecordedPeer { address: session.peer, asn: session.peer_asn });
                survey.peers[number].1 += 1;
            }
            _ => {}
        }
    }
    Ok(survey)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_whose_next_hop_and_local_pref_have_no_flags_is_usable() {
        let mut attributes = Vec::new();
        build::attribute(&mut attributes, flags::TRANSITIVE, code::ORIGIN, &[0]);
        build::attribute(&mut attributes, flags::TRANSITIVE, code::AS_PATH, &[2, 1, 0, 0, 7, 61]);
        build::attribute(&mut attributes, 0, code::NEXT_HOP, &[193, 203, 0, 1]);
        build::attribute(&mut attributes, 0, code::LOCAL_PREF, &[0, 0, 0, 100]);
        let mut body = Vec::new();
        entry_update(&mut body, "10.0.0.0/8".parse().unwrap(), "193.203.0.1".parse().unwrap(), &attributes);
        for external in [true, false] {
            let update = parse(&body, &UpdateContext::new(true, external)).unwrap();
            assert_eq!(update.disposition(), Disposition::Normal);
        }
    }
}

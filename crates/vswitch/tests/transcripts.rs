//! The requests of SONiC's own orchagent, as recorded at SONiC's own syncd with its virtual switch
//! (`../shared/data/sonic`): syncd on our virtual switch answers each with the status and the values
//! that SONiC's answered, and ASIC_DB becomes what it became there. What differs is listed here by
//! name; docs/sonic.md has the reasons.

use flate2::read::GzDecoder;
use ribtide_swss::json;
use ribtide_swss::sai::text::{self, ReplyTo};
use ribtide_swss::sai::{SaiRequest, VidCounter};
use ribtide_swss::syncd::{AsicChange, PackedChanges, Syncd, SyncdOut};
use ribtide_vswitch::{Behavior, PortSetup, VirtualSwitch};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Attributes whose values differ from the recorded ones: SONiC's virtual switch takes the speed of a
/// port from a network device of the host, which had none.
const VALUES_DIFFER: &[&str] = &["SAI_PORT_ATTR_OPER_SPEED"];

/// The folder of recorded data: `RIBTIDE_DATA`, or `../shared/data` beside the repository.
fn folder(name: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");

    let data = std::env::var_os("RIBTIDE_DATA").map(PathBuf::from);
    let found = data
        .into_iter()
        .chain([beside.clone()])
        .map(|data| data.join("sonic").join(name))
        .find(|path| path.exists());
    if found.is_none() {
        println!("skipped: {} is absent", beside.display());
    }
    found
}

fn read(path: PathBuf) -> String {
    let mut text = String::new();
    GzDecoder::new(File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text
}

/// A request with its recorded reply: key, value, operation of each.
type Exchange = ([String; 3], [String; 3]);

/// Requests and replies of a recording of the two Redis lists.
fn exchanges(text: &str) -> Vec<Exchange> {
    let (mut all, mut request) = (Vec::new(), None);
    for line in text.lines() {
        let Some(fields) = json::read_object(line) else { panic!("{line}") };
        let get = |name: &str| {
            fields.iter().find(|(of, _)| of == name).map(|(_, value)| value.to_string()).unwrap_or_default()
        };
        let message = || ["key", "val", "op"].map(get);
        match get("q").as_str() {
            "req" => request = Some(message()),
            "rep" => all.push((request.take().expect("a request before the reply"), message())),
            _ => {}
        }
    }
    all
}

/// syncd with our virtual switch of the sizes of SONiC's, and ASIC_DB.
struct Bench {
    syncd: Syncd<VirtualSwitch>,
    rows: BTreeMap<String, BTreeMap<String, String>>,
}

impl Bench {
    fn new() -> Bench {
        let mut chip = VirtualSwitch::new(PortSetup::usual(), Behavior::default());
        chip.behave([("groups", "512")]).unwrap();
        Bench { syncd: Syncd::new(chip, Box::new(VidCounter::default())), rows: BTreeMap::new() }
    }

    /// The reply to a request.
    fn reply(&mut self, [key, value, op]: &[String; 3]) -> [String; 3] {
        let request = text::read_request(1, key, value, op).unwrap_or_else(|e| panic!("{op} {key}: {e}"));
        let reply_to = ReplyTo::to(&request.call);
        let mut out = SyncdOut::default();
        self.syncd.handle(SaiRequest { id: 1, ..request }, &mut out);
        self.write(out.rows);
        let message = text::write_reply(&out.replies.pop().unwrap(), reply_to);
        [message.key, message.value, message.op.into_owned()]
    }

    fn write(&mut self, changes: PackedChanges) {
        for change in changes.unpack() {
            let mut key = String::new();
            let attrs = match change {
                AsicChange::Wipe => {
                    self.rows.clear();
                    continue;
                }
                AsicChange::Set(object, id, attrs) => {
                    text::write_row_key(object, &id, &mut key);
                    attrs
                }
                AsicChange::SetEntry(object, entry, attrs) => {
                    text::write_entry_key(object, &entry, &mut key);
                    attrs
                }
                AsicChange::Remove(object, id) => {
                    text::write_row_key(object, &id, &mut key);
                    self.rows.remove(&key);
                    continue;
                }
                AsicChange::RemoveEntry(object, entry) => {
                    text::write_entry_key(object, &entry, &mut key);
                    self.rows.remove(&key);
                    continue;
                }
                _ => continue,
            };
            let row = self.rows.entry(key).or_default();
            text::row_fields(&attrs, &mut |field, value| {
                row.insert(field.into(), value.into());
            });
        }
    }
}

/// Whether both values are fields of the same names with the same values, but for the named ones.
fn same_values(ours: &str, theirs: &str) -> bool {
    let fields = |text: &str| -> Vec<String> {
        json::read_strings(text).unwrap_or_default().iter().map(|field| field.to_string()).collect()
    };
    let (ours, theirs) = (fields(ours), fields(theirs));
    ours.len() == theirs.len()
        && ours.chunks(2).zip(theirs.chunks(2)).all(|(ours, theirs)| {
            ours == theirs || ours[0] == theirs[0] && VALUES_DIFFER.contains(&ours[0].as_str())
        })
}

#[test]
fn whole_life_of_sonics_orchagent_is_answered_as_by_sonics_syncd() {
    let Some(folder) = folder("real-orchagent-start-and-feed") else { return };
    let recorded = exchanges(&read(folder.join("redis-channel.jsonl.gz")));
    assert_eq!(recorded.len(), 1324);
    let mut bench = Bench::new();
    let mut different = Vec::new();
    for (n, (request, theirs)) in recorded.iter().enumerate() {
        let ours = bench.reply(request);
        if (&ours[0], &ours[2]) != (&theirs[0], &theirs[2]) || !same_values(&ours[1], &theirs[1]) {
            different.push(format!("{n}: {request:?}\n   ours {ours:?}\n theirs {theirs:?}"));
        }
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
    // ASIC_DB is what SONiC's was at the end of the same life.
    let Some(dumps) = self::folder("all-real-dumps") else { return };
    let phases: serde_json::Value = serde_json::from_str(&read(dumps.join("per-phase-raw.json.gz"))).unwrap();
    let last = phases.as_array().and_then(|phases| phases.last()).expect("phases");
    assert_eq!(last["phase"], "neigh-back");
    let theirs: BTreeMap<String, BTreeMap<String, String>> = last["ASIC_DB"]
        .as_object()
        .expect("keys")
        .iter()
        .filter_map(|(key, row)| Some((key.strip_prefix("ASIC_STATE:")?, row.as_object()?)))
        .map(|(key, row)| {
            let fields =
                row.iter().map(|(field, value)| (field.clone(), value.as_str().unwrap().to_string()));
            (key.to_string(), fields.collect())
        })
        .collect();
    // A filler that stays beside later fields says nothing.
    let plain = |rows: &BTreeMap<String, BTreeMap<String, String>>| {
        let mut rows = rows.clone();
        rows.values_mut().for_each(|row| drop(row.remove("NULL")));
        rows
    };
    let (ours, theirs) = (plain(&bench.rows), plain(&theirs));
    let keys = ours.keys().chain(theirs.keys());
    let different: Vec<String> = keys
        .filter(|key| ours.get(*key) != theirs.get(*key))
        .map(|key| format!("{key}\n   ours {:?}\n theirs {:?}", ours.get(key), theirs.get(key)))
        .collect();
    assert!(different.is_empty(), "{} rows differ:\n{}", different.len(), different.join("\n"));
    assert!(theirs.len() > 1400);
}

/// The requests of a line of `sairedis.rec`, in the form of the Redis lists.
fn recorded_request(line: &str) -> Option<[String; 3]> {
    let mut parts = line.splitn(3, '|');
    let (_, letter, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let array = |pairs: Vec<(String, String)>| {
        let mut out = String::new();
        json::write_strings(
            pairs.iter().flat_map(|(field, value)| [field.as_str(), value.as_str()]),
            &mut out,
        );
        out
    };
    let pair = |text: &str| text.split_once('=').map(|(field, value)| (field.to_string(), value.to_string()));
    let bulk = |op: &str| {
        let mut items = rest.split("||");
        let object = items.next()?;
        let items: Vec<(String, String)> = items
            .map(|item| {
                let (id, attrs) = item.split_once('|').unwrap_or((item, ""));
                (id.to_string(), attrs.to_string())
            })
            .collect();
        Some([format!("{object}:{}", items.len()), array(items), op.into()])
    };
    let one = |op: &str| {
        let mut parts = rest.split('|');
        let key = parts.next()?.to_string();
        let value = if op == "Dremove" { "{}".into() } else { array(parts.filter_map(pair).collect()) };
        Some([key, value, op.into()])
    };
    match letter {
        "a" => Some([rest.into(), "[]".into(), "Snotify".into()]),
        "c" => one("Screate"),
        "r" => one("Dremove"),
        "s" => one("Sset"),
        "g" => one("Sget"),
        "p" => one("Sset_counter_group"),
        "B" => bulk("Sbulkget"),
        "C" => bulk("Sbulkcreate"),
        "S" => bulk("Sbulkset"),
        "R" => bulk("Sbulkremove"),
        _ => None,
    }
}

/// The virtual router that a client beside orchagent used.
const VRF: &str = "SAI_OBJECT_TYPE_VIRTUAL_ROUTER:oid:0x300000000061e";

#[test]
fn second_orchagent_at_the_same_syncd_is_answered_as_by_sonics_syncd() {
    let Some(folder) = folder("orchagent-restart") else { return };
    let mut bench = Bench::new();
    let mut different = Vec::new();
    let mut count = 0;
    for file in ["first.sairedis.rec.gz", "second.sairedis.rec.gz"] {
        let text = read(folder.join(file));
        let lines: Vec<&str> = text.lines().collect();
        for (n, line) in lines.iter().enumerate() {
            let Some(request) = recorded_request(line) else { continue };
            count += 1;
            if request[0] == VRF && request[2] == "Dremove" {
                // Another client's route kept this virtual router in use; orchagent did not record it.
                let vr = VRF.rsplit_once("TYPE_VIRTUAL_ROUTER:").unwrap().1;
                let key =
                    format!(r#"{{"dest":"10.99.0.0/16","switch_id":"oid:0x21000000000000","vr":"{vr}"}}"#);
                bench.reply(&[format!("SAI_OBJECT_TYPE_ROUTE_ENTRY:{key}"), "[]".into(), "Screate".into()]);
                if n + 1 == lines.len() {
                    // The recording ends before its reply.
                    break;
                }
            }
            let ours = bench.reply(&request);
            // What follows a request is its reply, an error, or the next request.
            let reply: Vec<&str> = lines.get(n + 1).map(|next| next.split('|').collect()).unwrap_or_default();
            let (status, values) = match reply.get(1).copied() {
                Some("G" | "A" | "E") => (reply[2], Some(&reply[3..])),
                _ => ("SAI_STATUS_SUCCESS", None),
            };
            let mut theirs = String::new();
            let is_get = request[2].ends_with("get");
            match values {
                // An empty field, then the status and the attributes of each object.
                Some(["", "", values @ ..]) => json::write_strings(values.iter().copied(), &mut theirs),
                values => {
                    let pairs = values.unwrap_or_default().iter().filter_map(|pair| pair.split_once('='));
                    json::write_strings(pairs.flat_map(|(field, value)| [field, value]), &mut theirs);
                }
            }
            if ours[0] != status || is_get && !same_values(&ours[1], &theirs) {
                different.push(format!("{file}:{}: {request:?}\n   ours {ours:?}\n theirs {reply:?}", n + 1));
            }
        }
    }
    assert!(different.is_empty(), "{} of {count} differ:\n{}", different.len(), different.join("\n"));
    assert!(count > 900, "{count}");
}

/// What differs in SONiC's recording of a T1 switch, which is of another virtual switch: the lanes of
/// its ports, and the range of the priorities of ACLs.
const T1_DIFFERS: &[(&str, usize)] = &[
    ("SAI_PORT_ATTR_HW_LANE_LIST", 28),
    ("SAI_SWITCH_ATTR_ACL_ENTRY_MAXIMUM_PRIORITY", 1),
    ("SAI_SWITCH_ATTR_ACL_ENTRY_MINIMUM_PRIORITY", 1),
];

/// Where each object id of a text begins and ends.
fn oids(text: &str) -> impl Iterator<Item = std::ops::Range<usize>> {
    const PREFIX: &str = "oid:0x";
    text.match_indices(PREFIX).map(|(at, _)| {
        let digits = &text[at + PREFIX.len()..];
        let count = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
        at..at + PREFIX.len() + count
    })
}

/// The text with the object ids of this run.
fn renamed(text: &str, ours: &BTreeMap<String, String>) -> String {
    let (mut out, mut end) = (String::new(), 0);
    for oid in oids(text) {
        out.push_str(&text[end..oid.start]);
        end = oid.end;
        out.push_str(ours.get(&text[oid.clone()]).map_or(&text[oid], String::as_str));
    }
    out + &text[end..]
}

/// SONiC's orchagent of 2017 in the role T1: ports, buffers, QoS, ACLs, LAGs, neighbours and 6,400
/// routes. Ids of objects that the switch has of its own are those of that switch.
#[test]
fn t1_recording_is_answered_with_the_recorded_statuses() {
    let Some(folder) = folder("t1") else { return };
    let text = read(folder.join("full.rec.gz"));
    let lines: Vec<&str> = text.lines().collect();
    let (mut bench, mut ours, mut refused) = (Bench::new(), BTreeMap::new(), Vec::new());
    let (mut count, mut values): (usize, BTreeMap<String, usize>) = (0, BTreeMap::new());
    for (n, line) in lines.iter().enumerate() {
        let Some(request) = recorded_request(line) else { continue };
        count += 1;
        // A notification may come between a request and its reply.
        let has_reply = matches!(request[2].as_str(), "Sget" | "Snotify");
        let mut replies = lines[n + 1..].iter().map(|line| line.split('|').collect::<Vec<_>>());
        let reply =
            has_reply.then(|| replies.find(|line| matches!(line.get(1), Some(&"A" | &"G")))).flatten();
        let status = reply.as_ref().map_or("SAI_STATUS_SUCCESS", |reply| reply[2]);
        let answer = bench.reply(&request.clone().map(|text| renamed(&text, &ours)));
        if answer[0] != status {
            refused.push(format!("{}: {line}\n   ours {answer:?}", n + 1));
        }
        if request[2] != "Sget" || status != "SAI_STATUS_SUCCESS" {
            continue;
        }
        let got = json::read_strings(&answer[1]).unwrap();
        let theirs = reply.iter().flat_map(|reply| &reply[3..]).filter_map(|pair| pair.split_once('='));
        for ((name, value), own) in theirs.zip(got.chunks(2)) {
            let [field, own] = own else { panic!("{answer:?}") };
            let (from, to): (Vec<_>, Vec<_>) = (oids(value).collect(), oids(own).collect());
            if from.len() == to.len() {
                let pairs = from.into_iter().zip(to);
                ours.extend(pairs.map(|(from, to)| (value[from].to_string(), own[to].to_string())));
            }
            if *name != **field || renamed(value, &ours) != *own {
                *values.entry(name.to_string()).or_default() += 1;
            }
        }
    }
    assert!(refused.is_empty(), "{} of {count} differ:\n{}", refused.len(), refused.join("\n"));
    assert_eq!(count, 13_157);
    let allowed = T1_DIFFERS.iter().map(|(name, count)| (name.to_string(), *count)).collect();
    assert_eq!(values, allowed);
}

/// A recorded message is cut after so many characters.
const CUT: usize = 20_000;

/// The strings of a message over ZeroMQ; of one that was cut, those before the cut.
fn strings(message: &str) -> Vec<String> {
    let whole =
        |text: &str| json::read_strings(text).map(|all| all.iter().map(|one| one.to_string()).collect());
    if message.len() < CUT {
        return whole(message).unwrap();
    }
    let end = message.rmatch_indices("\",\"").find(|(at, _)| !message[..*at].ends_with('\\')).unwrap().0;
    whole(&format!("{}\"]", &message[..end])).unwrap()
}

/// Replays a recording of ZeroMQ. `swallowed`: the proxy answered orchagent's bulks of routes and
/// labels, which never reached syncd.
fn replay_zmq(file: &str, swallowed: bool) {
    let Some(folder) = folder("zmq-passthrough") else { return };
    let mut bench = Bench::new();
    let (mut different, mut count, mut left_out) = (Vec::new(), 0, 0);
    for line in read(folder.join(file)).lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_string();
        let (message, theirs) = (strings(&text("m")), strings(&text("r")));
        let [key, op, fields @ ..] = message.as_slice() else { panic!("{message:?}") };
        let is_entry = ["ROUTE_ENTRY:", "INSEG_ENTRY:"].iter().any(|of| key.contains(of));
        if swallowed && text("q") == "orch" && op.starts_with("bulk") && is_entry {
            continue;
        }
        let (mut fields, mut theirs) = (fields.to_vec(), theirs);
        let mut key = key.clone();
        if op.starts_with("bulk") && is_entry {
            // What the recording lost of a message, and what it lost of the creation of a route.
            let object = key.split(':').next().unwrap().to_string();
            let items: Vec<[String; 2]> =
                fields.chunks_exact(2).map(|pair| [pair[0].clone(), pair[1].clone()]).collect();
            let statuses: Vec<String> = theirs[2..].chunks_exact(2).map(|pair| pair[0].clone()).collect();
            let known = |id: &str| op == "bulkcreate" || bench.rows.contains_key(&format!("{object}:{id}"));
            let kept: Vec<([String; 2], String)> =
                items.into_iter().zip(statuses).filter(|([id, _], _)| known(id)).collect();
            left_out += key.rsplit(':').next().unwrap().parse::<usize>().unwrap() - kept.len();
            if kept.is_empty() {
                continue;
            }
            key = format!("{object}:{}", kept.len());
            theirs.truncate(2);
            theirs.extend(kept.iter().flat_map(|(_, status)| [status.clone(), String::new()]));
            fields = kept.into_iter().flat_map(|(item, _)| item).collect();
        }
        count += 1;
        let all = [key, op.clone()].into_iter().chain(fields);
        let mut message = String::new();
        json::write_strings(all.collect::<Vec<_>>().iter().map(String::as_str), &mut message);
        let request = text::read_zmq_request(1, &message).unwrap_or_else(|e| panic!("{message}: {e}"));
        let reply_to = ReplyTo::to(&request.call);
        let mut out = SyncdOut::default();
        bench.syncd.handle(request, &mut out);
        bench.write(out.rows);
        let ours = text::write_reply(&out.replies.pop().unwrap(), reply_to).to_zmq();
        let mut wanted = String::new();
        json::write_strings(theirs.iter().map(String::as_str), &mut wanted);
        if !same_values(&ours, &wanted) {
            different.push(format!("{message:.300}\n   ours {ours:.300}\n theirs {wanted:.300}"));
        }
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
    assert!(count > 1200 && left_out < 1700, "{count} {left_out}");
}

#[test]
fn orchagent_and_a_second_client_over_zeromq_are_answered_as_by_sonics_syncd() {
    replay_zmq("proxy.jsonl.gz", false);
}

#[test]
fn orchagent_whose_routes_are_swallowed_is_answered_as_by_sonics_syncd() {
    replay_zmq("swallow.jsonl.gz", true);
}

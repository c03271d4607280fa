//! The warm-boot file of a virtual switch, which preserves its state across processes of syncd, as
//! the hardware and the file of a real SAI library do.
//!
//! It has a line for each id and each object, with RIDs and in the format of ASIC_DB. It is read
//! once: after a later failure of syncd the switch differs from the file.

use super::Error;
use ribtide_swss::sai::{
    Attr, Attrs, ErrorMode, Item, ObjectId, ObjectType, Oid, RawText, Sai, Status, Verb, VidSource, text,
};
use ribtide_swss::syncd::{Number, Syncd, place};
use ribtide_vswitch::{Behavior, PortSetup, VirtualSwitch};
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::path::Path;

/// The first line.
const HEAD: &str = "ribtide virtual switch 1";

/// Replaces the file by the state of the switch.
pub(super) fn save(path: &Path, syncd: &Syncd<VirtualSwitch>) -> Result<(), Error> {
    let failed = |e: std::io::Error| Error::new(format!("cannot write {}: {e}", path.display()));
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let next = path.with_extension("new");
    let mut file = BufWriter::new(std::fs::File::create(&next).map_err(failed)?);
    let mut write = |line: &str| writeln!(file, "{line}");
    let mut lines = || {
        write(HEAD)?;
        write(&format!("last\t{}", syncd.chip().last_number()))?;
        for Number { vid, rid, own } in syncd.numbers() {
            write(&format!("number\t{vid}\t{rid}\t{}", own.map_or("", ObjectType::name)))?;
        }
        let (mut result, mut line) = (Ok(()), String::new());
        syncd.for_each(&mut |object, id, attrs| {
            line.clear();
            line.push_str("object\t");
            let rid = |oid: Oid| syncd.rid(oid).unwrap_or(oid);
            text::write_row_key(object, &translated_id(id, rid), &mut line);
            text::row_fields(&translated(attrs, rid), &mut |field, value| {
                // Writing to a String cannot fail.
                let _ = write!(line, "\t{field}\t{value}");
            });
            if result.is_ok() {
                result = write(&line);
            }
        });
        syncd.for_each_entry(&mut |object, key, attrs| {
            line.clear();
            line.push_str("entry\t");
            let rid = |oid: Oid| syncd.rid(oid).unwrap_or(oid);
            text::write_entry_key(object, &translated_key(key, rid), &mut line);
            text::row_fields(&translated(attrs, rid), &mut |field, value| {
                let _ = write!(line, "\t{field}\t{value}");
            });
            if result.is_ok() {
                result = write(&line);
            }
        });
        result
    };
    lines().and_then(|()| file.flush()).map_err(failed)?;
    std::fs::rename(&next, path).map_err(failed)
}

/// Creates syncd on the switch of an earlier one, if there is a file, and deletes the file.
///
/// # Errors
/// A sentence when the file is invalid.
pub(super) fn load(
    path: &Path,
    ports: Vec<PortSetup>,
    vids: Box<dyn VidSource>,
) -> Result<Option<Syncd<VirtualSwitch>>, Error> {
    let failed = |e: std::io::Error| Error::new(format!("cannot read {}: {e}", path.display()));
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    std::fs::remove_file(path).map_err(failed)?;
    let bad =
        |line: &str| Error::new(format!("\"{line}\" in {} is no line of a saved switch", path.display()));
    let (mut last, mut numbers, mut objects, mut entries) = (0, Vec::new(), Vec::new(), Vec::new());
    for (n, line) in BufReader::new(file).lines().enumerate() {
        let line = line.map_err(failed)?;
        if n == 0 {
            if line != HEAD {
                return Err(bad(&line));
            }
            continue;
        }
        match read(&line).ok_or_else(|| bad(&line))? {
            Line::Last(number) => last = number,
            Line::Number(number) => numbers.push(number),
            Line::Object(object) => objects.push(object),
            Line::Entry(entry) => entries.push(entry),
        }
    }
    let mut chip = VirtualSwitch::new(ports, Behavior::default());
    // The chip gives its numbers one after the other, so each object comes after all that it names. An
    // attribute that was set later may name an object with a higher number.
    objects.sort_unstable_by_key(|(object, id, _)| {
        let number = id.oid().map_or(u64::MAX, |rid| rid.index());
        (*object != ObjectType::Switch, number, place(*object), *id)
    });
    let own: HashSet<Oid> =
        numbers.iter().filter(|number| number.own.is_some()).map(|number| number.rid).collect();
    let failed = |object: ObjectType, status: Status| {
        let (object, status) = (object.name(), status.name());
        Error::new(format!("{} does not make a switch: {status} for a {object}", path.display()))
    };
    let mut later = Vec::new();
    for (object, id, attrs) in &objects {
        let rest = put(&mut chip, &own, *object, *id, attrs).map_err(|status| failed(*object, status))?;
        later.extend(rest.map(|rest| (*object, *id, rest)));
    }
    for (object, id, attrs) in later {
        for attr in attrs {
            let status = chip.one(Verb::Set, object, &mut Item::new(id, [attr]));
            if !status.is_success() {
                return Err(failed(object, status));
            }
        }
    }
    // The switch's own objects that orchagent removed.
    let kept: HashSet<ObjectId> = objects.iter().map(|(_, id, _)| *id).collect();
    let switch =
        objects.iter().find(|(object, ..)| *object == ObjectType::Switch).and_then(|(_, id, _)| id.oid());
    let removed = chip.own_objects(switch.unwrap_or_default()).into_iter().rev();
    for (object, rid) in removed.filter(|(_, rid)| !kept.contains(&ObjectId::Oid(*rid))).collect::<Vec<_>>() {
        chip.one(Verb::Remove, object, &mut Item::bare(rid));
    }
    for (object, key, attrs) in &entries {
        chip.entry(Verb::Create, *object, key, attrs).map_err(|status| failed(*object, status))?;
    }
    chip.number_after(last);
    chip.forget_operations();
    let vid_of: HashMap<Oid, Oid> = numbers.iter().map(|number| (number.rid, number.vid)).collect();
    let vid = |rid: Oid| vid_of.get(&rid).copied().unwrap_or(rid);
    let rows: Vec<_> = objects
        .iter()
        .map(|(object, id, attrs)| (*object, translated_id(*id, vid), translated(attrs, vid)))
        .collect();
    let mut syncd = Syncd::resume(chip, vids, numbers, rows);
    syncd.resume_entries(
        entries
            .iter()
            .map(|(object, key, attrs)| (*object, translated_key(key, vid), translated(attrs, vid))),
    );
    Ok(Some(syncd))
}

enum Line {
    Last(u64),
    Number(Number),
    Object((ObjectType, ObjectId, Attrs)),
    Entry((ObjectType, RawText, Attrs)),
}

fn read(line: &str) -> Option<Line> {
    let mut parts = line.split('\t');
    Some(match parts.next()? {
        "last" => Line::Last(parts.next()?.parse().ok()?),
        "number" => Line::Number(Number {
            vid: text::read_oid(parts.next()?)?,
            rid: text::read_oid(parts.next()?)?,
            own: ObjectType::from_name(parts.next()?),
        }),
        kind @ ("object" | "entry") => {
            let key = parts.next()?;
            let mut attrs = Attrs::new();
            while let (Some(field), Some(value)) = (parts.next(), parts.next()) {
                attrs.extend(text::read_field(field, value).ok()?);
            }
            match kind {
                "object" => {
                    let (object, id) = text::read_row_key(key).ok()?;
                    Line::Object((object, id, attrs))
                }
                _ => {
                    let (object, key) = text::read_entry_key(key)?;
                    Line::Entry((object, key, attrs))
                }
            }
        }
        _ => return None,
    })
}

/// Creates an object with its id; built-in objects of the switch exist. Returns the attributes that
/// name objects which do not exist yet.
fn put(
    chip: &mut VirtualSwitch,
    own: &HashSet<Oid>,
    object: ObjectType,
    id: ObjectId,
    attrs: &Attrs,
) -> Result<Option<Attrs>, Status> {
    let done = |status: Status| if status.is_success() { Ok(()) } else { Err(status) };
    if id.oid().is_some_and(|oid| own.contains(&oid)) {
        return Ok(Some(attrs.iter().filter(|attr| !attr.create_only()).cloned().collect()));
    }
    let is_there = |chip: &mut VirtualSwitch, attr: &Attr| {
        attr.create_only()
            || attr.clone().oids_mut().iter().all(|oid| oid.is_null() || chip.object_type(*oid).is_some())
    };
    let (now, later): (Attrs, Attrs) = attrs.iter().cloned().partition(|attr| is_there(chip, attr));
    let mut item = Item { id, attrs: now };
    if let Some(oid) = id.oid() {
        chip.number_after(oid.index().saturating_sub(1));
        item.id = Oid::NULL.into();
    }
    let mut statuses = Vec::new();
    chip.bulk(Verb::Create, object, std::slice::from_mut(&mut item), ErrorMode::StopOnError, &mut statuses);
    statuses.into_iter().try_for_each(done)?;
    if item.id != id {
        return Err(Status::InvalidObjectId);
    }
    Ok((!later.is_empty()).then_some(later))
}

fn translated(attrs: &[Attr], of: impl Fn(Oid) -> Oid) -> Attrs {
    let mut attrs: Attrs = attrs.iter().cloned().collect();
    attrs.iter_mut().flat_map(|attr| attr.oids_mut()).for_each(|oid| *oid = of(*oid));
    attrs
}

fn translated_key(key: &RawText, of: impl Fn(Oid) -> Oid) -> RawText {
    let mut key = key.clone();
    key.oids_mut().iter_mut().for_each(|oid| *oid = of(*oid));
    key
}

fn translated_id(mut id: ObjectId, of: impl Fn(Oid) -> Oid) -> ObjectId {
    id.oids_mut().for_each(|oid| *oid = of(*oid));
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_swss::sai::{SWITCH, SaiCall, SaiRequest, VidCounter, View};
    use ribtide_swss::syncd::SyncdOut;

    #[test]
    fn a_switch_outlives_its_process() {
        let vids = VidCounter::default();
        let mut syncd =
            Syncd::new(VirtualSwitch::new(PortSetup::usual(), Behavior::default()), Box::new(vids.clone()));
        let mut out = SyncdOut::default();
        let mut handle = |syncd: &mut Syncd<VirtualSwitch>, call| {
            syncd.handle(SaiRequest { id: 1, call }, &mut out);
            out.replies.pop().map(|reply| reply.status)
        };
        let one = |verb, object, item| SaiCall::One { verb, object, item };
        let start = Item::new(SWITCH, [Attr::SwitchInit(true)]);
        let calls = [
            SaiCall::View(View::Init),
            one(Verb::Create, ObjectType::Switch, start),
            SaiCall::View(View::Apply),
            one(
                Verb::Create,
                ObjectType::VirtualRouter,
                Item::new(Oid::vid(ObjectType::VirtualRouter, 7000), [Attr::VirtualRouterV4(true)]),
            ),
        ];
        for call in calls {
            assert_eq!(handle(&mut syncd, call), Some(Status::Success));
        }
        let port = syncd.numbers().find(|n| n.own == Some(ObjectType::Port)).map(|n| n.vid).unwrap();
        let set = Item::new(port, [Attr::PortMtu(9100)]);
        assert_eq!(handle(&mut syncd, one(Verb::Set, ObjectType::Port, set)), Some(Status::Success));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/switch");
        save(&path, &syncd).unwrap();
        let again = load(&path, PortSetup::usual(), Box::new(vids.clone())).unwrap().expect("a switch");
        assert_eq!((again.chip().operations(), again.chip().last_number()), (0, syncd.chip().last_number()));
        assert_eq!(again.chip().counts(), syncd.chip().counts());
        let all = |syncd: &Syncd<VirtualSwitch>| {
            let mut all = Vec::new();
            syncd.for_each(&mut |object, id, attrs| all.push(format!("{object:?} {id:?} {attrs:?}")));
            all.extend(syncd.numbers().map(|number| format!("{number:?}")));
            all.sort();
            all
        };
        assert_eq!(all(&again), all(&syncd));
        assert!(load(&path, PortSetup::usual(), Box::new(vids.clone())).unwrap().is_none());
        std::fs::write(&path, "banana\n").unwrap();
        assert!(load(&path, PortSetup::usual(), Box::new(vids)).is_err());
    }
}

//! The table, parsed by the compiler: the binary has the text, for names and rules, and arrays of numbers over it,
//! which need neither memory nor relocations at start.
//!
//! `cargo xtask sai-table` writes `table.txt`. A line has a letter and fields, with tabs between them:
//!
//! | line | fields |
//! | --- | --- |
//! | `s` | major, minor, revision, and commit of the headers |
//! | `n` | the number of lines `e`, `v` and `w`, `p`, `f`, `o`, `m`, `a` and `b` |
//! | `e` | an enumeration, in the order of names, and `flags` if its values are bits of a sum |
//! | `v` | a value and its number, in the order of numbers |
//! | `w` | an older name of a value of the same enumeration |
//! | `p` | an API and its number |
//! | `f` | a function of its method table, in the order of the table |
//! | `o` | an object type, its number, API, statistics, and its functions' places in the method table |
//! | `m` | a member of its key: name, value type, rules |
//! | `a` | an attribute, its number, value type, flags, rules, in the order of numbers |
//! | `b` | an older name of an attribute of the same object type, and its number |

use crate::value_type::ValueType;

/// The text of the table.
pub(crate) static TEXT: &str = SOURCE;
const SOURCE: &str = include_str!("table.txt");
const BYTES: &[u8] = SOURCE.as_bytes();

/// The number of lines of each letter.
const COUNTS: [usize; 7] = counts();
const ENUMS: usize = COUNTS[0];
const VALUES: usize = COUNTS[1];
const APIS: usize = COUNTS[2];
const FUNCTIONS: usize = COUNTS[3];
const OBJECTS: usize = COUNTS[4];
const MEMBERS: usize = COUNTS[5];
const ATTRIBUTES: usize = COUNTS[6];

/// Slots of the index of names: a power of two, half full.
const SLOTS: usize = (ATTRIBUTES + VALUES).next_power_of_two() * 2;
/// No number.
pub(crate) const NONE: u16 = u16::MAX;
/// The kinds of functions of an object type.
pub(crate) const FUNCTION_KINDS: usize = 12;

/// A part of the text.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    at: u32,
    len: u8,
}

impl Part {
    const EMPTY: Part = Part { at: 0, len: 0 };

    pub(crate) fn text(self) -> &'static str {
        TEXT.get(self.at as usize..self.at as usize + self.len as usize).unwrap_or_default()
    }

    /// The rest of its line, behind it.
    pub(crate) fn rest_of_line(self) -> &'static str {
        let rest = TEXT.get(self.at as usize + self.len as usize..).unwrap_or_default();
        rest.split('\n').next().unwrap_or_default()
    }
}

#[derive(Clone, Copy)]
pub(crate) struct EnumRow {
    pub(crate) name: Part,
    pub(crate) first: u16,
    /// Values, without older names.
    pub(crate) values: u16,
    /// Whether the values are bits, of which a number may have several.
    pub(crate) flags: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct ValueRow {
    pub(crate) name: Part,
    pub(crate) number: i32,
    pub(crate) of: u16,
}

#[derive(Clone, Copy)]
pub(crate) struct ApiRow {
    pub(crate) name: Part,
    pub(crate) number: u32,
    pub(crate) first: u16,
    pub(crate) functions: u16,
}

#[derive(Clone, Copy)]
pub(crate) struct ObjectRow {
    pub(crate) name: Part,
    pub(crate) number: u32,
    pub(crate) api: u16,
    pub(crate) stats: u16,
    pub(crate) functions: [u8; FUNCTION_KINDS],
    pub(crate) first_member: u16,
    pub(crate) members: u16,
    pub(crate) first: u16,
    pub(crate) attributes: u16,
}

#[derive(Clone, Copy)]
pub(crate) struct MemberRow {
    pub(crate) name: Part,
    pub(crate) kind: ValueType,
    pub(crate) of: u16,
}

#[derive(Clone, Copy)]
pub(crate) struct AttributeRow {
    pub(crate) name: Part,
    pub(crate) kind: ValueType,
    pub(crate) object: u8,
    pub(crate) flags: u16,
    pub(crate) of: u16,
    pub(crate) number: u32,
}

pub(crate) struct Table {
    pub(crate) version: [u32; 3],
    pub(crate) enums: [EnumRow; ENUMS],
    pub(crate) values: [ValueRow; VALUES],
    pub(crate) apis: [ApiRow; APIS],
    pub(crate) functions: [Part; FUNCTIONS],
    pub(crate) objects: [ObjectRow; OBJECTS],
    pub(crate) members: [MemberRow; MEMBERS],
    pub(crate) attributes: [AttributeRow; ATTRIBUTES],
    /// By the hash of a name: 0, or one more than the place of an attribute, or of a value after all attributes.
    names: [u16; SLOTS],
}

/// The rows of the table.
pub(crate) static TABLE: Table = parse();

/// What a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Named {
    Attribute(u16),
    Value(u16),
}

/// The attribute or value of this name.
pub(crate) fn named(name: &str) -> Option<Named> {
    prefixed("", name)
}

/// The attribute or value whose name is `prefix` and `name`.
pub(crate) fn prefixed(prefix: &str, name: &str) -> Option<Named> {
    let state = hash(HASH, prefix.as_bytes(), 0, prefix.len());
    let mut slot = slot(hash(state, name.as_bytes(), 0, name.len()));
    loop {
        let place = match TABLE.names[slot] {
            0 => return None,
            place => place as usize - 1,
        };
        let found = match place.checked_sub(ATTRIBUTES) {
            None => (TABLE.attributes[place].name, Named::Attribute(place as u16)),
            Some(value) => (TABLE.values[value].name, Named::Value(value as u16)),
        };
        if found.0.text().strip_prefix(prefix) == Some(name) {
            return Some(found.1);
        }
        slot = (slot + 1) & (SLOTS - 1);
    }
}

/// The FNV-1a hash of nothing.
const HASH: u32 = 0x811c_9dc5;

/// The first slot of a hash.
const fn slot(hash: u32) -> usize {
    (hash ^ hash >> 15) as usize & (SLOTS - 1)
}

/// Adds a part of the bytes to an FNV-1a hash.
const fn hash(mut hash: u32, bytes: &[u8], at: usize, len: usize) -> u32 {
    let mut n = at;
    while n < at + len {
        hash = (hash ^ bytes[n] as u32).wrapping_mul(0x0100_0193);
        n += 1;
    }
    hash
}

/// A position in the text, which goes from field to field.
#[derive(Clone, Copy)]
struct Reader {
    at: usize,
}

impl Reader {
    /// The next field of the line; a line ends the last one.
    const fn field(&mut self) -> Part {
        let start = self.at;
        while BYTES[self.at] != b'\t' && BYTES[self.at] != b'\n' {
            self.at += 1;
        }
        let len = self.at - start;
        assert!(len < 256, "a field of the table is too long");
        if BYTES[self.at] == b'\t' {
            self.at += 1;
        }
        Part { at: start as u32, len: len as u8 }
    }

    const fn skip_line(&mut self) {
        while self.at < BYTES.len() && BYTES[self.at] != b'\n' {
            self.at += 1;
        }
        self.at += 1;
    }

    const fn number(&mut self) -> i64 {
        let part = self.field();
        number(part)
    }
}

const fn number(part: Part) -> i64 {
    let (mut at, end) = (part.at as usize, part.at as usize + part.len as usize);
    let negative = BYTES[at] == b'-';
    if negative {
        at += 1;
    }
    let mut number = 0;
    while at < end {
        assert!(BYTES[at].is_ascii_digit(), "a number of the table has another character");
        number = number * 10 + (BYTES[at] - b'0') as i64;
        at += 1;
    }
    if negative { -number } else { number }
}

const fn counts() -> [usize; 7] {
    let mut reader = Reader { at: 0 };
    while BYTES[reader.at] != b'n' {
        reader.skip_line();
    }
    reader.field();
    let (mut counts, mut n) = ([0; 7], 0);
    while n < counts.len() {
        counts[n] = reader.number() as usize;
        n += 1;
    }
    counts
}

/// Whether a comes before b, at b, or after b: -1, 0, 1.
const fn compare(a: Part, b: Part) -> i8 {
    let mut n = 0;
    while n < a.len as usize && n < b.len as usize {
        let (x, y) = (BYTES[a.at as usize + n], BYTES[b.at as usize + n]);
        if x != y {
            return if x < y { -1 } else { 1 };
        }
        n += 1;
    }
    if a.len < b.len {
        -1
    } else if a.len > b.len {
        1
    } else {
        0
    }
}

/// The enumeration of a name among the sorted ones.
const fn enumeration(enums: &[EnumRow; ENUMS], name: Part) -> u16 {
    let (mut low, mut high) = (0, ENUMS);
    while low < high {
        let middle = (low + high) / 2;
        match compare(enums[middle].name, name) {
            0 => return middle as u16,
            -1 => low = middle + 1,
            _ => high = middle,
        }
    }
    NONE
}

/// `TYPE` or `TYPE:ENUMERATION`; a function instead of an enumeration stays in the text.
const fn typed(enums: &[EnumRow; ENUMS], part: Part) -> (ValueType, u16) {
    let mut len = 0;
    while len < part.len && BYTES[part.at as usize + len as usize] != b':' {
        len += 1;
    }
    let (_, from) = BYTES.split_at(part.at as usize);
    let (name, _) = from.split_at(len as usize);
    let Some(kind) = ValueType::of(name) else { panic!("a value type of the table is unknown") };
    if len == part.len {
        return (kind, NONE);
    }
    let of = enumeration(enums, Part { at: part.at + len as u32 + 1, len: part.len - len - 1 });
    assert!(of != NONE || matches!(kind, ValueType::Pointer), "an enumeration of the table is unknown");
    (kind, of)
}

/// The bit of a letter of the flags.
const fn flag(letter: u8) -> u16 {
    let (mut n, letters) = (0, crate::FLAGS.as_bytes());
    while n < letters.len() {
        if letters[n] == letter {
            return 1 << n;
        }
        n += 1;
    }
    panic!("a flag of the table is unknown")
}

const fn parse() -> Table {
    let mut table = Table {
        version: [0; 3],
        enums: [EnumRow { name: Part::EMPTY, first: 0, values: 0, flags: false }; ENUMS],
        values: [ValueRow { name: Part::EMPTY, number: 0, of: 0 }; VALUES],
        apis: [ApiRow { name: Part::EMPTY, number: 0, first: 0, functions: 0 }; APIS],
        functions: [Part::EMPTY; FUNCTIONS],
        objects: [ObjectRow {
            name: Part::EMPTY,
            number: 0,
            api: NONE,
            stats: NONE,
            functions: [u8::MAX; FUNCTION_KINDS],
            first_member: 0,
            members: 0,
            first: 0,
            attributes: 0,
        }; OBJECTS],
        members: [MemberRow { name: Part::EMPTY, kind: ValueType::Bool, of: NONE }; MEMBERS],
        attributes: [AttributeRow {
            name: Part::EMPTY,
            kind: ValueType::Bool,
            object: 0,
            flags: 0,
            of: NONE,
            number: 0,
        }; ATTRIBUTES],
        names: [0; SLOTS],
    };
    let (mut enums, mut values, mut apis, mut functions) = (0, 0, 0, 0);
    let (mut objects, mut members, mut attributes) = (0, 0, 0);
    let mut reader = Reader { at: 0 };
    while reader.at < BYTES.len() {
        let letter = BYTES[reader.at];
        if letter != b'#' {
            reader.field();
        }
        match letter {
            b's' => {
                table.version = [reader.number() as u32, reader.number() as u32, reader.number() as u32];
                // The commit is for readers of the text.
                reader.field();
            }
            b'e' => {
                let name = reader.field();
                let flags = reader.field().len > 1;
                table.enums[enums] = EnumRow { name, first: values as u16, values: 0, flags };
                enums += 1;
            }
            b'v' | b'w' => {
                let name = reader.field();
                let of = enums - 1;
                table.values[values] = ValueRow { name, number: reader.number() as i32, of: of as u16 };
                table.enums[of].values += (letter == b'v') as u16;
                insert(&mut table.names, name, ATTRIBUTES + values);
                values += 1;
            }
            b'p' => {
                let (name, number) = (reader.field(), reader.number() as u32);
                table.apis[apis] = ApiRow { name, number, first: functions as u16, functions: 0 };
                apis += 1;
            }
            b'f' => {
                table.functions[functions] = reader.field();
                table.apis[apis - 1].functions += 1;
                functions += 1;
            }
            b'o' => {
                let row = &mut table.objects[objects];
                row.name = reader.field();
                row.number = reader.number() as u32;
                let api = reader.field();
                let mut n = 0;
                while n < APIS {
                    if compare(table.apis[n].name, api) == 0 {
                        row.api = n as u16;
                    }
                    n += 1;
                }
                row.stats = enumeration(&table.enums, reader.field());
                places(reader.field(), &mut row.functions);
                (row.first_member, row.first) = (members as u16, attributes as u16);
                objects += 1;
            }
            b'm' => {
                let name = reader.field();
                let (kind, of) = typed(&table.enums, reader.field());
                table.members[members] = MemberRow { name, kind, of };
                table.objects[objects - 1].members += 1;
                members += 1;
            }
            b'a' | b'b' => {
                let row = &mut table.attributes[attributes];
                (row.name, row.number) = (reader.field(), reader.number() as u32);
                row.object = (objects - 1) as u8;
                if letter == b'a' {
                    (row.kind, row.of) = typed(&table.enums, reader.field());
                    let flags = reader.field();
                    let mut n = 0;
                    while n < flags.len as usize {
                        row.flags |= flag(BYTES[flags.at as usize + n]);
                        n += 1;
                    }
                    table.objects[objects - 1].attributes += 1;
                }
                insert(&mut table.names, row.name, attributes);
                attributes += 1;
            }
            b'#' | b'n' => {}
            _ => panic!("a line of the table has an unknown letter"),
        }
        reader.skip_line();
    }
    assert!(enums == ENUMS && values == VALUES && apis == APIS && functions == FUNCTIONS, "wrong counts");
    assert!(objects == OBJECTS && members == MEMBERS && attributes == ATTRIBUTES, "wrong counts");
    table
}

const fn insert(names: &mut [u16; SLOTS], name: Part, place: usize) {
    let mut slot = slot(hash(HASH, BYTES, name.at as usize, name.len as usize));
    while names[slot] != 0 {
        slot = (slot + 1) & (SLOTS - 1);
    }
    names[slot] = place as u16 + 1;
}

/// Numbers with commas between them, or `-`.
const fn places(part: Part, into: &mut [u8; FUNCTION_KINDS]) {
    let (mut at, end, mut n) = (part.at as usize, part.at as usize + part.len as usize, 0);
    while at < end {
        let start = at;
        while at < end && BYTES[at] != b',' {
            at += 1;
        }
        if BYTES[start] != b'-' {
            into[n] = number(Part { at: start as u32, len: (at - start) as u8 }) as u8;
        }
        n += 1;
        at += 1;
    }
    assert!(n == FUNCTION_KINDS, "an object type has another number of functions");
}

/// The place of `sai_status_t` among the enumerations.
pub(crate) const STATUS: u16 = {
    const NAME: &[u8] = b"sai_status_t";
    let (mut reader, mut place) = (Reader { at: 0 }, 0);
    loop {
        if BYTES[reader.at] == b'e' {
            reader.field();
            let name = reader.field();
            let mut same = 0;
            while same < NAME.len() && BYTES[name.at as usize + same] == NAME[same] {
                same += 1;
            }
            if same == NAME.len() && name.len as usize == same {
                break place;
            }
            place += 1;
        }
        reader.skip_line();
    }
};

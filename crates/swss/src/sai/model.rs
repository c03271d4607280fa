//! What SAI's table ([`ribtide_sai`]) says about names and numbers of text.

use super::Attr;
use ribtide_sai::{Attribute, Default, ObjectType, ValueType};

/// SAI's number of the object type with this name.
pub(super) fn object_number(name: &str) -> Option<u32> {
    ObjectType::from_name(name).map(ObjectType::number)
}

/// The name of the object type with this number.
pub(super) fn object_name(number: u32) -> Option<&'static str> {
    ObjectType::from_number(number).map(ObjectType::name)
}

/// SAI's name of the status with this number.
pub(super) fn status_name(number: i32) -> Option<&'static str> {
    ribtide_sai::status_name(number)
}

/// SAI's number of the status with this name.
pub(super) fn status_number(name: &str) -> Option<i32> {
    ribtide_sai::status_number(name)
}

/// Whether a key identifies objects of the type with this number.
pub(super) fn is_entry(number: u32) -> bool {
    ObjectType::from_number(number).is_some_and(ObjectType::is_entry)
}

/// The name that sairedis writes for an attribute; a name that SAI does not have is its own.
pub(super) fn canonical_name(name: &str) -> &str {
    match Attribute::from_name(name) {
        Some(attr) => attr.name(),
        None => name,
    }
}

/// Whether only a creation can give the attribute.
pub(super) fn is_create_only(name: &str) -> bool {
    Attribute::from_name(name).is_some_and(Attribute::is_create_only)
}

/// Whether the value is text of a user, such as the name of a host interface.
pub(super) fn is_free_text(name: &str) -> bool {
    Attribute::from_name(name).is_some_and(|attr| attr.value_type() == ValueType::Chardata)
}

/// Whether the value is a name of the attribute's enumeration.
pub(super) fn is_enum_value(name: &str, value: &str) -> bool {
    let of = Attribute::from_name(name).and_then(Attribute::enumeration);
    of.is_some_and(|of| of.number_of(value).is_some())
}

/// Whether the attribute is one of objects of the type with this number. SAI has no others.
pub(super) fn is_attribute_of(name: &str, object: u32) -> bool {
    Attribute::from_name(name).is_some_and(|attr| attr.object_type().number() == object)
}

/// Whether only the chip sets the attribute.
pub(super) fn is_read_only(name: &str) -> bool {
    Attribute::from_name(name).is_some_and(Attribute::is_read_only)
}

/// Whether the attribute may name no object.
pub(super) fn allows_null(name: &str) -> bool {
    Attribute::from_name(name).is_none_or(Attribute::allows_null)
}

/// Whether the attribute may name an object of the type with this number. Lists and names that SAI
/// does not have may name any.
pub(super) fn may_name(name: &str, object: u32) -> bool {
    let (Some(attr), Some(object)) = (Attribute::from_name(name), ObjectType::from_number(object)) else {
        return true;
    };
    attr.objects().next().is_none() || attr.may_name(object)
}

/// The mandatory attribute that a creation with these attributes lacks.
pub(super) fn missing(object: u32, attrs: &[Attr]) -> Option<&'static str> {
    let given = |name: &str| attrs.iter().find(|attr| attr.name() == name);
    let is = |attr: Attribute, value: &'static str| match given(attr.name()) {
        Some(given) => given.value() == value,
        None => attr.default_value() == Some(Default::Const(value)),
    };
    let mut attributes = ObjectType::from_number(object)?.attributes();
    let missing = attributes.find(|attr| {
        attr.is_mandatory()
            && given(attr.name()).is_none()
            && attr.condition().is_none_or(|condition| condition.holds(is))
    });
    missing.map(Attribute::name)
}

/// Whether the value of the attribute is a list, whose text begins with its length.
pub(super) fn is_list(name: &str) -> bool {
    use ValueType as T;
    Attribute::from_name(name).is_some_and(|attr| {
        matches!(
            attr.value_type(),
            T::ObjectList
                | T::Uint8List
                | T::Int8List
                | T::Uint16List
                | T::Int16List
                | T::Uint32List
                | T::Int32List
        )
    })
}

/// Whether no two objects of the type have the same values of all such attributes.
pub(super) fn is_key(name: &str) -> bool {
    Attribute::from_name(name).is_some_and(Attribute::is_key)
}

//! The structures of SAI's C ABI that are used, with the names of the headers. Each is plain data: every pattern of
//! bits is a value, so that nothing that a library writes is undefined. Therefore a `bool` of C is a `u8` here, and an
//! enumeration an `i32`. `tests/layout.rs` compares sizes and offsets with what a C compiler makes of SAI's headers.
#![allow(non_camel_case_types, missing_docs)]

use std::ffi::c_void;
use std::mem::MaybeUninit;

/// A structure for which every pattern of bits is a value.
///
/// # Safety
/// The type is `repr(C)` or a primitive, and has only numbers, raw pointers and arrays of those.
#[expect(unsafe_code, reason = "a promise about the layout that the compiler cannot check")]
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($type:ty),* $(,)?) => {$(
        // SAFETY: a number, or a `repr(C)` structure of numbers, raw pointers and arrays of those.
        #[expect(unsafe_code, reason = "see the trait")]
        unsafe impl Plain for $type {}
    )*};
}

/// A structure of C, and whether a test can see its members.
macro_rules! structures {
    ($($(#[$attr:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            #[derive(Clone, Copy, Debug)]
            #[repr(C)]
            $(#[$attr])*
            pub struct $name {
                $(pub $field: $type,)*
            }
            plain!($name);
        )*

        /// The size of each structure, and the offset and size of each of its members, as `NAME` and `NAME.MEMBER`.
        pub fn layout() -> Vec<(String, usize, usize)> {
            let mut all = Vec::new();
            $(
                all.push((stringify!($name).to_owned(), 0, size_of::<$name>()));
                $(all.push((
                    format!(concat!(stringify!($name), ".{}"), stringify!($field).trim_start_matches("r#")),
                    std::mem::offset_of!($name, $field),
                    size_of::<$type>(),
                ));)*
            )*
            all
        }
    };
}

plain!(u8, i8, u16, i16, u32, i32, u64, i64, [u8; 4], [u8; 6], [u8; 12], [u8; 16], [u8; 32]);

/// `sai_ip_addr_t`, a union of four and of sixteen bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(4))]
pub struct sai_ip_addr_t(pub [u8; 16]);
plain!(sai_ip_addr_t);

/// `sai_ip4_t`, a number of 32 bits in network byte order.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(4))]
pub struct sai_ip4_t(pub [u8; 4]);
plain!(sai_ip4_t);

structures! {
    /// `sai_object_list_t`, `sai_u8_list_t` and every other list: they differ in the type of the items only.
    sai_object_list_t {
        count: u32,
        list: *mut c_void,
    }
    sai_ip_address_t {
        addr_family: i32,
        addr: sai_ip_addr_t,
    }
    sai_ip_prefix_t {
        addr_family: i32,
        addr: sai_ip_addr_t,
        mask: sai_ip_addr_t,
    }
    sai_u16_range_t {
        min: u16,
        max: u16,
    }
    sai_u32_range_t {
        min: u32,
        max: u32,
    }
    sai_u64_range_t {
        min: u64,
        max: u64,
    }
    /// `mask` and `data` are unions of 16 bytes.
    sai_acl_field_data_t {
        enable: u8,
        mask: Union2,
        data: Union2,
    }
    /// `parameter` is a union of 24 bytes.
    sai_acl_action_data_t {
        enable: u8,
        parameter: Union3,
    }
    sai_acl_capability_t {
        is_action_list_mandatory: u8,
        action_list: sai_object_list_t,
        supported_match_type: i32,
        is_non_contiguous_bits_exact_match_supported: u8,
    }
    sai_acl_resource_t {
        stage: i32,
        bind_point: i32,
        avail_num: u32,
    }
    sai_map_t {
        key: u32,
        value: i32,
    }
    sai_qos_map_params_t {
        tc: u8,
        dscp: u8,
        dot1p: u8,
        prio: u8,
        pg: u8,
        queue_index: u8,
        color: i32,
        mpls_exp: u8,
        fc: u8,
    }
    sai_qos_map_t {
        key: sai_qos_map_params_t,
        value: sai_qos_map_params_t,
    }
    sai_system_port_config_t {
        port_id: u32,
        attached_switch_id: u32,
        attached_core_index: u32,
        attached_core_port_index: u32,
        speed: u32,
        num_voq: u32,
    }
    sai_latch_status_t {
        current_status: u8,
        changed: u8,
    }
    sai_port_lane_latch_status_t {
        lane: u32,
        value: sai_latch_status_t,
    }
    sai_port_snr_values_t {
        lane: u32,
        snr: u16,
    }
    sai_poe_port_power_consumption_t {
        active_channel: i32,
        voltage: u32,
        current: u32,
        consumption: u32,
        signature_type: i32,
        class_method: i32,
        measured_class_a: u8,
        assigned_class_a: u8,
        measured_class_b: u8,
        assigned_class_b: u8,
    }
    /// `sai_nat_entry_mask_t` has the same members.
    sai_nat_entry_key_t {
        src_ip: sai_ip4_t,
        dst_ip: sai_ip4_t,
        proto: u8,
        l4_src_port: u16,
        l4_dst_port: u16,
    }
    sai_nat_entry_data_t {
        key: sai_nat_entry_key_t,
        mask: sai_nat_entry_key_t,
    }
    /// `value` is a union of 40 bytes.
    sai_attribute_t {
        id: u32,
        value: Union5,
    }
    sai_attr_capability_t {
        create_implemented: u8,
        set_implemented: u8,
        get_implemented: u8,
    }
    sai_stat_capability_t {
        stat_enum: u32,
        stat_modes: u32,
    }
    sai_service_method_table_t {
        profile_get_value: *const c_void,
        profile_get_next_value: *const c_void,
    }
    sai_port_oper_status_notification_t {
        port_id: u64,
        port_state: i32,
        port_error_status: i32,
    }
    sai_fdb_entry_t {
        switch_id: u64,
        mac_address: [u8; 6],
        bv_id: u64,
    }
    sai_fdb_event_notification_data_t {
        event_type: i32,
        fdb_entry: sai_fdb_entry_t,
        attr_count: u32,
        attr: *const sai_attribute_t,
    }
    sai_queue_deadlock_notification_data_t {
        queue_id: u64,
        event: i32,
        app_managed_recovery: u8,
    }
    sai_bfd_session_state_notification_t {
        bfd_session_id: u64,
        session_state: i32,
    }
}

macro_rules! unions {
    ($($name:ident = $words:literal;)*) => {$(
        /// The storage of a union, which is read and written as one of its members. Bytes between the members of a
        /// structure may be undefined, so it is never read as bytes.
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        pub struct $name([MaybeUninit<u64>; $words]);
        plain!($name);

        impl $name {
            /// Every byte is zero.
            pub const ZERO: $name = $name([MaybeUninit::new(0); $words]);

            /// The union with this member.
            pub fn of<T: Plain>(member: T) -> $name {
                const { assert!(size_of::<T>() <= size_of::<$name>() && align_of::<T>() <= align_of::<$name>()) };
                let mut union = $name::ZERO;
                #[expect(unsafe_code, reason = "a union of C")]
                // SAFETY: the destination is as large and as aligned as the assertion says.
                unsafe {
                    (&raw mut union).cast::<T>().write(member);
                }
                union
            }

            /// The union as this member.
            pub fn get<T: Plain>(&self) -> T {
                const { assert!(size_of::<T>() <= size_of::<$name>() && align_of::<T>() <= align_of::<$name>()) };
                #[expect(unsafe_code, reason = "a union of C")]
                // SAFETY: the source is as large and as aligned as the assertion says. It began as zeros, and was
                // written as a T by `of` or by the library; every pattern of bits is a T.
                unsafe {
                    (&raw const *self).cast::<T>().read()
                }
            }
        }
    )*};
}

unions! {
    Union2 = 2;
    Union3 = 3;
    Union5 = 5;
}

const _: () = assert!(size_of::<sai_attribute_t>() == 48);

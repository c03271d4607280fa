/*
 * Declarations of SAI's C ABI, of ribtide: what tests/library/memory.c needs of SAI 1.18. tests/layout.rs compares the
 * sizes and offsets with those of SAI's own headers (tests/layout.txt).
 */
#ifndef RIBTIDE_SAI_H
#define RIBTIDE_SAI_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef int32_t sai_status_t;
typedef uint64_t sai_object_id_t;
typedef uint32_t sai_attr_id_t;
typedef uint32_t sai_object_type_t;
typedef uint8_t sai_mac_t[6];
typedef uint32_t sai_ip4_t;
typedef uint8_t sai_ip6_t[16];

#define LIST(name, item) typedef struct { uint32_t count; item *list; } name

LIST(sai_object_list_t, sai_object_id_t);
LIST(sai_u8_list_t, uint8_t);
LIST(sai_s8_list_t, int8_t);
LIST(sai_u16_list_t, uint16_t);
LIST(sai_u32_list_t, uint32_t);
LIST(sai_s32_list_t, int32_t);

typedef struct { uint16_t min, max; } sai_u16_range_t;
typedef struct { uint32_t min, max; } sai_u32_range_t;
typedef struct { uint64_t min, max; } sai_u64_range_t;

typedef enum { SAI_IP_ADDR_FAMILY_IPV4, SAI_IP_ADDR_FAMILY_IPV6 } sai_ip_addr_family_t;
typedef union { sai_ip4_t ip4; sai_ip6_t ip6; } sai_ip_addr_t;
typedef struct { sai_ip_addr_family_t addr_family; sai_ip_addr_t addr; } sai_ip_address_t;
typedef struct { sai_ip_addr_family_t addr_family; sai_ip_addr_t addr, mask; } sai_ip_prefix_t;

typedef union {
    uint8_t u8;
    uint64_t u64;
    sai_mac_t mac;
    sai_ip4_t ip4;
    sai_ip6_t ip6;
    sai_u8_list_t u8list;
} sai_acl_field_data_mask_t;
typedef union {
    bool booldata;
    uint64_t u64;
    sai_mac_t mac;
    sai_ip6_t ip6;
    sai_object_id_t oid;
    sai_object_list_t objlist;
    sai_u8_list_t u8list;
} sai_acl_field_data_data_t;
typedef struct { bool enable; sai_acl_field_data_mask_t mask; sai_acl_field_data_data_t data; } sai_acl_field_data_t;
typedef union {
    bool booldata;
    uint32_t u32;
    sai_mac_t mac;
    sai_ip6_t ip6;
    sai_object_id_t oid;
    sai_object_list_t objlist;
    sai_ip_address_t ipaddr;
} sai_acl_action_parameter_t;
typedef struct { bool enable; sai_acl_action_parameter_t parameter; } sai_acl_action_data_t;
typedef struct {
    bool is_action_list_mandatory;
    sai_s32_list_t action_list;
    int32_t supported_match_type;
    bool is_non_contiguous_bits_exact_match_supported;
} sai_acl_capability_t;
typedef struct { int32_t stage, bind_point; uint32_t avail_num; } sai_acl_resource_t;
typedef struct { uint32_t key; int32_t value; } sai_map_t;
typedef struct {
    uint8_t tc, dscp, dot1p, prio, pg, queue_index;
    int32_t color;
    uint8_t mpls_exp, fc;
} sai_qos_map_params_t;
typedef struct { sai_qos_map_params_t key, value; } sai_qos_map_t;
typedef struct {
    uint32_t port_id, attached_switch_id, attached_core_index, attached_core_port_index, speed, num_voq;
} sai_system_port_config_t;
typedef struct { bool current_status, changed; } sai_latch_status_t;
typedef struct { uint32_t lane; sai_latch_status_t value; } sai_port_lane_latch_status_t;
typedef struct { uint32_t lane; uint16_t snr; } sai_port_snr_values_t;
typedef struct {
    int32_t active_channel;
    uint32_t voltage, current, consumption;
    int32_t signature_type, class_method;
    uint8_t measured_class_a, assigned_class_a, measured_class_b, assigned_class_b;
} sai_poe_port_power_consumption_t;

typedef union {
    bool booldata;
    char chardata[32];
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    int32_t s32;
    uint64_t u64;
    void *ptr;
    sai_mac_t mac;
    sai_ip4_t ip4;
    sai_ip6_t ip6;
    sai_ip_address_t ipaddr;
    sai_ip_prefix_t ipprefix;
    sai_object_id_t oid;
    sai_object_list_t objlist;
    sai_u8_list_t u8list;
    sai_u32_list_t u32list;
    sai_s32_list_t s32list;
    sai_acl_field_data_t aclfield;
    sai_acl_action_data_t aclaction;
    sai_acl_capability_t aclcapability;
    sai_system_port_config_t sysportconfig;
    sai_poe_port_power_consumption_t portpowerconsumption;
} sai_attribute_value_t;
typedef struct { sai_attr_id_t id; sai_attribute_value_t value; } sai_attribute_t;

typedef struct { sai_object_id_t switch_id, vr_id; sai_ip_prefix_t destination; } sai_route_entry_t;
typedef struct { sai_object_id_t switch_id, rif_id; sai_ip_address_t ip_address; } sai_neighbor_entry_t;
typedef struct { sai_object_id_t switch_id; sai_mac_t mac_address; sai_object_id_t bv_id; } sai_fdb_entry_t;
typedef struct { sai_object_id_t switch_id; uint32_t label; } sai_inseg_entry_t;

typedef enum { SAI_BULK_OP_ERROR_MODE_STOP_ON_ERROR, SAI_BULK_OP_ERROR_MODE_IGNORE_ERROR } sai_bulk_op_error_mode_t;
typedef struct { bool create_implemented, set_implemented, get_implemented; } sai_attr_capability_t;
typedef struct { uint32_t stat_enum, stat_modes; } sai_stat_capability_t;
LIST(sai_stat_capability_list_t, sai_stat_capability_t);

typedef const char *(*sai_profile_get_value_fn)(uint32_t profile, const char *variable);
typedef int (*sai_profile_get_next_value_fn)(uint32_t profile, const char **variable, const char **value);
typedef struct {
    sai_profile_get_value_fn profile_get_value;
    sai_profile_get_next_value_fn profile_get_next_value;
} sai_service_method_table_t;

typedef struct { sai_object_id_t port_id; int32_t port_state, port_error_status; } sai_port_oper_status_notification_t;
typedef struct {
    int32_t event_type;
    sai_fdb_entry_t fdb_entry;
    uint32_t attr_count;
    sai_attribute_t *attr;
} sai_fdb_event_notification_data_t;
typedef struct { sai_object_id_t queue_id; int32_t event; bool app_managed_recovery; } sai_queue_deadlock_notification_data_t;
typedef struct { sai_object_id_t bfd_session_id; int32_t session_state; } sai_bfd_session_state_notification_t;

#endif

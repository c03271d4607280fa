/*
 * A SAI library that keeps objects in memory, of ribtide, for tests. It behaves as a chip's library where the tests
 * look: references are counted, keys are unique, bulks have both error modes, and lists have room or overflow.
 *
 * names.inc and tables.inc, which tests/support writes from the table, have the object types, the places of functions and the
 * kinds of attributes' values. VERSION is the version that it reports. Profile: MEMORY_PORTS=N, MEMORY_REFUSE=1,
 * MEMORY_ROUTES=N (the routes that it has room for), MEMORY_COUNTS=FILE (it keeps the number of objects of each type in
 * this file, 64 bits each, for types below 256).
 */
#include "sai.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SUCCESS 0
#define FAILURE (-1)
#define NOT_SUPPORTED (-2)
#define INVALID_PARAMETER (-5)
#define ITEM_ALREADY_EXISTS (-6)
#define ITEM_NOT_FOUND (-7)
#define BUFFER_OVERFLOW (-8)
#define UNINITIALIZED (-12)
#define TABLE_FULL (-13)
#define MANDATORY_ATTRIBUTE_MISSING (-14)
#define OBJECT_IN_USE (-17)
#define INVALID_OBJECT_ID (-19)
#define NOT_EXECUTED (-23)
#define ATTR_NOT_SUPPORTED_0 (-0x50000)

enum { PLAIN, OID, OIDS, LIST_OF, FIELD_OIDS, FIELD_BYTES, ACTION_OID, ACTION_OIDS, CAPABILITY };

#include "names.inc" /* kind_of(type, id, &size), mandatory(type, &count), TYPE_…, ATTR_… */

#define KEY 64
#define BUCKETS 65536

typedef struct object {
    struct object *next;
    sai_object_type_t type;
    uint8_t key[KEY];
    size_t size;
    uint32_t count;
    sai_attribute_t *attrs;
    uint32_t references;
} object_t;

static object_t *buckets[BUCKETS];
static const sai_service_method_table_t *services;
static uint64_t last;
static uint32_t routes, route_room;
static sai_object_id_t the_switch, router, cpu;
static sai_object_id_t ports[512];
static uint32_t port_count;

#define COUNTS 256
static uint64_t no_counts[COUNTS];
static uint64_t *counts = no_counts;

static object_t **find(sai_object_type_t type, const void *key, size_t size)
{
    uint32_t hash = 0x811c9dc5;
    for (size_t n = 0; n < size; n++)
        hash = (hash ^ ((const uint8_t *)key)[n]) * 0x01000193;
    object_t **at = &buckets[hash % BUCKETS];
    while (*at && ((*at)->type != type || (*at)->size != size || memcmp((*at)->key, key, size)))
        at = &(*at)->next;
    return at;
}

/* An id has its type in bits 48 and up, and its number below. The types of extensions begin at 0x20000000. */
static uint64_t id_type(sai_object_type_t type)
{
    return type < 0x20000000 ? type : 0x1000 + (type & 0xfff);
}

static sai_object_type_t type_of(sai_object_id_t oid)
{
    sai_object_type_t type = (sai_object_type_t)(oid >> 48);
    return type < 0x1000 ? type : 0x20000000 + (type & 0xfff);
}

static object_t *by_id(sai_object_id_t oid)
{
    return *find(type_of(oid), &oid, sizeof oid);
}

/* The ids in a value. */
static sai_object_list_t ids(sai_object_type_t type, sai_attribute_t *attr)
{
    size_t size;
    sai_object_list_t none = {0, NULL};
    sai_object_list_t one = {1, &attr->value.oid};
    switch (kind_of(type, attr->id, &size)) {
    case OID: return one;
    case OIDS: return attr->value.objlist;
    case FIELD_OIDS: return attr->value.aclfield.enable ? attr->value.aclfield.data.objlist : none;
    case ACTION_OID:
        one.list = &attr->value.aclaction.parameter.oid;
        return attr->value.aclaction.enable ? one : none;
    case ACTION_OIDS: return attr->value.aclaction.enable ? attr->value.aclaction.parameter.objlist : none;
    default: return none;
    }
}

static bool known(sai_object_type_t type, sai_attribute_t *attr)
{
    sai_object_list_t list = ids(type, attr);
    for (uint32_t n = 0; n < list.count; n++)
        if (list.list[n] && !by_id(list.list[n]))
            return false;
    return true;
}

static void refer(sai_object_type_t type, sai_attribute_t *attr, int by)
{
    sai_object_list_t list = ids(type, attr);
    for (uint32_t n = 0; n < list.count; n++) {
        object_t *of = list.list[n] ? by_id(list.list[n]) : NULL;
        if (of)
            of->references += by;
    }
}

static void *copy(const void *from, size_t size)
{
    void *to = malloc(size ? size : 1);
    if (size)
        memcpy(to, from, size);
    return to;
}

/* The list of a value and the size of its items. */
static sai_u8_list_t *list_of(sai_object_type_t type, sai_attribute_t *attr, size_t *size)
{
    switch (kind_of(type, attr->id, size)) {
    case OIDS:
    case LIST_OF: return &attr->value.u8list;
    case FIELD_OIDS:
    case FIELD_BYTES: return &attr->value.aclfield.data.u8list;
    case ACTION_OIDS: return (sai_u8_list_t *)&attr->value.aclaction.parameter.objlist;
    case CAPABILITY: return (sai_u8_list_t *)&attr->value.aclcapability.action_list;
    default: return NULL;
    }
}

static sai_attribute_t keep(sai_object_type_t type, const sai_attribute_t *attr)
{
    sai_attribute_t kept = *attr;
    size_t size;
    sai_u8_list_t *list = list_of(type, &kept, &size);
    if (list && list->count)
        list->list = copy(list->list, size * list->count);
    if (kind_of(type, kept.id, &size) == FIELD_BYTES && kept.value.aclfield.mask.u8list.count)
        kept.value.aclfield.mask.u8list.list =
            copy(kept.value.aclfield.mask.u8list.list, kept.value.aclfield.mask.u8list.count);
    return kept;
}

static sai_status_t add(sai_object_type_t type, const void *key, size_t size, uint32_t count, const sai_attribute_t *attrs)
{
    object_t **at = find(type, key, size);
    if (*at)
        return ITEM_ALREADY_EXISTS;
    uint32_t needs;
    const uint32_t *need = mandatory(type, &needs);
    for (uint32_t n = 0; n < needs; n++) {
        bool given = false;
        for (uint32_t a = 0; a < count; a++)
            given |= attrs[a].id == need[n];
        if (!given)
            return MANDATORY_ATTRIBUTE_MISSING;
    }
    for (uint32_t n = 0; n < count; n++)
        if (!known(type, (sai_attribute_t *)&attrs[n]))
            return INVALID_OBJECT_ID;
    if (type == TYPE_ROUTE_ENTRY) {
        sai_object_id_t vr = ((const sai_route_entry_t *)key)->vr_id;
        if (!by_id(vr))
            return INVALID_OBJECT_ID;
        if (routes >= route_room)
            return TABLE_FULL;
        routes++;
        by_id(vr)->references++;
    }
    if (type == TYPE_NEIGHBOR_ENTRY) {
        object_t *rif = by_id(((const sai_neighbor_entry_t *)key)->rif_id);
        if (!rif)
            return INVALID_OBJECT_ID;
        rif->references++;
    }
    object_t *object = calloc(1, sizeof *object);
    object->type = type;
    memcpy(object->key, key, size);
    object->size = size;
    object->count = count;
    object->attrs = calloc(count ? count : 1, sizeof *attrs);
    for (uint32_t n = 0; n < count; n++) {
        object->attrs[n] = keep(type, &attrs[n]);
        refer(type, &object->attrs[n], 1);
    }
    *at = object;
    counts[type % COUNTS]++;
    return SUCCESS;
}

static sai_status_t create(sai_object_type_t type, sai_object_id_t *oid, uint32_t count, const sai_attribute_t *attrs)
{
    sai_object_id_t id = id_type(type) << 48 | ++last;
    sai_status_t status = add(type, &id, sizeof id, count, attrs);
    if (status == SUCCESS)
        *oid = id;
    return status;
}

static sai_status_t delete(sai_object_type_t type, const void *key, size_t size)
{
    object_t **at = find(type, key, size);
    object_t *object = *at;
    if (!object)
        return ITEM_NOT_FOUND;
    if (object->references)
        return OBJECT_IN_USE;
    for (uint32_t n = 0; n < object->count; n++)
        refer(type, &object->attrs[n], -1);
    if (type == TYPE_ROUTE_ENTRY) {
        object_t *vr = by_id(((const sai_route_entry_t *)key)->vr_id);
        routes--;
        if (vr)
            vr->references--;
    }
    if (type == TYPE_NEIGHBOR_ENTRY) {
        object_t *rif = by_id(((const sai_neighbor_entry_t *)key)->rif_id);
        if (rif)
            rif->references--;
    }
    *at = object->next;
    counts[type % COUNTS]--;
    free(object->attrs);
    free(object);
    return SUCCESS;
}

static sai_attribute_t *attr_of(object_t *object, sai_attr_id_t id)
{
    for (uint32_t n = 0; n < object->count; n++)
        if (object->attrs[n].id == id)
            return &object->attrs[n];
    return NULL;
}

static void port_state(sai_object_id_t port, bool up)
{
    object_t *of = by_id(the_switch);
    sai_attribute_t *notify = of ? attr_of(of, ATTR_PORT_STATE_CHANGE_NOTIFY) : NULL;
    sai_port_oper_status_notification_t data = {port, up ? 1 : 2, 0};
    if (notify && notify->value.ptr)
        ((void (*)(uint32_t, const sai_port_oper_status_notification_t *))notify->value.ptr)(1, &data);
}

static void fdb_event(const sai_fdb_entry_t *entry, int32_t type, object_t *object)
{
    object_t *of = by_id(the_switch);
    sai_attribute_t *notify = of ? attr_of(of, ATTR_FDB_EVENT_NOTIFY) : NULL;
    sai_fdb_event_notification_data_t data = {type, *entry, object->count, object->attrs};
    if (notify && notify->value.ptr)
        ((void (*)(uint32_t, const sai_fdb_event_notification_data_t *))notify->value.ptr)(1, &data);
}

static sai_status_t change(sai_object_type_t type, const void *key, size_t size, const sai_attribute_t *attr)
{
    object_t *object = *find(type, key, size);
    if (!object)
        return ITEM_NOT_FOUND;
    if (!known(type, (sai_attribute_t *)attr))
        return INVALID_OBJECT_ID;
    sai_attribute_t *at = attr_of(object, attr->id);
    if (!at) {
        object->attrs = realloc(object->attrs, (object->count + 1) * sizeof *attr);
        at = &object->attrs[object->count++];
    } else {
        refer(type, at, -1);
    }
    *at = keep(type, attr);
    refer(type, at, 1);
    if (type == TYPE_PORT && attr->id == ATTR_PORT_ADMIN_STATE) {
        /* A cable is always in. */
        sai_attribute_t *oper = attr_of(object, ATTR_PORT_OPER_STATUS);
        if (oper)
            oper->value.s32 = attr->value.booldata ? 1 : 2;
        port_state(*(const sai_object_id_t *)key, attr->value.booldata);
    }
    if (type == TYPE_FDB_ENTRY)
        fdb_event(key, 2, object);
    return SUCCESS;
}

/* Copies a value into the caller's room. */
static sai_status_t give(sai_object_type_t type, const sai_attribute_t *from, sai_attribute_t *to)
{
    size_t size;
    sai_attribute_t room = *to;
    sai_u8_list_t *into = list_of(type, &room, &size);
    if (into && kind_of(type, from->id, &size) != FIELD_BYTES) {
        sai_u8_list_t *had = list_of(type, (sai_attribute_t *)from, &size);
        sai_u8_list_t *out = list_of(type, to, &size);
        sai_u8_list_t given = *into;
        to->value = from->value;
        out->list = given.list;
        out->count = had->count;
        if (given.count < had->count)
            return BUFFER_OVERFLOW;
        if (had->count)
            memcpy(given.list, had->list, size * had->count);
        return SUCCESS;
    }
    if (into) {
        sai_u8_list_t data = room.value.aclfield.data.u8list, mask = room.value.aclfield.mask.u8list;
        uint32_t count = from->value.aclfield.data.u8list.count;
        to->value = from->value;
        to->value.aclfield.data.u8list.list = data.list;
        to->value.aclfield.mask.u8list.list = mask.list;
        if (data.count < count || mask.count < count)
            return BUFFER_OVERFLOW;
        memcpy(data.list, from->value.aclfield.data.u8list.list, count);
        memcpy(mask.list, from->value.aclfield.mask.u8list.list, count);
        return SUCCESS;
    }
    to->value = from->value;
    return SUCCESS;
}

static sai_status_t of_switch(sai_attribute_t *attr)
{
    sai_attribute_t own = {attr->id, {0}};
    switch (attr->id) {
    case ATTR_NUMBER_OF_ACTIVE_PORTS: attr->value.u32 = port_count; return SUCCESS;
    case ATTR_CPU_PORT: attr->value.oid = cpu; return SUCCESS;
    case ATTR_DEFAULT_VIRTUAL_ROUTER_ID: attr->value.oid = router; return SUCCESS;
    case ATTR_AVAILABLE_IPV4_ROUTE_ENTRY: attr->value.u32 = route_room - routes; return SUCCESS;
    case ATTR_NUMBER_OF_ECMP_GROUPS: attr->value.u32 = 128; return SUCCESS;
    case ATTR_PORT_LIST:
        own.value.objlist.count = port_count;
        own.value.objlist.list = ports;
        return give(TYPE_SWITCH, &own, attr);
    default: return ITEM_NOT_FOUND;
    }
}

static sai_status_t read_all(sai_object_type_t type, const void *key, size_t size, uint32_t count, sai_attribute_t *attrs)
{
    object_t *object = *find(type, key, size);
    if (!object)
        return ITEM_NOT_FOUND;
    sai_status_t all = SUCCESS;
    for (uint32_t n = 0; n < count; n++) {
        sai_attribute_t *have = attr_of(object, attrs[n].id);
        sai_status_t status = ITEM_NOT_FOUND;
        if (have)
            status = give(type, have, &attrs[n]);
        else if (type == TYPE_SWITCH)
            status = of_switch(&attrs[n]);
        if (status == ITEM_NOT_FOUND)
            return ATTR_NOT_SUPPORTED_0 - (sai_status_t)n;
        if (status != SUCCESS)
            all = status;
    }
    return all;
}

#define BULK(one)                                                                          \
    sai_status_t all = SUCCESS;                                                            \
    for (uint32_t n = 0; n < count; n++) {                                                 \
        if (all != SUCCESS && mode == SAI_BULK_OP_ERROR_MODE_STOP_ON_ERROR) {              \
            statuses[n] = NOT_EXECUTED;                                                    \
            continue;                                                                      \
        }                                                                                  \
        statuses[n] = (one);                                                               \
        if (statuses[n] != SUCCESS)                                                        \
            all = FAILURE;                                                                 \
    }                                                                                      \
    return all

#define OBJECT(x, type)                                                                                                \
    static sai_status_t create_##x(sai_object_id_t *oid, sai_object_id_t sw, uint32_t count, const sai_attribute_t *a)  \
    {                                                                                                                  \
        return sw == the_switch && sw ? create(type, oid, count, a) : UNINITIALIZED;                                   \
    }                                                                                                                  \
    static sai_status_t remove_##x(sai_object_id_t oid) { return delete(type, &oid, sizeof oid); }                     \
    static sai_status_t set_##x(sai_object_id_t oid, const sai_attribute_t *a) { return change(type, &oid, sizeof oid, a); } \
    static sai_status_t get_##x(sai_object_id_t oid, uint32_t count, sai_attribute_t *a)                               \
    {                                                                                                                  \
        return read_all(type, &oid, sizeof oid, count, a);                                                                 \
    }                                                                                                                  \
    static sai_status_t bulk_create_##x(sai_object_id_t sw, uint32_t count, const uint32_t *counts,                    \
        const sai_attribute_t **a, sai_bulk_op_error_mode_t mode, sai_object_id_t *oids, sai_status_t *statuses)       \
    {                                                                                                                  \
        BULK(create_##x(&oids[n], sw, counts[n], a[n]));                                                               \
    }                                                                                                                  \
    static sai_status_t bulk_remove_##x(uint32_t count, const sai_object_id_t *oids, sai_bulk_op_error_mode_t mode,    \
        sai_status_t *statuses)                                                                                        \
    {                                                                                                                  \
        BULK(remove_##x(oids[n]));                                                                                     \
    }                                                                                                                  \
    static sai_status_t bulk_set_##x(uint32_t count, const sai_object_id_t *oids, const sai_attribute_t *a,            \
        sai_bulk_op_error_mode_t mode, sai_status_t *statuses)                                                         \
    {                                                                                                                  \
        BULK(set_##x(oids[n], &a[n]));                                                                                 \
    }

#define ENTRY(x, type, size)                                                                                           \
    static sai_status_t create_##x(const void *key, uint32_t count, const sai_attribute_t *a)                          \
    {                                                                                                                  \
        return add(type, key, size, count, a);                                                                         \
    }                                                                                                                  \
    static sai_status_t remove_##x(const void *key) { return delete(type, key, size); }                                \
    static sai_status_t set_##x(const void *key, const sai_attribute_t *a) { return change(type, key, size, a); }      \
    static sai_status_t get_##x(const void *key, uint32_t count, sai_attribute_t *a)                                   \
    {                                                                                                                  \
        return read_all(type, key, size, count, a);                                                                        \
    }                                                                                                                  \
    static sai_status_t bulk_create_##x(uint32_t count, const uint8_t *keys, const uint32_t *counts,                   \
        const sai_attribute_t **a, sai_bulk_op_error_mode_t mode, sai_status_t *statuses)                              \
    {                                                                                                                  \
        BULK(create_##x(keys + n * (size), counts[n], a[n]));                                                          \
    }                                                                                                                  \
    static sai_status_t bulk_remove_##x(uint32_t count, const uint8_t *keys, sai_bulk_op_error_mode_t mode,            \
        sai_status_t *statuses)                                                                                        \
    {                                                                                                                  \
        BULK(remove_##x(keys + n * (size)));                                                                           \
    }                                                                                                                  \
    static sai_status_t bulk_set_##x(uint32_t count, const uint8_t *keys, const sai_attribute_t *a,                    \
        sai_bulk_op_error_mode_t mode, sai_status_t *statuses)                                                         \
    {                                                                                                                  \
        BULK(set_##x(keys + n * (size), &a[n]));                                                                       \
    }

static sai_status_t create_switch(sai_object_id_t *oid, uint32_t count, const sai_attribute_t *attrs)
{
    if (!services)
        return UNINITIALIZED;
    if (the_switch)
        return ITEM_ALREADY_EXISTS;
    const char *many = services->profile_get_value(0, "MEMORY_PORTS");
    const char *room = services->profile_get_value(0, "MEMORY_ROUTES");
    port_count = many ? (uint32_t)atoi(many) : 4;
    route_room = room ? (uint32_t)atoi(room) : 1000000;
    sai_status_t status = create(TYPE_SWITCH, &the_switch, count, attrs);
    if (status != SUCCESS)
        return status;
    create(TYPE_VIRTUAL_ROUTER, &router, 0, NULL);
    for (uint32_t n = 0; n <= port_count; n++) {
        uint32_t lanes[4] = {4 * n + 1, 4 * n + 2, 4 * n + 3, 4 * n + 4};
        sai_attribute_t own[4] = {{ATTR_PORT_HW_LANE_LIST, {0}}, {ATTR_PORT_SPEED, {0}}, {ATTR_PORT_ADMIN_STATE, {0}},
            {ATTR_PORT_OPER_STATUS, {0}}};
        own[0].value.u32list.count = 4;
        own[0].value.u32list.list = lanes;
        own[1].value.u32 = 40000;
        own[3].value.s32 = 2;
        create(TYPE_PORT, n == port_count ? &cpu : &ports[n], 4, own);
    }
    *oid = the_switch;
    return SUCCESS;
}

static sai_status_t remove_switch(sai_object_id_t oid)
{
    if (!oid || oid != the_switch)
        return INVALID_OBJECT_ID;
    for (uint32_t n = 0; n < BUCKETS; n++)
        while (buckets[n]) {
            object_t *object = buckets[n];
            buckets[n] = object->next;
            free(object->attrs);
            free(object);
        }
    the_switch = router = cpu = 0;
    routes = port_count = 0;
    memset(counts, 0, sizeof no_counts);
    return SUCCESS;
}

static sai_status_t set_switch(sai_object_id_t oid, const sai_attribute_t *a) { return change(TYPE_SWITCH, &oid, sizeof oid, a); }

static sai_status_t get_switch(sai_object_id_t oid, uint32_t count, sai_attribute_t *a)
{
    return read_all(TYPE_SWITCH, &oid, sizeof oid, count, a);
}

#define COUNTERS 64
#define STATS_MODE_READ_AND_CLEAR 2
/* Counters of all objects that were set to zero. */
static uint8_t cleared[COUNTERS];

static sai_status_t stats_of(sai_object_id_t oid, uint32_t count, const uint32_t *counters, uint64_t *values)
{
    if (!by_id(oid))
        return ITEM_NOT_FOUND;
    for (uint32_t n = 0; n < count; n++)
        values[n] = counters[n] < COUNTERS && cleared[counters[n]] ? 0 : counters[n] + 1000;
    return SUCCESS;
}

static sai_status_t clear_stats(sai_object_id_t oid, uint32_t count, const uint32_t *counters)
{
    if (!by_id(oid))
        return ITEM_NOT_FOUND;
    for (uint32_t n = 0; n < count; n++)
        if (counters[n] < COUNTERS)
            cleared[counters[n]] = 1;
    return SUCCESS;
}

static sai_status_t stats_ext_of(sai_object_id_t oid, uint32_t count, const uint32_t *counters, int32_t mode, uint64_t *values)
{
    sai_status_t status = stats_of(oid, count, counters, values);
    if (status == SUCCESS && mode == STATS_MODE_READ_AND_CLEAR)
        status = clear_stats(oid, count, counters);
    return status;
}

static uint32_t flushed;

static sai_status_t flush(sai_object_id_t sw, uint32_t count, const sai_attribute_t *attrs)
{
    (void)count;
    (void)attrs;
    if (sw != the_switch)
        return INVALID_OBJECT_ID;
    for (uint32_t n = 0; n < BUCKETS; n++)
        for (object_t **at = &buckets[n]; *at;) {
            object_t *object = *at;
            if (object->type != TYPE_FDB_ENTRY) {
                at = &object->next;
                continue;
            }
            for (uint32_t a = 0; a < object->count; a++)
                refer(TYPE_FDB_ENTRY, &object->attrs[a], -1);
            *at = object->next;
            free(object->attrs);
            free(object);
            flushed++;
            counts[TYPE_FDB_ENTRY]--;
        }
    return SUCCESS;
}

#include "tables.inc" /* functions of each object type, and tables(api, table) */

sai_status_t sai_api_initialize(uint64_t flags, const sai_service_method_table_t *table)
{
    if (flags || !table || !table->profile_get_value)
        return INVALID_PARAMETER;
    if (table->profile_get_value(0, "MEMORY_REFUSE"))
        return FAILURE;
    const char *file = table->profile_get_value(0, "MEMORY_COUNTS");
    if (file) {
        int fd = open(file, O_RDWR | O_CREAT | O_TRUNC, 0600);
        void *shared = MAP_FAILED;
        if (fd >= 0 && !ftruncate(fd, sizeof no_counts))
            shared = mmap(NULL, sizeof no_counts, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (shared == MAP_FAILED)
            return FAILURE;
        close(fd);
        counts = shared;
    }
    services = table;
    return SUCCESS;
}

sai_status_t sai_api_query(uint32_t api, void **table) { return tables(api, table); }

sai_status_t sai_api_uninitialize(void)
{
    remove_switch(the_switch);
    services = NULL;
    return SUCCESS;
}

sai_status_t sai_query_api_version(uint64_t *version)
{
    *version = VERSION;
    return SUCCESS;
}

sai_status_t sai_log_set(uint32_t api, int level)
{
    (void)api;
    return level < 0 || level > 5 ? INVALID_PARAMETER : SUCCESS;
}

sai_object_type_t sai_object_type_query(sai_object_id_t oid) { return by_id(oid) ? type_of(oid) : 0; }

sai_object_id_t sai_switch_id_query(sai_object_id_t oid) { return by_id(oid) ? the_switch : 0; }

sai_status_t sai_object_type_get_availability(sai_object_id_t sw, sai_object_type_t type, uint32_t count,
    const sai_attribute_t *attrs, uint64_t *free_entries)
{
    (void)count;
    (void)attrs;
    if (sw != the_switch)
        return INVALID_OBJECT_ID;
    if (type != TYPE_ROUTE_ENTRY)
        return NOT_SUPPORTED;
    *free_entries = route_room - routes;
    return SUCCESS;
}

#ifndef WITHOUT_CAPABILITY
sai_status_t sai_query_attribute_capability(sai_object_id_t sw, sai_object_type_t type, sai_attr_id_t id,
    sai_attr_capability_t *able)
{
    if (sw != the_switch)
        return INVALID_OBJECT_ID;
    able->create_implemented = true;
    able->set_implemented = type != TYPE_ROUTE_ENTRY || id != 4;
    able->get_implemented = true;
    return SUCCESS;
}
#endif

sai_status_t sai_query_attribute_enum_values_capability(sai_object_id_t sw, sai_object_type_t type, sai_attr_id_t id,
    sai_s32_list_t *list)
{
    (void)type;
    (void)id;
    if (sw != the_switch)
        return INVALID_OBJECT_ID;
    uint32_t room = list->count;
    list->count = 3;
    if (room < 3)
        return BUFFER_OVERFLOW;
    for (int32_t n = 0; n < 3; n++)
        list->list[n] = n;
    return SUCCESS;
}

sai_status_t sai_query_stats_capability(sai_object_id_t sw, sai_object_type_t type, sai_stat_capability_list_t *list)
{
    (void)type;
    if (sw != the_switch)
        return INVALID_OBJECT_ID;
    uint32_t room = list->count;
    list->count = 2;
    if (room < 2)
        return BUFFER_OVERFLOW;
    for (uint32_t n = 0; n < 2; n++)
        list->list[n] = (sai_stat_capability_t){n, 3};
    return SUCCESS;
}

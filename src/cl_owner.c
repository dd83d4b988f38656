/* See cl_owner.h. */
#include "cl_owner.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "cl_maps.h"
#include "cl_pool.h"

struct wanted {
    struct cl_where *answers;
    size_t n;
    uint64_t low, high; /* of all */
};

static bool
is_buffer(const struct cl_where *answer)
{
    return answer->place == CL_PLACE_BUFFER ||
           answer->place == CL_PLACE_CHUNK || answer->place == CL_PLACE_OTHER;
}

/* Where what malloc returned or mmap gave begins and ends, for an answer. */
static uint64_t
start_of(const struct cl_where *answer, uint64_t page)
{
    return answer->block != 0 ? answer->block : answer->address & ~(page - 1);
}

static bool
points_to(const struct cl_where *answer, uint64_t pointer, uint64_t page)
{
    uint64_t start = start_of(answer, page);
    uint64_t size = answer->block != 0 ? answer->block_size : page;
    if (answer->block_size == UINT32_MAX) {
        size = UINT64_MAX - start;
    }
    return pointer >= start && pointer - start < size;
}

/* Give the answers whose buffer the pointer lies in their owner. */
static void
offer(const struct wanted *wanted, uint64_t page, uint64_t pointer,
      const struct cl_found *found)
{
    if (pointer < wanted->low || pointer >= wanted->high || pointer % 8 != 0) {
        return;
    }
    /* The first answer whose buffer begins after the pointer. */
    size_t low = 0, high = wanted->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (start_of(&wanted->answers[middle], page) <= pointer) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    /* Those of one buffer stand together, just before it. */
    while (low-- > 0) {
        struct cl_where *answer = &wanted->answers[low];
        if (!points_to(answer, pointer, page)) {
            break;
        }
        if (is_buffer(answer) && answer->owner == 0) {
            answer->owner = found->object;
            memcpy(answer->owner_type, found->type.name,
                   sizeof answer->owner_type);
        }
    }
}

/* Types that have a buffer of their own, and where the pointer to it is. */
static bool
owns_buffer(const struct cl_type *type, uint32_t *from, uint32_t *to)
{
    static const struct {
        const char *name;
        uint32_t from, to; /* bytes from the object */
    } table[] = {
        {"list", 24, 32},
        {"dict", 24, 48},
        {"set", 40, 48},
        {"frozenset", 40, 48},
        {"bytearray", 32, 48},
        {"array.array", 24, 32},
        {"mmap.mmap", 16, 24},
        {"collections.deque", 24, 40},
        {"_io.BytesIO", 16, 24},
        {"numpy.ndarray", 16, 24},
        {"defaultdict", 24, 48},
        {"collections.OrderedDict", 24, 48},
        {"collections.defaultdict", 24, 48},
        {"Counter", 24, 48},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(type->name, table[i].name) == 0) {
            *from = table[i].from;
            *to = table[i].to;
            return true;
        }
    }
    return false;
}

static void
ask_object(const struct wanted *wanted, const struct cl_object_layout *layout,
           uint64_t page, const struct cl_found *found,
           const unsigned char *block, uint64_t address, uint32_t size)
{
    uint64_t pointer, at = found->object - address;
    uint32_t from, to;
    if (owns_buffer(&found->type, &from, &to)) {
        for (uint32_t word = from; word < to && at + word + 8 <= size;
             word += 8) {
            memcpy(&pointer, block + at + word, sizeof pointer);
            offer(wanted, page, pointer, found);
        }
    }
    if (found->type.prefix > 16) {
        /* The instance's dict or values. Some keep a flag in the low bits;
         * from 3.12 to 3.13 values are known by them. */
        for (uint32_t word = 0; word < 16; word += 8) {
            memcpy(&pointer, block + at - found->type.prefix + word,
                   sizeof pointer);
            if (layout->version == 0x030c && (pointer & 1)) {
                pointer += 1;
            }
            offer(wanted, page, pointer, found);
        }
    }
}

static void
ask_pool(struct cl_memory *memory, const struct cl_object_layout *layout,
         const struct wanted *wanted, uint64_t at, const unsigned char *bytes)
{
    struct cl_pool pool;
    unsigned char blocks[1024];
    struct cl_found found;
    if (cl_pool_validate(bytes, at, &pool, blocks) != 0) {
        return;
    }
    for (uint32_t i = 0; i < pool.capacity; i++) {
        uint32_t offset = CL_POOL_HEADER + i * pool.block_size;
        if (blocks[i] == CL_BLOCK_USED &&
            cl_object_find_in(memory, layout, at + offset, bytes + offset,
                              pool.block_size, &found)) {
            ask_object(wanted, layout, memory->page, &found, bytes + offset,
                       at + offset, pool.block_size);
        }
    }
}

static void
ask_map(struct cl_memory *memory, const struct cl_object_layout *layout,
        const struct wanted *wanted, const struct cl_map *map)
{
    unsigned char bytes[CL_POOL_SIZE];
    uint64_t at =
        (map->start + CL_POOL_SIZE - 1) & ~(uint64_t)(CL_POOL_SIZE - 1);
    for (; at + CL_POOL_SIZE <= map->end; at += CL_POOL_SIZE) {
        struct cl_pool_header header;
        if (cl_memory_touched(memory, at) &&
            cl_memory_read(memory, at, &header, sizeof header) &&
            cl_pool_plausible(&header) && header.count != 0 &&
            cl_memory_read(memory, at, bytes, sizeof bytes)) {
            ask_pool(memory, layout, wanted, at, bytes);
        }
    }
}

int
cl_owner_find(struct cl_memory *memory, const struct cl_object_layout *layout,
              const struct cl_buf *maps, struct cl_where *answers, size_t n)
{
    struct wanted wanted = {answers, n, UINT64_MAX, 0};
    for (size_t i = 0; i < n; i++) {
        if (!is_buffer(&answers[i])) {
            continue;
        }
        uint64_t start = start_of(&answers[i], memory->page);
        uint64_t end = start + (answers[i].block != 0 ? answers[i].block_size
                                                      : memory->page);
        wanted.low = start < wanted.low ? start : wanted.low;
        wanted.high = end > wanted.high ? end : wanted.high;
    }
    const char *cursor = maps->data, *end = maps->data + maps->len;
    struct cl_map map;
    int got = 0;
    while (wanted.low < wanted.high &&
           (got = cl_maps_next(&cursor, end, &map)) == 1) {
        if ((map.perms & CL_MAP_WRITE) && !(map.perms & CL_MAP_SHARED) &&
            !cl_map_has_file(&map)) {
            ask_map(memory, layout, &wanted, &map);
        }
    }
    return got < 0 ? got : 0;
}

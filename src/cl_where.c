/* See cl_where.h. */
#include "cl_where.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cl_libc.h"
#include "cl_maps.h"
#include "cl_memory.h"
#include "cl_owner.h"
#include "cl_pool.h"
#include "cl_proc.h"

/* ---- glibc's chunks ---- */

/* Walk the chunks of the brk heap from `*at`, where one begins, to the one
 * that holds `address`. */
static bool
heap_chunk(struct cl_memory *memory, uint64_t heap_end, uint64_t address,
           uint64_t *at, struct cl_chunk *out)
{
    while (*at <= address && cl_chunk_at(memory, heap_end, *at, out)) {
        if (address - *at < out->size) {
            return true;
        }
        *at += out->size;
    }
    return false;
}

/* A large chunk has pages of its own: look for its header at the start of this
 * one and of those below, down to `floor`. Its size is a multiple of the page
 * size, or (from glibc 2.43) a header short of it. */
static bool
mmapped_chunk(struct cl_memory *memory, uint64_t end, uint64_t floor,
              uint64_t address, struct cl_chunk *out)
{
    uint64_t page = cl_memory_page(memory);
    for (uint64_t at = address & ~(page - 1);; at -= page) {
        uint64_t head[2] = {1, 0}; /* of no chunk */
        if (cl_memory_touched(memory, at) &&
            !cl_memory_read(memory, at, head, sizeof head)) {
            return false;
        }
        uint64_t len = head[1] & ~(uint64_t)CL_CHUNK_FLAGS;
        if (head[0] == 0 && (head[1] & CL_CHUNK_FLAGS) == CL_CHUNK_MMAPPED &&
            (len + CL_CHUNK_HEADER) % page <= CL_CHUNK_HEADER && len != 0 &&
            at + len <= end) {
            *out = (struct cl_chunk){at, len, true, false};
            return address < at + len;
        }
        if (at <= floor) {
            return false;
        }
    }
}

/* ---- One address ---- */

struct search {
    struct cl_memory memory;
    const struct cl_object_layout *layout;
    struct cl_buf maps;
    const char *cursor;
    struct cl_map map; /* the mapping looked at last */
    bool have_map;
    /* It and the anonymous mappings that it touches: advice for a part of a
     * chunk makes several mappings of it. */
    uint64_t region_start, region_end;
    uint64_t heap_start, heap_end; /* the brk heap; 0: there is none */
    uint64_t heap_at;              /* where a chunk of it begins */
    struct cl_chunk large;         /* the last large chunk */
    uint64_t no_large;             /* none begins in its mapping up to here */
    /* the last pool */
    uint64_t pool_at;
    int pool_err;
    struct cl_pool pool;
    unsigned char blocks[1024], bytes[CL_POOL_SIZE];
};

static bool
is_anonymous(const struct cl_map *map)
{
    return !cl_map_has_file(map) && !(map->perms & CL_MAP_SHARED) &&
           (map->path_len == 0 ||
            (map->path_len > 6 && memcmp(map->path, "[anon:", 6) == 0));
}

static void
find_region(struct search *search)
{
    const char *cursor = search->maps.data;
    const char *end = search->maps.data + search->maps.len;
    struct cl_map map;
    uint64_t start = 0, last = 0;
    while (cl_maps_next(&cursor, end, &map) == 1) {
        if (!is_anonymous(&map) || map.start != last) {
            if (last > search->map.start) {
                break; /* the region has ended */
            }
            start = map.start;
        }
        last = is_anonymous(&map) ? map.end : 0;
    }
    search->region_start =
        start <= search->map.start ? start : search->map.start;
    search->region_end = last > search->map.end ? last : search->map.end;
}

static bool
find_map(struct search *search, uint64_t address)
{
    if (search->have_map && address >= search->map.start &&
        address < search->map.end) {
        return true;
    }
    const char *end = search->maps.data + search->maps.len;
    if (!search->have_map || address < search->map.start) {
        search->cursor = search->maps.data;
    }
    while (cl_maps_next(&search->cursor, end, &search->map) == 1) {
        search->have_map = true;
        if (address < search->map.end) {
            find_region(search);
            return address >= search->map.start;
        }
    }
    search->have_map = false;
    return false;
}

static bool
find_pool(struct search *search, uint64_t address)
{
    uint64_t at = address & ~(uint64_t)(CL_POOL_SIZE - 1);
    if (at != search->pool_at) {
        search->pool_at = at;
        search->pool_err = -EFAULT;
        if (at >= search->map.start && at + CL_POOL_SIZE <= search->map.end &&
            cl_memory_read(&search->memory, at, search->bytes, CL_POOL_SIZE)) {
            search->pool_err = cl_pool_validate(search->bytes, at,
                                                &search->pool, search->blocks);
        }
    }
    return search->pool_err == 0;
}

/* The object in a block, if any. */
static void
look_into(struct search *search, struct cl_where *out, uint64_t block,
          uint64_t size)
{
    struct cl_found found;
    out->block = block;
    out->block_size = size > UINT32_MAX ? UINT32_MAX : (uint32_t)size;
    out->offset = (int32_t)(out->address - block);
    if (!cl_object_find(&search->memory, search->layout, block, size,
                        &found)) {
        return;
    }
    const struct cl_type *type = &found.type;
    int64_t offset = (int64_t)(out->address - found.object);
    out->place = CL_PLACE_OBJECT;
    out->object = found.object;
    out->type = type->address;
    out->basicsize = (uint32_t)type->basicsize;
    out->offset = (int32_t)offset;
    memcpy(out->type_name, type->name, sizeof out->type_name);
    out->field = (uint16_t)cl_object_field(search->layout, type, offset);
}

static void
look_into_pool(struct search *search, struct cl_where *out)
{
    uint64_t inside = out->address - search->pool_at;
    if (inside < CL_POOL_HEADER) {
        out->place = CL_PLACE_POOL_HEADER;
        return;
    }
    out->place = CL_PLACE_FREE;
    if (search->pool.capacity == 0) {
        return; /* reset: it has no blocks */
    }
    uint32_t size = search->pool.block_size;
    uint64_t i = (inside - CL_POOL_HEADER) / size;
    uint64_t block = search->pool_at + CL_POOL_HEADER + i * size;
    if (i >= search->pool.capacity) {
        out->place = CL_PLACE_POOL_HEADER; /* the unused rest at the end */
    } else if (search->blocks[i] == CL_BLOCK_USED &&
               search->pool.header.count != 0) {
        out->place = CL_PLACE_BUFFER;
        look_into(search, out, block, size);
    } else {
        out->block = block;
        out->block_size = size;
        out->offset = (int32_t)(out->address - block);
    }
}

static void
look_into_chunk(struct search *search, struct cl_where *out,
                const struct cl_chunk *chunk)
{
    uint64_t block = chunk->start + CL_CHUNK_HEADER;
    /* The next chunk's first word is still ours. */
    uint64_t size = chunk->size - CL_CHUNK_HEADER / 2;
    uint64_t hook = search->layout->debug_prefix;
    out->place = CL_PLACE_CHUNK;
    if (hook != 0) {
        /* What pymalloc has from the C library has passed two hooks. */
        look_into(search, out, block + hook, size - hook);
        if (out->place == CL_PLACE_OBJECT) {
            out->block = block;
            return;
        }
    }
    look_into(search, out, block, size);
}

static bool
find_chunk(struct search *search, uint64_t address, struct cl_chunk *out)
{
    const struct cl_map *map = &search->map;
    if (address >= search->heap_start && address < search->heap_end) {
        if (search->heap_at > address) {
            search->heap_at = search->heap_start;
        }
        return heap_chunk(&search->memory, search->heap_end, address,
                          &search->heap_at, out);
    }
    if (!is_anonymous(map)) {
        return false; /* a file's, the stack, the kernel's */
    }
    if (address - search->large.start < search->large.size) {
        *out = search->large;
        return true;
    }
    uint64_t floor = search->region_start;
    if (search->no_large > floor && search->no_large <= address) {
        floor = search->no_large;
    }
    if (!mmapped_chunk(&search->memory, search->region_end, floor, address,
                       out)) {
        search->no_large = address & ~(cl_memory_page(&search->memory) - 1);
        return false;
    }
    search->large = *out;
    return true;
}

static void
look_at(struct search *search, uint64_t address, struct cl_where *out)
{
    struct cl_chunk chunk;
    memset(out, 0, sizeof *out);
    out->address = address;
    out->place = CL_PLACE_UNMAPPED;
    if (!find_map(search, address)) {
        return;
    }
    if (cl_map_has_file(&search->map)) {
        out->place = CL_PLACE_IMAGE;
        return;
    }
    out->place = CL_PLACE_OTHER;
    if (find_pool(search, address)) {
        look_into_pool(search, out);
    } else if (find_chunk(search, address, &chunk)) {
        if (address - chunk.start < CL_CHUNK_HEADER) {
            out->place = CL_PLACE_CHUNK_HEADER;
        } else if (!chunk.in_use) {
            out->place = CL_PLACE_CHUNK_FREE;
        } else {
            look_into_chunk(search, out, &chunk);
        }
    }
}

int
cl_where(pid_t pid, const struct cl_object_layout *layout,
         const uint64_t *addresses, size_t n, struct cl_where *out)
{
    struct search *search = mmap(NULL, sizeof *search, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (search == MAP_FAILED) {
        return -errno;
    }
    search->layout = layout;
    search->pool_at = UINT64_MAX;
    int err = cl_proc_read(pid, "maps", &search->maps);
    if (err == 0) {
        (void)cl_brk_heap(search->maps.data, search->maps.len,
                          &search->heap_start, &search->heap_end);
        search->heap_at = search->heap_start;
        err = cl_memory_open(&search->memory, pid);
    }
    if (err == 0) {
        for (size_t i = 0; i < n; i++) {
            look_at(search, addresses[i], &out[i]);
        }
        err = cl_owner_find(&search->memory, layout, &search->maps, out, n);
    }
    cl_memory_close(&search->memory);
    cl_buf_release(&search->maps);
    munmap(search, sizeof *search);
    return err;
}

int
cl_where_pool_counts(pid_t pid, const uint64_t *addresses, size_t n,
                     uint32_t *out)
{
    int fd = cl_proc_open(pid, "mem", O_RDONLY);
    if (fd < 0) {
        return fd;
    }
    for (size_t i = 0; i < n; i++) {
        struct cl_pool_header header;
        uint64_t at = addresses[i] & ~(uint64_t)(CL_POOL_SIZE - 1);
        out[i] = UINT32_MAX;
        if (cl_mem_read(fd, at, &header, sizeof header) == 0 &&
            cl_pool_plausible(&header)) {
            out[i] = header.count;
        }
    }
    close(fd);
    return 0;
}

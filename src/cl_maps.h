/* /proc/PID/maps, parsed. No I/O here. */
#ifndef COWLAB_CL_MAPS_H
#define COWLAB_CL_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cl_map_perm {
    CL_MAP_READ = 1,
    CL_MAP_WRITE = 2,
    CL_MAP_EXEC = 4,
    CL_MAP_SHARED = 8, /* MAP_SHARED; else MAP_PRIVATE */
};

struct cl_map {
    uint64_t start, end; /* bytes, [start, end) */
    uint64_t offset;     /* into the file, bytes */
    uint64_t inode;
    uint32_t major, minor; /* of the device */
    uint32_t perms;        /* enum cl_map_perm */
    /* The rest of the line, a slice of the text that was parsed: a path,
     * "[heap]",
     * "[anon:NAME]". path_len 0: no path. Not null-terminated, may hold any
     * byte but a newline. */
    const char *path;
    size_t path_len;
};

/* Parse one header line of maps or smaps, without its newline. 0 or -EBADMSG.
 */
int cl_map_parse(const char *line, size_t len, struct cl_map *map);

/* Call next(&cursor, end, &map) until it returns 0: 1 a mapping, 0 the end,
 * -EBADMSG no such line, -ENODATA the text ends inside a line. On an error the
 * cursor stays at the line that was wrong. */
int cl_maps_next(const char **cursor, const char *end, struct cl_map *map);

/* Whether the path is exactly `name`, as "[heap]". */
bool cl_map_is(const struct cl_map *map, const char *name);

/* Whether the mapping has a file of its own, hugetlb and shared-memory files
 * included. The inode alone does not say: that of the first System V segment
 * is 0. */
bool cl_map_has_file(const struct cl_map *map);

#endif

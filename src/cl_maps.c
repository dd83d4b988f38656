/* /proc/PID/maps, parsed. */
#include <errno.h>
#include <string.h>

#include "cl_maps.h"
#include "cl_text.h"

static int
parse_perms(const char **at, const char *end, uint32_t *perms)
{
    static const char letters[] = "rwx";
    if (end - *at < 4) {
        return -EBADMSG;
    }
    const char *text = *at;
    *perms = 0;
    for (int i = 0; i < 3; i++) {
        if (text[i] == letters[i]) {
            *perms |= 1u << i;
        } else if (text[i] != '-') {
            return -EBADMSG;
        }
    }
    if (text[3] == 's') {
        *perms |= CL_MAP_SHARED;
    } else if (text[3] != 'p') {
        return -EBADMSG;
    }
    *at += 4;
    return 0;
}

static int
parse_device(const char **at, const char *end, struct cl_map *map)
{
    uint64_t major, minor;
    if (cl_take_hex(at, end, &major) < 0 || !cl_take(at, end, ':') ||
        cl_take_hex(at, end, &minor) < 0 || major > UINT32_MAX ||
        minor > UINT32_MAX) {
        return -EBADMSG;
    }
    map->major = (uint32_t)major;
    map->minor = (uint32_t)minor;
    return 0;
}

int
cl_map_parse(const char *line, size_t len, struct cl_map *map)
{
    const char *at = line;
    const char *end = line + len;
    if (cl_take_hex(&at, end, &map->start) < 0 || !cl_take(&at, end, '-') ||
        cl_take_hex(&at, end, &map->end) < 0 || map->end < map->start ||
        !cl_take(&at, end, ' ') || parse_perms(&at, end, &map->perms) < 0 ||
        !cl_take(&at, end, ' ') || cl_take_hex(&at, end, &map->offset) < 0 ||
        !cl_take(&at, end, ' ') || parse_device(&at, end, map) < 0 ||
        !cl_take(&at, end, ' ') || cl_take_u64(&at, end, &map->inode) < 0 ||
        (at < end && *at != ' ')) {
        return -EBADMSG;
    }
    /* Padded with spaces to a column; no path begins with one. */
    while (cl_take(&at, end, ' ')) {
    }
    map->path = at;
    map->path_len = (size_t)(end - at);
    return 0;
}

int
cl_maps_next(const char **cursor, const char *end, struct cl_map *map)
{
    if (*cursor >= end) {
        return 0;
    }
    const char *newline = cl_line_end(*cursor, end);
    if (newline == NULL) {
        return -ENODATA;
    }
    int err = cl_map_parse(*cursor, (size_t)(newline - *cursor), map);
    if (err < 0) {
        return err;
    }
    *cursor = newline + 1;
    return 1;
}

bool
cl_map_is(const struct cl_map *map, const char *name)
{
    return strlen(name) == map->path_len &&
           memcmp(map->path, name, map->path_len) == 0;
}

bool
cl_map_has_file(const struct cl_map *map)
{
    return map->inode != 0 || map->major != 0 || map->minor != 0;
}

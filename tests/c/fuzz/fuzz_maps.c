/* maps: any bytes give mappings inside the text, then one answer. */
#include <stdlib.h>

#include "cl_maps.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int
LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    const char *text = (const char *)data;
    const char *cursor = text;
    struct cl_map map;
    while (cl_maps_next(&cursor, text + size, &map) == 1) {
        if (map.end < map.start || map.path < text ||
            map.path + map.path_len > cursor) {
            abort();
        }
        cl_map_is(&map, "[heap]");
    }
    if (cursor < text || cursor > text + size) {
        abort();
    }
    return 0;
}

/* smaps: any bytes give records inside the text, then one answer. */
#include <stdlib.h>

#include "cl_smaps.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void
inside(const char *slice, size_t len, const char *text, size_t size)
{
    if (len > 0 && (slice < text || slice + len > text + size)) {
        abort();
    }
}

int
LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    const char *text = (const char *)data;
    struct cl_smaps record;
    const char *cursor = text;
    while (cl_smaps_next(&cursor, text + size, &record) == 1) {
        inside(record.map.path, record.map.path_len, text, size);
        inside(record.flags, record.flags_len, text, size);
    }
    if (cursor < text || cursor > text + size) {
        abort();
    }
    return 0;
}

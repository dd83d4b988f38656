/* A pool's 16 KiB, any bytes: recognised or not, and counts that add up. */
#include <stdlib.h>
#include <string.h>

#include "cl_pool.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int
LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    static const uint64_t address = 0x7f0000004000;
    unsigned char *bytes = calloc(1, CL_POOL_SIZE);
    if (bytes == NULL) {
        return 0;
    }
    memcpy(bytes, data, size < CL_POOL_SIZE ? size : CL_POOL_SIZE);
    /* Most random headers are refused at once: mend every second one. */
    if (size > 0 && data[size - 1] & 1) {
        struct cl_pool_header header;
        memcpy(&header, bytes, sizeof header);
        header.size_class %= CL_SIZE_CLASSES;
        uint32_t block = cl_pool_block_size(header.size_class);
        uint32_t capacity = cl_pool_capacity(header.size_class);
        header.count %= capacity + 1;
        header.max_next_offset = CL_POOL_SIZE - block;
        header.next_offset =
            CL_POOL_HEADER + block * (header.next_offset % (capacity + 1));
        if (header.freeblock != 0) {
            header.freeblock = address + CL_POOL_HEADER +
                               block * (header.freeblock % capacity);
        }
        memcpy(bytes, &header, sizeof header);
    }
    struct cl_pool pool;
    unsigned char blocks[1024];
    if (cl_pool_validate(bytes, address, &pool, blocks) == 0 &&
        pool.used + pool.free + pool.virgin + pool.retired != pool.capacity) {
        abort();
    }
    free(bytes);
    return 0;
}

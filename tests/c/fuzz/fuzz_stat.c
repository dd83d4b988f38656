/* stat: any bytes give an answer, and a name inside the text. */
#include <stdlib.h>

#include "cl_stat.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int
LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    const char *text = (const char *)data;
    struct cl_stat stat;
    if (cl_stat_parse(text, size, &stat) == 0 &&
        (stat.comm < text || stat.comm + stat.comm_len > text + size)) {
        abort();
    }
    return 0;
}

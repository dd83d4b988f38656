/* status: any bytes give an answer, and a name inside the text. */
#include <stdlib.h>

#include "cl_stat.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int
LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    const char *text = (const char *)data;
    struct cl_status status;
    if (cl_status_parse(text, size, &status) == 0 && status.name_len > 0 &&
        (status.name < text || status.name + status.name_len > text + size)) {
        abort();
    }
    return 0;
}

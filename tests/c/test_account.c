/* Fates of pages, and the identities, on readings that are made up. */
#include "check.h"
#include "cl_account.h"
#include "cl_pagemap.h"

enum {
    P = CL_PAGE_PRESENT,
    E = CL_PAGE_PRESENT | CL_PAGE_EXCLUSIVE,
    F = CL_PAGE_PRESENT | CL_PAGE_FILE,
    S = CL_PAGE_SWAPPED,
    Z = CL_PAGE_PRESENT | CL_PAGE_ZERO,
};

/* One page in each reading, in an order in which granules differ. */
struct row {
    uint64_t page;
    uint8_t base, before, witnessed, alone;
};

static const struct row rows[] = {
    {1, P, 0, P, P},          /* kept */
    {2, P, 0, E, E},          /* copied */
    {3, P, 0, P, E},          /* sole */
    {4, P, 0, 0, 0},          /* dropped: unmapped */
    {511, P, 0, F, F},        /* dropped: the file's page again */
    {512, P, 0, Z, Z},        /* dropped: read again as zeros */
    {513, P, 0, S, S},        /* unknown */
    {1024, S, 0, P, P},       /* unknown: was swapped */
    {1025, S, 0, E, E},       /* unknown: swapped in, by whom? */
    {5000, 0, 0, E, E},       /* fresh */
    {5001, 0, E, E, E},       /* private before and after */
    {5002, 0, E, 0, 0},       /* given back */
    {5003, 0, 0, F, F},       /* a file's page, read */
    {5004, Z, 0, E, E},       /* zeros, then written: fresh */
    {90000, 0, 0, P, P},      /* shared with a process of its own */
    {1ull << 35, P, 0, E, E}, /* copied, far away */
};

static void
put(struct cl_pages *pages, uint64_t page, uint8_t byte)
{
    if (byte != 0) {
        uint8_t kind = CL_KIND_ANONYMOUS << CL_PAGE_KIND_SHIFT;
        CHECK(cl_pages_put(pages, page, byte | kind) == 0);
    }
}

static void
test_fates(void)
{
    struct cl_pages base = {0}, before = {0}, witnessed = {0}, alone = {0};
    struct cl_pages left = {0};
    struct cl_tally tallies[CL_NKINDS];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put(&base, rows[i].page, rows[i].base);
        put(&before, rows[i].page, rows[i].before);
        put(&witnessed, rows[i].page, rows[i].witnessed);
        put(&alone, rows[i].page, rows[i].alone);
    }
    CHECK(cl_account(&base, &before, &witnessed, &alone, &left, tallies) == 0);
    struct cl_tally t = tallies[CL_KIND_ANONYMOUS];
    CHECK(t.inherited == 10);
    CHECK(t.kept == 1);
    CHECK(t.copied == 2);
    CHECK(t.sole == 1);
    CHECK(t.dropped == 3);
    CHECK(t.unknown == 3);
    CHECK(t.fresh == 1); /* two came, one was given back */
    CHECK(t.inherited == t.kept + t.copied + t.sole + t.dropped + t.unknown);
    CHECK(tallies[CL_KIND_PYMALLOC].inherited == 0);

    /* What is left open is the base of the next account. */
    struct cl_tally next[CL_NKINDS];
    CHECK(cl_account(&left, &alone, &witnessed, &alone, NULL, next) == 0);
    t = next[CL_KIND_ANONYMOUS];
    CHECK(t.inherited == 4);
    CHECK(t.kept == 1);
    CHECK(t.unknown == 3);
    CHECK(t.fresh == 0);
    cl_pages_release(&base);
    cl_pages_release(&before);
    cl_pages_release(&witnessed);
    cl_pages_release(&alone);
    cl_pages_release(&left);
}

/* Random states of random pages: the identity holds whatever they are. */
static void
test_identity(void)
{
    srand(1);
    for (int round = 0; round < 200; round++) {
        struct cl_pages readings[4] = {0};
        struct cl_tally tallies[CL_NKINDS];
        uint64_t page = 0;
        for (int i = 0; i < 300; i++) {
            page += 1 + (uint64_t)(rand() % (round < 100 ? 3 : 700));
            for (int k = 0; k < 4; k++) {
                uint8_t byte = (uint8_t)(rand() & 0x1f);
                uint8_t kind = (uint8_t)(rand() % CL_NKINDS);
                if (byte != 0) {
                    byte |= (uint8_t)(kind << CL_PAGE_KIND_SHIFT);
                    CHECK(cl_pages_put(&readings[k], page, byte) == 0);
                }
            }
        }
        CHECK(cl_account(&readings[0], &readings[1], &readings[2],
                         &readings[3], NULL, tallies) == 0);
        for (int k = 0; k < CL_NKINDS; k++) {
            struct cl_tally t = tallies[k];
            CHECK(t.inherited ==
                  t.kept + t.copied + t.sole + t.dropped + t.unknown);
        }
        for (int k = 0; k < 4; k++) {
            cl_pages_release(&readings[k]);
        }
    }
}

static int
find_third(void *context, uint64_t *addresses, size_t n)
{
    *(size_t *)context += n;
    for (size_t i = 0; i < n; i++) {
        if (addresses[i] / 16384 % 3 != 0) {
            addresses[i] = 0;
        }
    }
    return 0;
}

static void
test_pools_get_their_kind(void)
{
    struct cl_pages pages = {0};
    size_t asked = 0;
    size_t page_size = cl_page_size();
    uint64_t each = page_size < 16384 ? 16384 / page_size : 1;
    uint64_t first = 3 * each; /* 0 would be an answer */
    for (uint64_t page = first; page < first + 3000; page++) {
        put(&pages, page, P);
    }
    struct cl_pool_finder finder = {find_third, &asked};
    CHECK(cl_pages_mark_pools(&pages, NULL, &finder) == 0);
    CHECK(asked == 3000 / each);
    for (uint64_t page = first; page < first + 3000; page++) {
        uint8_t byte = cl_pages_at(&pages, page * page_size);
        bool is_pool = page * page_size / 16384 % 3 == 0;
        CHECK((cl_page_kind(byte) == CL_KIND_PYMALLOC) == is_pool);
        CHECK(cl_page_is_own(byte));
    }
    /* Known pages are not asked about again. */
    struct cl_pages later = {0};
    for (uint64_t page = first; page < first + 3000 + each; page++) {
        put(&later, page, P);
    }
    asked = 0;
    CHECK(cl_pages_mark_pools(&later, &pages, &finder) == 0);
    CHECK(asked == 1);
    CHECK(cl_page_kind(cl_pages_at(&later, first * page_size)) ==
          CL_KIND_PYMALLOC);
    cl_pages_release(&pages);
    cl_pages_release(&later);
}

static void
test_kinds_of_mappings(void)
{
    static const struct {
        const char *line;
        bool follows;
        int kind;
    } cases[] = {
        {"1000-2000 rw-p 00000000 00:00 0 [heap]", false, CL_KIND_HEAP},
        {"1000-2000 rw-p 00000000 00:00 0 [stack]", false, CL_KIND_STACK},
        {"1000-2000 r--p 00000000 00:00 0 [vvar]", false, -1},
        {"1000-2000 r-xp 00000000 00:00 0 [vdso]", false, -1},
        {"1000-2000 rw-p 00000000 00:00 0 ", false, CL_KIND_ANONYMOUS},
        {"1000-2000 rw-p 00000000 00:00 0 ", true, CL_KIND_IMAGE},
        {"1000-2000 rw-p 00000000 00:00 0 [anon:x]", true, CL_KIND_ANONYMOUS},
        {"1000-2000 rw-s 00000000 00:01 7 /dev/zero (deleted)", false, -1},
        {"1000-2000 rw-p 00000000 fe:01 7 /lib/x.so", false, CL_KIND_IMAGE},
        {"1000-2000 rw-p 00000000 00:0f 7 /anon_hugepage (deleted)", false,
         CL_KIND_ANONYMOUS},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cl_map map;
        CHECK(cl_map_parse(cases[i].line, strlen(cases[i].line), &map) == 0);
        CHECK(cl_map_kind(&map, cases[i].follows) == cases[i].kind);
    }
}

int
main(void)
{
    test_fates();
    test_identity();
    test_pools_get_their_kind();
    test_kinds_of_mappings();
    return check_failures();
}

/* symbol_test.c - names for addresses, in this process and in broken images. */
#include "watch/symbol.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/test.h"

static volatile int sink;

__attribute__((noinline)) static int symbol_test_static_function(int number)
{
    for (int i = 0; i < number; i++) sink += i;
    return sink;
}

/* A function of assembly code that says neither its type nor its size. */
__asm__(".pushsection .text\n"
        "symbol_test_bare_label:\n"
        "nop\nnop\nnop\nret\n"
        ".popsection\n");
extern const char symbol_test_bare_label[];

static void check_name(uintptr_t address, const char *name, size_t offset)
{
    struct symbol_table *table = malloc(sizeof *table);
    struct symbol symbol = {0};

    CHECK(table != NULL);
    symbol_table_init(table);
    for (int again = 0; again < 2; again++) { /* the second answer is a remembered one */
        CHECK_INT(symbol_find(table, address, &symbol), ==, 0);
        CHECK_STR(symbol.name, name);
        CHECK_INT(symbol.offset, ==, offset);
    }
    symbol_table_deinit(table);
    free(table);
}

TEST(symbol_static_function_is_named)
{
    uintptr_t address = (uintptr_t)symbol_test_static_function;

    CHECK_INT(symbol_test_static_function(0), ==, sink);
    check_name(address, "symbol_test_static_function", 0);
    check_name(address + 2, "symbol_test_static_function", 2);
}

TEST(symbol_module_of_the_program_is_its_file)
{
    struct symbol_table *table = malloc(sizeof *table);
    char path[PATH_MAX] = "";
    struct symbol symbol;

    CHECK(table != NULL);
    CHECK_INT(readlink("/proc/self/exe", path, sizeof path - 1), >, 0);
    symbol_table_init(table);
    CHECK_INT(symbol_find(table, (uintptr_t)symbol_test_static_function, &symbol), ==, 0);
    CHECK_STR(symbol.module, strrchr(path, '/') + 1);
    symbol_table_deinit(table);
    free(table);
}

TEST(symbol_label_without_a_size_is_named)
{
    check_name((uintptr_t)symbol_test_bare_label, "symbol_test_bare_label", 0);
    check_name((uintptr_t)symbol_test_bare_label + 2, "symbol_test_bare_label", 2);
}

TEST(symbol_library_function_is_named)
{
    struct symbol_table *table = malloc(sizeof *table);
    /* Not through its name: that may be an entry of our own linkage table. */
    uintptr_t address = (uintptr_t)dlsym(RTLD_NEXT, "getppid");
    struct symbol symbol;

    CHECK(table != NULL);
    symbol_table_init(table);
    if (address == 0) address = (uintptr_t)getppid; /* linked statically */
    CHECK_INT(symbol_find(table, address, &symbol), ==, 0);
    CHECK_STR(symbol.name, "getppid");
    CHECK_INT(symbol.offset, ==, 0);
    CHECK(strchr(symbol.module, '/') == NULL);
    CHECK(strncmp(symbol.module, "libc", 4) == 0 || address == (uintptr_t)getppid);
    symbol_table_deinit(table);
    free(table);
}

static int contains_address(struct dl_phdr_info *info, size_t info_bytes, void *arg)
{
    uintptr_t address = *(const uintptr_t *)arg - info->dlpi_addr;

    (void)info_bytes;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD && address - segment->p_vaddr < segment->p_memsz) return 1;
    }
    return 0;
}

TEST(symbol_kernel_function_is_named)
{
    struct symbol_table *table = malloc(sizeof *table);
    uintptr_t vdso = getauxval(AT_SYSINFO_EHDR);
    bool found = false;
    struct symbol symbol;

    if (vdso != 0 && dl_iterate_phdr(contains_address, &vdso) == 0)
        TEST_SKIP("the C library does not list the kernel's module: it is musl, linked statically");
    CHECK(table != NULL);
    symbol_table_init(table);
    for (uintptr_t address = vdso; vdso != 0 && !found; address += 4) {
        if (symbol_find(table, address, &symbol) < 0) break;
        CHECK_STR(symbol.module, "linux-vdso.so.1");
        found = symbol.name != NULL && strstr(symbol.name, "clock_gettime") != NULL;
    }
    CHECK(vdso == 0 || found); /* a kernel without one is fine */
    symbol_table_deinit(table);
    free(table);
}

TEST(symbol_bogus_address_is_in_no_module)
{
    struct symbol_table *table = malloc(sizeof *table);
    int on_stack = 0;
    uintptr_t bogus[] = {0, 1, 4096, (uintptr_t)&on_stack, (uintptr_t)table, UINTPTR_MAX};
    struct symbol symbol;

    CHECK(table != NULL);
    symbol_table_init(table);
    for (size_t i = 0; i < sizeof bogus / sizeof *bogus; i++)
        CHECK_INT(symbol_find(table, bogus[i], &symbol), ==, -ENOENT);
    symbol_table_deinit(table);
    symbol_table_deinit(NULL);
    free(table);
}

TEST(symbol_data_has_a_module_but_no_name)
{
    static int data = 1;
    struct symbol_table *table = malloc(sizeof *table);
    struct symbol symbol;
    char text[128];
    char expected[128];

    CHECK(table != NULL);
    symbol_table_init(table);
    CHECK_INT(symbol_find(table, (uintptr_t)&data, &symbol), ==, 0);
    CHECK(symbol.name == NULL);
    CHECK_INT(symbol.offset, ==, 0);
    snprintf(expected, sizeof expected, "0x%zx (%s+0x%zx)", (size_t)&data, symbol.module,
             symbol.module_offset);
    CHECK_INT(symbol_format(table, (uintptr_t)&data, text, sizeof text), ==, strlen(expected));
    CHECK_STR(text, expected);
    symbol_table_deinit(table);
    free(table);
}

TEST(symbol_format_writes_and_cuts)
{
    struct symbol_table *table = malloc(sizeof *table);
    uintptr_t address = (uintptr_t)symbol_test_static_function;
    struct symbol symbol;
    char text[256];
    char expected[256];

    CHECK(table != NULL);
    symbol_table_init(table);
    CHECK_INT(symbol_find(table, address, &symbol), ==, 0);
    snprintf(expected, sizeof expected, "symbol_test_static_function+0x3 (%s)", symbol.module);
    CHECK_INT(symbol_format(table, address + 3, text, sizeof text), ==, strlen(expected));
    CHECK_STR(text, expected);
    CHECK_INT(symbol_format(table, address + 3, text, 10), ==, strlen(expected));
    CHECK_STR(text, "symbol_te");
    CHECK_INT(symbol_format(table, address + 3, NULL, 0), ==, strlen(expected));
    symbol_format(table, address, text, sizeof text);
    CHECK(strstr(text, "symbol_test_static_function+0x0 (") == text);
    CHECK_INT(symbol_format(table, 0x1234, text, sizeof text), ==, 6);
    CHECK_STR(text, "0x1234");
    symbol_table_deinit(table);
    free(table);
}

TEST(symbol_table_holds_no_descriptor_and_unmaps_its_files)
{
    struct symbol_table *table = malloc(sizeof *table);
    const void *image;
    size_t image_bytes;
    int before = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int after;
    struct symbol symbol;

    CHECK(table != NULL);
    close(before);
    symbol_table_init(table);
    CHECK_INT(symbol_find(table, (uintptr_t)symbol_test_static_function, &symbol), ==, 0);
    after = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CHECK_INT(after, ==, before);
    close(after);
    image = table->modules[0].image;
    image_bytes = table->modules[0].image_bytes;
    CHECK_INT(msync((void *)(uintptr_t)image, image_bytes, MS_ASYNC), ==, 0);
    symbol_table_deinit(table);
    /* Valgrind knows that it is gone, and would report the question. */
    if (!sanitize_on_valgrind())
        CHECK_INT(msync((void *)(uintptr_t)image, image_bytes, MS_ASYNC), ==, -1);
    free(table);
}

static unsigned char *file_read(const char *path, size_t *ret_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    unsigned char *bytes;
    size_t done = 0;

    CHECK_INT(fd, >=, 0);
    CHECK_INT(fstat(fd, &status), ==, 0);
    bytes = malloc((size_t)status.st_size);
    CHECK(bytes != NULL);
    while (done < (size_t)status.st_size) {
        ssize_t n = read(fd, bytes + done, (size_t)status.st_size - done);
        CHECK_INT(n, >, 0);
        done += (size_t)n;
    }
    close(fd);
    *ret_bytes = done;
    return bytes;
}

static void file_write(const char *path, const void *bytes, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);

    CHECK_INT(fd, >=, 0);
    CHECK_INT(write(fd, bytes, size), ==, size);
    close(fd);
}

/* The path of a small library that lies beside the C library; false when there is none. */
static bool small_library_path(char *ret_path, size_t size)
{
    void *address = dlsym(RTLD_NEXT, "getppid");
    const char *slash;
    Dl_info libc;

    if (address == NULL || dladdr(address, &libc) == 0) return false;
    slash = strrchr(libc.dli_fname, '/');
    if (slash == NULL) return false;
    snprintf(ret_path, size, "%.*s/libdl.so.2", (int)(slash - libc.dli_fname), libc.dli_fname);
    return access(ret_path, R_OK) == 0;
}

/* An address in the library that has a name. */
static uintptr_t library_named_address(void *library)
{
    struct symbol_table *table = malloc(sizeof *table);
    struct link_map *map = NULL;
    uintptr_t address;
    struct symbol symbol;

    CHECK(table != NULL);
    symbol_table_init(table);
    CHECK_INT(dlinfo(library, RTLD_DI_LINKMAP, &map), ==, 0);
    for (address = map->l_addr;; address++) {
        CHECK_INT(symbol_find(table, address, &symbol), ==, 0);
        CHECK_STR(symbol.module, "library.so");
        if (symbol.name != NULL) break;
    }
    symbol_table_deinit(table);
    free(table);
    return address;
}

static void check_nameless(uintptr_t address, const char *module)
{
    struct symbol_table *table = malloc(sizeof *table);
    struct symbol symbol;

    CHECK(table != NULL);
    symbol_table_init(table);
    CHECK_INT(symbol_find(table, address, &symbol), ==, 0);
    CHECK(symbol.name == NULL);
    CHECK_STR(symbol.module, module);
    symbol_table_deinit(table);
    free(table);
}

/* An upgrade replaces a library under a running process: its names are another's. */
TEST(symbol_library_replaced_on_disk_gives_no_names)
{
    static const char build_id_note[16] = "\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU";
    char directory[] = "/tmp/weir-symbol-XXXXXX";
    char path[PATH_MAX];
    char other[PATH_MAX];
    unsigned char *bytes;
    unsigned char *note;
    size_t size;
    void *library;
    uintptr_t address;

    if (!small_library_path(path, sizeof path)) return; /* linked statically, or another libc */
    bytes = file_read(path, &size);
    CHECK(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/library.so", directory);
    snprintf(other, sizeof other, "%s/other.so", directory);
    file_write(path, bytes, size);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    address = library_named_address(library);

    /* One bit of the build id differs, nothing else. */
    note = memmem(bytes, size, build_id_note, sizeof build_id_note);
    CHECK(note != NULL);
    note[sizeof build_id_note] ^= 1;
    file_write(other, bytes, size);
    CHECK_INT(rename(other, path), ==, 0);
    check_nameless(address, "library.so");

    CHECK_INT(unlink(path), ==, 0);
    check_nameless(address, "library.so");
    CHECK_INT(dlclose(library), ==, 0);
    CHECK_INT(rmdir(directory), ==, 0);
    free(bytes);
}

/* In a process that loads it and never unloads it: its code is cut short as well. */
static void look_up_while_it_is_cut_short(void *arg)
{
    const char *path = arg;
    static struct symbol_table table;
    struct symbol before, after;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    uintptr_t address;

    CHECK(library != NULL);
    address = library_named_address(library);
    symbol_table_init(&table);
    CHECK_INT(symbol_find(&table, address, &before), ==, 0);
    CHECK(before.name != NULL);
    CHECK_INT(truncate(path, 0), ==, 0);
    for (uintptr_t i = 1; i < 3 * SYMBOL_RECENT_COUNT; i++) {
        CHECK_INT(symbol_find(&table, address + i, &after), ==, 0);
    }
    CHECK_INT(symbol_find(&table, address, &after), ==, 0);
    CHECK_STR(after.name, before.name);
    _exit(0);
}

/* A file that is written in place, as cp does, while a dump reads it. */
TEST(symbol_library_cut_short_during_a_dump_does_no_harm)
{
    char directory[] = "/tmp/weir-symbol-XXXXXX";
    char path[PATH_MAX], output[1024];
    unsigned char *bytes;
    size_t size;

    if (!small_library_path(path, sizeof path)) return; /* linked statically, or another libc */
    bytes = file_read(path, &size);
    CHECK(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/library.so", directory);
    file_write(path, bytes, size);
    CHECK_INT(test_child(look_up_while_it_is_cut_short, path, output, sizeof output), ==, 0);
    CHECK_INT(unlink(path), ==, 0);
    CHECK_INT(rmdir(directory), ==, 0);
    free(bytes);
}

/* A small image made by hand, with every kind of symbol. */
enum { SECTION_NONE, SECTION_TEXT, SECTION_DATA, SECTION_SYMBOLS, SECTION_STRINGS, SECTION_COUNT };
enum { SMALL_SYMBOLS_MAX = 16, SMALL_STRINGS_BYTES = 256 };

struct small_image {
    Elf64_Ehdr header;
    Elf64_Shdr sections[SECTION_COUNT];
    Elf64_Sym symbols[SMALL_SYMBOLS_MAX];
    char strings[SMALL_STRINGS_BYTES];
};

static void small_add(struct small_image *small, const char *name, unsigned char type,
                      uint16_t section, uint64_t start, uint64_t size)
{
    Elf64_Shdr *symbols = &small->sections[SECTION_SYMBOLS];
    Elf64_Shdr *strings = &small->sections[SECTION_STRINGS];

    small->symbols[symbols->sh_size / sizeof(Elf64_Sym)] = (Elf64_Sym){
        .st_name = (Elf64_Word)strings->sh_size,
        .st_info = ELF64_ST_INFO(STB_LOCAL, type),
        .st_shndx = section,
        .st_value = start,
        .st_size = size,
    };
    symbols->sh_size += sizeof(Elf64_Sym);
    strcpy(small->strings + strings->sh_size, name);
    strings->sh_size += strlen(name) + 1;
}

static void small_init(struct small_image *small, uint32_t symbols_type)
{
    memset(small, 0, sizeof *small);
    memcpy(small->header.e_ident, ELFMAG, SELFMAG);
    small->header.e_ident[EI_CLASS] = ELFCLASS64;
    small->header.e_ident[EI_DATA] = ELFDATA2LSB;
    small->header.e_ident[EI_VERSION] = EV_CURRENT;
    small->header.e_shoff = offsetof(struct small_image, sections);
    small->header.e_shentsize = sizeof(Elf64_Shdr);
    small->header.e_shnum = SECTION_COUNT;
    small->sections[SECTION_TEXT] = (Elf64_Shdr){
        .sh_type = SHT_PROGBITS, .sh_flags = SHF_EXECINSTR, .sh_addr = 0x1000, .sh_size = 0x1000};
    small->sections[SECTION_DATA] =
        (Elf64_Shdr){.sh_type = SHT_PROGBITS, .sh_addr = 0x3000, .sh_size = 0x1000};
    small->sections[SECTION_SYMBOLS] = (Elf64_Shdr){
        .sh_type = symbols_type,
        .sh_offset = offsetof(struct small_image, symbols),
        .sh_entsize = sizeof(Elf64_Sym),
        .sh_link = SECTION_STRINGS,
    };
    small->sections[SECTION_STRINGS] = (Elf64_Shdr){
        .sh_type = SHT_STRTAB, .sh_offset = offsetof(struct small_image, strings), .sh_size = 1};
    small_add(small, "_first", STT_FUNC, SECTION_TEXT, 0x1000, 0x100);
    small_add(small, "first", STT_FUNC, SECTION_TEXT, 0x1000, 0x100);
    small_add(small, "__first", STT_FUNC, SECTION_TEXT, 0x1000, 0x100);
    small_add(small, "inner", STT_FUNC, SECTION_TEXT, 0x1040, 0x10);
    small_add(small, "label", STT_NOTYPE, SECTION_TEXT, 0x1800, 0);
    small_add(small, "$x", STT_NOTYPE, SECTION_TEXT, 0x1810, 0);
    small_add(small, "object", STT_OBJECT, SECTION_TEXT, 0x1820, 8);
    small_add(small, "undefined", STT_FUNC, SHN_UNDEF, 0x1830, 0x10);
    small_add(small, "data", STT_FUNC, SECTION_DATA, 0x3000, 0x10);
    small_add(small, "", STT_FUNC, SECTION_TEXT, 0x1900, 0x10);
}

static const char *small_find(const struct small_image *small, uint64_t address)
{
    const char *name = NULL;
    uint64_t start;

    return symbol_image_find(small, sizeof *small, address, &name, &start) == 0 ? name : "-";
}

TEST(symbol_image_picks_the_innermost_and_plainest_name)
{
    struct small_image small;

    small_init(&small, SHT_SYMTAB);
    CHECK_STR(small_find(&small, 0xfff), "-");
    CHECK_STR(small_find(&small, 0x1000), "first");
    CHECK_STR(small_find(&small, 0x1040), "inner");
    CHECK_STR(small_find(&small, 0x1050), "first");
    CHECK_STR(small_find(&small, 0x10ff), "first");
    CHECK_STR(small_find(&small, 0x1100), "-"); /* behind a function of known size */
    CHECK_STR(small_find(&small, 0x17ff), "-");
    CHECK_STR(small_find(&small, 0x1800), "label");
    CHECK_STR(small_find(&small, 0x1838), "label"); /* not $x, object or undefined */
    CHECK_STR(small_find(&small, 0x1905), "-");
    CHECK_STR(small_find(&small, 0x3005), "-"); /* not code */
    CHECK_STR(small_find(&small, UINT64_MAX), "-");
}

TEST(symbol_image_without_symtab_uses_dynsym_and_guesses_nothing)
{
    struct small_image small;

    small_init(&small, SHT_DYNSYM);
    CHECK_STR(small_find(&small, 0x1001), "first");
    CHECK_STR(small_find(&small, 0x1800), "-");
    small.sections[SECTION_SYMBOLS].sh_type = SHT_PROGBITS;
    CHECK_STR(small_find(&small, 0x1001), "-");
}

TEST(symbol_image_with_bad_offsets_has_no_names)
{
    static const uint64_t bad[] = {1, sizeof(struct small_image), INT64_MAX, UINT64_MAX - 63,
                                   UINT64_MAX};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        for (int where = 0; where < 9; where++) {
            struct small_image small;
            small_init(&small, SHT_SYMTAB);
            switch (where) {
            case 0: small.header.e_shoff = bad[i]; break;
            case 1: small.header.e_shentsize = (Elf64_Half)bad[i]; break;
            case 2: small.sections[SECTION_SYMBOLS].sh_offset = bad[i] | 1 << 20; break;
            case 3: small.sections[SECTION_SYMBOLS].sh_size = bad[i] | 1 << 20; break;
            case 4: small.sections[SECTION_SYMBOLS].sh_link = (Elf64_Word)bad[i] | 1 << 20; break;
            case 5: small.sections[SECTION_SYMBOLS].sh_entsize = bad[i]; break;
            case 6: small.sections[SECTION_STRINGS].sh_offset = bad[i] | 1 << 20; break;
            case 7: small.sections[SECTION_STRINGS].sh_size = bad[i] | 1 << 20; break;
            case 8:
                for (int j = 0; j < SMALL_SYMBOLS_MAX; j++)
                    small.symbols[j].st_name = (Elf64_Word)bad[i] | 1 << 20;
                break;
            }
            CHECK_STR(small_find(&small, 0x1001), "-");
        }
    }
}

TEST(symbol_image_with_an_unended_string_has_no_name)
{
    struct small_image small;

    small_init(&small, SHT_SYMTAB);
    small.sections[SECTION_STRINGS].sh_size = 1 + strlen("_first") + 1 + strlen("fir");
    CHECK_STR(small_find(&small, 0x1001), "_first");
    small.sections[SECTION_STRINGS].sh_size = 1 + strlen("_fir");
    CHECK_STR(small_find(&small, 0x1001), "-");
}

/* Bytes that end where the mapping ends: reading one too many is a crash. */
struct fenced {
    unsigned char *mapping;
    size_t mapping_bytes;
    unsigned char *end;
};

static void fenced_init(struct fenced *fenced, size_t bytes_max)
{
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    size_t usable = (bytes_max + page_bytes - 1) / page_bytes * page_bytes;

    fenced->mapping_bytes = usable + page_bytes;
    fenced->mapping = mmap(NULL, fenced->mapping_bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(fenced->mapping != MAP_FAILED);
    fenced->end = fenced->mapping + usable;
    CHECK_INT(mprotect(fenced->end, page_bytes, PROT_NONE), ==, 0);
}

/* The look-up must come back, and a name it gives must lie inside and end there. */
static void fenced_look_up(const struct fenced *fenced, size_t size, uint64_t address)
{
    const char *name;
    uint64_t start;
    int r = symbol_image_find(fenced->end - size, size, address, &name, &start);

    CHECK(r == 0 || r == -ENOENT);
    if (r < 0) return;
    CHECK((const unsigned char *)name >= fenced->end - size);
    CHECK((const unsigned char *)name + strlen(name) < fenced->end);
    CHECK_INT(strlen(name), >, 0);
    CHECK(start <= address);
}

static uint64_t random_next(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

static void check_truncations(const void *bytes, size_t size, uint64_t address, size_t step)
{
    struct fenced fenced;

    fenced_init(&fenced, size);
    for (size_t length = 0; length <= size; length += step) {
        memcpy(fenced.end - length, bytes, length);
        fenced_look_up(&fenced, length, address);
    }
    munmap(fenced.mapping, fenced.mapping_bytes);
}

static void check_flips(const void *bytes, size_t size, uint64_t address, int rounds)
{
    struct fenced fenced;
    uint64_t seed = 5;

    fenced_init(&fenced, size);
    for (int i = 0; i < rounds; i++) {
        memcpy(fenced.end - size, bytes, size);
        for (uint64_t flips = 1 + random_next(&seed) % 16; flips > 0; flips--) {
            /* Half of them hit the header and what lies at the end, where section headers are. */
            size_t at = random_next(&seed) % size;
            if (random_next(&seed) % 4 == 0) at = random_next(&seed) % sizeof(Elf64_Ehdr);
            if (random_next(&seed) % 4 == 0) at = size - 1 - random_next(&seed) % (size / 4);
            fenced.end[(ptrdiff_t)at - (ptrdiff_t)size] = (unsigned char)random_next(&seed);
        }
        fenced_look_up(&fenced, size, address + random_next(&seed) % 64);
    }
    munmap(fenced.mapping, fenced.mapping_bytes);
}

TEST(symbol_image_made_by_hand_survives_truncation_and_flips)
{
    struct small_image small;

    small_init(&small, SHT_SYMTAB);
    check_truncations(&small, sizeof small, 0x1001, 1);
    check_flips(&small, sizeof small, 0x1030, 100000);
    check_flips(&small, sizeof small, 0x1800, 100000);
}

TEST(symbol_image_of_a_real_library_survives_truncation_and_flips)
{
    struct symbol_table *table = malloc(sizeof *table);
    uintptr_t vdso = getauxval(AT_SYSINFO_EHDR);
    struct symbol symbol;

    CHECK(table != NULL);
    symbol_table_init(table);
    if (vdso != 0 && symbol_find(table, vdso, &symbol) == 0) {
        const struct symbol_module *module = &table->modules[0];
        uint64_t inside = 0;
        for (uint64_t at = 0; at < module->image_bytes && inside == 0; at += 4) {
            if (symbol_find(table, vdso + at, &symbol) == 0 && symbol.name != NULL) inside = at;
        }
        CHECK(inside != 0);
        check_truncations(module->image, module->image_bytes, inside, 1);
        check_flips(module->image, module->image_bytes, inside, 30000);
    }
    symbol_table_deinit(table);
    free(table);
}

TEST(symbol_image_of_this_program_survives_truncation)
{
    struct symbol_table *table = malloc(sizeof *table);
    struct symbol symbol;
    const char *name;
    uint64_t start;
    unsigned char *bytes;
    size_t size;

    CHECK(table != NULL);
    symbol_table_init(table);
    CHECK_INT(symbol_find(table, (uintptr_t)symbol_test_static_function, &symbol), ==, 0);
    bytes = file_read("/proc/self/exe", &size);
    CHECK_INT(size, ==, table->modules[0].image_bytes);
    CHECK_INT(symbol_image_find(bytes, size, symbol.module_offset, &name, &start), ==, 0);
    CHECK_STR(name, "symbol_test_static_function");
    for (size_t length = 0; length < size; length += size / 200 + 1) {
        /* The section headers are the last part of what the linker writes. */
        CHECK_INT(symbol_image_find(bytes, length, symbol.module_offset, &name, &start), ==,
                  -ENOENT);
    }
    free(bytes);
    symbol_table_deinit(table);
    free(table);
}

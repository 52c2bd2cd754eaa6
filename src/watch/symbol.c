/* symbol.c - finds function names in ELF images; see elf(5) for the format.
 *
 * The first half reads an image and trusts nothing in it; the second half finds
 * the images of this process. */
#include "watch/symbol.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct image {
    const unsigned char *bytes;
    size_t size;
};

struct sections {
    uint64_t offset; /* of their headers */
    unsigned count;
};

struct candidate {
    uint64_t start;
    uint64_t size;
    uint32_t name_offset;
    unsigned section;
    bool found;
};

/* Copies out of the image, which guarantees neither alignment nor presence. */
static bool image_read(const struct image *image, uint64_t offset, void *ret_bytes, size_t size)
{
    if (offset > image->size || size > image->size - offset) return false;
    memcpy(ret_bytes, image->bytes + offset, size);
    return true;
}

static bool image_read_header(const struct image *image, Elf64_Ehdr *ret_header)
{
    static const unsigned char magic[] = {
        ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT,
    };

    return image_read(image, 0, ret_header, sizeof *ret_header) &&
           memcmp(ret_header->e_ident, magic, sizeof magic) == 0;
}

static bool sections_find(const struct image *image, struct sections *ret_sections)
{
    Elf64_Ehdr header;

    if (!image_read_header(image, &header) || header.e_shentsize != sizeof(Elf64_Shdr))
        return false;
    if (header.e_shoff == 0 || header.e_shoff > image->size) return false;
    *ret_sections = (struct sections){.offset = header.e_shoff, .count = header.e_shnum};
    return true;
}

static bool section_read(const struct image *image, const struct sections *sections, unsigned index,
                         Elf64_Shdr *ret_section)
{
    /* No overflow: the offset is within the image, the index has 16 bits. */
    return index < sections->count &&
           image_read(image, sections->offset + (uint64_t)index * sizeof *ret_section, ret_section,
                      sizeof *ret_section);
}

/* Whether the section's bytes lie within the image. */
static bool section_present(const struct image *image, const Elf64_Shdr *section)
{
    return section->sh_type != SHT_NOBITS && section->sh_offset <= image->size &&
           section->sh_size <= image->size - section->sh_offset;
}

static bool section_of_type(const struct image *image, const struct sections *sections,
                            uint32_t type, Elf64_Shdr *ret_section)
{
    for (unsigned i = 1; i < sections->count; i++) {
        if (!section_read(image, sections, i, ret_section)) return false;
        if (ret_section->sh_type == type) return section_present(image, ret_section);
    }
    return false;
}

/* The string at an offset of a string table; NULL when it does not end there. */
static const char *string_at(const struct image *image, const Elf64_Shdr *strings, uint32_t offset)
{
    const char *string;

    if (offset >= strings->sh_size) return NULL;
    string = (const char *)image->bytes + strings->sh_offset + offset;
    if (memchr(string, '\0', strings->sh_size - offset) == NULL) return NULL;
    return string;
}

/* Functions, and labels of assembly code, which often have neither type nor size. */
static bool symbol_is_code(const Elf64_Sym *symbol)
{
    unsigned type = ELF64_ST_TYPE(symbol->st_info);

    if (symbol->st_shndx == SHN_UNDEF || symbol->st_shndx >= SHN_LORESERVE) return false;
    return type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE;
}

/* Of names for one function the one with the fewest underscores in front is what
 * the user wrote: write, not __write. */
static bool name_is_plainer(const struct image *image, const Elf64_Shdr *strings, uint32_t offset,
                            uint32_t than_offset)
{
    const char *name = string_at(image, strings, offset);
    const char *than = string_at(image, strings, than_offset);

    if (name == NULL || name[0] == '\0') return false;
    if (than == NULL || than[0] == '\0') return true;
    return strspn(name, "_") < strspn(than, "_");
}

/* The section must hold code; a label without a size reaches to its end at most. */
static bool candidate_fits(const struct image *image, const struct sections *sections,
                           const struct candidate *candidate, uint64_t address)
{
    Elf64_Shdr section;

    if (!section_read(image, sections, candidate->section, &section)) return false;
    if ((section.sh_flags & SHF_EXECINSTR) == 0 || address < section.sh_addr) return false;
    return address - section.sh_addr < section.sh_size;
}

static void candidate_set(struct candidate *candidate, const Elf64_Sym *symbol)
{
    *candidate = (struct candidate){
        .start = symbol->st_value,
        .size = symbol->st_size,
        .name_offset = symbol->st_name,
        .section = symbol->st_shndx,
        .found = true,
    };
}

/* Mapping symbols ($x, $d) and local labels (.L...) mark places, not functions. */
static bool label_is_function(const struct image *image, const Elf64_Shdr *strings,
                              const Elf64_Sym *symbol)
{
    const char *name = string_at(image, strings, symbol->st_name);

    return name != NULL && name[0] != '\0' && name[0] != '$' && name[0] != '.';
}

/* Goes through the table once. `around` is the innermost function that has a size
 * and contains the address. `below` is the nearest start at or below it: without
 * a function around, the address belongs to it if it is a label without a size. */
static bool table_search(const struct image *image, const struct sections *sections,
                         const Elf64_Shdr *table, const Elf64_Shdr *strings, uint64_t address,
                         struct candidate *ret_found)
{
    struct candidate around = {0};
    struct candidate below = {0};
    const unsigned char *at = image->bytes + table->sh_offset;

    for (uint64_t left = table->sh_size / sizeof(Elf64_Sym); left > 0; left--) {
        Elf64_Sym symbol;
        memcpy(&symbol, at, sizeof symbol);
        at += sizeof symbol;
        if (symbol.st_value > address || !symbol_is_code(&symbol)) continue;
        if (address - symbol.st_value < symbol.st_size) {
            if (!around.found || symbol.st_value > around.start ||
                (symbol.st_value == around.start &&
                 name_is_plainer(image, strings, symbol.st_name, around.name_offset)))
                candidate_set(&around, &symbol);
        } else if (!below.found || symbol.st_value > below.start ||
                   (symbol.st_value == below.start && symbol.st_size != 0)) {
            if (symbol.st_size != 0 || label_is_function(image, strings, &symbol))
                candidate_set(&below, &symbol);
        }
    }
    *ret_found = around.found ? around : below;
    if (!ret_found->found) return false;
    /* The dynamic table lists too few functions to guess where a label ends. */
    if (!around.found && (below.size != 0 || table->sh_type != SHT_SYMTAB)) return false;
    return candidate_fits(image, sections, ret_found, address);
}

int symbol_image_find(const void *image_start, size_t image_bytes, uint64_t address,
                      const char **ret_name, uint64_t *ret_start)
{
    const struct image image = {.bytes = image_start, .size = image_bytes};
    struct sections sections;
    struct candidate found;
    Elf64_Shdr table;
    Elf64_Shdr strings;
    const char *name;

    if (!sections_find(&image, &sections)) return -ENOENT;
    if (!section_of_type(&image, &sections, SHT_SYMTAB, &table) &&
        !section_of_type(&image, &sections, SHT_DYNSYM, &table))
        return -ENOENT;
    if (table.sh_entsize != sizeof(Elf64_Sym)) return -ENOENT;
    if (!section_read(&image, &sections, table.sh_link, &strings) ||
        strings.sh_type != SHT_STRTAB || !section_present(&image, &strings))
        return -ENOENT;
    if (!table_search(&image, &sections, &table, &strings, address, &found)) return -ENOENT;
    name = string_at(&image, &strings, found.name_offset);
    if (name == NULL || name[0] == '\0') return -ENOENT;
    *ret_name = name;
    *ret_start = found.start;
    return 0;
}

/* What dl_iterate_phdr() is asked for, and its answer. The headers stay valid
 * only while its lock is held, so the module is set up inside of the callback. */
struct module_search {
    uintptr_t address;
    struct symbol_module *module;
};

/* The extent of the loaded segments; false when there are none. */
static bool module_set_range(struct symbol_module *module, const struct dl_phdr_info *info)
{
    module->low = UINTPTR_MAX;
    module->high = 0;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const Elf64_Phdr *segment = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + segment->p_vaddr;
        if (segment->p_type != PT_LOAD) continue;
        if (start < module->low) module->low = start;
        if (start + segment->p_memsz > module->high) module->high = start + segment->p_memsz;
    }
    return module->low < module->high;
}

static void module_set_name(struct symbol_module *module, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    size_t length = strnlen(name, sizeof module->name - 1);

    memcpy(module->name, name, length);
    module->name[length] = '\0';
}

/* The program's name; the kernel marks a file that is gone. */
static void module_set_program_name(struct symbol_module *module)
{
    static const char gone[] = " (deleted)";
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    const char *started_as = (const char *)getauxval(AT_EXECFN);

    if (length <= 0) {
        module_set_name(module, started_as != NULL ? started_as : "program");
        return;
    }
    path[length] = '\0';
    if ((size_t)length >= sizeof gone && strcmp(path + length - (sizeof gone - 1), gone) == 0)
        path[(size_t)length - (sizeof gone - 1)] = '\0';
    module_set_name(module, path);
}

/* ---- A file, copied ----
 *
 * Never mapped: a file that is cut short while it is mapped takes the process with it.
 * The copy has every byte at its place in the file, but only those that are looked at
 * are read; the rest is memory that was never touched, and zeros to whoever looks. */

static void copy_range(int fd, const struct image *image, uint64_t offset, uint64_t bytes)
{
    unsigned char *at = (unsigned char *)(uintptr_t)image->bytes + offset;

    if (offset > image->size || bytes > image->size - offset || bytes > SYMBOL_COPY_BYTES_MAX)
        return;
    while (bytes > 0) {
        ssize_t n = pread(fd, at, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return;
        at += n;
        offset += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
}

/* What tells whether it is the file that was loaded. */
static void copy_identity(int fd, const struct image *image, const Elf64_Ehdr *header)
{
    copy_range(fd, image, header->e_phoff, (uint64_t)header->e_phnum * sizeof(Elf64_Phdr));
    for (unsigned i = 0; i < header->e_phnum; i++) {
        Elf64_Phdr segment;
        if (header->e_phoff > image->size ||
            !image_read(image, header->e_phoff + i * sizeof segment, &segment, sizeof segment))
            return;
        if (segment.p_type == PT_NOTE) copy_range(fd, image, segment.p_offset, segment.p_filesz);
    }
}

/* What names are looked up in. */
static void copy_symbols(int fd, const struct image *image, const Elf64_Ehdr *header)
{
    struct sections sections;

    copy_range(fd, image, header->e_shoff, (uint64_t)header->e_shnum * sizeof(Elf64_Shdr));
    if (!sections_find(image, &sections)) return;
    for (unsigned i = 1; i < sections.count; i++) {
        Elf64_Shdr table, strings;
        if (!section_read(image, &sections, i, &table)) return;
        if (table.sh_type != SHT_SYMTAB && table.sh_type != SHT_DYNSYM) continue;
        copy_range(fd, image, table.sh_offset, table.sh_size);
        if (section_read(image, &sections, table.sh_link, &strings))
            copy_range(fd, image, strings.sh_offset, strings.sh_size);
    }
}

static void module_copy(struct symbol_module *module, const char *path)
{
    struct image image;
    struct stat status;
    Elf64_Ehdr header;
    void *memory;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

    if (fd < 0) return;
    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || status.st_size <= 0) goto out;
    memory = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) goto out;
    image = (struct image){.bytes = memory, .size = (size_t)status.st_size};
    module->image = memory;
    module->image_bytes = image.size;
    module->mapped = 1;
    copy_range(fd, &image, 0, sizeof header);
    if (image_read_header(&image, &header)) {
        copy_identity(fd, &image, &header);
        copy_symbols(fd, &image, &header);
    }
out:
    close(fd);
}

static void module_unmap(struct symbol_module *module)
{
    if (module->mapped) munmap((void *)(uintptr_t)module->image, module->image_bytes);
    module->image = NULL;
    module->image_bytes = 0;
    module->mapped = 0;
}

/* Whether the notes of a segment (among them the build id) are in the file as they
 * are in memory. Only those inside of a readable segment can be compared. */
static bool notes_match(const struct image *image, const struct dl_phdr_info *info,
                        const Elf64_Phdr *notes)
{
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const Elf64_Phdr *load = &info->dlpi_phdr[i];
        if (load->p_type != PT_LOAD || (load->p_flags & PF_R) == 0) continue;
        if (notes->p_vaddr < load->p_vaddr || notes->p_filesz > load->p_filesz ||
            notes->p_vaddr - load->p_vaddr > load->p_filesz - notes->p_filesz)
            continue;
        if (notes->p_offset > image->size || notes->p_filesz > image->size - notes->p_offset)
            return false;
        return memcmp(image->bytes + notes->p_offset,
                      (const void *)(info->dlpi_addr + notes->p_vaddr), notes->p_filesz) == 0;
    }
    return true;
}

/* Whether the file is the one that was loaded: same program headers, same notes.
 * A package upgrade puts another file under the name. */
static bool module_is_loaded_file(const struct symbol_module *module,
                                  const struct dl_phdr_info *info)
{
    const struct image image = {.bytes = module->image, .size = module->image_bytes};
    Elf64_Ehdr header;

    if (!image_read_header(&image, &header) || header.e_phnum != info->dlpi_phnum) return false;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const Elf64_Phdr *loaded = &info->dlpi_phdr[i];
        Elf64_Phdr segment;
        if (header.e_phoff > image.size ||
            !image_read(&image, header.e_phoff + i * sizeof segment, &segment, sizeof segment))
            return false;
        if (memcmp(&segment, loaded, sizeof segment) != 0) return false;
        if (segment.p_type == PT_NOTE && !notes_match(&image, info, &segment)) return false;
    }
    return true;
}

/* The kernel's own module is no file, but its whole image is in memory, section
 * headers included, mostly behind the end of its segment. */
static void module_use_vdso(struct symbol_module *module, uintptr_t start)
{
    uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    size_t bytes = (module->high - start + page_bytes - 1) & ~(page_bytes - 1);
    unsigned char resident[16];
    Elf64_Ehdr header;
    uint64_t wanted;

    module->image = (const void *)start;
    module->image_bytes = bytes;
    memcpy(&header, module->image, sizeof header);
    wanted = header.e_shoff + (uint64_t)header.e_shnum * sizeof(Elf64_Shdr);
    /* mincore fails when a page of the range is not mapped. */
    if (wanted > bytes && wanted <= page_bytes * sizeof resident &&
        mincore((void *)start, wanted, resident) == 0)
        module->image_bytes = wanted;
}

/* The program has no name; in a static program of musl it has this one. */
static bool is_program_name(const char *name)
{
    return name == NULL || name[0] == '\0' || strcmp(name, "/proc/self/exe") == 0;
}

static int module_visit(struct dl_phdr_info *info, size_t info_bytes, void *data)
{
    struct module_search *search = data;
    struct symbol_module module = {.bias = info->dlpi_addr};
    uintptr_t vdso = getauxval(AT_SYSINFO_EHDR);
    bool is_program = is_program_name(info->dlpi_name);

    (void)info_bytes;
    if (!module_set_range(&module, info)) return 0;
    if (search->address < module.low || search->address >= module.high) return 0;

    if (vdso >= module.low && vdso < module.high) {
        module_set_name(&module, "linux-vdso.so.1");
        module_use_vdso(&module, vdso);
    } else {
        if (is_program)
            module_set_program_name(&module);
        else
            module_set_name(&module, info->dlpi_name);
        module_copy(&module, is_program ? "/proc/self/exe" : info->dlpi_name);
        if (module.image_bytes > 0 && !module_is_loaded_file(&module, info)) module_unmap(&module);
    }
    *search->module = module;
    return 1;
}

static struct symbol_module *module_find(struct symbol_table *table, uintptr_t address)
{
    struct module_search search = {.address = address};

    for (unsigned i = 0; i < table->module_count; i++) {
        struct symbol_module *module = &table->modules[i];
        if (address >= module->low && address < module->high) return module;
    }
    if (table->module_count == SYMBOL_MODULES_MAX) return NULL;
    search.module = &table->modules[table->module_count];
    if (dl_iterate_phdr(module_visit, &search) != 1) return NULL;
    table->module_count++;
    return search.module;
}

static struct symbol_recent *recent_entry(struct symbol_table *table, uintptr_t address)
{
    uint64_t mixed = (uint64_t)address * UINT64_C(0x9e3779b97f4a7c15);

    return &table->recent[(mixed >> 32) % SYMBOL_RECENT_COUNT];
}

void symbol_table_init(struct symbol_table *table)
{
    memset(table, 0, sizeof *table);
}

void symbol_table_deinit(struct symbol_table *table)
{
    if (table == NULL) return;
    for (unsigned i = 0; i < table->module_count; i++) module_unmap(&table->modules[i]);
    memset(table, 0, sizeof *table);
}

int symbol_find(struct symbol_table *table, uintptr_t address, struct symbol *ret_symbol)
{
    struct symbol_recent *recent = recent_entry(table, address);
    struct symbol_module *module;
    const char *name = NULL;
    uint64_t start = 0;

    if (recent->module == 0 || recent->address != address) {
        module = module_find(table, address);
        if (module == NULL) return -ENOENT;
        if (module->image_bytes == 0 ||
            symbol_image_find(module->image, module->image_bytes, address - module->bias, &name,
                              &start) < 0)
            start = address - module->bias;
        *recent = (struct symbol_recent){
            .address = address,
            .name = name,
            .offset = address - module->bias - start,
            .module = (unsigned)(module - table->modules) + 1,
        };
    }
    module = &table->modules[recent->module - 1];
    *ret_symbol = (struct symbol){
        .name = recent->name,
        .offset = recent->offset,
        .module = module->name,
        .module_offset = address - module->bias,
    };
    return 0;
}

int symbol_format(struct symbol_table *table, uintptr_t address, char *buf, size_t size)
{
    struct symbol symbol;

    if (symbol_find(table, address, &symbol) < 0)
        return snprintf(buf, size, "0x%zx", (size_t)address);
    if (symbol.name == NULL)
        return snprintf(buf, size, "0x%zx (%s+0x%zx)", (size_t)address, symbol.module,
                        symbol.module_offset);
    return snprintf(buf, size, "%s+0x%zx (%s)", symbol.name, symbol.offset, symbol.module);
}

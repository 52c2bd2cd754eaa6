/* symbol.h - from an address in this process to the function that contains it.
 *
 * Names come from the ELF files of the loaded modules: .symtab where there is
 * one, so that static functions have names too; else .dynsym; else the answer is
 * the module and an offset. A function of known size is named only for addresses
 * inside of it: a wrong name is worse than none.
 *
 * A table is meant to live for one dump: it copies what it needs of the files of the
 * modules that were asked for and remembers recent answers. Modules unloaded in between are
 * not noticed.
 *
 * Invariants: no allocation, but a mapping for each module; every offset and index of a
 * file is checked before it is followed, and the file itself is only read, so that one
 * that is corrupt, or is written meanwhile, gives no names instead of a crash; a
 * file that is not the one that was loaded (replaced by an upgrade) is not used;
 * the program's own file is reached through /proc/self/exe and is therefore found
 * even when it was replaced or deleted.
 * Threads: one at a time for each table. Not for signal handlers:
 * dl_iterate_phdr() takes a lock of the dynamic linker.
 */
#ifndef WEIR_WATCH_SYMBOL_H
#define WEIR_WATCH_SYMBOL_H

#include <stddef.h>
#include <stdint.h>

enum {
    SYMBOL_MODULES_MAX = 64, /* modules with an address looked up, not modules loaded */
    SYMBOL_MODULE_NAME_BYTES = 64,
    SYMBOL_RECENT_COUNT = 256,
    SYMBOL_COPY_BYTES_MAX = 256 * 1024 * 1024, /* of one table of a file; longer: no names */
};

struct symbol {
    const char *name;     /* NULL when the module has none for the address */
    size_t offset;        /* from the function's start; 0 without a name */
    const char *module;   /* the file's name without its directory */
    size_t module_offset; /* the address as the module's file knows it */
};

struct symbol_module {
    uintptr_t low; /* the module's segments lie in [low, high) */
    uintptr_t high;
    uintptr_t bias; /* address = bias + address in the file */
    const void *image;
    size_t image_bytes; /* 0: no usable file, no names */
    int mapped;         /* the image is ours to unmap */
    char name[SYMBOL_MODULE_NAME_BYTES];
};

/* A finished look-up, kept because parked tasks share most of their frames. */
struct symbol_recent {
    uintptr_t address;
    const char *name;
    size_t offset;
    unsigned module; /* index + 1; 0 marks an empty entry */
};

struct symbol_table {
    unsigned module_count;
    struct symbol_module modules[SYMBOL_MODULES_MAX];
    struct symbol_recent recent[SYMBOL_RECENT_COUNT];
};

/* Some 15 KiB: do not put one on a small task stack. */
void symbol_table_init(struct symbol_table *table);
void symbol_table_deinit(struct symbol_table *table);

/* Finds what contains the address. For a return address pass the address - 1: a
 * call that never returns may be the last instruction of its function. 0 when a
 * module was found, with or without a name; -ENOENT when the address is in none.
 * The strings live until symbol_table_deinit(). */
int symbol_find(struct symbol_table *table, uintptr_t address, struct symbol *ret_symbol);

/* Writes "function+0x1c (module)", "0x5581f234 (module+0x234)", or "0x1234" when
 * the address is in no module. Cut to size with a final NUL; gives back the whole
 * length, as snprintf does. */
int symbol_format(struct symbol_table *table, uintptr_t address, char *buf, size_t size);

/* The same on the bytes of an ELF file: the function that contains the address
 * (in the file's own terms), and where it starts. 0, or -ENOENT when the image has
 * no name for it, whatever the reason. The name points into the image. */
int symbol_image_find(const void *image, size_t image_bytes, uint64_t address,
                      const char **ret_name, uint64_t *ret_start);

#endif

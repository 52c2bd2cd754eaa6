/* unwind.c - call frame information, read and carried out.
 *
 * The format: "DWARF Debugging Information Format" (version 5), section 6.4, and the
 * "Linux Standard Base Core Specification", chapter "Exception Frames", for .eh_frame and
 * .eh_frame_hdr. Only what compilers and the C library emit for C is here; anything else
 * ends the backtrace.
 */
#include "watch/unwind.h"

#include <link.h>
#include <stdbool.h>
#include <string.h>

enum {
    SAVED_STATES_MAX = 8, /* DW_CFA_remember_state */
    EXPRESSION_DEPTH_MAX = 16,
    EXPRESSION_STEPS_MAX = 64,
};

/* Whether return addresses may be signed on this processor. */
#if defined(__aarch64__)
#define UNWIND_SIGNS true
#else
#define UNWIND_SIGNS false
#endif

/* Where a register of the caller is found. */
enum rule_kind {
    RULE_SAME,
    RULE_UNDEFINED,
    RULE_AT_OFFSET, /* in memory at CFA + value */
    RULE_OFFSET,    /* is CFA + value */
    RULE_REGISTER,
    RULE_AT_EXPRESSION,
    RULE_EXPRESSION,
};

struct rule {
    enum rule_kind kind;
    int64_t value;              /* offset, or register */
    const unsigned char *begin; /* of an expression, after its length */
    const unsigned char *end;
};

struct rules {
    struct rule cfa; /* RULE_OFFSET: register `cfa_register` + value; or RULE_EXPRESSION */
    unsigned cfa_register;
    struct rule registers[UNWIND_REGISTERS];
    bool is_signed; /* the return address carries a signature */
};

/* The module that contains an address. Valid while dl_iterate_phdr() runs. */
struct module {
    uintptr_t low, high; /* of its segments */
    const unsigned char *header;
    const unsigned char *header_end;
};

/* One entry of .eh_frame with its common part. */
struct entry {
    uintptr_t function;
    uintptr_t function_end;
    uint64_t code_alignment;
    int64_t data_alignment;
    unsigned return_column;
    bool signal_frame;
    const unsigned char *initial, *initial_end;
    const unsigned char *program, *program_end;
};

struct frame {
    const struct unwind_start *start;
    uintptr_t pc;
    bool exact; /* the pc is the next instruction: of an interrupted frame */
    uintptr_t registers[UNWIND_REGISTERS];
    uint64_t known; /* bits: registers whose value is known */
    uintptr_t cfa_before;
    /* What a step finds out. */
    uintptr_t function;
    bool stepped;
};

/* ---- Reading, within bounds ---- */

struct reader {
    const unsigned char *at, *end;
    bool bad;
};

static uint64_t read_bytes(struct reader *reader, unsigned count)
{
    uint64_t value = 0;

    if ((size_t)(reader->end - reader->at) < count) {
        reader->bad = true;
        reader->at = reader->end;
        return 0;
    }
    for (unsigned i = 0; i < count; i++) value |= (uint64_t)reader->at[i] << (8 * i);
    reader->at += count;
    return value;
}

static int64_t sign_extended(uint64_t value, unsigned bits)
{
    uint64_t sign = UINT64_C(1) << (bits - 1);
    return (int64_t)((value ^ sign) - sign);
}

static uint64_t read_uleb(struct reader *reader)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint64_t byte = read_bytes(reader, 1);
        value |= (byte & 0x7f) << shift;
        if (!(byte & 0x80)) return value;
    }
    reader->bad = true;
    return 0;
}

static int64_t read_sleb(struct reader *reader)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint64_t byte = read_bytes(reader, 1);
        value |= (byte & 0x7f) << shift;
        if (byte & 0x80) continue;
        return shift + 7 < 64 ? sign_extended(value, shift + 7) : (int64_t)value;
    }
    reader->bad = true;
    return 0;
}

static void skip(struct reader *reader, uint64_t bytes)
{
    if (bytes > (uint64_t)(reader->end - reader->at)) {
        reader->bad = true;
        bytes = 0;
    }
    reader->at += bytes;
}

/* A pointer in one of the encodings DW_EH_PE_*; `data` is what "datarel" is relative to. */
static uintptr_t read_pointer(struct reader *reader, unsigned encoding, uintptr_t data)
{
    uintptr_t base = 0;
    uintptr_t here = (uintptr_t)reader->at;
    uint64_t value;

    switch (encoding & 0x70) {
    case 0x00: break;
    case 0x10: base = here; break;
    case 0x30: base = data; break;
    default: reader->bad = true; return 0;
    }
    switch (encoding & 0x0f) {
    case 0x00:
    case 0x04:
    case 0x0c: value = read_bytes(reader, 8); break;
    case 0x01: value = read_uleb(reader); break;
    case 0x02: value = read_bytes(reader, 2); break;
    case 0x03: value = read_bytes(reader, 4); break;
    case 0x09: value = (uint64_t)read_sleb(reader); break;
    case 0x0a: value = (uint64_t)sign_extended(read_bytes(reader, 2), 16); break;
    case 0x0b: value = (uint64_t)sign_extended(read_bytes(reader, 4), 32); break;
    default: reader->bad = true; return 0;
    }
    return base + (uintptr_t)value;
}

static bool read_stack(const struct unwind_start *start, uintptr_t address, uintptr_t *ret_value)
{
    size_t at = address - start->low;

    if (address < start->low || start->bytes < sizeof *ret_value ||
        at > start->bytes - sizeof *ret_value) {
        return false;
    }
    memcpy(ret_value, start->copy + at, sizeof *ret_value);
    return true;
}

/* ---- Finding the entry of an address ---- */

static bool in_module(const struct module *module, const unsigned char *at)
{
    return (uintptr_t)at >= module->low && (uintptr_t)at < module->high;
}

/* One record of .eh_frame from its length on; the reader is left behind the length. */
static bool open_record(const struct module *module, const unsigned char *at,
                        struct reader *ret_reader)
{
    uint64_t bytes;

    if (!in_module(module, at)) return false;
    *ret_reader = (struct reader){at, (const unsigned char *)module->high, false};
    bytes = read_bytes(ret_reader, 4);
    if (bytes == 0xffffffff) bytes = read_bytes(ret_reader, 8);
    if (ret_reader->bad || bytes == 0 || bytes > (uint64_t)(ret_reader->end - ret_reader->at)) {
        return false;
    }
    ret_reader->end = ret_reader->at + bytes;
    return true;
}

/* The letters behind 'z': only those that compilers of C use. */
static bool read_augmentation(struct reader *reader, const char *letters, struct entry *entry,
                              unsigned *ret_encoding)
{
    for (; *letters; letters++) {
        switch (*letters) {
        case 'R': *ret_encoding = (unsigned)read_bytes(reader, 1); break;
        case 'L': (void)read_bytes(reader, 1); break;
        case 'P': {
            /* Its value is of no interest, and may be indirect. */
            unsigned encoding = (unsigned)read_bytes(reader, 1);
            (void)read_pointer(reader, encoding & 0x0f, 0);
            break;
        }
        case 'S': entry->signal_frame = true; break;
        case 'B': break;
        default: return false;
        }
    }
    return !reader->bad;
}

static bool read_common(const struct module *module, const unsigned char *at, struct entry *entry,
                        unsigned *ret_encoding, bool *ret_augmented)
{
    struct reader reader;
    const char *letters;
    unsigned version;
    uint64_t bytes;
    struct reader augmentation;

    if (!open_record(module, at, &reader) || read_bytes(&reader, 4) != 0) return false;
    version = (unsigned)read_bytes(&reader, 1);
    letters = (const char *)reader.at;
    while (!reader.bad && read_bytes(&reader, 1) != 0) {}
    if (reader.bad || (version != 1 && version != 3)) return false;
    entry->code_alignment = read_uleb(&reader);
    entry->data_alignment = read_sleb(&reader);
    entry->return_column = (unsigned)(version == 1 ? read_bytes(&reader, 1) : read_uleb(&reader));
    *ret_encoding = 0;
    *ret_augmented = letters[0] == 'z';
    if (*ret_augmented) {
        bytes = read_uleb(&reader);
        augmentation = reader;
        skip(&reader, bytes);
        augmentation.end = reader.at;
        if (reader.bad || !read_augmentation(&augmentation, letters + 1, entry, ret_encoding)) {
            return false;
        }
    } else if (letters[0]) {
        return false;
    }
    entry->initial = reader.at;
    entry->initial_end = reader.end;
    return !reader.bad && entry->return_column < UNWIND_REGISTERS;
}

static bool read_entry(const struct module *module, const unsigned char *at, struct entry *entry)
{
    struct reader reader;
    const unsigned char *common;
    unsigned encoding;
    bool augmented;

    memset(entry, 0, sizeof *entry);
    if (!open_record(module, at, &reader)) return false;
    common = reader.at;
    common -= read_bytes(&reader, 4);
    if (reader.bad || common == reader.at - 4) return false;
    if (!read_common(module, common, entry, &encoding, &augmented)) return false;
    entry->function = read_pointer(&reader, encoding, 0);
    entry->function_end = entry->function + read_pointer(&reader, encoding & 0x0f, 0);
    if (augmented) skip(&reader, read_uleb(&reader));
    entry->program = reader.at;
    entry->program_end = reader.end;
    return !reader.bad;
}

/* By the sorted table that the linker has made. */
static bool find_entry(const struct module *module, uintptr_t address, struct entry *ret_entry)
{
    enum {
        TABLE_ENCODING = 0x3b,
        ROW_BYTES = 8
    }; /* datarel, 4 bytes with a sign: what ld writes */
    struct reader reader = {module->header, module->header_end, false};
    uintptr_t base = (uintptr_t)module->header;
    unsigned encodings[3];
    uint64_t count;
    uint64_t low = 0;
    const unsigned char *rows;

    if (read_bytes(&reader, 1) != 1) return false;
    for (int i = 0; i < 3; i++) encodings[i] = (unsigned)read_bytes(&reader, 1);
    (void)read_pointer(&reader, encodings[0], base);
    count = read_pointer(&reader, encodings[1], base);
    rows = reader.at;
    if (reader.bad || encodings[2] != TABLE_ENCODING || count == 0 ||
        count > (uint64_t)(reader.end - rows) / ROW_BYTES) {
        return false;
    }
    for (uint64_t high = count; high - low > 1;) {
        uint64_t middle = low + (high - low) / 2;
        reader.at = rows + middle * ROW_BYTES;
        if (read_pointer(&reader, TABLE_ENCODING, base) <= address) {
            low = middle;
        } else {
            high = middle;
        }
    }
    reader.at = rows + low * ROW_BYTES + ROW_BYTES / 2;
    if (!read_entry(module, (const unsigned char *)read_pointer(&reader, TABLE_ENCODING, base),
                    ret_entry)) {
        return false;
    }
    return address >= ret_entry->function && address < ret_entry->function_end;
}

/* ---- Expressions ---- */

struct machine {
    const struct frame *frame;
    uintptr_t stack[EXPRESSION_DEPTH_MAX];
    unsigned depth;
    bool bad;
};

static void push(struct machine *machine, uintptr_t value)
{
    if (machine->depth == EXPRESSION_DEPTH_MAX) {
        machine->bad = true;
    } else {
        machine->stack[machine->depth++] = value;
    }
}

static uintptr_t pop(struct machine *machine)
{
    if (machine->depth == 0) {
        machine->bad = true;
        return 0;
    }
    return machine->stack[--machine->depth];
}

static uintptr_t register_value(struct machine *machine, unsigned number)
{
    if (number >= UNWIND_REGISTERS || !(machine->frame->known >> number & 1)) {
        machine->bad = true;
        return 0;
    }
    return machine->frame->registers[number];
}

static void binary(struct machine *machine, unsigned operation)
{
    uintptr_t b = pop(machine);
    uintptr_t a = pop(machine);
    intptr_t sa = (intptr_t)a, sb = (intptr_t)b;

    switch (operation) {
    case 0x1a: push(machine, a & b); break;
    case 0x1c: push(machine, a - b); break;
    case 0x21: push(machine, a | b); break;
    case 0x22: push(machine, a + b); break;
    case 0x24: push(machine, b < 64 ? a << b : 0); break;
    case 0x25: push(machine, b < 64 ? a >> b : 0); break;
    case 0x29: push(machine, a == b); break;
    case 0x2a: push(machine, sa >= sb); break;
    case 0x2b: push(machine, sa > sb); break;
    case 0x2c: push(machine, sa <= sb); break;
    case 0x2d: push(machine, sa < sb); break;
    case 0x2e: push(machine, a != b); break;
    default: machine->bad = true; break;
    }
}

static void step_expression(struct machine *machine, struct reader *reader)
{
    unsigned operation = (unsigned)read_bytes(reader, 1);
    uintptr_t value;

    if (operation >= 0x30 && operation <= 0x4f) { /* DW_OP_lit0 to 31 */
        push(machine, operation - 0x30);
    } else if (operation >= 0x70 && operation <= 0x8f) { /* DW_OP_breg0 to 31 */
        value = register_value(machine, operation - 0x70);
        push(machine, value + (uintptr_t)read_sleb(reader));
    } else {
        switch (operation) {
        case 0x06: /* DW_OP_deref */
            if (!read_stack(machine->frame->start, pop(machine), &value)) machine->bad = true;
            push(machine, machine->bad ? 0 : value);
            break;
        case 0x08: push(machine, (uintptr_t)read_bytes(reader, 1)); break;
        case 0x09: push(machine, (uintptr_t)sign_extended(read_bytes(reader, 1), 8)); break;
        case 0x0a: push(machine, (uintptr_t)read_bytes(reader, 2)); break;
        case 0x0b: push(machine, (uintptr_t)sign_extended(read_bytes(reader, 2), 16)); break;
        case 0x10: push(machine, (uintptr_t)read_uleb(reader)); break;
        case 0x11: push(machine, (uintptr_t)read_sleb(reader)); break;
        case 0x12: /* DW_OP_dup */
            value = pop(machine);
            push(machine, value);
            push(machine, value);
            break;
        case 0x23: push(machine, pop(machine) + (uintptr_t)read_uleb(reader)); break;
        default: binary(machine, operation); break;
        }
    }
}

static bool evaluate(const struct frame *frame, const struct rule *rule, const uintptr_t *first,
                     uintptr_t *ret_value)
{
    struct reader reader = {rule->begin, rule->end, false};
    struct machine machine = {.frame = frame};

    if (first) push(&machine, *first);
    for (int i = 0; reader.at < reader.end; i++) {
        if (i == EXPRESSION_STEPS_MAX || machine.bad || reader.bad) return false;
        step_expression(&machine, &reader);
    }
    *ret_value = pop(&machine);
    return !machine.bad && !reader.bad;
}

/* ---- Carrying out the table's program ---- */

struct program {
    const struct entry *entry;
    struct rules rules;
    struct rules initial;
    struct rules saved[SAVED_STATES_MAX];
    unsigned saved_count;
    uintptr_t location;
    uintptr_t target; /* stop when the location is beyond it */
    bool bad;
};

static void set_rule(struct program *program, uint64_t number, enum rule_kind kind, int64_t value)
{
    /* Vector registers and the like are of no interest. */
    if (number >= UNWIND_REGISTERS) return;
    program->rules.registers[number] = (struct rule){.kind = kind, .value = value};
}

static struct rule read_expression(struct reader *reader, enum rule_kind kind)
{
    struct rule rule = {.kind = kind};
    uint64_t bytes = read_uleb(reader);

    rule.begin = reader->at;
    skip(reader, bytes);
    rule.end = reader->at;
    return rule;
}

static void advance(struct program *program, uint64_t delta)
{
    program->location += (uintptr_t)(delta * program->entry->code_alignment);
}

static void def_cfa(struct program *program, uint64_t number, int64_t offset)
{
    if (number >= UNWIND_REGISTERS) program->bad = true;
    program->rules.cfa = (struct rule){.kind = RULE_OFFSET, .value = offset};
    program->rules.cfa_register = (unsigned)number;
}

static void remember(struct program *program)
{
    if (program->saved_count == SAVED_STATES_MAX) {
        program->bad = true;
    } else {
        program->saved[program->saved_count++] = program->rules;
    }
}

static void recall(struct program *program)
{
    if (program->saved_count == 0) {
        program->bad = true;
    } else {
        program->rules = program->saved[--program->saved_count];
    }
}

static void restore(struct program *program, uint64_t number)
{
    if (number < UNWIND_REGISTERS) {
        program->rules.registers[number] = program->initial.registers[number];
    }
}

/* DW_CFA_* without operands in the opcode. */
static void step_extended(struct program *program, struct reader *reader, unsigned operation)
{
    int64_t data = program->entry->data_alignment;
    uint64_t number = 0;

    switch (operation) {
    case 0x00: break; /* nop */
    case 0x02: advance(program, read_bytes(reader, 1)); break;
    case 0x03: advance(program, read_bytes(reader, 2)); break;
    case 0x04: advance(program, read_bytes(reader, 4)); break;
    case 0x05: /* offset_extended */
        number = read_uleb(reader);
        set_rule(program, number, RULE_AT_OFFSET, (int64_t)read_uleb(reader) * data);
        break;
    case 0x06: restore(program, read_uleb(reader)); break;
    case 0x07: set_rule(program, read_uleb(reader), RULE_UNDEFINED, 0); break;
    case 0x08: set_rule(program, read_uleb(reader), RULE_SAME, 0); break;
    case 0x09: /* register */
        number = read_uleb(reader);
        set_rule(program, number, RULE_REGISTER, (int64_t)read_uleb(reader));
        break;
    case 0x0a: remember(program); break;
    case 0x0b: recall(program); break;
    case 0x0c: /* def_cfa */
        number = read_uleb(reader);
        def_cfa(program, number, (int64_t)read_uleb(reader));
        break;
    case 0x0d: def_cfa(program, read_uleb(reader), program->rules.cfa.value); break;
    case 0x0e: program->rules.cfa.value = (int64_t)read_uleb(reader); break;
    case 0x0f: program->rules.cfa = read_expression(reader, RULE_EXPRESSION); break;
    case 0x10: /* expression */
    case 0x16: /* val_expression */
        number = read_uleb(reader);
        if (number < UNWIND_REGISTERS) {
            program->rules.registers[number] =
                read_expression(reader, operation == 0x10 ? RULE_AT_EXPRESSION : RULE_EXPRESSION);
        } else {
            (void)read_expression(reader, RULE_SAME);
        }
        break;
    case 0x11: /* offset_extended_sf */
        number = read_uleb(reader);
        set_rule(program, number, RULE_AT_OFFSET, read_sleb(reader) * data);
        break;
    case 0x12: /* def_cfa_sf */
        number = read_uleb(reader);
        def_cfa(program, number, read_sleb(reader) * data);
        break;
    case 0x13: program->rules.cfa.value = read_sleb(reader) * data; break;
    case 0x14: /* val_offset */
        number = read_uleb(reader);
        set_rule(program, number, RULE_OFFSET, (int64_t)read_uleb(reader) * data);
        break;
    case 0x15: /* val_offset_sf */
        number = read_uleb(reader);
        set_rule(program, number, RULE_OFFSET, read_sleb(reader) * data);
        break;
    case 0x2d: /* aarch64: the return address is signed from here on, or no more */
        if (UNWIND_SIGNS) {
            program->rules.is_signed = !program->rules.is_signed;
        } else {
            program->bad = true; /* elsewhere the opcode means a register window */
        }
        break;
    case 0x2e: (void)read_uleb(reader); break; /* args_size */
    default: program->bad = true; break;
    }
}

static void carry_out(struct program *program, const unsigned char *at, const unsigned char *end)
{
    struct reader reader = {at, end, false};
    int64_t data = program->entry->data_alignment;

    while (reader.at < reader.end && !program->bad && program->location <= program->target) {
        unsigned byte = (unsigned)read_bytes(&reader, 1);
        unsigned low = byte & 0x3f;

        switch (byte >> 6) {
        case 1: advance(program, low); break;
        case 2: set_rule(program, low, RULE_AT_OFFSET, (int64_t)read_uleb(&reader) * data); break;
        case 3: restore(program, low); break;
        default: step_extended(program, &reader, low); break;
        }
        if (reader.bad) program->bad = true;
    }
}

/* ---- One frame outwards ---- */

static bool find_cfa(const struct frame *frame, const struct rules *rules, uintptr_t *ret_cfa)
{
    if (rules->cfa.kind == RULE_EXPRESSION) return evaluate(frame, &rules->cfa, NULL, ret_cfa);
    if (!(frame->known >> rules->cfa_register & 1)) return false;
    *ret_cfa = frame->registers[rules->cfa_register] + (uintptr_t)rules->cfa.value;
    return true;
}

/* The value of a register in the caller. False: it is not known there. */
static bool find_register(const struct frame *frame, const struct rules *rules, unsigned number,
                          uintptr_t cfa, uintptr_t *ret_value)
{
    const struct rule *rule = &rules->registers[number];
    uintptr_t at;

    switch (rule->kind) {
    case RULE_SAME: *ret_value = frame->registers[number]; return frame->known >> number & 1;
    case RULE_AT_OFFSET: return read_stack(frame->start, cfa + (uintptr_t)rule->value, ret_value);
    case RULE_OFFSET: *ret_value = cfa + (uintptr_t)rule->value; return true;
    case RULE_REGISTER:
        if (rule->value < 0 || rule->value >= UNWIND_REGISTERS) return false;
        *ret_value = frame->registers[rule->value];
        return frame->known >> rule->value & 1;
    case RULE_AT_EXPRESSION:
        return evaluate(frame, rule, &cfa, &at) && read_stack(frame->start, at, ret_value);
    case RULE_EXPRESSION: return evaluate(frame, rule, &cfa, ret_value);
    case RULE_UNDEFINED: break;
    }
    return false;
}

static bool go_out(struct frame *frame, const struct entry *entry, const struct rules *rules)
{
    uintptr_t registers[UNWIND_REGISTERS];
    uint64_t known = 0;
    uintptr_t cfa;

    if (!find_cfa(frame, rules, &cfa)) return false;
    /* Outwards is up. */
    if (cfa <= frame->cfa_before || cfa > frame->start->low + frame->start->bytes) return false;
    for (unsigned i = 0; i < UNWIND_REGISTERS; i++) {
        if (find_register(frame, rules, i, cfa, &registers[i])) known |= UINT64_C(1) << i;
    }
    if (!(known >> entry->return_column & 1)) return false;
    frame->pc = registers[entry->return_column];
    if (rules->is_signed) {
        frame->pc &= (UINT64_C(1) << 48) - 1; /* the signature is above the address */
    }
    /* In a signal's frame the rules have said it themselves. */
    if (!entry->signal_frame) {
        registers[UNWIND_SP] = cfa;
        known |= UINT64_C(1) << UNWIND_SP;
    }
    memcpy(frame->registers, registers, sizeof registers);
    frame->known = known;
    frame->cfa_before = cfa;
    frame->exact = entry->signal_frame;
    return frame->pc != 0;
}

static void step(struct frame *frame, const struct module *module)
{
    struct program program = {.target = frame->exact ? frame->pc : frame->pc - 1};
    struct entry entry;

    if (!find_entry(module, program.target, &entry)) return;
    frame->function = entry.function;
    program.entry = &entry;
    carry_out(&program, entry.initial, entry.initial_end);
    program.initial = program.rules;
    program.location = entry.function;
    carry_out(&program, entry.program, entry.program_end);
    if (!program.bad) frame->stepped = go_out(frame, &entry, &program.rules);
}

/* Inside the callback: the dynamic linker keeps the module loaded meanwhile. */
static int look_into_module(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct frame *frame = arg;
    struct module module = {.low = UINTPTR_MAX};
    bool inside = false;
    uintptr_t address = frame->exact ? frame->pc : frame->pc - 1;

    (void)size;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t low = (uintptr_t)(info->dlpi_addr + segment->p_vaddr);
        uintptr_t high = low + (uintptr_t)segment->p_memsz;

        if (segment->p_type == PT_GNU_EH_FRAME) {
            module.header = (const unsigned char *)low;
            module.header_end = (const unsigned char *)high;
        }
        if (segment->p_type != PT_LOAD) continue;
        inside = inside || (address >= low && address < high);
        /* The tables lie in a segment that can be read; there may be holes between two. */
        if (segment->p_flags & PF_R) {
            if (low < module.low) module.low = low;
            if (high > module.high) module.high = high;
        }
    }
    if (!inside) return 0;
    if (module.header) step(frame, &module);
    return 1;
}

/* Linkers for aarch64 write no entries for the stubs of the procedure linkage table. They leave
 * the stack as it is, and where they will return to is in the link register. */
static bool step_without_entry(struct frame *frame, unsigned count)
{
#if defined(__x86_64__)
    (void)frame, (void)count;
    return false;
#else
    enum { LINK_REGISTER = 30 };

    if (count != 1 || frame->function != 0) return false;
    frame->pc = frame->registers[LINK_REGISTER];
    frame->exact = false;
    return frame->pc != 0;
#endif
}

void unwind_copied(const struct unwind_start *start, struct backtrace *ret_backtrace)
{
    struct frame frame = {.start = start,
                          .pc = start->pc,
                          .exact = true,
                          .known = ~UINT64_C(0),
                          /* A function that has pushed nothing has its own as its caller's. */
                          .cfa_before = start->registers[UNWIND_SP] - 1};

    memset(ret_backtrace, 0, sizeof *ret_backtrace);
    memcpy(frame.registers, start->registers, sizeof frame.registers);
    for (;;) {
        uintptr_t address = frame.exact ? frame.pc : frame.pc - 1;

        frame.function = 0;
        frame.stepped = false;
        (void)dl_iterate_phdr(look_into_module, &frame);
        if (start->outermost && frame.function == start->outermost) return;
        if (ret_backtrace->count == BACKTRACE_FRAMES_MAX) {
            ret_backtrace->cut = true;
            return;
        }
        ret_backtrace->frames[ret_backtrace->count++] = address;
        if (!frame.stepped && !step_without_entry(&frame, ret_backtrace->count)) return;
    }
}

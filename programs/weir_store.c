/* weir_store.c - the program weir-store: look at a store, and repair it into a copy.
 *
 * Data goes to standard output, messages to standard error. Exit: 0 all is well; 1 damage or an
 * error; 2 wrong usage; 3 there is no store; 4 it is in use. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "store/log_tool.h"

enum { EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_NOT_FOUND, EXIT_BUSY };
enum { PREVIEW_BYTES = 24 };

static const char usage[] =
    "usage: weir-store verify FOLDER         whether it can be opened, and figures\n"
    "       weir-store dump FOLDER           every record, and all damage, a line each\n"
    "       weir-store repair FOLDER COPY    what is whole, into a new store COPY\n"
    "       weir-store --help | --version\n"
    "\n"
    "A store that is in use is left alone.\n"
    "exit status: 0 all is well, 1 damage or an error, 2 wrong usage, 3 there is no\n"
    "store, 4 it is in use. `repair` ends with 0 if the copy was made; it tells what was lost.\n";

static int status_of(int error)
{
    return error == -ENOENT ? EXIT_NOT_FOUND : error == -EBUSY ? EXIT_BUSY : EXIT_FAILED;
}

static int complain(int error, const struct log_why *why)
{
    fprintf(stderr, "weir-store: %s\n", why->text);
    return status_of(error);
}

static int verify(const char *path)
{
    struct log_summary summary;
    struct log_why why = {""};
    int r = log_verify(kernel_current(), path, &summary, &why);

    if (r < 0) return complain(r, &why);
    printf("version %d\nstore ", LOG_VERSION);
    for (int i = 0; i < LOG_ID_BYTES; i++) printf("%02x", summary.meta.id.bytes[i]);
    printf("\nsegments %" PRIu64 " of %" PRIu64 " bytes\n", summary.segment_count,
           summary.meta.segment_bytes);
    printf("positions %" PRIu64 " to %" PRIu64 "\nrecords %" PRIu64 "\n", summary.first,
           summary.end, summary.record_count);
    if (summary.gap_count > 0)
        printf("gaps %" PRIu64 " (damage that was repaired)\n", summary.gap_count);
    if (summary.torn_bytes > 0)
        printf("torn %" PRIu64 " bytes at the end, never acknowledged\n", summary.torn_bytes);
    return EXIT_OK;
}

static void print_preview(const unsigned char *data, uint32_t bytes)
{
    uint32_t shown = bytes < PREVIEW_BYTES ? bytes : PREVIEW_BYTES;

    printf(" ");
    for (uint32_t i = 0; i < shown; i++) printf("%02x", data[i]);
    printf("%s |", shown < bytes ? ".." : "");
    for (uint32_t i = 0; i < shown; i++)
        printf("%c", data[i] >= ' ' && data[i] <= '~' ? data[i] : '.');
    printf("|\n");
}

static void print_frame(const struct log_piece *piece)
{
    const struct log_frame *frame = &piece->frame;

    printf("  %" PRIu64 " ", piece->position);
    switch ((enum log_kind)frame->kind) {
    case LOG_KIND_MARK: printf("mark synced=%" PRIu64 "\n", log_mark_synced(piece->data)); break;
    case LOG_KIND_GAP: printf("gap bytes=%" PRIu32 "\n", frame->bytes); break;
    case LOG_KIND_RECORD:
        printf("record tag=%u bytes=%" PRIu32 " crc=%08" PRIx32, frame->tag, frame->bytes,
               frame->data_crc);
        print_preview(piece->data, frame->bytes);
        break;
    case LOG_KIND_NONE:
    case LOG_KINDS: break;
    }
}

static int print_piece(void *arg, const struct log_piece *piece)
{
    (void)arg;
    switch (piece->kind) {
    case LOG_PIECE_SEGMENT:
        printf("%016" PRIx64 ".log position=%" PRIu64 "\n", piece->sequence, piece->position);
        break;
    case LOG_PIECE_MISSING:
        printf("%016" PRIx64 ".log MISSING, or its header is lost\n", piece->sequence);
        break;
    case LOG_PIECE_FRAME: print_frame(piece); break;
    case LOG_PIECE_DAMAGE:
        printf("  %" PRIu64 " DAMAGED %016" PRIx64 ".log offset=%" PRIu64 " bytes=%" PRIu64 "\n",
               piece->position, piece->sequence, piece->offset, piece->bytes);
        break;
    case LOG_PIECE_TAIL:
        printf("  %" PRIu64 " end%s\n", piece->position,
               piece->bytes > 0 ? ", torn behind it" : "");
        break;
    }
    return 0;
}

static int dump(const char *path)
{
    struct log_why why = {""};
    int r = log_dump(kernel_current(), path, print_piece, NULL, &why);

    if (r < 0) return complain(r, &why);
    if (r == 0) return EXIT_OK;
    fprintf(stderr, "weir-store: %d damaged places\n", r);
    return EXIT_FAILED;
}

static int repair(const char *from, const char *to)
{
    struct log_why why = {""};
    int r = log_repair(kernel_current(), from, to, print_piece, NULL, &why);

    if (r < 0) return complain(r, &why);
    fprintf(stderr, "weir-store: '%s' was made; %d damaged places were covered\n", to, r);
    return EXIT_OK;
}

static int run(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";

    if (strcmp(command, "--help") == 0) return fputs(usage, stdout) < 0 ? EXIT_FAILED : EXIT_OK;
    if (strcmp(command, "--version") == 0) {
        printf("weir-store, format %d\n", LOG_VERSION);
        return EXIT_OK;
    }
    if (strcmp(command, "verify") == 0 && argc == 3) return verify(argv[2]);
    if (strcmp(command, "dump") == 0 && argc == 3) return dump(argv[2]);
    if (strcmp(command, "repair") == 0 && argc == 4) return repair(argv[2], argv[3]);
    fputs(usage, stderr);
    return EXIT_USAGE;
}

int main(int argc, char **argv)
{
    int status = run(argc, argv);

    if (fflush(stdout) != 0 && status == EXIT_OK) status = EXIT_FAILED;
    return status;
}

// Blocks are powers of two cut from one region and kept in one list per size; a header of 16 bytes
// stands before each. Each fault shows once in some thousand operations, as real ones do: most by
// counting, the last two by what happened before, so that a short run shows them as well.
#include "control.h"

#include "behaviour.h"

enum fault {
    FAULT_NONE,
    FAULT_OVERLAP,     // a block is handed out twice
    FAULT_NEIGHBOUR,   // the usable size reaches into the next block
    FAULT_LOST_TAIL,   // realloc loses the last byte it had to copy
    FAULT_LOST_ALL,    // realloc does not copy
    FAULT_MISALIGNED,  // memalign is 16 bytes off
    FAULT_UNALIGNED,   // malloc is 8 bytes off
    FAULT_DIRTY,       // calloc leaves the last byte as it was
    FAULT_SCRIBBLE,    // free writes into another block
    FAULT_SHORT,       // a usable size below the request
    FAULT_UNSTEADY,    // a usable size that changes
    FAULT_REFUSAL,     // NULL for a request that can be served
    FAULT_STALE,       // calloc takes a block above 4 KiB that came back for one that is zero
    FAULT_SHALLOW,     // realloc from below 64 bytes to above 16 KiB does not copy
    FAULT_COUNT,
};

static const char *const fault_names[FAULT_COUNT] = {
    "none",  "overlap",  "neighbour", "lost-tail", "lost-all", "misaligned", "unaligned",
    "dirty", "scribble", "short",     "unsteady",  "refusal",  "stale",      "shallow",
};

enum { SHIFT_MIN = 4, SHIFT_MAX = 40, HEADER_BYTES = 16 };
#define REGION_BYTES ((size_t)64 << 30)

struct header {
    unsigned int shift;   // the block has 1 << shift bytes from `start`
    unsigned int offset;  // from the block's start to the address handed out
    struct header *next;  // in the list of free blocks
};

static enum fault fault;
static unsigned int calls;
static char *region;
static size_t region_used;
static struct header *free_list[SHIFT_MAX];
static struct header *recent;  // the newest live block of 256 to 1024 bytes
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

bool control_choose(const char *name) {
    for (int i = 0; i < FAULT_COUNT; i++) {
        if (strcmp(name, fault_names[i]) == 0) {
            fault = (enum fault)i;
            return true;
        }
    }
    return false;
}

// Under the lock.
static bool strikes(enum fault which) {
    return fault == which && ++calls % 3000 == 2999;
}

static struct header *header_of(const void *block) {
    return (struct header *)(uintptr_t)((const char *)block - HEADER_BYTES);
}

// Under the lock. The header's block follows it.
static struct header *take(size_t bytes) {
    unsigned int shift = SHIFT_MIN;
    while (((size_t)1 << shift) < bytes) {
        shift++;
    }
    struct header *header = free_list[shift];
    if (header != NULL) {
        if (!strikes(FAULT_OVERLAP)) {
            free_list[shift] = header->next;
        }
    } else {
        if (region == NULL) {
            region = (char *)test_memory(REGION_BYTES);
        }
        header = (struct header *)(void *)(region + region_used);
        region_used += HEADER_BYTES + ((size_t)1 << shift);
        require(region_used <= REGION_BYTES);
    }
    header->shift = shift;
    header->offset = 0;
    if (shift >= 8 && shift <= 10) {
        recent = header;
    }
    return header;
}

static void *at_offset(struct header *header, size_t offset) {
    char *block = (char *)header + HEADER_BYTES + offset;
    *header_of(block) = (struct header){header->shift, (unsigned int)offset, NULL};
    return block;
}

void *control_malloc(size_t bytes) {
    pthread_mutex_lock(&lock);
    void *block = NULL;
    if (!strikes(FAULT_REFUSAL)) {
        bool odd = strikes(FAULT_UNALIGNED);
        block = at_offset(take(bytes + (odd ? 8 : 0)), odd ? 8 : 0);
    }
    pthread_mutex_unlock(&lock);
    return block;
}

void *control_calloc(size_t bytes) {
    char *block = (char *)control_malloc(bytes);
    if (fault == FAULT_STALE && bytes > 4096) {
        return block;
    }
    if (block != NULL && bytes > 0) {
        pthread_mutex_lock(&lock);
        memset(block, 0, bytes);
        if (strikes(FAULT_DIRTY)) {
            block[bytes - 1] = 1;
        }
        pthread_mutex_unlock(&lock);
    }
    return block;
}

static size_t true_usable(const void *block) {
    struct header *header = header_of(block);
    return ((size_t)1 << header->shift) - header->offset;
}

void *control_realloc(void *block, size_t bytes) {
    char *moved = (char *)control_malloc(bytes);
    if (moved != NULL && block != NULL) {
        size_t kept = true_usable(block);
        kept = kept < bytes ? kept : bytes;
        pthread_mutex_lock(&lock);
        if (strikes(FAULT_LOST_TAIL)) {
            kept--;
        }
        const bool is_shallow = fault == FAULT_SHALLOW && kept < 64 && bytes > 16 * KIB;
        if (!is_shallow && !strikes(FAULT_LOST_ALL)) {
            memcpy(moved, block, kept);
        }
        pthread_mutex_unlock(&lock);
        control_free(block);
    }
    return moved;
}

void *control_memalign(size_t alignment, size_t bytes) {
    pthread_mutex_lock(&lock);
    struct header *header = take(bytes + alignment + 16);
    uintptr_t start = (uintptr_t)header + HEADER_BYTES;
    uintptr_t aligned = (start + alignment - 1) & ~(uintptr_t)(alignment - 1);
    if (alignment >= 32 && strikes(FAULT_MISALIGNED)) {
        aligned += 16;
    }
    void *block = at_offset(header, aligned - start);
    pthread_mutex_unlock(&lock);
    return block;
}

void control_free(void *block) {
    if (block == NULL) {
        return;
    }
    pthread_mutex_lock(&lock);
    struct header *header =
        (struct header *)(void *)((char *)block - header_of(block)->offset - HEADER_BYTES);
    header->shift = header_of(block)->shift;
    if (recent == header) {
        recent = NULL;
    }
    if (recent != NULL && strikes(FAULT_SCRIBBLE)) {
        // Into a live block of somebody else, as a stale pointer would.
        memset((char *)recent + HEADER_BYTES + 100, 0xdd, 8);
    }
    header->next = free_list[header->shift];
    free_list[header->shift] = header;
    pthread_mutex_unlock(&lock);
}

size_t control_usable(const void *block) {
    if (block == NULL) {
        return 0;
    }
    pthread_mutex_lock(&lock);
    size_t usable = true_usable(block);
    if (strikes(FAULT_NEIGHBOUR)) {
        usable += HEADER_BYTES + 8;
    } else if (strikes(FAULT_SHORT)) {
        usable = usable / 4;
    } else if (strikes(FAULT_UNSTEADY)) {
        usable -= 1;
    }
    pthread_mutex_unlock(&lock);
    return usable;
}

#include "heap/huge_table.h"

#include "space/metadata.h"

struct huge_table huge_table_state = {.lock = LOCK_INITIAL(LOCK_RANK_HUGE)};
uint64_t huge_refused_bytes;
_Atomic(struct huge *) huge_chunks[HUGE_CHUNKS_MAX];  // release and acquire: see huge_table.h

struct huge *huge_numbered(uint32_t number) {
    if (number / HUGE_CHUNK_COUNT >= HUGE_CHUNKS_MAX) {
        return NULL;
    }
    struct huge *chunk = atomic_load_acquire(&huge_chunks[number / HUGE_CHUNK_COUNT]);
    return chunk == NULL ? NULL : &chunk[number % HUGE_CHUNK_COUNT];
}

void huge_table_prepare(void) {
    struct huge_table *table = &huge_table_state;
    if (unlikely(!table->ready)) {
        list_init(&table->live);
        list_init(&table->kept);
        list_init(&table->leaving);
        list_init(&table->unused);
        table->ready = true;
    }
}

static bool add_descriptors(struct huge_table *table) {
    if (table->chunk_count == HUGE_CHUNKS_MAX) {
        return false;
    }
    struct huge *chunk = metadata_alloc(HUGE_CHUNK_COUNT * sizeof *chunk);
    if (chunk == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < HUGE_CHUNK_COUNT; i++) {
        chunk[i].number = table->chunk_count * HUGE_CHUNK_COUNT + i;
        list_push_back(&table->unused, &chunk[i].link);
    }
    atomic_store_release(&huge_chunks[table->chunk_count], chunk);
    table->chunk_count++;
    return true;
}

struct huge *huge_unused(void) {
    struct huge_table *table = &huge_table_state;
    if (list_is_empty(&table->unused) && !add_descriptors(table)) {
        return NULL;
    }
    return CONTAINER_OF(table->unused.next, struct huge, link);
}

void huge_move_to(struct huge *huge, enum huge_state state) {
    list_remove(&huge->link);
    huge_table_state.kept_count -= huge->state == HUGE_KEPT;
    switch (state) {
    case HUGE_LIVE:
        huge->emptied = 0;
        huge->refused = 0;
        list_push_front(&huge_table_state.live, &huge->link);
        break;
    case HUGE_KEPT:
        list_push_front(&huge_table_state.kept, &huge->link);
        huge_table_state.kept_count++;
        break;
    case HUGE_LEAVING:
        huge->refused = 0;
        list_push_back(&huge_table_state.leaving, &huge->link);
        break;
    case HUGE_UNUSED:
        huge_forget_seams(huge, huge->start);
        huge->immovable = 0;
        huge->uncleared = 0;
        huge->emptied = 0;
        huge->refused = 0;
        huge->asked = HUGE_ASKED_NOT;
        huge->may_have_huge_pages = 0;
        list_push_back(&huge_table_state.unused, &huge->link);
        break;
    }
    huge->state = (uint8_t)state;
}

void huge_count_kept(const struct huge *huge, int64_t bytes) {
    atomic_bump_owned(&huge_table_state.kept_bytes, (uint64_t)bytes);
    if (unlikely(huge->refused)) {
        huge_refused_bytes += (uint64_t)bytes;
    }
}

void huge_keep_again(struct huge *huge) {
    huge->refused = 1;
    huge_count_kept(huge, (int64_t)huge->mapped_bytes);
    huge->freed_ms = huge_table_state.seen_ms;
    huge_move_to(huge, HUGE_KEPT);
}

bool huge_has_room_for_piece(const struct huge *huge) {
    return huge->seam_count + 2u <= ARRAY_COUNT(huge->seams) &&
           huge_table_state.seam_count + 2u <= HUGE_SEAMS_MAX;
}

void huge_add_seam(struct huge *huge, uintptr_t address) {
    if (address != huge_last_piece(huge)) {
        huge->seams[huge->seam_count++] = address;
        huge_table_state.seam_count++;
    }
}

void huge_forget_seams(struct huge *huge, uintptr_t end) {
    while (huge->seam_count != 0 && huge_last_piece(huge) >= end) {
        huge->seam_count--;
        huge_table_state.seam_count--;
    }
}

/* A recipe is a row of records: op and number of parts, then each part as a length, its bytes and a NUL. All numbers
 * are little endian; a number as a part has 8 bytes. It comes from the caller, and is checked all the same. */
#include "helper.h"

#include <string.h>

static int take_u32(struct recipe *recipe, uint32_t *value) {
    if (recipe->end - recipe->at < 4) return -1;
    memcpy(value, recipe->at, 4);
    recipe->at += 4;
    return 0;
}

int next_record(struct recipe *recipe, struct record *record) {
    if (recipe->at == recipe->end) return 0;
    if (take_u32(recipe, &record->op) || take_u32(recipe, &record->count) || record->count > MOST_PARTS) return -1;
    for (uint32_t place = 0; place < record->count; place++) {
        struct part *part = &record->parts[place];
        if (take_u32(recipe, &part->size) || (size_t)(recipe->end - recipe->at) < (size_t)part->size + 1) return -1;
        part->at = recipe->at;
        if (part->at[part->size]) return -1;
        recipe->at += (size_t)part->size + 1;
    }
    return 1;
}

int64_t number_of(const struct record *record, uint32_t place) {
    int64_t value = 0;
    if (place < record->count && record->parts[place].size == 8) memcpy(&value, record->parts[place].at, 8);
    return value;
}

const char *text_of(const struct record *record, uint32_t place) {
    return place < record->count ? record->parts[place].at : "";
}

/* Attention of one layer over keys and values that lie in pieces, forward and backward, in float32.

   Queries of one key head stand side by side in the lanes of vectors: scores are made as S[key][query], so softmax
   runs along an axis that is no vector's, keys and values are read as they lie, one number at a time for all lanes,
   and nothing is transposed but a block of queries and its outcome. Scores live for one block of keys and queries and
   never leave the first-level cache (as in FlashAttention-2, Dao 2023); the backward pass makes them again from the
   logarithm of their sum. Work is dealt to threads by its cost and by nothing else: equal calls give equal bits. */

#include <math.h>
#include <string.h>

#include "vectors.h"

enum { VECS = 3, LANES = VECS * WIDTH, KEYS = 64, MAX_HEAD = 256 };

/* Consecutive tokens, and the keys that they see. */
typedef struct {
    int64_t row, num_tokens, first_run, num_runs;
    int64_t resumes; /* whether outcome and logarithm of other keys are there already, to be gone on from */
} Unit;

/* Consecutive keys. */
typedef struct {
    int64_t store, offset, num_keys;
    int64_t first_sees; /* how many of them the unit's first token sees, each further one sees one more; -1: all */
} Run;

/* Where a new key goes before anything is attended. */
typedef struct {
    int64_t store, offset;
} Place;

/* Strides are in numbers. Rows of q, out, log, grad and dq are flat tokens; out, log, dq, dk and dv have no gaps. */
typedef struct {
    int64_t num_units, num_first; /* the first are done before the others begin */
    int64_t num_heads, num_kv, head_size, num_threads;
    const Unit *units;
    const Run *runs;
    const float *q;
    int64_t q_token;
    float *keys[2], *values[2];
    int64_t key_token[2], key_head[2], value_token[2], value_head[2];
    int64_t num_new;
    const Place *places;
    const float *new_keys, *new_values;
    int64_t new_key_token, new_value_token;
    float *out, *log; /* [tokens, heads, head_size], [tokens, heads] or null */
    const float *grad;
    int64_t grad_token, num_keys;
    float *dq, *dk, *dv; /* dk, dv: [threads, keys, kv heads, head_size up to whole vectors], zero before */
} Call;

INLINE void columns(const int nv, int64_t rows, int64_t depth, const float *a, int64_t sr, int64_t sk, const float *b,
                    int64_t sb, float *c, int64_t sc, const int add) {
    int64_t r = 0;
    for (; r + ROWS <= rows; r += ROWS) tile(ROWS, nv, depth, a + r * sr, sr, sk, b, sb, c + r * sc, sc, add);
    if (ROWS > 4 && r + 4 <= rows) {
        tile(4, nv, depth, a + r * sr, sr, sk, b, sb, c + r * sc, sc, add);
        r += 4;
    }
    for (; r < rows; r++) tile(1, nv, depth, a + r * sr, sr, sk, b, sb, c + r * sc, sc, add);
}

/* c (+)= a b, where b and c are nv vectors wide. */
#define PRODUCT(NAME, ADD)                                                                                           \
    static void NAME(int64_t nv, int64_t rows, int64_t depth, const float *a, int64_t sr, int64_t sk, const float *b, \
                     int64_t sb, float *c, int64_t sc) {                                                             \
        for (; nv == 3 || nv > 4; nv -= 3, b += 3 * WIDTH, c += 3 * WIDTH)                                           \
            columns(3, rows, depth, a, sr, sk, b, sb, c, sc, ADD);                                                   \
        for (; nv >= 2; nv -= 2, b += 2 * WIDTH, c += 2 * WIDTH)                                                     \
            columns(2, rows, depth, a, sr, sk, b, sb, c, sc, ADD);                                                   \
        if (nv) columns(1, rows, depth, a, sr, sk, b, sb, c, sc, ADD);                                               \
    }
PRODUCT(product, 0)
PRODUCT(product_added, 1)

/* One block: up to LANES queries of one key head. Lane l is head l % shared of token l / shared of the unit. */
typedef struct {
    const Call *call;
    const Unit *unit;
    int64_t kv, lane, num_lanes, nv, shared, size;
    int64_t padded; /* the size, up to whole vectors */
} Block;

/* Where the queries of a block are, found out once: lanes beyond the last are those of the last. */
typedef struct {
    ivec tokens[VECS];
    int64_t rows[LANES], heads[LANES];
} Lanes;

typedef struct {
    Lanes lanes;
    vec q[MAX_HEAD * VECS], out[MAX_HEAD * VECS], scores[KEYS * VECS];
    vec most[VECS], sum[VECS];
} Forward;

typedef struct {
    Lanes lanes;
    vec q[MAX_HEAD * VECS], grad[MAX_HEAD * VECS], dq[MAX_HEAD * VECS];
    vec q_rows[LANES * MAX_HEAD / WIDTH], grad_rows[LANES * MAX_HEAD / WIDTH];
    vec scores[KEYS * VECS], slopes[KEYS * VECS];
    vec log[VECS], inner[VECS];
} Backward;

INLINE int64_t token_of(const Block *b, int64_t lane) { return (b->lane + lane) / b->shared; }

/* Keys of a run that any query of the block sees. */
INLINE int64_t seen(const Block *b, const Run *run) {
    if (run->first_sees < 0) return run->num_keys;
    int64_t most = run->first_sees + token_of(b, b->num_lanes - 1);
    return most < run->num_keys ? most : run->num_keys;
}

static void find_lanes(const Block *b, Lanes *lanes) {
    int64_t token = token_of(b, 0), shared = (b->lane) % b->shared;
    for (int64_t lane = 0; lane < b->nv * WIDTH; lane++) {
        ((int32_t *)lanes->tokens)[lane] = (int32_t)token;
        lanes->rows[lane] = b->unit->row + token;
        lanes->heads[lane] = b->kv * b->shared + shared;
        if (lane + 1 < b->num_lanes && ++shared == b->shared) shared = 0, token++;
    }
}

/* Put minus infinity where a query is before its key. */
static void hide(const Block *b, const Run *run, int64_t start, int64_t num, const ivec *tokens, vec *scores) {
    if (run->first_sees < 0 || start + num <= run->first_sees + token_of(b, 0)) return;
    for (int64_t j = 0; j < num; j++)
        for (int64_t v = 0; v < b->nv; v++) {
            vec *place = scores + j * VECS + v;
            *place = choose(tokens[v] > (int32_t)(start + j - run->first_sees), *place, spread(-INFINITY));
        }
}

/* Rows to lanes; lanes beyond the last are zeros. */
static void turn(const Block *b, const Lanes *lanes, const float *from, int64_t stride, float factor, vec *into) {
    float *to = (float *)into;
    if (b->num_lanes < b->nv * WIDTH) memset(to, 0, sizeof(float) * LANES * b->size);
    for (int64_t lane = 0; lane < b->num_lanes; lane++) {
        const float *row = from + lanes->rows[lane] * stride + lanes->heads[lane] * b->size;
        for (int64_t f = 0; f < b->size; f++) to[f * LANES + lane] = row[f] * factor;
    }
}

static void turn_back(const Block *b, const Lanes *lanes, const vec *from, float factor, float *into) {
    const float *source = (const float *)from;
    for (int64_t lane = 0; lane < b->num_lanes; lane++) {
        float *row = into + (lanes->rows[lane] * b->call->num_heads + lanes->heads[lane]) * b->size;
        for (int64_t f = 0; f < b->size; f++) row[f] = source[f * LANES + lane] * factor;
    }
}

static void begin(const Block *b, Forward *s) {
    const Call *call = b->call;
    find_lanes(b, &s->lanes);
    turn(b, &s->lanes, call->q, call->q_token, 1.0f / sqrtf((float)b->size), s->q);
    if (b->unit->resumes) {
        turn(b, &s->lanes, call->out, call->num_heads * b->size, 1.0f, s->out);
        for (int64_t lane = 0; lane < b->nv * WIDTH; lane++) {
            int there = lane < b->num_lanes;
            ((float *)s->most)[lane] = there ? call->log[s->lanes.rows[lane] * call->num_heads + s->lanes.heads[lane]] : -1e30f;
            ((float *)s->sum)[lane] = 1.0f;
        }
        return;
    }
    memset(s->out, 0, sizeof(float) * LANES * b->size);
    for (int64_t v = 0; v < VECS; v++) s->most[v] = spread(-1e30f), s->sum[v] = (vec){0};
}

/* Scores to weights; what was summed before is brought to the new maximum. */
static void weigh(const Block *b, Forward *s, int64_t num) {
    for (int64_t v = 0; v < b->nv; v++) {
        vec most = s->most[v];
        for (int64_t j = 0; j < num; j++) most = larger(s->scores[j * VECS + v], most);
        vec kept = exponential(s->most[v] - most), sum = (vec){0};
        for (int64_t j = 0; j < num; j++) {
            vec weight = exponential(s->scores[j * VECS + v] - most);
            s->scores[j * VECS + v] = weight;
            sum += weight;
        }
        s->sum[v] = s->sum[v] * kept + sum;
        s->most[v] = most;
        for (int64_t f = 0; f < b->size; f++) s->out[f * VECS + v] *= kept;
    }
}

static void end(const Block *b, Forward *s) {
    const Call *call = b->call;
    for (int64_t v = 0; v < b->nv; v++) {
        vec share = 1.0f / s->sum[v];
        for (int64_t f = 0; f < b->size; f++) s->out[f * VECS + v] *= share;
    }
    turn_back(b, &s->lanes, s->out, 1.0f, call->out);
    if (!call->log) return;
    for (int64_t lane = 0; lane < b->num_lanes; lane++)
        call->log[s->lanes.rows[lane] * call->num_heads + s->lanes.heads[lane]] =
            ((float *)s->most)[lane] + logf(((float *)s->sum)[lane]);
}

static void forward_block(const Block *b, Forward *s) {
    const Call *call = b->call;
    begin(b, s);
    for (int64_t r = 0; r < b->unit->num_runs; r++) {
        const Run *run = call->runs + b->unit->first_run + r;
        int64_t store = run->store, num = seen(b, run);
        const float *keys = call->keys[store] + run->offset * call->key_token[store] + b->kv * call->key_head[store];
        const float *values = call->values[store] + run->offset * call->value_token[store] + b->kv * call->value_head[store];
        for (int64_t start = 0; start < num; start += KEYS) {
            int64_t part = num - start < KEYS ? num - start : KEYS;
            product(b->nv, part, b->size, keys + start * call->key_token[store], call->key_token[store], 1,
                    (float *)s->q, LANES, (float *)s->scores, LANES);
            hide(b, run, start, part, s->lanes.tokens, s->scores);
            weigh(b, s, part);
            product_added(b->nv, b->size, part, values + start * call->value_token[store], 1, call->value_token[store],
                          (float *)s->scores, LANES, (float *)s->out, LANES);
        }
    }
    end(b, s);
}

static void lay_rows(const Block *b, const Lanes *lanes, const float *from, int64_t stride, float factor, vec *into) {
    float *to = (float *)into;
    for (int64_t lane = 0; lane < b->num_lanes; lane++) {
        const float *row = from + lanes->rows[lane] * stride + lanes->heads[lane] * b->size;
        for (int64_t f = 0; f < b->padded; f++) to[lane * b->padded + f] = f < b->size ? row[f] * factor : 0.0f;
    }
}

static void begin_backward(const Block *b, Backward *s) {
    const Call *call = b->call;
    float scale = 1.0f / sqrtf((float)b->size);
    find_lanes(b, &s->lanes);
    turn(b, &s->lanes, call->q, call->q_token, scale, s->q);
    turn(b, &s->lanes, call->grad, call->grad_token, 1.0f, s->grad);
    lay_rows(b, &s->lanes, call->q, call->q_token, scale, s->q_rows);
    lay_rows(b, &s->lanes, call->grad, call->grad_token, 1.0f, s->grad_rows);
    memset(s->dq, 0, sizeof(float) * LANES * b->size);
    for (int64_t v = 0; v < VECS; v++) s->log[v] = s->inner[v] = (vec){0};
    for (int64_t lane = 0; lane < b->num_lanes; lane++) {
        int64_t place = s->lanes.rows[lane] * call->num_heads + s->lanes.heads[lane];
        const float *out = call->out + place * b->size, *grad = (float *)s->grad_rows + lane * b->padded;
        vec inner = {0};
        float sum = 0.0f;
        int64_t f = 0;
        for (; f + WIDTH <= b->size; f += WIDTH) inner += *(const loose *)(out + f) * *(const loose *)(grad + f);
        for (; f < b->size; f++) sum += out[f] * grad[f];
        for (int i = 0; i < WIDTH; i++) sum += inner[i];
        ((float *)s->inner)[lane] = sum;
        ((float *)s->log)[lane] = call->log[place];
    }
}

static void backward_block(const Block *b, Backward *s, float *dk, float *dv) {
    const Call *call = b->call;
    int64_t size = b->size, padded = b->padded, wide = call->num_kv * padded;
    int64_t key_token = call->key_token[0], value_token = call->value_token[0];
    begin_backward(b, s);
    for (int64_t r = 0; r < b->unit->num_runs; r++) {
        const Run *run = call->runs + b->unit->first_run + r;
        int64_t num = seen(b, run);
        for (int64_t start = 0; start < num; start += KEYS) {
            int64_t part = num - start < KEYS ? num - start : KEYS, place = run->offset + start;
            const float *keys = call->keys[0] + place * key_token + b->kv * call->key_head[0];
            const float *values = call->values[0] + place * value_token + b->kv * call->value_head[0];
            float *scores = (float *)s->scores, *slopes = (float *)s->slopes;
            product(b->nv, part, size, keys, key_token, 1, (float *)s->q, LANES, scores, LANES);
            product(b->nv, part, size, values, value_token, 1, (float *)s->grad, LANES, slopes, LANES);
            hide(b, run, start, part, s->lanes.tokens, s->scores);
            for (int64_t j = 0; j < part; j++)
                for (int64_t v = 0; v < b->nv; v++) {
                    vec weight = exponential(s->scores[j * VECS + v] - s->log[v]);
                    s->slopes[j * VECS + v] = weight * (s->slopes[j * VECS + v] - s->inner[v]);
                    s->scores[j * VECS + v] = weight;
                }
            product_added(b->nv, size, part, keys, 1, key_token, slopes, LANES, (float *)s->dq, LANES);
            product_added(padded / WIDTH, part, b->num_lanes, slopes, LANES, 1, (float *)s->q_rows, padded,
                          dk + place * wide, wide);
            product_added(padded / WIDTH, part, b->num_lanes, scores, LANES, 1, (float *)s->grad_rows, padded,
                          dv + place * wide, wide);
        }
    }
    turn_back(b, &s->lanes, s->dq, 1.0f / sqrtf((float)size), call->dq);
}

/* ------------------------------------------------------------------------------------------------ dealing */

static Block block_of(const Call *call, const Unit *unit, int64_t kv, int64_t lane) {
    int64_t size = call->head_size;
    Block b = {call, unit, kv, lane, 0, 0, call->num_heads / call->num_kv, size, (size + WIDTH - 1) / WIDTH * WIDTH};
    int64_t left = unit->num_tokens * b.shared - lane;
    b.num_lanes = left < LANES ? left : LANES;
    b.nv = (b.num_lanes + WIDTH - 1) / WIDTH;
    return b;
}

static int64_t cost_of(const Block *b) {
    int64_t keys = 16;
    for (int64_t r = 0; r < b->unit->num_runs; r++) keys += seen(b, b->call->runs + b->unit->first_run + r);
    return keys * b->nv;
}

static int64_t lanes_of(const Call *call, int64_t unit) {
    return call->units[unit].num_tokens * (call->num_heads / call->num_kv);
}

/* Cost of units low to high for one key head. */
static int64_t cost_between(const Call *call, int64_t low, int64_t high) {
    int64_t cost = 0;
    for (int64_t unit = low; unit < high; unit++)
        for (int64_t lane = 0; lane < lanes_of(call, unit); lane += LANES) {
            Block b = block_of(call, call->units + unit, 0, lane);
            cost += cost_of(&b);
        }
    return cost;
}

typedef void Act(const Block *b, void *scratch, int64_t thread);

/* The blocks of units low to high whose middle lies in the thread's share of the whole cost. */
static void act_on_share(const Call *call, int64_t low, int64_t high, int64_t whole, int64_t thread, Act *act, void *scratch) {
    int64_t passed = 0, from = whole * thread / call->num_threads, to = whole * (thread + 1) / call->num_threads;
    for (int64_t kv = 0; kv < call->num_kv; kv++)
        for (int64_t unit = low; unit < high; unit++)
            for (int64_t lane = 0; lane < lanes_of(call, unit); lane += LANES) {
                Block b = block_of(call, call->units + unit, kv, lane);
                int64_t cost = cost_of(&b), middle = passed + cost / 2;
                passed += cost;
                if (middle >= from && middle < to) act(&b, scratch, thread);
            }
}

static void act_forward(const Block *b, void *scratch, int64_t thread) {
    (void)thread;
    forward_block(b, scratch);
}

static void act_backward(const Block *b, void *scratch, int64_t thread) {
    const Call *call = b->call;
    int64_t place = (thread * call->num_keys * call->num_kv + b->kv) * b->padded;
    backward_block(b, scratch, call->dk + place, call->dv + place);
}

static void forward_between(const Call *call, int64_t low, int64_t high) {
    int64_t whole = cost_between(call, low, high) * call->num_kv;
    if (low == high) return;
#pragma omp parallel for num_threads(call->num_threads) schedule(static, 1)
    for (int64_t thread = 0; thread < call->num_threads; thread++) {
        Forward scratch;
        act_on_share(call, low, high, whole, thread, act_forward, &scratch);
    }
}

static void keep(const Call *call, int64_t row) {
    int64_t size = call->head_size, store = call->places[row].store, offset = call->places[row].offset;
    for (int64_t kv = 0; kv < call->num_kv; kv++) {
        memcpy(call->keys[store] + offset * call->key_token[store] + kv * call->key_head[store],
               call->new_keys + row * call->new_key_token + kv * size, sizeof(float) * size);
        memcpy(call->values[store] + offset * call->value_token[store] + kv * call->value_head[store],
               call->new_values + row * call->new_value_token + kv * size, sizeof(float) * size);
    }
}

int64_t size_of_call(void) { return sizeof(Call); }

int64_t width_of_vectors(void) { return WIDTH; }

int64_t largest_head(void) { return MAX_HEAD; }

void attend(const Call *call) {
#pragma omp parallel for num_threads(call->num_threads) schedule(static) if (call->num_new > 64)
    for (int64_t row = 0; row < call->num_new; row++) keep(call, row);
    forward_between(call, 0, call->num_first);
    forward_between(call, call->num_first, call->num_units);
}

void attend_backward(const Call *call) {
    int64_t whole = cost_between(call, 0, call->num_units) * call->num_kv;
#pragma omp parallel for num_threads(call->num_threads) schedule(static, 1)
    for (int64_t thread = 0; thread < call->num_threads; thread++) {
        Backward scratch;
        act_on_share(call, 0, call->num_units, whole, thread, act_backward, &scratch);
    }
}

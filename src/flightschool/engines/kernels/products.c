/* c (+)= a b of float32 matrices, of which a may be transposed: what a trainer's backward pass needs.

   A block of b's rows is laid out in panels as wide as the vectors of a tile; a is read one number at a time, and a
   block of it stays in the second-level cache for as long as it is multiplied (the order of loops is that of Goto and
   van de Geijn 2008). It is read where it lies, unless its lines are whole pages apart: all of them would want the same
   few places of the cache. */

#include <string.h>

#include "vectors.h"

enum { COLUMNS = MAX_VECS * WIDTH, USUAL_DEPTH = 192, MOST_DEPTH = 256, HEIGHT = 96, LEAST_PANELS = 4, PAGE = 1024 };

typedef struct {
    int64_t num_rows, num_columns, depth, num_threads, adds;
    const float *a; /* [rows, depth], its strides below; one of them is 1 */
    int64_t a_row, a_depth;
    const float *b; /* [depth, columns] */
    int64_t b_depth;
    float *c; /* [rows, columns] */
    int64_t c_row;
    float *scratch; /* for each thread what size_of_scratch says */
} Product;

/* Numbers num of each of b's rows to one panel; what is left of it becomes zeros. */
static void lay_out_panel(const float *from, int64_t stride, int64_t depth, int64_t num, float *panel) {
    for (int64_t k = 0; k < depth && num == COLUMNS; k++) /* of a size that the compiler knows */
        memcpy(panel + k * COLUMNS, from + k * stride, sizeof(float) * COLUMNS);
    for (int64_t k = 0; k < depth && num < COLUMNS; k++) {
        memcpy(panel + k * COLUMNS, from + k * stride, sizeof(float) * num);
        memset(panel + k * COLUMNS + num, 0, sizeof(float) * (COLUMNS - num));
    }
}

static void lay_out(const Product *p, int64_t first, int64_t depth, int64_t left, int64_t right, float *panels) {
    for (int64_t column = left; column < right; column += COLUMNS, panels += depth * COLUMNS) {
        int64_t num = right - column < COLUMNS ? right - column : COLUMNS;
        lay_out_panel(p->b + first * p->b_depth + column, p->b_depth, depth, num, panels);
    }
}

/* A block of a, of up to HEIGHT rows. */
typedef struct {
    const float *first;
    int64_t row, depth; /* strides */
} Block;

static int is_whole_pages(int64_t stride) { return stride && stride % PAGE == 0; }

static Block block_of(const Product *p, int64_t row, int64_t first, int64_t num_rows, int64_t depth, float *room) {
    Block block = {p->a + row * p->a_row + first * p->a_depth, p->a_row, p->a_depth};
    if (block.depth == 1 && is_whole_pages(block.row)) {
        for (int64_t r = 0; r < num_rows; r++) memcpy(room + r * depth, block.first + r * block.row, sizeof(float) * depth);
        return (Block){room, depth, 1};
    }
    if (block.row == 1 && is_whole_pages(block.depth)) {
        for (int64_t k = 0; k < depth; k++) memcpy(room + k * HEIGHT, block.first + k * block.depth, sizeof(float) * num_rows);
        return (Block){room, 1, HEIGHT};
    }
    return block;
}

INLINE void whole_tile(const int rows, Block a, int64_t depth, const float *panel, float *c, int64_t c_row, int adds) {
    if (a.depth == 1 && adds) tile(rows, MAX_VECS, depth, a.first, a.row, 1, panel, COLUMNS, c, c_row, 1);
    else if (a.depth == 1) tile(rows, MAX_VECS, depth, a.first, a.row, 1, panel, COLUMNS, c, c_row, 0);
    else if (adds) tile(rows, MAX_VECS, depth, a.first, 1, a.depth, panel, COLUMNS, c, c_row, 1);
    else tile(rows, MAX_VECS, depth, a.first, 1, a.depth, panel, COLUMNS, c, c_row, 0);
}

static Block below(Block a, int64_t rows) { return (Block){a.first + rows * a.row, a.row, a.depth}; }

/* A tile of rows or columns fewer than usual goes by way of a whole one. */
static void part_tile(int64_t rows, Block a, int64_t depth, const float *panel, float *c, int64_t c_row, int64_t num, int adds) {
    float whole[ROWS * COLUMNS] __attribute__((aligned(64)));
    if (rows == ROWS) whole_tile(ROWS, a, depth, panel, whole, COLUMNS, 0);
    else
        for (int64_t row = 0; row < rows; row++) whole_tile(1, below(a, row), depth, panel, whole + row * COLUMNS, COLUMNS, 0);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < num; i++) {
            float *place = c + row * c_row + i;
            *place = adds ? *place + whole[row * COLUMNS + i] : whole[row * COLUMNS + i];
        }
}

/* Rows of one block of a, in columns left to right. */
static void multiply_block(Block a, int64_t num_rows, int64_t depth, const float *panels, float *c, int64_t c_row,
                           int64_t num_columns, int adds) {
    for (int64_t column = 0; column < num_columns; column += COLUMNS, panels += depth * COLUMNS)
        for (int64_t row = 0; row < num_rows; row += ROWS) {
            int64_t rows = num_rows - row < ROWS ? num_rows - row : ROWS;
            int64_t num = num_columns - column < COLUMNS ? num_columns - column : COLUMNS;
            float *place = c + row * c_row + column;
            if (rows == ROWS && num == COLUMNS) whole_tile(ROWS, below(a, row), depth, panels, place, c_row, adds);
            else part_tile(rows, below(a, row), depth, panels, place, c_row, num, adds);
        }
}

static void multiply_part(const Product *p, int64_t top, int64_t bottom, int64_t left, int64_t right, float *scratch) {
    float *panels = scratch + HEIGHT * MOST_DEPTH;
    int64_t num_parts = p->depth <= MOST_DEPTH ? 1 : (p->depth + USUAL_DEPTH - 1) / USUAL_DEPTH;
    for (int64_t part = 0; part < num_parts; part++) {
        int64_t first = p->depth * part / num_parts, depth = p->depth * (part + 1) / num_parts - first;
        lay_out(p, first, depth, left, right, panels);
        for (int64_t row = top; row < bottom; row += HEIGHT) {
            int64_t num_rows = bottom - row < HEIGHT ? bottom - row : HEIGHT;
            Block a = block_of(p, row, first, num_rows, depth, scratch);
            multiply_block(a, num_rows, depth, panels, p->c + row * p->c_row + left, p->c_row, right - left,
                           p->adds || part > 0);
        }
    }
}

static int64_t panels_of(int64_t columns) { return (columns + COLUMNS - 1) / COLUMNS; }

int64_t size_of_product(void) { return sizeof(Product); }

/* Numbers that a thread lays out. */
int64_t size_of_scratch(int64_t num_columns) { return MOST_DEPTH * (HEIGHT + COLUMNS * panels_of(num_columns)); }

/* Threads share the columns where there are enough for each, else the rows. Equal calls give equal bits. */
void multiply(const Product *p) {
    int64_t panels = panels_of(p->num_columns), tiles = (p->num_rows + ROWS - 1) / ROWS, threads = p->num_threads;
    int by_columns = panels >= LEAST_PANELS * threads;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int64_t t = 0; t < threads; t++) {
        int64_t top = by_columns ? 0 : tiles * t / threads * ROWS, left = by_columns ? panels * t / threads * COLUMNS : 0;
        int64_t bottom = by_columns ? p->num_rows : tiles * (t + 1) / threads * ROWS;
        int64_t right = by_columns ? panels * (t + 1) / threads * COLUMNS : p->num_columns;
        if (bottom > p->num_rows) bottom = p->num_rows;
        if (right > p->num_columns) right = p->num_columns;
        if (top < bottom && left < right)
            multiply_part(p, top, bottom, left, right, p->scratch + t * size_of_scratch(p->num_columns));
    }
}

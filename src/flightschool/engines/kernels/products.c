/* c (+)= a b of float32 matrices, none of which has to be transposed first: what a trainer's backward pass needs.

   A block of b's rows is laid out in panels as wide as the vectors of a tile; a is read where it lies, one number at a
   time, and stays in the second-level cache for as long as a block of it is multiplied (the order of loops is that of
   Goto and van de Geijn 2008). */

#include <string.h>

#include "vectors.h"

enum { COLUMNS = MAX_VECS * WIDTH, DEPTH = 192, HEIGHT = 96, LEAST_PANELS = 4 };

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

/* Columns beyond the last are laid out as zeros. */
static void lay_out(const Product *p, int64_t first, int64_t depth, int64_t left, int64_t right, float *panels) {
    for (int64_t column = left; column < right; column += COLUMNS, panels += depth * COLUMNS) {
        int64_t num = right - column < COLUMNS ? right - column : COLUMNS;
        for (int64_t k = 0; k < depth; k++) {
            memcpy(panels + k * COLUMNS, p->b + (first + k) * p->b_depth + column, sizeof(float) * num);
            if (num < COLUMNS) memset(panels + k * COLUMNS + num, 0, sizeof(float) * (COLUMNS - num));
        }
    }
}

INLINE void whole_tile(const int rows, const Product *p, int64_t depth, const float *a, const float *panel, float *c,
                       int64_t c_row, int adds) {
    if (p->a_depth == 1 && adds) tile(rows, MAX_VECS, depth, a, p->a_row, 1, panel, COLUMNS, c, c_row, 1);
    else if (p->a_depth == 1) tile(rows, MAX_VECS, depth, a, p->a_row, 1, panel, COLUMNS, c, c_row, 0);
    else if (adds) tile(rows, MAX_VECS, depth, a, 1, p->a_depth, panel, COLUMNS, c, c_row, 1);
    else tile(rows, MAX_VECS, depth, a, 1, p->a_depth, panel, COLUMNS, c, c_row, 0);
}

/* A tile of rows or columns fewer than usual goes by way of a whole one. */
static void part_tile(const Product *p, int64_t rows, int64_t depth, const float *a, const float *panel, float *c,
                      int64_t num, int adds) {
    float whole[ROWS * COLUMNS] __attribute__((aligned(64)));
    if (rows == ROWS) whole_tile(ROWS, p, depth, a, panel, whole, COLUMNS, 0);
    else
        for (int64_t row = 0; row < rows; row++) whole_tile(1, p, depth, a + row * p->a_row, panel, whole + row * COLUMNS, COLUMNS, 0);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < num; i++) {
            float *place = c + row * p->c_row + i;
            *place = adds ? *place + whole[row * COLUMNS + i] : whole[row * COLUMNS + i];
        }
}

static void multiply_part(const Product *p, int64_t top, int64_t bottom, int64_t left, int64_t right, float *panels) {
    for (int64_t first = 0; first < p->depth; first += DEPTH) {
        int64_t depth = p->depth - first < DEPTH ? p->depth - first : DEPTH;
        int adds = p->adds || first > 0;
        lay_out(p, first, depth, left, right, panels);
        for (int64_t high = top; high < bottom; high += HEIGHT) {
            int64_t low = bottom - high < HEIGHT ? bottom : high + HEIGHT;
            for (int64_t column = left; column < right; column += COLUMNS)
                for (int64_t row = high; row < low; row += ROWS) {
                    int64_t rows = low - row < ROWS ? low - row : ROWS, num = right - column < COLUMNS ? right - column : COLUMNS;
                    const float *a = p->a + row * p->a_row + first * p->a_depth;
                    const float *panel = panels + (column - left) * depth;
                    float *c = p->c + row * p->c_row + column;
                    if (rows == ROWS && num == COLUMNS) whole_tile(ROWS, p, depth, a, panel, c, p->c_row, adds);
                    else part_tile(p, rows, depth, a, panel, c, num, adds);
                }
        }
    }
}

static int64_t panels_of(int64_t columns) { return (columns + COLUMNS - 1) / COLUMNS; }

int64_t size_of_product(void) { return sizeof(Product); }

/* Numbers that a thread lays out. */
int64_t size_of_scratch(int64_t num_columns) { return DEPTH * COLUMNS * panels_of(num_columns); }

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

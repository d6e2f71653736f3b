/* Vectors as wide as the processor's, and the one loop that all products are made of. */

#ifndef FLIGHTSCHOOL_VECTORS_H
#define FLIGHTSCHOOL_VECTORS_H

#include <stdint.h>

#if defined(__AVX512F__)
enum { WIDTH = 16, ROWS = 8 };
#elif defined(__AVX__)
enum { WIDTH = 8, ROWS = 4 };
#else
enum { WIDTH = 4, ROWS = 4 };
#endif

enum { MAX_VECS = 3 };

typedef float vec __attribute__((vector_size(4 * WIDTH)));
typedef int32_t ivec __attribute__((vector_size(4 * WIDTH)));
typedef float loose __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias)); /* wherever it lies */

#define INLINE static inline __attribute__((always_inline))

INLINE vec spread(float x) { return x - (vec){0}; }

INLINE vec choose(ivec mask, vec yes, vec no) { return (vec)((mask & (ivec)yes) | (~mask & (ivec)no)); }

INLINE vec larger(vec a, vec b) { return choose(a > b, a, b); }

/* e^x for x <= 0, to about one unit in the last place; 0 below -87, where float32 ends; NaN stays NaN. */
INLINE vec exponential(vec x) {
    const vec magic = spread(12582912.0f); /* what is added to it becomes a whole number */
    ivec dead = x <= -87.0f;
    x = choose(dead, spread(-87.0f), x);
    vec n = (x * 1.44269504f + magic) - magic;
    vec r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    vec p = spread(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    ivec power = (__builtin_convertvector(n, ivec) + 127) << 23;
    return (vec)(~dead & (ivec)(p * (vec)power));
}

/* c[r][0..nv) (+)= sum over k of a[r*sr + k*sk] * b[k][0..nv); rows and vectors are constants where it is used. */
INLINE void tile(const int rows, const int nv, int64_t depth, const float *a, int64_t sr, int64_t sk, const float *b,
                 int64_t sb, float *c, int64_t sc, const int add) {
    vec sum[ROWS][MAX_VECS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 3
        for (int v = 0; v < nv; v++)
            sum[r][v] = add ? (vec) * (const loose *)(c + r * sc + v * WIDTH) : (vec){0};
    for (int64_t k = 0; k < depth; k++) {
        vec line[MAX_VECS];
#pragma GCC unroll 3
        for (int v = 0; v < nv; v++) line[v] = *(const loose *)(b + k * sb + v * WIDTH);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            vec x = spread(a[r * sr + k * sk]);
#pragma GCC unroll 3
            for (int v = 0; v < nv; v++) sum[r][v] += x * line[v];
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 3
        for (int v = 0; v < nv; v++) *(loose *)(c + r * sc + v * WIDTH) = sum[r][v];
}

#endif

/* What stands between the products of a layer, each in one pass over its numbers: norms, rotations, gates.

   Rows have no gaps unless a stride is given. Sums over rows are made apart by each thread and added in order, so equal
   calls give equal bits. */

#include <math.h>

#include "vectors.h"

enum { WORTH_A_THREAD = 16384 }; /* numbers, from which a second thread is woken */

INLINE vec at(const float *place) { return *(const loose *)place; }

INLINE float total(vec x) {
    float sum = 0.0f;
    for (int i = 0; i < WIDTH; i++) sum += x[i];
    return sum;
}

INLINE vec sigmoid(vec x) {
    ivec negative = x < 0.0f;
    vec small = exponential(choose(negative, x, -x));
    return choose(negative, small, spread(1.0f)) / (1.0f + small);
}

/* out = x / rms(x) * weight; inverse, unless null, gets 1 / rms. */
void rms_norm(int64_t num_rows, int64_t size, int64_t threads, const float *x, int64_t x_row, const float *weight,
              float eps, float *out, float *inverse) {
#pragma omp parallel for num_threads(threads) schedule(static) if (num_rows * size > WORTH_A_THREAD)
    for (int64_t row = 0; row < num_rows; row++) {
        const float *in = x + row * x_row;
        float *to = out + row * size, sum = 0.0f;
        vec squares = {0};
        int64_t i = 0;
        for (; i + WIDTH <= size; i += WIDTH) squares += at(in + i) * at(in + i);
        for (; i < size; i++) sum += in[i] * in[i];
        float scale = 1.0f / sqrtf((sum + total(squares)) / (float)size + eps);
        for (i = 0; i + WIDTH <= size; i += WIDTH) *(loose *)(to + i) = at(in + i) * scale * at(weight + i);
        for (; i < size; i++) to[i] = in[i] * scale * weight[i];
        if (inverse) inverse[row] = scale;
    }
}

/* With n = x / rms and h = grad * weight: dx = (h - n * mean(h * n)) / rms; weight_parts[thread] += grad * n. */
void rms_norm_backward(int64_t num_rows, int64_t size, int64_t threads, const float *x, int64_t x_row,
                       const float *weight, const float *inverse, const float *grad, float *dx, float *weight_parts) {
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int64_t thread = 0; thread < threads; thread++)
        for (int64_t row = num_rows * thread / threads; row < num_rows * (thread + 1) / threads; row++) {
            const float *in = x + row * x_row, *g = grad + row * size;
            float *to = dx + row * size, *part = weight_parts + thread * size, scale = inverse[row], sum = 0.0f;
            vec inner = {0};
            int64_t i = 0;
            for (; i + WIDTH <= size; i += WIDTH) {
                vec shared = at(in + i) * scale * at(g + i);
                *(loose *)(part + i) += shared;
                inner += shared * at(weight + i);
            }
            for (; i < size; i++) {
                float shared = in[i] * scale * g[i];
                part[i] += shared;
                sum += shared * weight[i];
            }
            float mean = (sum + total(inner)) / (float)size;
            for (i = 0; i + WIDTH <= size; i += WIDTH)
                *(loose *)(to + i) = (at(g + i) * at(weight + i) - at(in + i) * (scale * mean)) * scale;
            for (; i < size; i++) to[i] = (g[i] * weight[i] - in[i] * (scale * mean)) * scale;
        }
}

/* out = silu(gate) * up */
void gate(int64_t num_rows, int64_t size, int64_t threads, const float *gate, int64_t gate_row, const float *up,
          int64_t up_row, float *out) {
#pragma omp parallel for num_threads(threads) schedule(static) if (num_rows * size > WORTH_A_THREAD)
    for (int64_t row = 0; row < num_rows; row++) {
        const float *g = gate + row * gate_row, *u = up + row * up_row;
        float *to = out + row * size;
        int64_t i = 0;
        for (; i + WIDTH <= size; i += WIDTH) *(loose *)(to + i) = at(g + i) * sigmoid(at(g + i)) * at(u + i);
        for (; i < size; i++) to[i] = g[i] / (1.0f + expf(-g[i])) * u[i];
    }
}

/* From the gradient of silu(gate) * up: that of gate, that of up, and the product once more. */
void gate_backward(int64_t num_rows, int64_t size, int64_t threads, const float *gate, int64_t gate_row, const float *up,
                   int64_t up_row, const float *grad, float *dgate, float *dup, float *product) {
#pragma omp parallel for num_threads(threads) schedule(static) if (num_rows * size > WORTH_A_THREAD)
    for (int64_t row = 0; row < num_rows; row++) {
        const float *g = gate + row * gate_row, *u = up + row * up_row;
        int64_t first = row * size, i = 0;
        for (; i + WIDTH <= size; i += WIDTH) {
            vec share = sigmoid(at(g + i)), silu = at(g + i) * share, slope = at(grad + first + i);
            *(loose *)(dgate + first + i) = slope * at(u + i) * (share + silu * (1.0f - share));
            *(loose *)(dup + first + i) = slope * silu;
            *(loose *)(product + first + i) = silu * at(u + i);
        }
        for (; i < size; i++) {
            float share = 1.0f / (1.0f + expf(-g[i])), silu = g[i] * share, slope = grad[first + i];
            dgate[first + i] = slope * u[i] * (share + silu * (1.0f - share));
            dup[first + i] = slope * silu;
            product[first + i] = silu * u[i];
        }
    }
}

/* out = x * cos + swapped * sin, the halves of each head swapped; backwards, out = x * cos + swapped(x * sin). */
void rotate(int64_t num_rows, int64_t num_heads, int64_t size, int64_t threads, const float *x, int64_t x_row,
            const float *cos, const float *sin, int64_t backwards, float *out) {
    int64_t half = size / 2;
#pragma omp parallel for num_threads(threads) schedule(static) if (num_rows * num_heads * size > WORTH_A_THREAD)
    for (int64_t row = 0; row < num_rows; row++) {
        const float *c = cos + row * size, *s = sin + row * size, *first = backwards ? s + half : s;
        const float *second = backwards ? s : s + half;
        for (int64_t head = 0; head < num_heads; head++) {
            const float *in = x + row * x_row + head * size;
            float *to = out + (row * num_heads + head) * size;
            int64_t i = 0;
            for (; i + WIDTH <= half; i += WIDTH) {
                vec left = at(in + i), right = at(in + half + i);
                *(loose *)(to + i) = left * at(c + i) + right * at(first + i);
                *(loose *)(to + half + i) = right * at(c + half + i) + left * at(second + i);
            }
            for (; i < half; i++) {
                float left = in[i], right = in[half + i];
                to[i] = left * c[i] + right * first[i];
                to[half + i] = right * c[half + i] + left * second[i];
            }
        }
    }
}

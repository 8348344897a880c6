/* Samples m + L e of Gaussians, with the standard normal numbers e that JAX draws: Threefry-2x32 (Salmon et al.,
   2011) of their places, and the inverse of the error function (Giles, 2010). In single precision. */

/* Some samples of each of K Gaussians, one Gaussian after the other; the first of number k is starts[k]. */
typedef struct {
  int64_t D;
  const int64_t *starts;
  const uint32_t *keys; /* [K, 2] */
  const REAL *mean, *L;
  REAL *x;         /* [N, D] */
  int32_t *source; /* [N]: from which Gaussian */
} T(draws_task);

typedef uint32_t words __attribute__((vector_size(VECTOR_BYTES)));

static inline words rotated(words a, int by) { return a << by | a >> (32 - by); }

/* The bits at these places of the stream of a key. */
static inline words random_bits(uint32_t first, uint32_t second, words place) {
  static const int rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const uint32_t schedule[3] = {first, second, first ^ second ^ 0x1BD11BDA};
  words a = first + (words){0}, b = place + second;
  for (int i = 0; i < 5; i++) {
    for (int j = 0; j < 4; j++) {
      a += b;
      b = a ^ rotated(b, rotations[i % 2][j]);
    }
    a += schedule[(i + 1) % 3];
    b += schedule[(i + 2) % 3] + (uint32_t)(i + 1);
  }
  return a ^ b;
}

static inline T(vec) T(inverse_erf)(T(vec) u) {
  static const float middle[] = {2.81022636e-08f, 3.43273939e-07f, -3.5233877e-06f, -4.39150654e-06f,
                                 0.00021858087f, -0.00125372503f, -0.00417768164f, 0.246640727f, 1.50140941f};
  static const float outside[] = {-0.000200214257f, 0.000100950558f, 0.00134934322f, -0.00367342844f,
                                  0.00573950773f, -0.0076224613f, 0.00943887047f, 1.00167406f, 2.83297682f};
  T(vec) square = u * u;
  __asm__("" : "+m"(square)); /* rounded, as JAX does it, not part of one operation with the difference */
  T(vec) w = -T(vlog)(1.0f - square);
  T(ivec) inside = (T(ivec))(w < 5.0f);
  T(vec) near = w - 2.5f, p = T(all)(middle[0]);
  for (int i = 1; i < 9; i++) p = p * near + middle[i];
  if (T(any)(~inside)) {
    T(vec) far, q = T(all)(outside[0]);
    for (int i = 0; i < LANES; i++) far[i] = sqrtf(w[i]) - 3.0f;
    for (int i = 1; i < 9; i++) q = q * far + outside[i];
    p = T(choose)(inside, p, q);
  }
  return p * u;
}

static inline T(vec) T(normal)(words bits) {
  const float least = -0.99999994f;
  T(vec) below_two = (T(vec))(bits >> 9 | 0x3f800000);
  T(vec) u = T(larger)((below_two - 1.0f) * (1.0f - least) + least, T(all)(least));
  return 1.41421356f * T(inverse_erf)(u);
}

/* All samples of component k. */
static int T(draws_component)(const void *data, int64_t k) {
  const T(draws_task) *p = data;
  int64_t D = p->D, from = p->starts[k], number = p->starts[k + 1] - from;
  const REAL *W = p->L + k * D * D, *mean = p->mean + k * D;
  REAL *d = T(allocate)(2 * D * TILE);
  if (!d) return NO_MEMORY;
  REAL *y = d + D * TILE;
  T(vec) factor[VECTORS];
  words lane;
  for (int i = 0; i < LANES; i++) lane[i] = (uint32_t)(i * D);
  for (int v = 0; v < VECTORS; v++) factor[v] = T(all)(1);
  for (int64_t start = 0; start < number; start += TILE) {
    int64_t rows = number - start < TILE ? number - start : TILE;
    for (int64_t j = 0; j < D; j++)
      for (int v = 0; v < VECTORS; v++) {
        words place = lane + (uint32_t)((start + v * LANES) * D + j);
        T(store)(d + j * TILE + v * LANES, T(normal)(random_bits(p->keys[2 * k], p->keys[2 * k + 1], place)));
      }
    T(whiten)(W, D, d, factor, y);
    for (int64_t j = 0; j < D; j++)
      for (int64_t n = 0; n < TILE; n++) y[j * TILE + n] += mean[j];
    T(transpose)(y, D, rows, TILE, p->x + (from + start) * D, D);
  }
  for (int64_t i = from; i < from + number; i++) p->source[i] = (int32_t)k;
  free(d);
  return DONE;
}

static failure *T(draws)(const call *c, const draws_arrays *a) {
  int64_t K = a->number->dims[0], N = a->x->dims[0], *starts = malloc((K + 1) * sizeof *starts);
  if (!starts) return out_of_memory(c);
  starts[0] = 0;
  for (int64_t k = 0; k < K; k++) {
    int64_t number = ((const int32_t *)a->number->data)[k], next = starts[k] + (number < 0 ? 0 : number);
    starts[k + 1] = next < N ? next : N;
  }
  T(draws_task) p = {.D = a->x->dims[1], .starts = starts, .keys = a->keys->data, .mean = a->mean->data,
                     .L = a->L->data, .x = a->x->data, .source = a->source->data};
  clear_from(a->x, starts[K]);
  clear_from(a->source, starts[K]);
  failure *error = parallel(c, K, T(draws_component), &p);
  free(starts);
  return error;
}

/* The regressions of MORE: of every component the coefficients of its quadratic features, by weighted least
   squares over the samples that matter to it. Included once per type.

   With y = W (x - m) the F features phi are y_i^2 - 1, then y_i y_j for j < i, then y_i. */

#define AT_ONCE 128
/* Samples of a component that are summed together. */
#define AHEAD 32
/* Rows of log densities that are prefetched. */

/* Regressions of rewards on F features of D coordinates; the samples' `out` is [K, F]. */
typedef struct {
  T(weighting) samples;
  int64_t F, block;                   /* components of one task */
  const uint8_t *present, *zero;      /* [K]: the others' coefficients are zero; [N]: no density there */
  const REAL *W, *offset;             /* [K, D, D], [K]: log normalisers */
  const REAL *reward;                 /* [N] */
  const REAL *size, *total;           /* [K]: what weights are divided by, and what they then sum up to */
  const REAL *centre, *extra, *ridge; /* [K]: taken from rewards; taken from those of zeros beside */
} T(regression);

/* Samples of one component that are buffered: found and not yet summed. */
typedef struct {
  int64_t number;
  int32_t sample[AT_ONCE];
  REAL weight[AT_ONCE];
} T(buffered);

/* Rows of features, after them a one and the reward, up to whole vectors. */
static int64_t T(feature_width)(int64_t F) {
  int64_t whole = LANES < 4 ? 4 : LANES;
  return (F + 2 + whole - 1) / whole * whole;
}

/* As many rows do their sums have. */
static int64_t T(feature_height)(int64_t F) { return (F + 2 + 3) / 4 * 4; }

/* Of a tile of y, samples last; then ones, the rewards, and zeros. */
static void T(features)(const REAL *y, int64_t D, const REAL *reward, int64_t width, REAL *phi) {
  REAL *cross = phi + D * TILE, *linear = phi + D * (D + 1) / 2 * TILE, *rest = linear + D * TILE;
  for (int v = 0; v < VECTORS; v++) {
    int64_t at = v * LANES, pair = at;
    for (int64_t i = 0; i < D; i++) {
      T(vec) own = T(load)(y + i * TILE + at);
      T(store)(phi + i * TILE + at, own * own - 1);
      T(store)(linear + i * TILE + at, own);
      for (int64_t j = 0; j < i; j++, pair += TILE) T(store)(cross + pair, own * T(load)(y + j * TILE + at));
    }
    T(store)(rest + at, T(all)(1));
    T(store)(rest + TILE + at, T(load)(reward + at));
    for (REAL *zero = rest + 2 * TILE + at; zero < phi + width * TILE; zero += TILE) T(store)(zero, (T(vec)){0});
  }
}

static int64_t T(sum_features_workspace)(int64_t D, int64_t width) {
  return (2 * D + 1 + width) * TILE + 2 * (AT_ONCE + TILE) * width;
}

/* M += sum w (phi, 1, r) phi^T over the buffered samples; of phi phi^T what lies on the diagonal and below. */
static void T(sum_features)(const T(regression) *p, int64_t k, T(buffered) * now, REAL *workspace, REAL *M) {
  int64_t D = p->samples.D, width = T(feature_width)(p->F);
  const REAL *x = p->samples.x, *mean = p->samples.mean + k * D, *W = p->W + k * D * D;
  const REAL *reward = p->reward;
  REAL size = p->size[k], centre = p->centre[k], extra = p->extra[k];
  REAL *d = workspace, *y = d + D * TILE, *r = y + D * TILE, *phi = r + TILE;
  REAL *right = phi + width * TILE, *left = right + (AT_ONCE + TILE) * width;
  int32_t list[AT_ONCE];
  T(vec) one[VECTORS];
  for (int v = 0; v < VECTORS; v++) one[v] = T(all)(1);
  for (int64_t start = 0; start < now->number; start += TILE) {
    int64_t rows = now->number - start < TILE ? now->number - start : TILE;
    for (int64_t s = 0; s < TILE; s++) {
      int64_t n = now->sample[start + (s < rows ? s : 0)];
      for (int64_t j = 0; j < D; j++) d[j * TILE + s] = x[n * D + j] - mean[j];
      r[s] = (p->zero[n] ? reward[n] - extra : reward[n]) - centre;
    }
    T(whiten)(W, D, d, one, y);
    T(features)(y, D, r, width, phi);
    T(transpose)(phi, width, TILE, TILE, right + start * width, width);
  }
  for (int64_t s = 0; s < now->number; s++) {
    REAL weight = now->weight[s] / size;
    list[s] = (int32_t)s;
    for (int64_t f = 0; f < width; f += LANES)
      T(store)(left + s * width + f, weight * T(load)(right + s * width + f));
  }
  T(outer)(M, width, T(feature_height)(p->F), width, left, width, right, width, list, now->number, 1);
  now->number = 0;
}

/* For which of LANES components a sample matters, as bits, and its weights. It does if its share of the features'
   matrix is more than negligible, or not a number: the squares of its features sum up to less than |y|^4 + D. */
static inline uint32_t T(matters)(T(vec) log_density, REAL background, const REAL *top, const REAL *offset, REAL D,
                                  REAL *weight) {
  T(vec) log_w = log_density - background - T(load)(top);
  T(vec) squared = (REAL)-2 * (log_density + T(load)(offset)), fourth = squared * squared;
  /* Both terms are so small that their exponentials are not needed. */
  T(ivec) small = (T(ivec))(log_w <= 2 * LOG_NEGLIGIBLE) & (T(ivec))(fourth <= (REAL)0.5 / NEGLIGIBLE_SHARE);
  if (!T(any)(~(small | (T(ivec))(log_w < EXP_LOW)))) return 0;
  T(vec) w = T(vexp)(log_w);
  T(store)(weight, w);
  return T(bits)((T(ivec))(w != 0) & ~(T(ivec))(w * (fourth + D) <= NEGLIGIBLE_SHARE * D));
}

static void T(solve)(const T(regression) *p, int64_t k, const REAL *M, REAL *workspace) {
  REAL total = p->total[k], ridge = p->ridge[k], *out = p->samples.out;
  T(ridge_regression)(M, p->F, T(feature_width)(p->F), total, ridge, workspace, out + k * p->F);
}

/* Task i: one chunk of the samples and some components. Without other chunks these are solved too, else their
   sums are partial[chunk][k]. */
static int T(regressions_block)(const void *data, int64_t task) {
  const T(regression) *p = data;
  const T(weighting) *all = &p->samples;
  int64_t K = all->K, D = all->D, width = T(feature_width)(p->F), each = T(feature_height)(p->F) * width;
  int64_t blocks = (K + p->block - 1) / p->block, k0 = task % blocks * p->block, from, to;
  int64_t kb = K - k0 < p->block ? K - k0 : p->block, groups = (kb + LANES - 1) / LANES;
  const REAL *lc = all->log_components, *background = all->log_background, *tops = all->top, *offsets = p->offset;
  int64_t workspace_size = T(sum_features_workspace)(D, width), others = T(ridge_workspace)(p->F, width);
  if (others > workspace_size) workspace_size = others;
  REAL *top = T(allocate)(2 * groups * LANES + LANES + workspace_size + kb * each);
  if (!top) return NO_MEMORY;
  REAL *offset = top + groups * LANES;
  REAL *weight = offset + groups * LANES, *workspace = weight + LANES, *M = workspace + workspace_size;
  if (all->chunks > 1) M = all->partial + (task / blocks * K + k0) * each;
  T(buffered) *buffered = malloc(kb * sizeof *buffered);
  if (!buffered) {
    free(top);
    return NO_MEMORY;
  }
  uint32_t present[COMPONENT_BLOCK] = {0};
  for (int64_t k = 0; k < groups * LANES; k++) {
    top[k] = k < kb ? tops[k0 + k] : 0, offset[k] = k < kb ? offsets[k0 + k] : 0;
    if (k < kb) buffered[k].number = 0;
    if (k < kb && p->present[k0 + k]) present[k / LANES] |= (uint32_t)1 << k % LANES;
  }
  for (int64_t i = 0; i < kb * each; i++) M[i] = 0;
  T(chunk)(all, task / blocks, &from, &to);
  for (int64_t n = from; n < to; n++) {
    if (!all->valid[n]) continue;
    const REAL *ahead = lc + (n + AHEAD < to ? n + AHEAD : n) * K + k0;
    __builtin_prefetch(ahead);
    __builtin_prefetch(ahead + kb - 1);
    for (int64_t g = 0; g < groups; g++) {
      T(vec) l = T(part)(lc + n * K, k0 + g * LANES, K, n + 1 == all->N, (REAL)-INFINITY);
      uint32_t bits = present[g];
      if (bits) bits &= T(matters)(l, background[n], top + g * LANES, offset + g * LANES, (REAL)D, weight);
      for (; bits; bits &= bits - 1) {
        int64_t lane = __builtin_ctz(bits), k = g * LANES + lane;
        buffered[k].sample[buffered[k].number] = (int32_t)n;
        buffered[k].weight[buffered[k].number++] = weight[lane];
        if (buffered[k].number == AT_ONCE) T(sum_features)(p, k0 + k, buffered + k, workspace, M + k * each);
      }
    }
  }
  for (int64_t k = 0; k < kb; k++) {
    if (!p->present[k0 + k]) continue;
    if (buffered[k].number) T(sum_features)(p, k0 + k, buffered + k, workspace, M + k * each);
    if (all->chunks == 1) T(solve)(p, k0 + k, M + k * each, workspace);
  }
  free(buffered);
  free(top);
  return DONE;
}

/* Component k, of whose sums each chunk has a part. */
static int T(regressions_component)(const void *data, int64_t k) {
  const T(regression) *p = data;
  int64_t width = T(feature_width)(p->F), each = T(feature_height)(p->F) * width;
  REAL *partial = p->samples.partial + k * each;
  if (!p->present[k]) return DONE;
  for (int64_t chunk = 1; chunk < p->samples.chunks; chunk++)
    for (int64_t i = 0; i < each; i++) partial[i] += partial[chunk * p->samples.K * each + i];
  REAL *workspace = T(allocate)(T(ridge_workspace)(p->F, width));
  if (!workspace) return NO_MEMORY;
  T(solve)(p, k, partial, workspace);
  free(workspace);
  return DONE;
}

static failure *T(more_regressions)(const call *c, const more_regressions_arrays *a) {
  enum { TASKS = 32, BLOCK_NUMBERS = 1 << 17 }; /* at least, with enough components; one task's sums */
  T(regression) p = {.samples = T(weighting_of)(a->log_components, a->count, a->coefficients), .W = a->W->data,
                     .offset = a->offset->data, .present = a->present->data, .reward = a->reward->data,
                     .zero = a->zero->data, .size = a->size->data, .total = a->total->data,
                     .centre = a->centre->data, .extra = a->extra->data, .ridge = a->ridge->data,
                     .F = a->coefficients->dims[1]};
  T(weighting) *s = &p.samples;
  s->log_background = a->log_background->data, s->valid = a->valid->data, s->top = a->top->data;
  s->x = a->x->data, s->mean = a->mean->data, s->D = a->x->dims[1];
  if (p.F != s->D * (s->D + 3) / 2)
    return invalid(c, "natmix_more_regressions: %lld dimensions have %lld quadratic features, got %lld.",
                   (long long)s->D, (long long)(s->D * (s->D + 3) / 2), (long long)p.F);
  if (s->N > INT32_MAX) return invalid(c, "natmix_more_regressions takes fewer than 2^31 samples.");
  if (!s->K) return NULL;
  int64_t each = (p.F + 5) * (p.F + 17), chunks = s->K < TASKS ? TASKS / s->K : 1; /* each: an upper bound */
  if (chunks < s->chunks) s->chunks = chunks;
  p.block = s->K * s->chunks / TASKS;
  if (p.block > BLOCK_NUMBERS / each) p.block = BLOCK_NUMBERS / each;
  if (p.block > COMPONENT_BLOCK) p.block = COMPONENT_BLOCK;
  if (p.block < 1) p.block = 1;
  clear_from(a->coefficients, 0);
  if (s->chunks > 1 && !(s->partial = malloc(s->chunks * s->K * each * sizeof(REAL)))) return out_of_memory(c);
  failure *error = parallel(c, s->chunks * ((s->K + p.block - 1) / p.block), T(regressions_block), &p);
  if (!error && s->chunks > 1) error = parallel(c, s->K, T(regressions_component), &p);
  free(s->partial);
  return error;
}

/* Log densities of samples under Gaussians and mixtures. Included once per type. */

/* N samples x [N, D], of which the first `count` are used, and K Gaussians with whitening factors W [K, D, D]. */
typedef struct {
  int64_t N, K, D, count;
  const REAL *x, *mean, *W;
  const uint8_t *present;     /* [K]: the others' log densities are -inf */
  const REAL *offset;         /* [K]: log normalisers */
  const REAL *log_weights;    /* [K] */
  const REAL *log_components; /* [N, K]; or what the terms of a sum are multiplied with */
  const int32_t *near;        /* [N]: a component that is probably near */
  const REAL *background;     /* [N] */
  int32_t *nearest;           /* [N]: the component whose mean is nearest */
  const int32_t *order;       /* [N]: in which order to take the samples, if not one after the other */
  double margin;              /* how far below others a log density is negligible */
  uint8_t *seen;              /* [K]: components that are not negligible for some sample */
  int64_t H;                  /* generations of K / H Gaussians each */
  const REAL *in_use, *drawn; /* [K]: how many samples each has drawn, of those in use and of all */
  REAL *log_generation;       /* [N, H] */
  REAL *out;
} T(density_task);

/* The arrays that all kernels of samples and Gaussians have; rows of the result that no sample fills are zero. */
static T(density_task) T(densities_of)(const array *x, const array *mean, const array *W, const array *count,
                                       array *out) {
  T(density_task) p = {.N = x->dims[0], .K = mean->dims[0], .D = x->dims[1], .x = x->data, .mean = mean->data,
                       .W = W->data, .out = out->data};
  p.count = used_samples(count, p.N);
  clear_from(out, p.count);
  return p;
}

static failure *T(share_tiles)(const call *c, const T(density_task) *p, task *work) {
  return parallel(c, T(tiles_of)(p->count), work, p);
}

static inline int T(all_above)(const T(vec) * sum, const T(vec) * limit) {
  T(ivec) inside = {0};
  for (int v = 0; v < VECTORS; v++) inside |= ~(T(ivec))(sum[v] > limit[v]);
  return !T(any)(inside);
}

/* |W (x - m)|^2, or 0 as soon as it is larger than `limit` for all samples. */
static inline int T(squared_within)(const REAL *W, int64_t D, const REAL *x, const REAL *mean, const T(vec) * limit,
                                    REAL *d, T(vec) * sum) {
  int64_t i = 0;
  for (int v = 0; v < VECTORS; v++) sum[v] = (T(vec)){0};
  for (; i + ROWS <= D; i += ROWS) {
    T(centre_some)(x, mean, i, i + ROWS, d);
    SQUARED_ROWS(ROWS)
    if (T(all_above)(sum, limit)) return 0;
  }
  T(centre_some)(x, mean, i, D, d);
  SWITCH_REST(D - i, SQUARED_ROWS)
  return 1;
}

static inline void T(fill_minus_infinity)(REAL *l) {
  for (int v = 0; v < VECTORS; v++) T(store)(l + v * LANES, T(all)((REAL)-INFINITY));
}

/* l = log N(x; m_k, S_k) of a tile. */
static inline void T(densities_under)(const T(density_task) *p, int64_t k, const REAL *x, REAL *d, REAL *l) {
  T(vec) sum[VECTORS];
  T(centre)(x, p->mean + k * p->D, p->D, d);
  T(squared)(p->W + k * p->D * p->D, p->D, d, sum);
  for (int v = 0; v < VECTORS; v++)
    T(store)(l + v * LANES, (REAL)-0.5 * sum[v] - p->offset[k]);
}

/* The same, or -inf and 0 if all are below `floor`. */
static inline int T(densities_above)(const T(density_task) *p, int64_t k, const T(vec) * floor, const REAL *x,
                                     REAL *d, REAL *l) {
  REAL offset = p->offset[k];
  T(vec) sum[VECTORS], limit[VECTORS];
  for (int v = 0; v < VECTORS; v++) limit[v] = (REAL)-2 * (floor[v] + offset);
  const REAL *W = p->W + k * p->D * p->D, *mean = p->mean + k * p->D;
  if (!T(squared_within)(W, p->D, x, mean, limit, d, sum)) {
    T(fill_minus_infinity)(l);
    return 0;
  }
  for (int v = 0; v < VECTORS; v++) T(store)(l + v * LANES, (REAL)-0.5 * sum[v] - offset);
  return 1;
}

/* log N(x; m, S) of one tile, samples last: l[k * TILE + n]. */
static void T(tile_densities)(const T(density_task) *p, int64_t tile, REAL *x, REAL *d, REAL *l) {
  T(tile_of)(p->x + tile * TILE * p->D, T(samples_in)(tile, p->count), p->D, x);
  for (int64_t k = 0; k < p->K; k++) {
    if (p->present[k])
      T(densities_under)(p, k, x, d, l + k * TILE);
    else
      T(fill_minus_infinity)(l + k * TILE);
  }
}

static int T(log_prob_tile)(const void *data, int64_t tile) {
  const T(density_task) *p = data;
  int64_t D = p->D, K = p->K, rows = T(samples_in)(tile, p->count);
  REAL *x = T(allocate)((2 * D + K) * TILE);
  if (!x) return NO_MEMORY;
  REAL *d = x + D * TILE, *l = d + D * TILE;
  T(tile_densities)(p, tile, x, d, l);
  T(transpose)(l, K, rows, TILE, p->out + tile * TILE * K, K);
  free(x);
  return DONE;
}

static failure *T(log_prob)(const call *c, const log_prob_arrays *a) {
  T(density_task) p = T(densities_of)(a->x, a->mean, a->W, a->count, a->log_density);
  p.offset = a->offset->data, p.present = a->present->data;
  return T(share_tiles)(c, &p, T(log_prob_tile));
}

/* The first of the present components to evaluate: one that is near to the tile's middle sample. */
static int64_t T(nearest)(const T(density_task) *p, int64_t tile) {
  int64_t k = p->near[tile * TILE + T(samples_in)(tile, p->count) / 2];
  return 0 <= k && k < p->K && p->present[k] ? k : -1;
}

/* Densities of one tile, -inf for components that are negligible for all its samples: those by more than
   `margin` below the background, where it is known, and below another component's share of all. What is left out
   is negligible in a component's sums if some sample does matter to it; seen[k] says so. The background is inf
   where it is not known, and NaN for samples without a weight. */
static int T(relevant_tile)(const void *data, int64_t tile) {
  const T(density_task) *p = data;
  const REAL *share = p->log_weights, *background = p->background;
  const REAL close = 4;
  int64_t D = p->D, K = p->K, rows = T(samples_in)(tile, p->count);
  REAL *x = T(allocate)((2 * D + K) * TILE);
  if (!x) return NO_MEMORY;
  REAL *d = x + D * TILE, *l = d + D * TILE;
  REAL margin = (REAL)p->margin;
  T(tile_of)(p->x + tile * TILE * D, rows, D, x);
  T(vec) known[VECTORS], top[VECTORS], floor[VECTORS];
  for (int64_t n = 0; n < TILE; n++)
    known[n / LANES][n % LANES] = background[tile * TILE + (n < rows ? n : rows - 1)];
  for (int v = 0; v < VECTORS; v++) top[v] = T(all)((REAL)-INFINITY);
  int64_t near = T(nearest)(p, tile);
  for (int64_t turn = near < 0 ? 0 : -1; turn < K; turn++) {
    int64_t k = turn < 0 ? near : turn;
    if (turn == near) continue;
    if (!p->present[k]) {
      T(fill_minus_infinity)(l + k * TILE);
      continue;
    }
    for (int v = 0; v < VECTORS; v++) {
      T(vec) level = T(choose)((T(ivec))(known[v] < top[v]), known[v], top[v]);
      floor[v] = level - margin;
    }
    if (!T(densities_above)(p, k, floor, x, d, l + k * TILE)) continue;
    for (int v = 0; v < VECTORS; v++) {
      T(vec) shared = T(load)(l + k * TILE + v * LANES) + share[k];
      top[v] = T(choose)((T(ivec))(shared > top[v]), shared, top[v]);
    }
  }
  for (int64_t k = 0; k < K; k++) {
    if (__atomic_load_n(p->seen + k, __ATOMIC_RELAXED)) continue;
    T(ivec) matters = {0};
    for (int v = 0; v < VECTORS; v++) {
      T(vec) level = T(choose)((T(ivec))(known[v] == (REAL)INFINITY), top[v], known[v]);
      matters |= (T(ivec))(T(load)(l + k * TILE + v * LANES) > level - close);
    }
    if (T(any)(matters)) __atomic_store_n(p->seen + k, 1, __ATOMIC_RELAXED);
  }
  T(transpose)(l, K, rows, TILE, p->out + tile * TILE * K, K);
  free(x);
  return DONE;
}

/* Columns of components that are negligible for every sample, which have not been filled yet. */
static int T(unseen_tile)(const void *data, int64_t tile) {
  const T(density_task) *p = data;
  int64_t D = p->D, K = p->K, rows = T(samples_in)(tile, p->count);
  REAL *x = T(allocate)((2 * D + 1) * TILE);
  if (!x) return NO_MEMORY;
  REAL *d = x + D * TILE, *l = d + D * TILE;
  T(tile_of)(p->x + tile * TILE * D, rows, D, x);
  for (int64_t k = 0; k < K; k++) {
    if (!p->present[k] || p->seen[k]) continue;
    T(densities_under)(p, k, x, d, l);
    for (int64_t n = 0; n < rows; n++) p->out[(tile * TILE + n) * K + k] = l[n];
  }
  free(x);
  return DONE;
}

/* How far below is far enough: what is negligible at working precision, and more in many dimensions, where the
   background of a sample that is kept may fall by much when an old Gaussian is forgotten. */
static double T(margin)(int64_t D) { return (REAL_BYTES == 8 ? 64 : 44) + 0.25 * D; }

static failure *T(relevant_log_prob)(const call *c, const relevant_log_prob_arrays *a) {
  T(density_task) p = T(densities_of)(a->x, a->mean, a->W, a->count, a->log_density);
  p.offset = a->offset->data, p.present = a->present->data, p.log_weights = a->log_share->data;
  p.near = a->near->data, p.background = a->log_background->data;
  p.margin = T(margin)(p.D);
  p.seen = calloc(p.K ? p.K : 1, 1);
  if (!p.seen) return out_of_memory(c);
  failure *error = T(share_tiles)(c, &p, T(relevant_tile));
  int unseen = 0;
  for (int64_t k = 0; k < p.K; k++) unseen |= p.present[k] && !p.seen[k];
  if (!error && unseen) error = T(share_tiles)(c, &p, T(unseen_tile));
  free(p.seen);
  return error;
}

/* Of each sample the largest of l, zero where it is not finite, and sum_k exp(l - largest), whose terms take
   the place of l. */
static void T(largest_and_sum)(REAL *l, int64_t K, T(vec) * top, T(vec) * sum) {
  for (int v = 0; v < VECTORS; v++) {
    T(vec) most = T(all)((REAL)-INFINITY), total = {0};
    for (int64_t k = 0; k < K; k++) most = T(larger)(most, T(load)(l + k * TILE + v * LANES));
    most = T(choose)((T(ivec))(most - most == 0), most, (T(vec)){0});
    for (int64_t k = 0; k < K; k++) {
      T(vec) e = T(share)(T(load)(l + k * TILE + v * LANES) - most);
      T(store)(l + k * TILE + v * LANES, e);
      total += e;
    }
    top[v] = most, sum[v] = total;
  }
}

/* Of the samples of a tile the present component whose mean is nearest, -1 without one: near[n]. */
static int T(nearest_means_tile)(const void *data, int64_t tile) {
  const T(density_task) *p = data;
  const REAL *mean = p->mean;
  int64_t D = p->D, rows = T(samples_in)(tile, p->count);
  REAL *x = T(allocate)(D * TILE);
  if (!x) return NO_MEMORY;
  T(tile_of)(p->x + tile * TILE * D, rows, D, x);
  T(vec) least[VECTORS];
  T(ivec) found[VECTORS];
  for (int v = 0; v < VECTORS; v++) least[v] = T(all)((REAL)INFINITY), found[v] = (T(ivec)){0} - 1;
  for (int64_t k = 0; k < p->K; k++) {
    if (!p->present[k]) continue;
    T(vec) sum[VECTORS] = {{0}};
    for (int64_t j = 0; j < D; j++)
      for (int v = 0; v < VECTORS; v++) {
        T(vec) off = T(load)(x + j * TILE + v * LANES) - mean[k * D + j];
        sum[v] += off * off;
      }
    for (int v = 0; v < VECTORS; v++) {
      T(ivec) closer = (T(ivec))(sum[v] < least[v]);
      least[v] = T(choose)(closer, sum[v], least[v]);
      found[v] = (closer & ((T(ivec)){0} + (INTEGER)k)) | (~closer & found[v]);
    }
  }
  for (int64_t n = 0; n < rows; n++) p->nearest[tile * TILE + n] = (int32_t)found[n / LANES][n % LANES];
  free(x);
  return DONE;
}

/* The samples of a tile, in the order given if there is one: x[j * TILE + n]. */
static void T(ordered_tile)(const T(density_task) *p, int64_t tile, int64_t rows, REAL *x) {
  if (!p->order) {
    T(tile_of)(p->x + tile * TILE * p->D, rows, p->D, x);
    return;
  }
  for (int64_t n = 0; n < TILE; n++) {
    const REAL *from = p->x + p->order[tile * TILE + (n < rows ? n : rows - 1)] * p->D;
    for (int64_t j = 0; j < p->D; j++) x[j * TILE + n] = from[j];
  }
}

/* Components that are negligible at working precision are left out. One that is near, if it is known, comes first. */
static int T(mixture_tile)(const void *data, int64_t tile) {
  const T(density_task) *p = data;
  const REAL *log_weights = p->log_weights;
  int64_t D = p->D, K = p->K, rows = T(samples_in)(tile, p->count), kept = 0;
  REAL *x = T(allocate)((2 * D + K) * TILE);
  if (!x) return NO_MEMORY;
  REAL *d = x + D * TILE, *l = d + D * TILE;
  T(ordered_tile)(p, tile, rows, x);
  T(vec) top[VECTORS], sum[VECTORS], floor[VECTORS];
  for (int v = 0; v < VECTORS; v++) top[v] = T(all)((REAL)-INFINITY);
  int64_t first = p->order ? p->nearest[p->order[tile * TILE + rows / 2]] : -1;
  for (int64_t turn = first < 0 ? 0 : -1; turn < K; turn++) {
    int64_t k = turn < 0 ? first : turn;
    if (turn == first || !p->present[k]) continue;
    REAL *at = l + kept * TILE;
    for (int v = 0; v < VECTORS; v++) floor[v] = top[v] + (LOG_NEGLIGIBLE - log_weights[k]);
    if (!T(densities_above)(p, k, floor, x, d, at)) continue;
    for (int v = 0; v < VECTORS; v++) {
      T(vec) joint = T(load)(at + v * LANES) + log_weights[k];
      T(store)(at + v * LANES, joint);
      top[v] = T(choose)((T(ivec))(joint > top[v]), joint, top[v]);
    }
    kept++;
  }
  T(largest_and_sum)(l, kept, top, sum);
  for (int64_t n = 0; n < rows; n++) {
    int64_t place = tile * TILE + n;
    p->out[p->order ? p->order[place] : place] = top[n / LANES][n % LANES] + LOG(sum[n / LANES][n % LANES]);
  }
  free(x);
  return DONE;
}

/* The samples sorted by nearest component, those without one first; `starts` is for K + 1 numbers. */
static void T(sort_by_nearest)(const T(density_task) *p, int32_t *starts, int32_t *order) {
  memset(starts, 0, (p->K + 1) * sizeof *starts);
  for (int64_t n = 0; n < p->count; n++)
    if (p->nearest[n] < p->K - 1) starts[p->nearest[n] + 2]++;
  for (int64_t k = 0; k < p->K; k++) starts[k + 1] += starts[k];
  for (int64_t n = 0; n < p->count; n++) order[starts[p->nearest[n] + 1]++] = (int32_t)n;
}

/* Many samples are put in order first, so that those of a tile are near to the same few components. */
static failure *T(mixture_log_prob)(const call *c, const mixture_log_prob_arrays *a) {
  enum { MANY_SAMPLES = 4096, MANY_COMPONENTS = 16 };
  T(density_task) p = T(densities_of)(a->x, a->mean, a->W, a->count, a->log_density);
  p.offset = a->offset->data, p.present = a->present->data, p.log_weights = a->log_weights->data;
  int32_t *workspace = NULL;
  failure *error = NULL;
  if (p.count >= MANY_SAMPLES && p.count < INT32_MAX && p.K >= MANY_COMPONENTS)
    workspace = malloc((2 * p.count + p.K + 1) * sizeof *workspace);
  if (workspace) {
    p.nearest = workspace;
    error = T(share_tiles)(c, &p, T(nearest_means_tile));
    if (!error) T(sort_by_nearest)(&p, workspace + 2 * p.count, workspace + p.count);
    p.order = workspace + p.count;
  }
  if (!error) error = T(share_tiles)(c, &p, T(mixture_tile));
  free(workspace);
  return error;
}

/* log sum_k n_k exp(l_k) of a tile; `workspace` is for K rows of it. */
static void T(log_sum_of_drawn)(const REAL *l, const REAL *n, int64_t K, REAL *workspace, T(vec) * out) {
  T(vec) sum[VECTORS];
  for (int64_t k = 0; k < K; k++) {
    REAL factor = n[k] > 0 ? LOG(n[k]) : (REAL)-INFINITY;
    for (int v = 0; v < VECTORS; v++)
      T(store)(workspace + k * TILE + v * LANES, T(load)(l + k * TILE + v * LANES) + factor);
  }
  T(largest_and_sum)(workspace, K, out, sum);
  for (int v = 0; v < VECTORS; v++)
    for (int i = 0; i < LANES; i++) out[v][i] += LOG(sum[v][i]);
}

/* The samples of a tile under H generations of Gaussians: log sum n N(x; g) over each generation with n = drawn, and
   over all of them with n = in_use. Gaussians far below the sample's own one are left out. */
static int T(background_tile)(const void *data, int64_t tile) {
  const T(density_task) *p = data;
  const REAL *in_use = p->in_use, *drawn = p->drawn, *own = p->background;
  int64_t D = p->D, H = p->H, K = p->K / H, rows = T(samples_in)(tile, p->count);
  REAL *x = T(allocate)((2 * D + 2 * K + 2 * H) * TILE);
  if (!x) return NO_MEMORY;
  REAL *d = x + D * TILE, *l = d + D * TILE;
  REAL *workspace = l + K * TILE, *each = workspace + K * TILE, *total = each + H * TILE;
  T(tile_of)(p->x + tile * TILE * D, rows, D, x);
  T(vec) floor[VECTORS], out[VECTORS], sum[VECTORS];
  for (int64_t n = 0; n < TILE; n++)
    floor[n / LANES][n % LANES] = own[tile * TILE + (n < rows ? n : rows - 1)] - (REAL)p->margin;
  for (int64_t h = 0; h < H; h++) {
    int some = 0, same = 1;
    T(fill_minus_infinity)(each + h * TILE);
    T(fill_minus_infinity)(total + h * TILE);
    for (int64_t k = 0; k < K; k++) {
      int64_t g = h * K + k;
      if (!(in_use[g] > 0 || drawn[g] > 0))
        T(fill_minus_infinity)(l + k * TILE);
      else
        some |= T(densities_above)(p, g, floor, x, d, l + k * TILE);
      same &= in_use[g] == drawn[g];
    }
    if (!some) continue;
    T(log_sum_of_drawn)(l, drawn + h * K, K, workspace, out);
    for (int v = 0; v < VECTORS; v++) T(store)(each + h * TILE + v * LANES, out[v]);
    if (!same) T(log_sum_of_drawn)(l, in_use + h * K, K, workspace, out);
    for (int v = 0; v < VECTORS; v++) T(store)(total + h * TILE + v * LANES, out[v]);
  }
  T(transpose)(each, H, rows, TILE, p->log_generation + tile * TILE * H, H);
  T(largest_and_sum)(total, H, out, sum);
  for (int64_t n = 0; n < rows; n++)
    p->out[tile * TILE + n] = out[n / LANES][n % LANES] + LOG(sum[n / LANES][n % LANES]);
  free(x);
  return DONE;
}

static failure *T(background_log_density)(const call *c, const background_log_density_arrays *a) {
  T(density_task) p = T(densities_of)(a->x, a->mean, a->W, a->count, a->log_total);
  p.H = a->log_generation->dims[1], p.log_generation = a->log_generation->data;
  if (!p.H || p.K % p.H)
    return invalid(c, "natmix_background_log_density: %lld Gaussians are not %lld generations of the same size.",
                   (long long)p.K, (long long)p.H);
  clear_from(a->log_generation, p.count);
  p.offset = a->offset->data, p.in_use = a->in_use->data, p.drawn = a->drawn->data;
  p.background = a->log_own->data, p.margin = T(margin)(p.D) + 12;
  return T(share_tiles)(c, &p, T(background_tile));
}

/* y = W (x - m) for tiles of samples, and what follows from it. Included once per type.

   A tile has TILE samples, its coordinates one after another: x[j * TILE + n]. W is lower triangular: what
   lies above its diagonal is not looked at. Its rows are done ROWS at a time. */

#define TILE (VECTORS * LANES)

/* Rows of `cols` numbers of the tile's samples, samples last; those beyond the last are its copies. */
static void T(tile_of)(const REAL *from, int64_t rows, int64_t cols, REAL *tile) {
  T(transpose)(from, rows, cols, cols, tile, TILE);
  for (int64_t j = 0; j < cols; j++)
    for (int64_t n = rows; n < TILE; n++) tile[j * TILE + n] = tile[j * TILE + rows - 1];
}

/* d = x - m in coordinates i to end. */
static inline void T(centre_some)(const REAL *tile, const REAL *mean, int64_t i, int64_t end, REAL *d) {
  for (int64_t j = i; j < end; j++)
    for (int v = 0; v < VECTORS; v++) {
      int64_t at = j * TILE + v * LANES;
      T(store)(d + at, T(load)(tile + at) - mean[j]);
    }
}

static inline void T(centre)(const REAL *tile, const REAL *mean, int64_t D, REAL *d) {
  T(centre_some)(tile, mean, 0, D, d);
}

/* a = W[i : i + rows] d: what lies left of the diagonal block, then that block. */
#define WHITEN_ROWS(rows)                                                   \
  T(vec) a[rows][VECTORS] = {{{0}}};                                        \
  for (int64_t j = 0; j < i; j++) {                                         \
    T(vec) at[VECTORS];                                                     \
    for (int v = 0; v < VECTORS; v++) at[v] = T(load)(d + j * TILE + v * LANES); \
    for (int r = 0; r < rows; r++)                                          \
      for (int v = 0; v < VECTORS; v++) a[r][v] += W[(i + r) * D + j] * at[v]; \
  }                                                                         \
  UNROLL for (int j = 0; j < rows; j++) {                                   \
    T(vec) at[VECTORS];                                                     \
    for (int v = 0; v < VECTORS; v++) at[v] = T(load)(d + (i + j) * TILE + v * LANES); \
    UNROLL for (int r = 0; r < rows; r++)                                   \
      if (r >= j) for (int v = 0; v < VECTORS; v++) a[r][v] += W[(i + r) * D + i + j] * at[v]; \
  }

#define SQUARED_ROWS(rows)       \
  WHITEN_ROWS(rows)              \
  for (int r = 0; r < rows; r++) \
    for (int v = 0; v < VECTORS; v++) sum[v] += a[r][v] * a[r][v];

#define KEEP_ROWS(rows)          \
  WHITEN_ROWS(rows)              \
  for (int r = 0; r < rows; r++) \
    for (int v = 0; v < VECTORS; v++) T(store)(y + (i + r) * TILE + v * LANES, factor[v] * a[r][v]);

/* What remains when ROWS do not divide D. */
#define SWITCH_REST(rest, some_rows) \
  switch (rest) {                    \
    case 3: {                        \
      some_rows(3) break;            \
    }                                \
    case 2: {                        \
      some_rows(2) break;            \
    }                                \
    case 1: {                        \
      some_rows(1) break;            \
    }                                \
  }

static inline void T(squared)(const REAL *W, int64_t D, const REAL *d, T(vec) *sum) {
  int64_t i = 0;
  for (int v = 0; v < VECTORS; v++) sum[v] = (T(vec)){0};
  for (; i + ROWS <= D; i += ROWS) {
    SQUARED_ROWS(ROWS)
  }
  SWITCH_REST(D - i, SQUARED_ROWS)
}

/* y = r W d */
static inline void T(whiten)(const REAL *W, int64_t D, const REAL *d, const T(vec) * factor, REAL *y) {
  int64_t i = 0;
  for (; i + ROWS <= D; i += ROWS) {
    KEEP_ROWS(ROWS)
  }
  SWITCH_REST(D - i, KEEP_ROWS)
}

/* z[j : j + cols] += (W^T y)[j : j + cols] */
#define PULL_COLUMNS(cols)                                                  \
  T(vec) a[cols][VECTORS];                                                  \
  for (int c = 0; c < cols; c++)                                            \
    for (int v = 0; v < VECTORS; v++) a[c][v] = T(load)(z + (j + c) * TILE + v * LANES); \
  UNROLL for (int i = 0; i < cols; i++) {                                   \
    T(vec) at[VECTORS];                                                     \
    for (int v = 0; v < VECTORS; v++) at[v] = T(load)(y + (j + i) * TILE + v * LANES); \
    UNROLL for (int c = 0; c < cols; c++)                                   \
      if (c <= i) for (int v = 0; v < VECTORS; v++) a[c][v] += W[(j + i) * D + j + c] * at[v]; \
  }                                                                         \
  for (int64_t i = j + cols; i < D; i++) {                                  \
    T(vec) at[VECTORS];                                                     \
    for (int v = 0; v < VECTORS; v++) at[v] = T(load)(y + i * TILE + v * LANES); \
    for (int c = 0; c < cols; c++)                                          \
      for (int v = 0; v < VECTORS; v++) a[c][v] += W[i * D + j + c] * at[v]; \
  }                                                                         \
  for (int c = 0; c < cols; c++)                                            \
    for (int v = 0; v < VECTORS; v++) T(store)(z + (j + c) * TILE + v * LANES, a[c][v]);

static inline void T(pull)(const REAL *W, int64_t D, const REAL *y, REAL *z) {
  int64_t j = 0;
  for (; j + ROWS <= D; j += ROWS) {
    PULL_COLUMNS(ROWS)
  }
  SWITCH_REST(D - j, PULL_COLUMNS)
}

static int64_t T(rows_of)(const samples_meet_gaussians *p, int64_t tile) {
  int64_t rest = p->count - tile * TILE;
  return rest < TILE ? rest : TILE;
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

static inline void T(nowhere)(REAL *l) {
  for (int v = 0; v < VECTORS; v++) T(store)(l + v * LANES, T(all)((REAL)-INFINITY));
}

/* l = log N(x; m_k, S_k) of a tile. */
static inline void T(densities_under)(const samples_meet_gaussians *p, int64_t k, const REAL *x, REAL *d, REAL *l) {
  T(vec) sum[VECTORS];
  T(centre)(x, (const REAL *)p->mean + k * p->D, p->D, d);
  T(squared)((const REAL *)p->W + k * p->D * p->D, p->D, d, sum);
  for (int v = 0; v < VECTORS; v++)
    T(store)(l + v * LANES, (REAL)-0.5 * sum[v] - ((const REAL *)p->offset)[k]);
}

/* The same, or -inf and 0 if all are below `floor`. */
static inline int T(densities_above)(const samples_meet_gaussians *p, int64_t k, const T(vec) * floor, const REAL *x,
                                     REAL *d, REAL *l) {
  REAL offset = ((const REAL *)p->offset)[k];
  T(vec) sum[VECTORS], limit[VECTORS];
  for (int v = 0; v < VECTORS; v++) limit[v] = (REAL)-2 * (floor[v] + offset);
  const REAL *W = (const REAL *)p->W + k * p->D * p->D, *mean = (const REAL *)p->mean + k * p->D;
  if (!T(squared_within)(W, p->D, x, mean, limit, d, sum)) {
    T(nowhere)(l);
    return 0;
  }
  for (int v = 0; v < VECTORS; v++) T(store)(l + v * LANES, (REAL)-0.5 * sum[v] - offset);
  return 1;
}

/* log N(x; m, S) of one tile, samples last: l[k * TILE + n]. */
static void T(tile_densities)(const samples_meet_gaussians *p, int64_t tile, REAL *x, REAL *d, REAL *l) {
  T(tile_of)((const REAL *)p->x + tile * TILE * p->D, T(rows_of)(p, tile), p->D, x);
  for (int64_t k = 0; k < p->K; k++) {
    if (p->present[k])
      T(densities_under)(p, k, x, d, l + k * TILE);
    else
      T(nowhere)(l + k * TILE);
  }
}

static void T(log_prob)(const void *data, int64_t tile) {
  const samples_meet_gaussians *p = data;
  int64_t D = p->D, K = p->K, rows = T(rows_of)(p, tile);
  REAL *x = T(room)((2 * D + K) * TILE), *d = x + D * TILE, *l = d + D * TILE;
  T(tile_densities)(p, tile, x, d, l);
  T(transpose)(l, K, rows, TILE, (REAL *)p->out + tile * TILE * K, K);
  free(x);
}

/* The first of the present components to look at: one that is near to the tile's middle sample. */
static int64_t T(nearest)(const samples_meet_gaussians *p, int64_t tile) {
  int64_t k = p->near[tile * TILE + T(rows_of)(p, tile) / 2];
  return 0 <= k && k < p->K && p->present[k] ? k : -1;
}

/* Densities of one tile, -inf for components that do not matter to any of its samples: those by more than
   `margin` below the background, where it is known, and below another component's share of all. What is left out
   changes no digit of a component's sums if some sample does matter to it; seen[k] says so. The background is inf
   where it is not known, and NaN for samples without a weight. */
static void T(relevant)(const void *data, int64_t tile) {
  const samples_meet_gaussians *p = data;
  const REAL *share = p->log_weights, *background = p->background;
  const REAL close = 4;
  int64_t D = p->D, K = p->K, rows = T(rows_of)(p, tile);
  REAL *x = T(room)((2 * D + K) * TILE), *d = x + D * TILE, *l = d + D * TILE;
  REAL margin = (REAL)p->margin;
  T(tile_of)((const REAL *)p->x + tile * TILE * D, rows, D, x);
  T(vec) known[VECTORS], top[VECTORS], floor[VECTORS];
  for (int64_t n = 0; n < TILE; n++)
    known[n / LANES][n % LANES] = background[tile * TILE + (n < rows ? n : rows - 1)];
  for (int v = 0; v < VECTORS; v++) top[v] = T(all)((REAL)-INFINITY);
  int64_t near = T(nearest)(p, tile);
  for (int64_t turn = near < 0 ? 0 : -1; turn < K; turn++) {
    int64_t k = turn < 0 ? near : turn;
    if (turn == near) continue;
    if (!p->present[k]) {
      T(nowhere)(l + k * TILE);
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
  T(transpose)(l, K, rows, TILE, (REAL *)p->out + tile * TILE * K, K);
  free(x);
}

/* Columns of components that matter to no sample, which are not as they should be yet. */
static void T(unseen)(const void *data, int64_t tile) {
  const samples_meet_gaussians *p = data;
  int64_t D = p->D, K = p->K, rows = T(rows_of)(p, tile);
  REAL *x = T(room)((2 * D + 1) * TILE), *d = x + D * TILE, *l = d + D * TILE;
  T(tile_of)((const REAL *)p->x + tile * TILE * D, rows, D, x);
  for (int64_t k = 0; k < K; k++) {
    if (!p->present[k] || p->seen[k]) continue;
    T(densities_under)(p, k, x, d, l);
    for (int64_t n = 0; n < rows; n++) ((REAL *)p->out)[(tile * TILE + n) * K + k] = l[n];
  }
  free(x);
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

static void T(add_weights)(REAL *l, const REAL *log_weights, int64_t K) {
  for (int64_t k = 0; k < K; k++)
    for (int v = 0; v < VECTORS; v++) {
      REAL *at = l + k * TILE + v * LANES;
      T(store)(at, T(load)(at) + log_weights[k]);
    }
}

/* Of the samples of a tile the present component whose mean is nearest, -1 without one: near[n]. */
static void T(nearest_means)(const void *data, int64_t tile) {
  const samples_meet_gaussians *p = data;
  const REAL *mean = p->mean;
  int64_t D = p->D, rows = T(rows_of)(p, tile);
  REAL *x = T(room)(D * TILE);
  T(tile_of)((const REAL *)p->x + tile * TILE * D, rows, D, x);
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
}

/* The samples of a tile, in the order given if there is one: x[j * TILE + n]. */
static void T(ordered_tile)(const samples_meet_gaussians *p, int64_t tile, int64_t rows, REAL *x) {
  if (!p->order) {
    T(tile_of)((const REAL *)p->x + tile * TILE * p->D, rows, p->D, x);
    return;
  }
  for (int64_t n = 0; n < TILE; n++) {
    const REAL *from = (const REAL *)p->x + p->order[tile * TILE + (n < rows ? n : rows - 1)] * p->D;
    for (int64_t j = 0; j < p->D; j++) x[j * TILE + n] = from[j];
  }
}

/* Components that change no digit are left out. One that is near, if it is known, comes first. */
static void T(mixture_log_prob)(const void *data, int64_t tile) {
  const samples_meet_gaussians *p = data;
  const REAL *log_weights = p->log_weights;
  int64_t D = p->D, K = p->K, rows = T(rows_of)(p, tile), kept = 0;
  REAL *x = T(room)((2 * D + K) * TILE), *d = x + D * TILE, *l = d + D * TILE;
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
    ((REAL *)p->out)[p->order ? p->order[place] : place] = top[n / LANES][n % LANES] + LOG(sum[n / LANES][n % LANES]);
  }
  free(x);
}

/* log sum_k n_k exp(l_k) of a tile; `room` is for K rows of it. */
static void T(log_sum_of_drawn)(const REAL *l, const REAL *n, int64_t K, REAL *room, T(vec) * out) {
  T(vec) sum[VECTORS];
  for (int64_t k = 0; k < K; k++) {
    REAL factor = n[k] > 0 ? LOG(n[k]) : (REAL)-INFINITY;
    for (int v = 0; v < VECTORS; v++)
      T(store)(room + k * TILE + v * LANES, T(load)(l + k * TILE + v * LANES) + factor);
  }
  T(largest_and_sum)(room, K, out, sum);
  for (int v = 0; v < VECTORS; v++)
    for (int i = 0; i < LANES; i++) out[v][i] += LOG(sum[v][i]);
}

/* Samples of a tile meet H generations of Gaussians: log sum n N(x; g) over each generation with n = counts, and
   over all of them with n = used. Gaussians far below the sample's own one are left out. */
static void T(meet)(const void *data, int64_t tile) {
  const samples_meet_gaussians *p = data;
  const REAL *used = p->used, *counts = p->counts, *own = p->background;
  int64_t D = p->D, H = p->H, K = p->K / H, rows = T(rows_of)(p, tile);
  REAL *x = T(room)((2 * D + 2 * K + 2 * H) * TILE), *d = x + D * TILE, *l = d + D * TILE;
  REAL *room = l + K * TILE, *each = room + K * TILE, *mass = each + H * TILE;
  T(tile_of)((const REAL *)p->x + tile * TILE * D, rows, D, x);
  T(vec) floor[VECTORS], out[VECTORS], sum[VECTORS];
  for (int64_t n = 0; n < TILE; n++)
    floor[n / LANES][n % LANES] = own[tile * TILE + (n < rows ? n : rows - 1)] - (REAL)p->margin;
  for (int64_t h = 0; h < H; h++) {
    int some = 0, same = 1;
    T(nowhere)(each + h * TILE);
    T(nowhere)(mass + h * TILE);
    for (int64_t k = 0; k < K; k++) {
      int64_t g = h * K + k;
      if (!(used[g] > 0 || counts[g] > 0))
        T(nowhere)(l + k * TILE);
      else
        some |= T(densities_above)(p, g, floor, x, d, l + k * TILE);
      same &= used[g] == counts[g];
    }
    if (!some) continue;
    T(log_sum_of_drawn)(l, counts + h * K, K, room, out);
    for (int v = 0; v < VECTORS; v++) T(store)(each + h * TILE + v * LANES, out[v]);
    if (!same) T(log_sum_of_drawn)(l, used + h * K, K, room, out);
    for (int v = 0; v < VECTORS; v++) T(store)(mass + h * TILE + v * LANES, out[v]);
  }
  T(transpose)(each, H, rows, TILE, (REAL *)p->each + tile * TILE * H, H);
  T(largest_and_sum)(mass, H, out, sum);
  for (int64_t n = 0; n < rows; n++)
    ((REAL *)p->out)[tile * TILE + n] = out[n / LANES][n % LANES] + LOG(sum[n / LANES][n % LANES]);
  free(x);
}

/* Responsibilities q(k|x) of a tile, in place of log q(x|k) + log q(k). */
static void T(responsibilities)(REAL *l, int64_t K) {
  T(vec) top[VECTORS], sum[VECTORS];
  T(largest_and_sum)(l, K, top, sum);
  for (int64_t k = 0; k < K; k++)
    for (int v = 0; v < VECTORS; v++) {
      REAL *at = l + k * TILE + v * LANES;
      T(store)(at, T(load)(at) / sum[v]);
    }
}

/* -sum_k r W^T W (x - m) of a tile, without components that change no digit of it for any sample; r may be
   responsibilities, from log densities and weights, or is given. */
static void T(pulled_sums)(const samples_meet_gaussians *p, int64_t tile, int given) {
  const REAL *mean = p->mean, *W = p->W;
  int64_t D = p->D, K = p->K, rows = T(rows_of)(p, tile);
  REAL *x = T(room)((4 * D + K) * TILE);
  REAL *d = x + D * TILE, *y = d + D * TILE, *z = y + D * TILE, *r = z + D * TILE;
  T(tile_of)((const REAL *)p->x + tile * TILE * D, rows, D, x);
  T(tile_of)((const REAL *)p->log_components + tile * TILE * K, rows, K, r);
  if (!given) {
    T(add_weights)(r, p->log_weights, K);
    T(responsibilities)(r, K);
  }
  T(vec) least[VECTORS];
  for (int v = 0; v < VECTORS; v++) {
    T(vec) most = {0};
    for (int64_t k = 0; k < K; k++) most = T(larger)(T(size)(T(load)(r + k * TILE + v * LANES)), most);
    least[v] = NEGLIGIBLE_SHARE * most;
  }
  for (int64_t i = 0; i < D * TILE; i++) z[i] = 0;
  for (int64_t k = 0; k < K; k++) {
    T(vec) minus[VECTORS];
    T(ivec) matters = {0};
    for (int v = 0; v < VECTORS; v++) {
      T(vec) at = T(load)(r + k * TILE + v * LANES);
      matters |= ~(T(ivec))(T(size)(at) <= least[v]);
      minus[v] = -at;
    }
    if (!T(any)(matters)) continue;
    T(centre)(x, mean + k * D, D, d);
    T(whiten)(W + k * D * D, D, d, minus, y);
    T(pull)(W + k * D * D, D, y, z);
  }
  T(transpose)(z, D, rows, TILE, (REAL *)p->out + tile * TILE * D, D);
  free(x);
}

static void T(score)(const void *data, int64_t tile) { T(pulled_sums)(data, tile, 0); }

static void T(pulled)(const void *data, int64_t tile) { T(pulled_sums)(data, tile, 1); }

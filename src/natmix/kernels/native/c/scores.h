/* Gradients of log densities in x: sums of the components' -W^T W (x - m). Included once per type. */

static void T(add_weights)(REAL *l, const REAL *log_weights, int64_t K) {
  for (int64_t k = 0; k < K; k++)
    for (int v = 0; v < VECTORS; v++) {
      REAL *at = l + k * TILE + v * LANES;
      T(store)(at, T(load)(at) + log_weights[k]);
    }
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

/* -sum_k r W^T W (x - m) of a tile, without components that are negligible for all its samples; r may be
   responsibilities, from log densities and weights, or is given. */
static int T(score_of_tile)(const T(density_task) *p, int64_t tile, int given) {
  const REAL *mean = p->mean, *W = p->W;
  int64_t D = p->D, K = p->K, rows = T(samples_in)(tile, p->count);
  REAL *x = T(allocate)((4 * D + K) * TILE);
  if (!x) return NO_MEMORY;
  REAL *d = x + D * TILE, *y = d + D * TILE, *z = y + D * TILE, *r = z + D * TILE;
  T(tile_of)(p->x + tile * TILE * D, rows, D, x);
  T(tile_of)(p->log_components + tile * TILE * K, rows, K, r);
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
    T(add_transposed_product)(W + k * D * D, D, y, z);
  }
  T(transpose)(z, D, rows, TILE, p->out + tile * TILE * D, D);
  free(x);
  return DONE;
}

static int T(score_tile)(const void *data, int64_t tile) { return T(score_of_tile)(data, tile, 0); }

static failure *T(score)(const call *c, const score_arrays *a) {
  T(density_task) p = T(densities_of)(a->x, a->mean, a->W, a->count, a->score);
  p.log_components = a->log_components->data, p.log_weights = a->log_weights->data;
  return T(share_tiles)(c, &p, T(score_tile));
}

static int T(weighted_scores_tile)(const void *data, int64_t tile) { return T(score_of_tile)(data, tile, 1); }

static failure *T(weighted_scores)(const call *c, const weighted_scores_arrays *a) {
  T(density_task) p = T(densities_of)(a->x, a->mean, a->W, a->count, a->score);
  p.log_components = a->weights->data;
  return T(share_tiles)(c, &p, T(weighted_scores_tile));
}

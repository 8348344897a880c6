/* What XLA calls: each handler unpacks its arrays, whose types and shapes `_calls.py` sees to, and shares
   the loops among threads. */
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "kernels.h"
#include "members.h"
#include "parallel.h"

#ifndef SOURCES
#define SOURCES ""
#endif

/* Which sources this was compiled from. */
const char *natmix_sources = SOURCES;

extern const all_kernels natmix_plain;
#if defined(__x86_64__)
extern const all_kernels natmix_wide, natmix_widest;
#endif

#if defined(__x86_64__)
/* Whether the processor has these instructions and the system keeps their registers: 0 neither, 1 AVX2 and FMA,
   2 AVX-512 too. */
static int width(void) {
  enum { FMA_AND_XSAVE = 1 << 12 | 1 << 27, AVX2 = 1 << 5, AVX = 0x6, AVX_512 = 0xe6 };
  const unsigned avx_512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; /* F, DQ, BW, VL */
  unsigned a, b, c, d, kept, upper;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & FMA_AND_XSAVE) != FMA_AND_XSAVE) return 0;
  __asm__("xgetbv" : "=a"(kept), "=d"(upper) : "c"(0));
  if ((kept & AVX) != AVX || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & AVX2)) return 0;
  return (kept & AVX_512) == AVX_512 && (b & avx_512) == avx_512 ? 2 : 1;
}
#endif

/* For the widest instructions that there are, or those that the environment variable names if narrower. */
static const all_kernels *chosen(void) {
#if defined(__x86_64__)
  const char *limit = getenv("NATMIX_NATIVE");
  int most = !limit ? 2 : !strcmp(limit, "plain") ? 0 : !strcmp(limit, "wide") ? 1 : 2, here = width();
  if (most > 1 && here > 1) return &natmix_widest;
  if (most > 0 && here > 0) return &natmix_wide;
#endif
  return &natmix_plain;
}

/* The same, asked once: virtual machines answer cpuid slowly. Threads that ask at once find the same. */
static const all_kernels *best(void) {
  static _Atomic(const all_kernels *) known;
  const all_kernels *here = known;
  if (!here) known = here = chosen();
  return here;
}

enum { MOST_CHUNKS = 16, CHUNK = 256 };

static const kernels *of_type(const xla_buffer *b) {
  return b->dtype == XLA_F64 ? best()->doubles : best()->singles;
}

static int64_t real_rows(const xla_buffer *count, int64_t N) {
  int64_t n = *(const int32_t *)count->data;
  return n < 0 ? 0 : n < N ? n : N;
}

/* Rows that no sample fills are zero. */
static void clear_rest(xla_buffer *out, int64_t rows) {
  int64_t width = 1;
  for (int64_t i = 1; i < out->rank; i++) width *= out->dims[i];
  size_t each = width * size_of(out);
  memset((char *)out->data + rows * each, 0, (out->dims[0] - rows) * each);
}

static void share_tiles(const xla_frame *f, const samples_meet_gaussians *p, const kernels *k, task *work) {
  parallel(f, (p->count + k->tile - 1) / k->tile, work, p);
}

static samples_meet_gaussians meeting(const xla_frame *f) {
  xla_buffer *x = arg(f, 0), *mean = arg(f, 1), *out = ret(f, 0);
  samples_meet_gaussians p = {.N = x->dims[0], .K = mean->dims[0], .D = x->dims[1], .x = x->data,
                              .mean = mean->data, .W = arg(f, 2)->data, .out = out->data};
  p.count = real_rows(arg(f, 3), p.N);
  clear_rest(out, p.count);
  return p;
}

/* x, mean, W, count, offset, present -> [N, K] */
HANDLER(log_prob, 0, 2) {
  samples_meet_gaussians p = meeting(f);
  const kernels *k = of_type(arg(f, 0));
  p.offset = arg(f, 4)->data, p.present = arg(f, 5)->data;
  share_tiles(f, &p, k, k->log_prob);
  return NULL;
}

/* How far below is far enough: what changes no digit, and more in many dimensions, where the background of a
   sample that is kept may fall by much when an old Gaussian is forgotten. */
static double margin(const xla_frame *f) {
  return (arg(f, 0)->dtype == XLA_F64 ? 64 : 44) + 0.25 * arg(f, 0)->dims[1];
}

/* x, mean, W, count, offset, present, share, near, background -> [N, K] */
HANDLER(relevant, 0, 2) {
  samples_meet_gaussians p = meeting(f);
  const kernels *k = of_type(arg(f, 0));
  p.offset = arg(f, 4)->data, p.present = arg(f, 5)->data, p.log_weights = arg(f, 6)->data;
  p.near = arg(f, 7)->data, p.background = arg(f, 8)->data;
  p.margin = margin(f);
  p.seen = calloc(p.K, 1);
  if (!p.seen) return problem(f, "There is not enough memory for the densities of samples.");
  share_tiles(f, &p, k, k->relevant);
  for (int64_t i = 0; i < p.K; i++)
    if (p.present[i] && !p.seen[i]) {
      share_tiles(f, &p, k, k->unseen);
      break;
    }
  free(p.seen);
  return NULL;
}

/* The samples sorted by nearest component, those without one first; `starts` is for K + 1 numbers. */
static void sort_by_nearest(const samples_meet_gaussians *p, int32_t *starts, int32_t *order) {
  memset(starts, 0, (p->K + 1) * sizeof *starts);
  for (int64_t n = 0; n < p->count; n++)
    if (p->nearest[n] < p->K - 1) starts[p->nearest[n] + 2]++;
  for (int64_t k = 0; k < p->K; k++) starts[k + 1] += starts[k];
  for (int64_t n = 0; n < p->count; n++) order[starts[p->nearest[n] + 1]++] = (int32_t)n;
}

/* x, mean, W, count, offset, present, log_weights -> [N]

   Many samples are put in order first, so that those of a tile are near to the same few components. */
HANDLER(mixture_log_prob, 0, 2) {
  enum { MANY_SAMPLES = 4096, MANY_COMPONENTS = 16 };
  samples_meet_gaussians p = meeting(f);
  const kernels *k = of_type(arg(f, 0));
  p.offset = arg(f, 4)->data, p.present = arg(f, 5)->data, p.log_weights = arg(f, 6)->data;
  int32_t *room = NULL;
  if (p.count >= MANY_SAMPLES && p.count < INT32_MAX && p.K >= MANY_COMPONENTS)
    room = malloc((2 * p.count + p.K + 1) * sizeof *room);
  if (room) {
    p.nearest = room;
    share_tiles(f, &p, k, k->nearest_means);
    sort_by_nearest(&p, room + 2 * p.count, room + p.count);
    p.order = room + p.count;
  }
  share_tiles(f, &p, k, k->mixture_log_prob);
  free(room);
  return NULL;
}

/* x, mean, W, count, log_components, log_weights -> [N, D] */
HANDLER(score, 0, 2) {
  samples_meet_gaussians p = meeting(f);
  const kernels *k = of_type(arg(f, 0));
  p.log_components = arg(f, 4)->data, p.log_weights = arg(f, 5)->data;
  share_tiles(f, &p, k, k->score);
  return NULL;
}

/* x, mean, W, count, offset, used, counts, own -> mass [N], each generation's [N, H] */
HANDLER(meet, 0, 2) {
  samples_meet_gaussians p = meeting(f);
  const kernels *k = of_type(arg(f, 0));
  clear_rest(ret(f, 1), p.count);
  p.H = ret(f, 1)->dims[1], p.each = ret(f, 1)->data;
  p.offset = arg(f, 4)->data, p.used = arg(f, 5)->data, p.counts = arg(f, 6)->data;
  p.background = arg(f, 7)->data, p.margin = margin(f) + 12;
  share_tiles(f, &p, k, k->meet);
  return NULL;
}

/* x, mean, W, count, r -> [N, D] */
HANDLER(pulled, 0, 2) {
  samples_meet_gaussians p = meeting(f);
  const kernels *k = of_type(arg(f, 0));
  p.log_components = arg(f, 4)->data;
  share_tiles(f, &p, k, k->pulled);
  return NULL;
}

/* log_components, count first. */
static weighted_samples weighting(const xla_frame *f) {
  xla_buffer *l = arg(f, 0);
  weighted_samples p = {.N = l->dims[0], .K = l->dims[1], .log_components = l->data, .out = ret(f, 0)->data};
  p.count = real_rows(arg(f, 1), p.N);
  p.chunks = (p.count + CHUNK - 1) / CHUNK;
  if (p.chunks > MOST_CHUNKS) p.chunks = MOST_CHUNKS;
  if (p.chunks < 1) p.chunks = 1;
  return p;
}

/* log_components, count, log_weights -> [N] */
HANDLER(log_sums, 0, 2) {
  weighted_samples p = weighting(f);
  p.columns = arg(f, 2)->data;
  clear_rest(ret(f, 0), p.count);
  parallel(f, p.chunks, of_type(arg(f, 0))->log_sums, &p);
  return NULL;
}

/* log_components, count, log_background, valid, top, factors -> [N] */
HANDLER(sample_sums, 0, 2) {
  weighted_samples p = weighting(f);
  p.log_background = arg(f, 2)->data, p.valid = arg(f, 3)->data, p.top = arg(f, 4)->data;
  p.columns = arg(f, 5)->data;
  clear_rest(ret(f, 0), p.count);
  parallel(f, p.chunks, of_type(arg(f, 0))->sample_sums, &p);
  return NULL;
}

/* log_components, count, log_background, valid -> partial [MOST_CHUNKS, K] */
HANDLER(largest, 0, 2) {
  weighted_samples p = weighting(f);
  p.log_background = arg(f, 2)->data, p.valid = arg(f, 3)->data, p.partial = ret(f, 0)->data;
  p.chunks = ret(f, 0)->dims[0];
  parallel(f, p.chunks, of_type(arg(f, 0))->largest, &p);
  return NULL;
}

/* log_components, count, log_background, valid, top, columns -> partial [MOST_CHUNKS, C + 1, K] */
HANDLER(sums, 0, 2) {
  weighted_samples p = weighting(f);
  p.log_background = arg(f, 2)->data, p.valid = arg(f, 3)->data, p.top = arg(f, 4)->data;
  p.columns = arg(f, 5)->data, p.C = arg(f, 5)->dims[1], p.partial = ret(f, 0)->data;
  p.chunks = ret(f, 0)->dims[0];
  parallel(f, p.chunks, of_type(arg(f, 0))->sums, &p);
  return NULL;
}

/* log_components, count, log_background, valid, top, columns, x, mean, v, L, W -> [K, D, D], [K, D], [K, C] */
HANDLER(moments, 0, 2) {
  weighted_samples p = weighting(f);
  const kernels *k = of_type(arg(f, 0));
  p.log_background = arg(f, 2)->data, p.valid = arg(f, 3)->data, p.top = arg(f, 4)->data;
  p.columns = arg(f, 5)->data, p.C = arg(f, 5)->dims[1];
  p.x = arg(f, 6)->data, p.mean = arg(f, 7)->data, p.v = arg(f, 8)->data, p.D = arg(f, 6)->dims[1];
  p.L = arg(f, 9)->data, p.W = arg(f, 10)->data, p.pulled = ret(f, 1)->data, p.sums = ret(f, 2)->data;
  enum { TASKS = 32, ROOM = 1 << 26, LARGE = 1 << 15 }; /* at most; bytes for all sums, and of one component's */
  if (!p.K) return NULL;
  int64_t width = (p.D + 15) / 16 * 16;
  size_t one = ((p.D + 1) * width + p.C) * size_of(arg(f, 0)), all = p.K * one;
  p.each = one > LARGE ? 1 : COMPONENT_BLOCK;
  int64_t blocks = (p.K + p.each - 1) / p.each, chunks = blocks < TASKS ? TASKS / blocks : 1;
  if (chunks * all > ROOM) chunks = all < ROOM ? (int64_t)(ROOM / all) : 1;
  if (chunks < p.chunks) p.chunks = chunks;
  p.partial = malloc(p.chunks * all);
  if (!p.partial) return problem(f, "There is not enough memory for the sums of the components' gradients.");
  parallel(f, p.chunks * blocks, k->moments, &p);
  parallel(f, p.K, k->gather_moments, &p);
  free(p.partial);
  return NULL;
}

/* log_components, count, log_background, valid, top, x, mean, W, offset, present, reward, zero, size, total, centre,
   extra, ridge -> [K, F] */
HANDLER(regressions, 0, 2) {
  enum { TASKS = 32, BLOCK_NUMBERS = 1 << 17 }; /* at least, if there are as many components; of sums, in a cache */
  regressions p = {.samples = weighting(f), .W = arg(f, 7)->data, .offset = arg(f, 8)->data,
                   .present = arg(f, 9)->data, .reward = arg(f, 10)->data, .zero = arg(f, 11)->data,
                   .size = arg(f, 12)->data, .total = arg(f, 13)->data, .centre = arg(f, 14)->data,
                   .extra = arg(f, 15)->data, .ridge = arg(f, 16)->data, .F = ret(f, 0)->dims[1]};
  weighted_samples *s = &p.samples;
  const kernels *k = of_type(arg(f, 0));
  s->log_background = arg(f, 2)->data, s->valid = arg(f, 3)->data, s->top = arg(f, 4)->data;
  s->x = arg(f, 5)->data, s->mean = arg(f, 6)->data, s->D = arg(f, 5)->dims[1];
  if (!s->K) return NULL;
  int64_t each = (p.F + 5) * (p.F + 17), chunks = s->K < TASKS ? TASKS / s->K : 1; /* no less than is needed */
  if (chunks < s->chunks) s->chunks = chunks;
  p.block = s->K * s->chunks / TASKS;
  if (p.block > BLOCK_NUMBERS / each) p.block = BLOCK_NUMBERS / each;
  if (p.block > COMPONENT_BLOCK) p.block = COMPONENT_BLOCK;
  if (p.block < 1) p.block = 1;
  memset(s->out, 0, s->K * p.F * size_of(ret(f, 0)));
  if (s->chunks > 1 && !(s->partial = malloc(s->chunks * s->K * each * size_of(ret(f, 0)))))
    return problem(f, "There is not enough memory for the sums of the components' features.");
  parallel(f, s->chunks * ((s->K + p.block - 1) / p.block), k->regressions, &p);
  if (s->chunks > 1) parallel(f, s->K, k->solve_regressions, &p);
  free(s->partial);
  return NULL;
}

/* A, a, bound, usable, temperature, most rounding, mean, L, W -> mean, L, W, ok */
HANDLER(trust_region, 1, 2) {
  xla_buffer *a = arg(f, 1);
  trust_regions p = {.K = a->dims[0], .D = a->dims[1], .A = arg(f, 0)->data, .a = a->data, .bound = arg(f, 2)->data,
                     .usable = arg(f, 3)->data, .temperature = arg(f, 4)->data, .most_rounding = arg(f, 5)->data,
                     .mean = arg(f, 6)->data, .L = arg(f, 7)->data, .W = arg(f, 8)->data,
                     .new_mean = ret(f, 0)->data, .new_L = ret(f, 1)->data, .new_W = ret(f, 2)->data,
                     .ok = ret(f, 3)->data};
  parallel(f, p.K, of_type(a)->trust_region, &p);
  return NULL;
}

/* keys [K, 2], number [K], mean [K, D], L [K, D, D] -> x [N, D], source [N] */
HANDLER(draws, 0, 2) {
  xla_buffer *number = arg(f, 1), *x = ret(f, 0), *source = ret(f, 1);
  int64_t K = number->dims[0], N = x->dims[0], *starts = malloc((K + 1) * sizeof *starts);
  if (!starts) return problem(f, "There is not enough memory to draw samples.");
  starts[0] = 0;
  for (int64_t k = 0; k < K; k++) {
    int64_t next = starts[k] + ((const int32_t *)number->data)[k];
    starts[k + 1] = next < N ? next : N;
  }
  gaussian_draws p = {.D = x->dims[1], .starts = starts, .keys = arg(f, 0)->data, .mean = arg(f, 2)->data,
                      .L = arg(f, 3)->data, .x = x->data, .source = source->data};
  clear_rest(x, starts[K]);
  memset(p.source + starts[K], 0, (N - starts[K]) * sizeof *p.source);
  parallel(f, K, best()->draws, &p);
  free(starts);
  return NULL;
}

/* x, rows, count first; the gradient is the second result, if there is one. */
static points_meet_rows posterior(const xla_frame *f) {
  xla_buffer *x = arg(f, 0), *rows = arg(f, 1);
  points_meet_rows p = {.N = x->dims[0], .R = rows->dims[0], .D = x->dims[1], .x = x->data, .rows = rows->data};
  p.count = real_rows(arg(f, 2), p.N);
  p.value = ret(f, 0)->data;
  clear_rest(ret(f, 0), p.count);
  if (f->rets.size > 1) {
    p.gradient = ret(f, 1)->data;
    clear_rest(ret(f, 1), p.count);
  }
  return p;
}

/* The same with start, stride, and the size of the minibatches. */
static points_meet_rows by_minibatches(const xla_frame *f) {
  points_meet_rows p = posterior(f);
  p.start = arg(f, 3)->data, p.stride = arg(f, 4)->data, p.size = *(const int32_t *)arg(f, 5)->data;
  return p;
}

static int64_t groups(const points_meet_rows *p) { return (p->count + POINTS - 1) / POINTS; }

/* x, rows [R, D], count, precision -> [N], and [N, D] if wanted */
HANDLER(logistic, 0, 2) {
  points_meet_rows p = posterior(f);
  const kernels *k = of_type(arg(f, 0));
  p.precision = arg(f, 3)->data;
  parallel(f, (p.count + k->tile - 1) / k->tile, k->logistic, &p);
  return NULL;
}

/* x, rows [R, D], count, start, stride, size, precision -> [N], and [N, D] if wanted */
HANDLER(logistic_minibatch, 0, 2) {
  points_meet_rows p = by_minibatches(f);
  p.precision = arg(f, 6)->data;
  parallel(f, groups(&p), of_type(arg(f, 0))->logistic_minibatch, &p);
  return NULL;
}

/* x, rows [R, FEATURES], count, start, stride, size, quality [R] -> [N], and [N, WEIGHTS] if wanted */
HANDLER(network, 0, 2) {
  points_meet_rows p = by_minibatches(f);
  if (p.D != WEIGHTS || arg(f, 1)->dims[1] != FEATURES) return problem(f, "The network has 11-8-8-1 units.");
  p.quality = arg(f, 6)->data;
  parallel(f, groups(&p), of_type(arg(f, 0))->network, &p);
  return NULL;
}

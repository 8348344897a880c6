/* The loops over samples and components, built once for every set of vector instructions. */
#ifndef NATMIX_KERNELS_H
#define NATMIX_KERNELS_H

#include <stdint.h>

/* Components whose weights one task forms, at most. */
enum { COMPONENT_BLOCK = 16 };

/* N samples x [N, D], of which the first `count` are real, and K Gaussians with whitening factors W [K, D, D]. */
typedef struct {
  int64_t N, K, D, count;
  const void *x, *mean, *W;
  const uint8_t *present;     /* [K]: the others' log densities are -inf */
  const void *offset;         /* [K]: log normalisers */
  const void *log_weights;    /* [K] */
  const void *log_components; /* [N, K]; or what the terms of a sum are multiplied with */
  const int32_t *near;        /* [N]: a component that is probably near */
  const void *background;     /* [N] */
  int32_t *nearest;           /* [N]: the component whose mean is nearest */
  const int32_t *order;       /* [N]: in which order to take the samples, if not one after the other */
  double margin;              /* how far below others a log density is nothing */
  uint8_t *seen;              /* [K]: components that matter to some sample */
  int64_t H;                  /* generations of K / H Gaussians each */
  const void *used, *counts;  /* [K]: how many samples each has drawn, of those in use and of all */
  void *each;                 /* [N, H] */
  void *out;
} samples_meet_gaussians;

/* Weights w = exp(log_components - log_background - top) [N, K]. */
typedef struct {
  int64_t N, K, C, D, count, chunks;
  int64_t each; /* components of one task, a divisor of COMPONENT_BLOCK */
  const void *log_components; /* [N, K] */
  const void *log_background; /* [N] */
  const uint8_t *valid;       /* [N] */
  const void *top;            /* [K] */
  const void *x, *mean, *v;   /* [N, D], [K, D], [N, D] */
  const void *L, *W;          /* [K, D, D] */
  const void *columns;        /* [N, C], or what each is multiplied with: [K] */
  void *partial;              /* sums of each chunk */
  void *out, *pulled, *sums;  /* the last two of Stein's sums: [K, D], [K, C] */
} weighted_samples;

/* Regressions of rewards on F features of D coordinates; `out` is [K, F]. */
typedef struct {
  weighted_samples samples;
  int64_t F, block;                           /* components of one task */
  const uint8_t *present, *zero;              /* [K]: the others' coefficients are zero; [N]: no density there */
  const void *W, *offset;                     /* [K, D, D], [K]: log normalisers */
  const void *reward;                         /* [N] */
  const void *size, *total;                   /* [K]: what weights are divided by, and what they then sum up to */
  const void *centre, *extra, *ridge;         /* [K]: taken from rewards; taken from those of zeros beside */
} regressions;

/* Steps of K Gaussians with factors L and W = L^-1 along whitened curvatures A and gradients a. */
typedef struct {
  int64_t K, D;
  const void *A, *a, *bound; /* [K, D, D], [K, D], [K]: of the KL divergence */
  const uint8_t *usable;     /* [K]: the others stay */
  const void *temperature, *most_rounding;
  const void *mean, *L, *W;
  void *new_mean, *new_L, *new_W;
  uint8_t *ok; /* [K] */
} trust_regions;

/* Some samples of each of K Gaussians, one Gaussian after the other; the first of number k is starts[k]. */
typedef struct {
  int64_t D;
  const int64_t *starts;
  const uint32_t *keys; /* [K, 2] */
  const void *mean, *L;
  void *x;         /* [N, D] */
  int32_t *source; /* [N]: from which Gaussian */
} gaussian_draws;

/* N points x [N, D] and the R rows of data that their log densities are about: each point meets all of them, or
   `size` of its own, (start + stride j) mod R. */
typedef struct {
  int64_t N, R, D, size, count;
  const void *x, *rows;          /* [N, D], [R, .] */
  const void *quality;           /* [R] */
  const void *precision;         /* of the prior */
  const int32_t *start, *stride; /* [N] */
  void *value, *gradient;        /* [N], [N, D]; no gradient if it is NULL */
} points_meet_rows;

/* A network of two hidden layers, by the numbers of its units, and points that one task takes. */
enum { FEATURES = 11, HIDDEN = 8, WEIGHTS = (FEATURES + 1) * HIDDEN + (HIDDEN + 1) * HIDDEN + HIDDEN + 1 };
enum { POINTS = 8 };

typedef void task(const void *data, int64_t i);

typedef struct {
  int64_t tile; /* samples that are whitened together */
  task *log_prob, *relevant, *unseen, *nearest_means, *mixture_log_prob, *meet, *score, *pulled;
  task *moments, *gather_moments, *largest, *sums;
  task *log_sums, *sample_sums;
  task *regressions, *solve_regressions, *trust_region;
  task *logistic, *logistic_minibatch, *network;
} kernels;

typedef struct {
  const kernels *singles, *doubles;
  task *draws; /* in single precision */
} all_kernels;

#endif

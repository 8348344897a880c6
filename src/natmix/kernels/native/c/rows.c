/* Which rows, and where they go: one after another, as XLA on a CPU does not do it well. */
#include <string.h>

#include "members.h"

/* mask [N] -> [N]: the rows where it holds, in their order, and then the last row. */
HANDLER(front, 0, 1) {
  const uint8_t *mask = arg(f, 0)->data;
  int32_t *order = ret(f, 0)->data, N = (int32_t)arg(f, 0)->dims[0], found = 0;
  for (int32_t n = 0; n < N; n++) {
    order[found] = n;
    found += mask[n] != 0;
  }
  for (; found < N; found++) order[found] = N - 1;
  return NULL;
}

/* row [N], mask [N] -> [K]: how often each row occurs where the mask holds; rows that do not exist are not counted. */
HANDLER(count, 0, 1) {
  const int32_t *row = arg(f, 0)->data;
  const uint8_t *mask = arg(f, 1)->data;
  int32_t *counts = ret(f, 0)->data;
  int64_t N = arg(f, 0)->dims[0], K = ret(f, 0)->dims[0];
  memset(counts, 0, K * sizeof *counts);
  for (int64_t n = 0; n < N; n++)
    if (mask[n] && row[n] >= 0 && row[n] < K) counts[row[n]]++;
  return NULL;
}

/* store [S, ...], rows [N, ...], chosen [N], start -> the store, in place: the rows that are chosen in slots start,
   start + 1, ... */
HANDLER(put, 2, 1) {
  const xla_buffer *store = arg(f, 0), *rows = arg(f, 1);
  const uint8_t *chosen = arg(f, 2)->data;
  char *to = ret(f, 0)->data;
  int64_t S = store->dims[0], N = rows->dims[0], slot = *(const int32_t *)arg(f, 3)->data;
  size_t each = size_of(store);
  if (!each) return problem(f, "Rows of this type cannot be written by loops.");
  for (int64_t i = 1; i < store->rank; i++) each *= store->dims[i];
  if (to != store->data) memcpy(to, store->data, S * each);
  for (int64_t n = 0; n < N; n++) {
    if (!chosen[n]) continue;
    memcpy(to + slot * each, (const char *)rows->data + n * each, each);
    slot = slot + 1 < S ? slot + 1 : 0;
  }
  return NULL;
}

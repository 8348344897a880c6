/* Which samples, and which slots they go to: one after another, as XLA on a CPU does not do it well. */

/* The indices where a mask holds, in their order, and then the last one. */
static failure *T(nonzero)(const call *c, const nonzero_arrays *a) {
  const uint8_t *mask = a->mask->data;
  if (a->mask->dims[0] > INT32_MAX) return invalid(c, "natmix_nonzero takes masks of fewer than 2^31 numbers.");
  int32_t *indices = a->indices->data, N = (int32_t)a->mask->dims[0], found = 0;
  for (int32_t n = 0; n < N; n++) {
    indices[found] = n;
    found += mask[n] != 0;
  }
  for (; found < N; found++) indices[found] = N - 1;
  return NULL;
}

/* How often each index occurs where the mask holds; those out of range are not counted. */
static failure *T(masked_bincount)(const call *c, const masked_bincount_arrays *a) {
  (void)c;
  const int32_t *index = a->index->data;
  const uint8_t *mask = a->mask->data;
  int32_t *counts = a->counts->data;
  int64_t N = a->index->dims[0], K = a->counts->dims[0];
  clear_from(a->counts, 0);
  for (int64_t n = 0; n < N; n++)
    if (mask[n] && index[n] >= 0 && index[n] < K) counts[index[n]]++;
  return NULL;
}

/* The chosen items in slots start, start + 1, ... of the buffer, around its end; in place if XLA gives the result the
   buffer's memory. */
static failure *T(ring_buffer_write)(const call *c, const ring_buffer_write_arrays *a) {
  const uint8_t *chosen = a->chosen->data;
  const char *items = a->items->data;
  char *to = a->written->data;
  int64_t S = a->buffer->dims[0], N = a->items->dims[0], slot = *(const int32_t *)a->start->data;
  size_t each = size_of(a->buffer) * numbers_from(a->buffer, 1);
  if (slot < 0 || slot >= S)
    return invalid(c, "natmix_ring_buffer_write: start must be one of the %lld slots of the buffer, got %lld.",
                   (long long)S, (long long)slot);
  if (!each) return NULL;
  if (to != a->buffer->data) memcpy(to, a->buffer->data, S * each);
  for (int64_t n = 0; n < N; n++) {
    if (!chosen[n]) continue;
    memcpy(to + slot * each, items + n * each, each);
    slot = slot + 1 < S ? slot + 1 : 0;
  }
  return NULL;
}

#include "kernels/step_bytes.h"

namespace flash {
namespace {

int64_t Size(DataType cache) { return static_cast<int64_t>(SizeOf(cache)); }

int64_t SumBytes(const Attention& attention) {
  return attention.query_key_size * Padded(attention.expanded_size) *
         static_cast<int64_t>(sizeof(float));
}

}  // namespace

int64_t AppendBytes(const Attention& attention, DataType cache, int64_t rows) {
  const int64_t columns =
      (attention.has_quadratic ? attention.query_key_size : 0) +
      (attention.has_linear ? Padded(attention.query_key_size) : 0) +
      Padded(attention.expanded_size);
  return rows * columns * Size(cache);
}

int64_t ValueBytes(const Attention& attention, DataType cache) {
  return Padded(attention.expanded_size) * Size(cache);
}

int64_t AttendBytes(const Attention& attention, DataType cache, const Row& last,
                    const Fold* put_off) {
  const int64_t s = attention.query_key_size;
  int64_t bytes = 0;
  if (attention.has_quadratic) bytes += (last.offset + 1) * s * Size(cache);
  if (put_off != nullptr) {
    bytes += SumBytes(attention) +
             (put_off->last - put_off->first) *
                 (Padded(s) * Size(cache) + ValueBytes(attention, cache));
  } else if (attention.has_linear && last.position != last.offset) {
    bytes += s * ValueBytes(attention, cache);
  }
  return bytes;
}

int64_t FoldBytes(const Attention& attention, DataType cache,
                  std::span<const Fold> folds) {
  const int64_t s = attention.query_key_size;
  const int64_t value = ValueBytes(attention, cache);
  int64_t bytes = 0;
  for (const Fold& fold : folds) {
    bytes += (fold.last - fold.first) * (Padded(s) * Size(cache) + value) +
             2 * SumBytes(attention) + (fold.closes ? s * value : 0);
  }
  return bytes;
}

}  // namespace flash

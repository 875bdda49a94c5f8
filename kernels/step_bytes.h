// What operations move of weights and state, in bytes: the parts of
// Backend::StepBytes(), which says what is counted.

#ifndef KERNELS_STEP_BYTES_H_
#define KERNELS_STEP_BYTES_H_

#include <cstdint>
#include <span>

#include "kernels/operands.h"

namespace flash {

// Of what `rows` rows append.
int64_t AppendBytes(const Attention& attention, DataType cache, int64_t rows);

// Of a position's value.
int64_t ValueBytes(const Attention& attention, DataType cache);

// Of a run whose last row is `last`, but for the values that it reads.
// put_off: null if its slot has none.
int64_t AttendBytes(const Attention& attention, DataType cache, const Row& last,
                    const Fold* put_off);

int64_t FoldBytes(const Attention& attention, DataType cache,
                  std::span<const Fold> folds);

}  // namespace flash

#endif  // KERNELS_STEP_BYTES_H_

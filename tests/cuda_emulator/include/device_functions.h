// What a kernel may call and name beyond C++: its place in the grid, barriers,
// votes, shuffles, atomics and a few functions of numbers. See emulator.h for
// what is checked while it does.

#ifndef TESTS_CUDA_EMULATOR_INCLUDE_DEVICE_FUNCTIONS_H_
#define TESTS_CUDA_EMULATOR_INCLUDE_DEVICE_FUNCTIONS_H_

#include <math.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>

#include "vector_types.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
// One section for all of it, so that it can be found: a block has it to itself,
// since blocks run one after the other. An inline function cannot have any (GCC
// cannot put its variables into a section): make such a function static.
#define __shared__ static __attribute__((section("flash_shared")))

inline constexpr int warpSize = 32;
// Of the thread that runs; the emulator changes them when it runs another.
extern uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace cuda_emulator {

using Place = std::source_location;

// Waits for all threads of the block.
void SyncBlock(const Place& place);

enum class WarpCall { kSync, kShuffle, kBallot };
// Waits for the threads of `mask`. For a shuffle, returns the `value` of lane
// `from`; for a ballot, a bit for each lane whose value is not 0.
uint64_t CallWarp(WarpCall call, unsigned mask, uint64_t value, int from,
                  const Place& place);
// This thread's number within its warp.
int Lane();

// An atomic operation: nothing comes between the two.
void LoadAtomically(const void* address, void* to, int bytes);
void StoreAtomically(void* address, const void* from, int bytes);

template <typename T>
T Shuffle(unsigned mask, T value, int from, const Place& place) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = CallWarp(WarpCall::kShuffle, mask, bits, from, place);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

template <typename T, typename F>
T ChangeAtomically(T* address, F&& change) {
  T old;
  LoadAtomically(address, &old, sizeof(T));
  const T changed = change(old);
  StoreAtomically(address, &changed, sizeof(T));
  return old;
}

}  // namespace cuda_emulator

inline void __syncthreads(
    cuda_emulator::Place place = cuda_emulator::Place::current()) {
  cuda_emulator::SyncBlock(place);
}

inline void __syncwarp(
    unsigned mask = 0xffffffffu,
    cuda_emulator::Place place = cuda_emulator::Place::current()) {
  cuda_emulator::CallWarp(cuda_emulator::WarpCall::kSync, mask, 0, 0, place);
}
inline unsigned __ballot_sync(
    unsigned mask, int predicate,
    cuda_emulator::Place place = cuda_emulator::Place::current()) {
  return static_cast<unsigned>(cuda_emulator::CallWarp(
      cuda_emulator::WarpCall::kBallot, mask, predicate != 0, 0, place));
}
inline int __any_sync(
    unsigned mask, int predicate,
    cuda_emulator::Place place = cuda_emulator::Place::current()) {
  return __ballot_sync(mask, predicate, place) != 0;
}
inline int __all_sync(
    unsigned mask, int predicate,
    cuda_emulator::Place place = cuda_emulator::Place::current()) {
  return __ballot_sync(mask, predicate, place) == mask;
}

// Shuffles within groups of `width` lanes, a power of two. Who would read
// beyond its group reads itself.
template <typename T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32,
              cuda_emulator::Place place = cuda_emulator::Place::current()) {
  const int first = cuda_emulator::Lane() & ~(width - 1);
  return cuda_emulator::Shuffle(mask, value, first + (lane & (width - 1)),
                                place);
}
template <typename T>
T __shfl_xor_sync(
    unsigned mask, T value, int bits, int width = 32,
    cuda_emulator::Place place = cuda_emulator::Place::current()) {
  const int lane = cuda_emulator::Lane();
  const int from = lane ^ bits;
  // A lower group may be read, a higher one may not.
  const bool within = from < (lane & ~(width - 1)) + width;
  return cuda_emulator::Shuffle(mask, value, within ? from : lane, place);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 cuda_emulator::Place place = cuda_emulator::Place::current()) {
  const int lane = cuda_emulator::Lane();
  const int from = lane - static_cast<int>(delta);
  const bool within = from >= (lane & ~(width - 1));
  return cuda_emulator::Shuffle(mask, value, within ? from : lane, place);
}

template <typename T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return cuda_emulator::ChangeAtomically(
      address, [&](T old) { return static_cast<T>(old + value); });
}
template <typename T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  return cuda_emulator::ChangeAtomically(
      address, [&](T old) { return old < value ? value : old; });
}
template <typename T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  return cuda_emulator::ChangeAtomically(address,
                                         [&](T old) { return old | value; });
}
inline unsigned __float_as_uint(float a) { return std::bit_cast<unsigned>(a); }
inline float __uint_as_float(unsigned a) { return std::bit_cast<float>(a); }
template <typename T>
constexpr T min(T a, std::type_identity_t<T> b) {
  return b < a ? b : a;
}
template <typename T>
constexpr T max(T a, std::type_identity_t<T> b) {
  return a < b ? b : a;
}

#endif  // TESTS_CUDA_EMULATOR_INCLUDE_DEVICE_FUNCTIONS_H_

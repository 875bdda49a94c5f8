// Kernels that are right, and kernels that are wrong, each in one way.

#ifndef TESTS_CUDA_EMULATOR_TEST_KERNELS_H_
#define TESTS_CUDA_EMULATOR_TEST_KERNELS_H_

#include <cuda_runtime.h>

#include <cstdint>

namespace cuda_emulator {

// out[block][thread] = the number of both, as indices say.
cudaError_t WriteNumbers(dim3 grid, dim3 block, uint32_t* out);

inline constexpr int kReversed = 64;  // numbers, by as many threads
enum class Between { kBarrier, kNothing };
// out = in backwards, by way of shared memory.
cudaError_t Reverse(const float* in, float* out, Between between);
// The same within each half of a warp, by way of device memory.
cudaError_t SwapNeighbours(float* numbers, Between between);

// Sums of `in` over a warp in out[0..31], each lane's number plus those of
// lower lanes in out[32..63], the number of lane 5 in out[64..95].
cudaError_t Shuffle(const int* in, int* out);
// Which lanes are odd, whether any is, whether all are.
cudaError_t Vote(unsigned* out);

// count[0] += 1 in every thread of several blocks.
cudaError_t Count(int* count, bool atomically);
// Every thread reads in[0]; then, after a barrier or not, one writes it.
cudaError_t ReadThenWrite(int* number, Between between);
// Each of two blocks writes what the other has read.
cudaError_t WriteAcrossBlocks(int* numbers);

cudaError_t ReadUnwrittenShared(float* out);
cudaError_t StoreAt(float* address);
cudaError_t LoadFourAt(const float* address, float* out);

// Threads below 32 leave before the barrier; wait at another one.
cudaError_t LeaveBeforeBarrier();
cudaError_t DivideAtBarrier();
// Lane 3 leaves before a shuffle of all; a shuffle reads a lane that is not in
// the mask.
cudaError_t LeaveBeforeShuffle();
cudaError_t ReadLaneOutsideMask(int* out);

}  // namespace cuda_emulator

#endif  // TESTS_CUDA_EMULATOR_TEST_KERNELS_H_

// The kernels of one instruction set, a file each: kernel_table.cc puts them
// into the table that the backend calls them by.

#ifndef KERNELS_CPU_KERNELS_H_
#define KERNELS_CPU_KERNELS_H_

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/simd.h"

namespace flash::cpu::FLASH_ISA {

// embed.cc
void Embed(const Embedding& embedding, const Row& row, int64_t cols, float* x);
// normalize.cc
void Normalize(const Norm& norm, const float* x, int64_t cols, float* y);
bool AllFiniteRow(const float* x, int64_t padded_cols);
// dense.cc
void PackInputRow(const float* x, int64_t n, std::byte* out);
void DenseFloat32(const DenseTask& task);
void DenseBFloat16(const DenseTask& task);
float RoundInputRow(const float* x, int64_t n, std::byte* out);
void DenseInt8(const DenseTask& task);
// append_heads.cc
bool AppendHeads(const AppendTask& task);
// attend.cc
void Weigh(const AttendTask& task);
int64_t Attend(const AttendTask& task);
// fold_chunks.cc
void FoldChunk(const FoldTask& task);

}  // namespace flash::cpu::FLASH_ISA

#endif  // KERNELS_CPU_KERNELS_H_

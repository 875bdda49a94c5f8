#include "kernels/cpu/kernel_table.h"

#include "kernels/cpu/kernels.h"

namespace flash::cpu::FLASH_ISA {

extern const KernelTable kKernels;

const KernelTable kKernels = {
    .name = FLASH_ISA_NAME,
    .tile_rows = kTileRows,
    .input_pair_bytes = sizeof(InputPair),
    .input_quad_bytes = sizeof(InputQuad),
    .embed = Embed,
    .normalize = Normalize,
    .pack_inputs = PackInputRow,
    .round_inputs = RoundInputRow,
    .dense_float32 = DenseFloat32,
    .dense_bfloat16 = DenseBFloat16,
    .dense_int8 = DenseInt8,
    .append_heads = AppendHeads,
    .weigh = Weigh,
    .attend = Attend,
    .fold = FoldChunk,
    .all_finite = AllFiniteRow,
};

}  // namespace flash::cpu::FLASH_ISA

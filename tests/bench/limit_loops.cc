#include "tests/bench/limit_loops.h"

#include "kernels/cpu/tile.h"

namespace flash::cpu::FLASH_ISA {

extern const LimitLoops kLimitLoops;

namespace {

constexpr int kM = kTileRows;
constexpr int kN = kTileVectors;

float Total(const Tile<kM, kN>& sums) {
  F32x16 total = Zero();
  for (int m = 0; m < kM; ++m) {
    for (int n = 0; n < kN; ++n) total = Add(total, sums[m][n]);
  }
  return SumLanes(total);
}

void Start(const float* seeds, Tile<kM, kN>& sums) {
  for (int m = 0; m < kM; ++m) {
    for (int n = 0; n < kN; ++n) sums[m][n] = Set1(seeds[m * kN + n]);
  }
}

float Read(const float* data, int64_t n) {
  constexpr int kSums = 4;
  F32x16 sums[kSums];
  for (F32x16& sum : sums) sum = Zero();
  for (int64_t at = 0; at < n; at += 16 * kSums) {
    for (int k = 0; k < kSums; ++k) {
      sums[k] = Add(sums[k], Load(data + at + 16 * k));
    }
  }
  return SumLanes(Add(Add(sums[0], sums[1]), Add(sums[2], sums[3])));
}

float MultiplyAdd(const float* seeds, int64_t rounds) {
  Tile<kM, kN> sums;
  Start(seeds, sums);
  F32x16 columns[kN];
  for (int n = 0; n < kN; ++n) columns[n] = Set1(seeds[n]);
  for (int64_t round = 0; round < rounds; ++round) {
    for (int m = 0; m < kM; ++m) {
      const F32x16 x = Set1(seeds[32 + m]);
      for (int n = 0; n < kN; ++n) sums[m][n] = Fma(x, columns[n], sums[m][n]);
    }
  }
  return Total(sums);
}

float PairMultiplyAdd(const float* seeds, int64_t rounds) {
  Tile<kM, kN> sums;
  Start(seeds, sums);
  const auto* halves = reinterpret_cast<const uint16_t*>(seeds);
  WeightPairs weights[kN];
  for (int n = 0; n < kN; ++n) weights[n] = LoadPairs(halves);
  InputPair inputs[kM];
  for (int m = 0; m < kM; ++m) PackInputs(seeds + 2 * m, 2, inputs + m);
  for (int64_t round = 0; round < rounds; ++round) {
    for (int m = 0; m < kM; ++m) {
      for (int n = 0; n < kN; ++n) {
        sums[m][n] = PairFma(weights[n], inputs[m], sums[m][n]);
      }
    }
  }
  return Total(sums);
}

}  // namespace

const LimitLoops kLimitLoops = {
    .name = FLASH_ISA_NAME,
    .read = Read,
    .multiply_add = MultiplyAdd,
    .pair_multiply_add = PairMultiplyAdd,
    .operations = int64_t{2} * 16 * kM * kN,
    .pair_operations = int64_t{4} * 16 * kM * kN,
};

}  // namespace flash::cpu::FLASH_ISA

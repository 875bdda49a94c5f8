// Some consecutive rows of one slot: local attention over the open chunk, the
// product with U, and the gate (format steps 2.5, 2.6 and the gate of 2.7).

#include <cmath>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/tile.h"

namespace flash::cpu::FLASH_ISA {
namespace {

// T is the cache type: float or uint16_t (bfloat16).
template <typename T>
class Attender {
 public:
  explicit Attender(const AttendTask& task)
      : task_(task),
        attention_(*task.attention),
        rows_(task.rows + task.first_row),
        s_(Padded(attention_.query_key_size)),
        value_panels_{attention_.chunk_size, Padded(attention_.expanded_size)},
        u_panels_{attention_.query_key_size, value_panels_.cols},
        weight_stride_(Padded(attention_.chunk_size)) {
    const size_t slot = rows_[0].slot * task.state->slot_stride;
    const auto at = [&](const std::byte* tensor) {
      return reinterpret_cast<const T*>(tensor + slot);
    };
    if (attention_.has_quadratic) quad_k_ = at(task.state->quad_k);
    if (attention_.has_quadratic) value_ = at(task.state->value);
    if (attention_.has_linear) u_ = at(task.state->u);
  }

  template <int M>
  void Run() {
    if (attention_.has_quadratic) {
      Scores<M>();
      for (int m = 0; m < M; ++m) Weights(m);
    }
    constexpr int kN = M == 1 ? 4 : kTileVectors;
    for (int64_t panel = task_.first_col; panel < task_.last_col;
         panel += Panels::kWidth) {
      const int64_t width = value_panels_.Width(panel);
      int64_t c = 0;
      for (; c + 16 * kN <= width; c += 16 * kN) Columns<M, kN>(panel, c);
      for (; c < width; c += 16) Columns<M, 1>(panel, c);
    }
  }

 private:
  // How many positions of the chunk the last row, and so any row, looks at.
  int64_t NumKeys() const { return rows_[task_.num_rows - 1].offset + 1; }

  float* Weight(int m) const { return task_.scratch + m * weight_stride_; }

  // scratch[m][j] = quad_q[m] . quad_k[j], J keys at a time.
  template <int M, int J>
  void ScoreTile(int64_t j) {
    F32x16 sums[M][J];
    ClearTile<M, J>(sums);
    for (int64_t c = 0; c < s_; c += 16) {
      F32x16 keys[J];
      for (int n = 0; n < J; ++n) keys[n] = Load(quad_k_ + (j + n) * s_ + c);
      for (int m = 0; m < M; ++m) {
        const F32x16 q = Load(task_.heads->quad_q.Row(task_.first_row + m) + c);
        for (int n = 0; n < J; ++n) sums[m][n] = Fma(q, keys[n], sums[m][n]);
      }
    }
    for (int m = 0; m < M; ++m) {
      for (int n = 0; n < J; ++n) Weight(m)[j + n] = SumLanes(sums[m][n]);
    }
  }

  template <int M>
  void Scores() {
    constexpr int kJ = M == 1 ? 4 : 2;
    const int64_t keys = NumKeys();
    int64_t j = 0;
    for (; j + kJ <= keys; j += kJ) ScoreTile<M, kJ>(j);
    for (; j < keys; ++j) ScoreTile<M, 1>(j);
  }

  // Row m's scores become weights; those of later positions become 0, and are
  // never a product with what stands at those positions but for rows of this
  // very step.
  void Weights(int m) {
    const Row& row = rows_[m];
    float* w = Weight(m);
    const float* bias = attention_.bias + row.offset;
    const float scale = attention_.score_scale;
    const float weight = row.weight_scale;
    if (attention_.phi == Phi::kReluSquared) {
      for (int64_t j = 0; j <= row.offset; ++j) {
        const float score = w[j] * scale + bias[-j];
        const float positive = score < 0 ? 0 : score;  // keeps a NaN
        w[j] = positive * positive * weight;
      }
    } else {
      const float inverse =
          1.0f / (attention_.laplace_std * 1.41421356237309505f);
      for (int64_t j = 0; j <= row.offset; ++j) {
        const float score = w[j] * scale + bias[-j];
        const float unit = (score - attention_.laplace_mean) * inverse;
        w[j] = 0.5f * (1.0f + std::erf(unit)) * weight;
      }
    }
    for (int64_t j = row.offset + 1; j < NumKeys(); ++j) w[j] = 0;
  }

  // 16 N columns from column `c` of the panel on.
  template <int M, int N>
  void Columns(int64_t panel, int64_t c) {
    Tile<M, N> out;
    ClearTile<M, N>(out);
    if (attention_.has_quadratic) {
      AddProduct<M, N>(Left{task_.scratch, weight_stride_, 1},
                       Right<T>{value_ + value_panels_.Begin(panel) + c,
                                value_panels_.Width(panel)},
                       NumKeys(), out);
      // A sum may be -0, and the zeros that stand for later positions would
      // make it +0: it is +0 in any case.
      for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) out[m][n] = Add(out[m][n], Zero());
      }
    }
    if (attention_.has_linear) AddGlobal<M, N>(panel, c, out);
    for (int m = 0; m < M; ++m) {
      const int64_t row = task_.first_row + m;
      const float* gate = task_.heads->uvz.Row(row) + panel + c;
      float* gated = task_.gated.Row(row) + panel + c;
      for (int n = 0; n < N; ++n) {
        Store(gated + 16 * n, Mul(Load(gate + 16 * n), out[m][n]));
      }
    }
  }

  // out += lambda * (lin_q . U).
  template <int M, int N>
  void AddGlobal(int64_t panel, int64_t c, Tile<M, N>& out) {
    // No chunk is closed yet: U is zero. The rows of a task share a chunk.
    if (rows_[0].position == rows_[0].offset) return;
    const Left lin_q = {task_.heads->lin_q.Row(task_.first_row),
                        task_.heads->lin_q.row_stride, 1};
    Tile<M, N> global;
    ClearTile<M, N>(global);
    AddProduct<M, N>(
        lin_q,
        Right<T>{u_ + u_panels_.Begin(panel) + c, u_panels_.Width(panel)},
        u_panels_.rows, global);
    for (int m = 0; m < M; ++m) {
      const F32x16 lambda = Set1(rows_[m].linear_scale);
      for (int n = 0; n < N; ++n) {
        out[m][n] = Fma(lambda, global[m][n], out[m][n]);
      }
    }
  }

  const AttendTask& task_;
  const Attention& attention_;
  const Row* const rows_;
  const int64_t s_;
  const Panels value_panels_;
  const Panels u_panels_;
  const int64_t weight_stride_;
  const T* quad_k_ = nullptr;
  const T* value_ = nullptr;
  const T* u_ = nullptr;
};

template <typename T>
void AttendCached(const AttendTask& task) {
  Attender<T> attender(task);
  ForEachRowTile<kTileRows>(
      task.num_rows, [&]<int M>(int64_t) { attender.template Run<M>(); });
}

}  // namespace

void Attend(const AttendTask& task) {
  if (task.state->cache == DataType::kFloat32) {
    AttendCached<float>(task);
  } else {
    AttendCached<uint16_t>(task);
  }
}

}  // namespace flash::cpu::FLASH_ISA

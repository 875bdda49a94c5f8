// Some rows of one run: local attention over the open chunk, the product with
// U, and the gate (format steps 2.5, 2.6 and the gate of 2.7).

#include <cmath>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/tile.h"

namespace flash::cpu::FLASH_ISA {
namespace {

// T is the cache type: float or uint16_t (bfloat16).
template <typename T>
const T* InSlot(const AttendTask& task, const std::byte* tensor) {
  const size_t slot = task.rows[task.first_row].slot * task.state->slot_stride;
  return reinterpret_cast<const T*>(tensor + slot);
}

// Rows [first, first + num_rows) of a task.
struct RowTile {
  int64_t first = 0;
  int num_rows = 0;

  // How many positions of the chunk the last row, and so any row, looks at.
  int64_t NumKeys(const AttendTask& task) const {
    return task.rows[task.first_row + first + num_rows - 1].offset + 1;
  }
};

// Scores and what becomes of them.
template <typename T>
class Weigher {
 public:
  explicit Weigher(const AttendTask& task)
      : task_(task),
        attention_(*task.attention),
        panels_{attention_.query_key_size, Padded(attention_.chunk_size)},
        quad_k_(InSlot<T>(task, task.state->quad_k)) {}

  template <int M>
  void Run(int64_t first) {
    const RowTile tile = {first, M};
    const int64_t keys = tile.NumKeys(task_);
    for (int64_t panel = 0; panel < keys; panel += Panels::kWidth) {
      const int64_t width = panels_.Width(panel);
      const int64_t last = keys - panel < width ? keys - panel : width;
      int64_t c = 0;
      for (; c + 16 * kTileVectors <= Padded(last); c += 16 * kTileVectors) {
        Scores<M, kTileVectors>(first, panel, c);
      }
      for (; c < last; c += 16) Scores<M, 1>(first, panel, c);
    }
    for (int64_t row = first; row < first + M; ++row) Weights(row, keys);
  }

 private:
  float* Row(int64_t row) const { return task_.weights + row * panels_.cols; }

  // weights[m][j] = quad_q[m] . quad_k[j], for 16 N positions from panel + c
  // on. Those that no row looks at are garbage, and overwritten or not read.
  template <int M, int N>
  void Scores(int64_t first, int64_t panel, int64_t c) {
    Tile<M, N> scores;
    ClearTile<M, N>(scores);
    const MatrixView<float>& quad_q = task_.heads->quad_q;
    AddProduct<M, N>(
        Left{quad_q.Row(task_.first_row + first), quad_q.row_stride, 1},
        Right<T>{quad_k_ + panels_.Begin(panel) + c, panels_.Width(panel)},
        panels_.rows, scores);
    for (int m = 0; m < M; ++m) {
      for (int n = 0; n < N; ++n) {
        Store(Row(first + m) + panel + c + 16 * n, scores[m][n]);
      }
    }
  }

  // A row's scores become weights; those of later positions become 0, and are
  // never a product with what stands at those positions but for rows of this
  // very step.
  void Weights(int64_t index, int64_t keys) {
    const flash::Row& row = task_.rows[task_.first_row + index];
    float* w = Row(index);
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
    for (int64_t j = row.offset + 1; j < keys; ++j) w[j] = 0;
  }

  const AttendTask& task_;
  const Attention& attention_;
  const Panels panels_;
  const T* const quad_k_;
};

// Weights times values, the product with U, and the gate.
template <typename T>
class Attender {
 public:
  explicit Attender(const AttendTask& task)
      : task_(task),
        attention_(*task.attention),
        value_panels_{attention_.chunk_size, Padded(attention_.expanded_size)},
        u_panels_{attention_.query_key_size, value_panels_.cols},
        weight_stride_(Padded(attention_.chunk_size)),
        listed_weights_(task.scratch),
        listed_(reinterpret_cast<int32_t*>(task.scratch + weight_stride_)),
        put_off_keys_(task.scratch + 2 * weight_stride_),
        value_(InSlot<T>(task, task.state->value)),
        u_(attention_.has_linear ? InSlot<T>(task, task.state->u) : nullptr) {}

  int64_t Run() {
    if (task_.num_rows == 1) {
      if (attention_.has_quadratic) {
        ListWeights();
        PrefetchListed();
      }
      if (task_.put_off != nullptr) WidenPutOffKeys();
      for (int64_t panel = task_.first_col; panel < task_.last_col;
           panel += Panels::kWidth) {
        Panel<1, 4, true>(0, panel);
      }
      return num_listed_;
    }
    for (int64_t panel = task_.first_col; panel < task_.last_col;
         panel += Panels::kWidth) {
      ForEachRowTile<kTileRows>(task_.num_rows, [&]<int M>(int64_t first) {
        Panel<M, kTileVectors, false>(first, panel);
      });
    }
    const RowTile all = {0, task_.num_rows};
    return attention_.has_quadratic ? all.NumKeys(task_) : 0;
  }

 private:
  // For one row: the weights that are not zero, and their positions. About half
  // of relu's are zero, and what they would multiply is finite and not read.
  void ListWeights() {
    const int64_t keys = RowTile{0, 1}.NumKeys(task_);
    int64_t listed = 0;
    for (int64_t j = 0; j < keys; ++j) {
      const float weight = task_.weights[j];
      listed_weights_[listed] = weight;
      listed_[listed] = static_cast<int32_t>(j);
      listed += weight != 0 ? 1 : 0;  // a NaN is listed
    }
    num_listed_ = listed;
  }

  // Those of the first panel; each panel asks for those of the next.
  void PrefetchListed() const {
    const T* values = value_ + value_panels_.Begin(task_.first_col);
    const int64_t width = value_panels_.Width(task_.first_col);
    for (int64_t k = 0; k < num_listed_; ++k) {
      for (int64_t c = 0; c < width; c += 16) {
        Prefetch<1>(values + listed_[k] * width + c);
      }
    }
  }

  void WidenPutOffKeys() {
    const int64_t s = Padded(attention_.query_key_size);
    const T* lin_k =
        InSlot<T>(task_, task_.state->lin_k) + task_.put_off->first * s;
    const int64_t size = (task_.put_off->last - task_.put_off->first) * s;
    for (int64_t c = 0; c < size; c += 16) {
      Store(put_off_keys_ + c, Load(lin_k + c));
    }
  }

  template <int M, int N, bool kListed>
  void Panel(int64_t first, int64_t panel) {
    const int64_t width = value_panels_.Width(panel);
    int64_t c = 0;
    for (; c + 16 * N <= width; c += 16 * N) {
      Columns<M, N, kListed>(first, panel, c);
    }
    for (; c < width; c += 16) Columns<M, 1, kListed>(first, panel, c);
  }

  // 16 N columns from column `c` of the panel on.
  template <int M, int N, bool kListed>
  void Columns(int64_t first, int64_t panel, int64_t c) {
    Tile<M, N> out;
    ClearTile<M, N>(out);
    if (attention_.has_quadratic) {
      const Right<T> values = {value_ + value_panels_.Begin(panel) + c,
                               value_panels_.Width(panel)};
      if constexpr (kListed) {
        const int64_t next = panel + Panels::kWidth < task_.last_col
                                 ? value_panels_.Begin(Panels::kWidth)
                                 : 0;
        AddListed<N>(listed_weights_, listed_, values, values.data + next,
                     num_listed_, out);
      } else {
        AddProduct<M, N>(
            Left{task_.weights + first * weight_stride_, weight_stride_, 1},
            values, RowTile{first, M}.NumKeys(task_), out);
      }
      // A sum may be -0, and the zeros that stand for later positions would
      // make it +0: it is +0 in any case.
      for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) out[m][n] = Add(out[m][n], Zero());
      }
    }
    const int64_t row = task_.first_row + first;
    if (attention_.has_linear) AddGlobal<M, N>(row, panel, c, out);
    for (int m = 0; m < M; ++m) {
      const float* gate = task_.heads->uvz.Row(row + m) + panel + c;
      float* gated = task_.gated.Row(row + m) + panel + c;
      for (int n = 0; n < N; ++n) {
        Store(gated + 16 * n, Mul(Load(gate + 16 * n), out[m][n]));
      }
    }
  }

  // out += lambda * (lin_q . U).
  template <int M, int N>
  void AddGlobal(int64_t row, int64_t panel, int64_t c, Tile<M, N>& out) {
    // No chunk is closed yet: U is zero. The rows of a task share a chunk.
    if (task_.rows[row].position == task_.rows[row].offset) return;
    const MatrixView<float>& lin_q = task_.heads->lin_q;
    Tile<M, N> global;
    ClearTile<M, N>(global);
    if (M == 1 && task_.put_off != nullptr) {
      AddUnwritten<N>(lin_q.Row(row), panel, c, global[0]);
    } else {
      AddProduct<M, N>(
          Left{lin_q.Row(row), lin_q.row_stride, 1},
          Right<T>{u_ + u_panels_.Begin(panel) + c, u_panels_.Width(panel)},
          u_panels_.rows, global);
    }
    for (int m = 0; m < M; ++m) {
      const F32x16 lambda = Set1(task_.rows[row + m].linear_scale);
      for (int n = 0; n < N; ++n) {
        out[m][n] = Fma(lambda, global[m][n], out[m][n]);
      }
    }
  }

  static F32x16 Rounded(F32x16 x) {
    T rounded[16];
    Store(rounded, x);
    return Load(rounded);
  }

  // global += lin_q . U, where U is yet to be made of the sum: the same chain
  // of multiply-adds and the same rounding as the fold's.
  template <int N>
  void AddUnwritten(const float* lin_q, int64_t panel, int64_t c,
                    F32x16 (&global)[N]) {
    const int64_t width = u_panels_.Width(panel);
    const int64_t positions = task_.put_off->last - task_.put_off->first;
    const T* value =
        value_ + value_panels_.Begin(panel) + task_.put_off->first * width + c;
    F32x16 values[kMaxPutOff][N];
    for (int64_t j = 0; j < positions; ++j) {
      for (int n = 0; n < N; ++n) {
        values[j][n] = Load(value + j * width + 16 * n);
      }
    }
    const float* sum =
        InSlot<float>(task_,
                      reinterpret_cast<const std::byte*>(task_.state->sum)) +
        u_panels_.Begin(panel) + c;
    const int64_t s = Padded(attention_.query_key_size);
    for (int64_t k = 0; k < u_panels_.rows; ++k) {
      F32x16 u[N];
      for (int n = 0; n < N; ++n) u[n] = Load(sum + k * width + 16 * n);
      for (int64_t j = 0; j < positions; ++j) {
        const F32x16 key = Set1(put_off_keys_[j * s + k]);
        for (int n = 0; n < N; ++n) u[n] = Fma(key, values[j][n], u[n]);
      }
      const F32x16 q = Set1(lin_q[k]);
      for (int n = 0; n < N; ++n) global[n] = Fma(q, Rounded(u[n]), global[n]);
    }
  }

  const AttendTask& task_;
  const Attention& attention_;
  const Panels value_panels_;
  const Panels u_panels_;
  const int64_t weight_stride_;
  float* const listed_weights_;
  int32_t* const listed_;
  float* const put_off_keys_;
  int64_t num_listed_ = 0;
  const T* const value_;
  const T* const u_;  // null without the linear branch
};

template <typename T>
void WeighCached(const AttendTask& task) {
  Weigher<T> weigher(task);
  ForEachRowTile<kTileRows>(task.num_rows, [&]<int M>(int64_t first) {
    weigher.template Run<M>(first);
  });
}

}  // namespace

void Weigh(const AttendTask& task) {
  if (task.state->cache == DataType::kFloat32) {
    WeighCached<float>(task);
  } else {
    WeighCached<uint16_t>(task);
  }
}

int64_t Attend(const AttendTask& task) {
  if (task.state->cache == DataType::kFloat32) {
    return Attender<float>(task).Run();
  }
  return Attender<uint16_t>(task).Run();
}

}  // namespace flash::cpu::FLASH_ISA

#include "server/model/decode_state.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/check.h"

namespace flash {
namespace {

// Positions that are folded at once. Larger blocks move the sum through memory
// less often; smaller ones towards the chunk's end leave less for the step that
// closes it and those after it.
constexpr int64_t kFoldPositions = 32;
constexpr int64_t kLastFoldPositions = 4;
constexpr int64_t kLastPositions = 16;  // where these begin, at the latest

constexpr int64_t kLine = 64;  // every tensor begins on a cache line

// Whether a layer takes the rest of a closed chunk later than the step that
// closes it.
bool ClosesLate(int layer) { return layer % 4 != 0; }

// The steps of a chunk over which those that do are spread.
constexpr int64_t kOpeningSteps = 8;

// Of shorter chunks these steps, or the blocks at the end, would be too large a
// part: the rows that are left must not be overwritten.
constexpr int64_t kShortChunk = kOpeningSteps + 2 * kLastFoldPositions;
static_assert(kLastFoldPositions <= kMaxPutOff);

int64_t Aligned(int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

StateLayout StateLayout::Of(const ModelConfig& config, DataType cache) {
  StateLayout layout;
  layout.cache = cache;
  int64_t boundary_bytes = sizeof(uint32_t);  // of a layer
  const int64_t cached = SizeOf(cache);
  const int64_t s = Padded(config.query_key_size);
  const int64_t e = Padded(config.expanded_size);
  const auto take = [&](int64_t bytes) {
    const int64_t at = layout.layer_bytes;
    layout.layer_bytes += Aligned(bytes);
    return at;
  };
  if (config.linear.has_value()) {
    layout.u = take(config.query_key_size * e * cached);
    layout.sum = take(config.query_key_size * e * sizeof(float));
    boundary_bytes += config.query_key_size * e * sizeof(float);
    layout.lin_k = take(config.chunk_size * s * cached);
  }
  if (config.quadratic.has_value()) {
    layout.quad_k =
        take(config.query_key_size * Padded(config.chunk_size) * cached);
  }
  layout.value = take(config.chunk_size * e * cached);
  if (config.token_shift) {
    const int64_t row = Padded((config.hidden_size + 1) / 2) * sizeof(float);
    layout.shift = take(kShiftRows * row);
    boundary_bytes += row;
  }
  if (__builtin_mul_overflow(layout.layer_bytes, config.num_layers,
                             &layout.slot_bytes)) {
    layout.slot_bytes = std::numeric_limits<int64_t>::max();  // fits nowhere
    return layout;
  }
  layout.boundary_bytes =
      config.num_layers * boundary_bytes + int64_t{sizeof(int64_t)};
  return layout;
}

absl::StatusOr<std::unique_ptr<DecodeStates>> DecodeStates::Create(
    Backend& backend, const ModelConfig& config, DataType cache,
    int num_slots) {
  FLASH_CHECK(num_slots > 0);
  const StateLayout layout = StateLayout::Of(config, cache);
  int64_t bytes = 0;
  if (__builtin_mul_overflow(layout.slot_bytes, num_slots, &bytes)) {
    return absl::ResourceExhaustedError("the slots' bytes exceed 2^63");
  }
  absl::StatusOr<std::unique_ptr<Buffer>> memory = backend.Allocate(bytes);
  if (!memory.ok()) return memory.status();
  return std::unique_ptr<DecodeStates>(
      new DecodeStates(backend, config, layout, num_slots, *std::move(memory)));
}

DecodeStates::DecodeStates(Backend& backend, const ModelConfig& config,
                           const StateLayout& layout, int num_slots,
                           std::unique_ptr<Buffer> memory)
    : backend_(backend),
      layout_(layout),
      chunk_size_(config.chunk_size),
      query_key_size_(config.query_key_size),
      expanded_size_(Padded(config.expanded_size)),
      shift_bytes_(config.token_shift ? Padded((config.hidden_size + 1) / 2) *
                                            int64_t{sizeof(float)}
                                      : 0),
      num_layers_(static_cast<int>(config.num_layers)),
      memory_(std::move(memory)),
      positions_(num_slots, 0),
      settled_(num_slots, 0),
      undecided_(num_slots, 0),
      is_clean_(num_slots, true),
      folded_(static_cast<size_t>(num_slots) * num_layers_, 0) {
  for (int layer = 0; layer < num_layers_; ++layer) {
    std::byte* base = memory_->data() + layer * layout.layer_bytes;
    const auto at = [&](int64_t offset) {
      return offset < 0 ? nullptr : base + offset;
    };
    layers_.push_back({.u = at(layout.u),
                       .sum = reinterpret_cast<float*>(at(layout.sum)),
                       .quad_k = at(layout.quad_k),
                       .lin_k = at(layout.lin_k),
                       .value = at(layout.value),
                       .shift = reinterpret_cast<float*>(at(layout.shift)),
                       .slot_stride = static_cast<size_t>(layout.slot_bytes),
                       .cache = layout.cache});
  }
}

std::byte* DecodeStates::SlotData(int slot) const {
  return memory_->data() + slot * layout_.slot_bytes;
}

void DecodeStates::Reset(int slot) {
  if (!is_clean_[slot]) backend_.Zero(SlotData(slot), layout_.slot_bytes);
  // Whoever resets a slot is about to use it.
  is_clean_[slot] = false;
  positions_[slot] = 0;
  settled_[slot] = 0;
  undecided_[slot] = 0;
  std::fill_n(folded_.begin() + slot * num_layers_, num_layers_, 0);
}

void DecodeStates::Copy(int from, int to) {
  if (from == to) return;
  FLASH_CHECK(undecided_[from] == 0);
  backend_.Copy(SlotData(to), SlotData(from), layout_.slot_bytes);
  is_clean_[to] = false;
  positions_[to] = positions_[from];
  settled_[to] = settled_[from];
  undecided_[to] = 0;
  std::copy_n(folded_.begin() + from * num_layers_, num_layers_,
              folded_.begin() + to * num_layers_);
}

void DecodeStates::AddChunkPieces(int64_t layer_at, int64_t num_rows,
                                  int64_t folded,
                                  std::vector<Piece>& pieces) const {
  const int64_t size = SizeOf(layout_.cache);
  if (layout_.sum >= 0) {
    pieces.push_back(
        {layer_at + layout_.u, query_key_size_ * expanded_size_ * size});
    // Rows that are in the sum are not read again.
    const int64_t row = Padded(query_key_size_) * size;
    pieces.push_back(
        {layer_at + layout_.lin_k + folded * row, (num_rows - folded) * row});
  }
  if (layout_.quad_k >= 0) {
    const Panels keys = {query_key_size_, Padded(chunk_size_)};
    for (int64_t col = 0; col < num_rows; col += Panels::kWidth) {
      const int64_t width = keys.Width(col);
      const int64_t used = std::min(num_rows - col, width);
      for (int64_t row = 0; row < keys.rows; ++row) {
        pieces.push_back(
            {layer_at + layout_.quad_k + (keys.Begin(col) + row * width) * size,
             used * size});
      }
    }
  }
  const Panels values = {chunk_size_, expanded_size_};
  for (int64_t col = 0; col < values.cols; col += Panels::kWidth) {
    pieces.push_back({layer_at + layout_.value + values.Begin(col) * size,
                      num_rows * values.Width(col) * size});
  }
}

std::vector<DecodeStates::Piece> DecodeStates::Pieces(
    int64_t position, const std::vector<uint32_t>& folded) const {
  std::vector<Piece> pieces;
  if (position == 0) return pieces;
  const int64_t num_rows = position % chunk_size_;
  for (int layer = 0; layer < num_layers_; ++layer) {
    const int64_t at = layer * layout_.layer_bytes;
    if (layout_.sum >= 0) {
      pieces.push_back({at + layout_.sum, query_key_size_ * expanded_size_ *
                                              int64_t{sizeof(float)}});
    }
    if (num_rows > 0) AddChunkPieces(at, num_rows, folded[layer], pieces);
    if (layout_.shift >= 0) {
      pieces.push_back(
          {at + layout_.shift + (position - 1) % kShiftRows * shift_bytes_,
           shift_bytes_});
    }
  }
  return pieces;
}

absl::StatusOr<std::string> DecodeStates::Save(int slot) const {
  FLASH_CHECK(undecided_[slot] == 0);
  const int64_t position = positions_[slot];
  const int64_t begin = position / chunk_size_ * chunk_size_;
  std::vector<uint32_t> folded(num_layers_);
  for (int layer = 0; layer < num_layers_; ++layer) {
    const Fold left = FoldLeft(slot, layer);
    FLASH_CHECK(left.first == left.last);
    if (layout_.sum < 0) continue;
    folded[layer] =
        static_cast<uint32_t>(folded_[slot * num_layers_ + layer] - begin);
  }
  const std::vector<Piece> pieces = Pieces(position, folded);
  const size_t head = sizeof(position) + num_layers_ * sizeof(folded[0]);
  size_t size = head;
  for (const Piece& piece : pieces) size += piece.bytes;
  std::string state(size, '\0');
  std::memcpy(state.data(), &position, sizeof(position));
  std::memcpy(state.data() + sizeof(position), folded.data(),
              num_layers_ * sizeof(folded[0]));
  char* to = state.data() + head;
  for (const Piece& piece : pieces) {
    backend_.Download(to, SlotData(slot) + piece.at, piece.bytes);
    to += piece.bytes;
  }
  // A step of nothing, whose end tells whether these are the slot's bytes.
  backend_.BeginStep({});
  const absl::Status copied = backend_.EndStep({});
  if (!copied.ok()) return copied;
  return state;
}

absl::StatusOr<DecodeStates::Saved> DecodeStates::Read(
    std::string_view state, int64_t max_position) const {
  Saved saved;
  saved.folded.resize(num_layers_);
  const size_t folded_bytes = num_layers_ * sizeof(saved.folded[0]);
  saved.head_bytes = sizeof(saved.position) + folded_bytes;
  if (state.size() < saved.head_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a state of ", state.size(), " bytes, of at least ", saved.head_bytes));
  }
  std::memcpy(&saved.position, state.data(), sizeof(saved.position));
  std::memcpy(saved.folded.data(), state.data() + sizeof(saved.position),
              folded_bytes);
  if (saved.position < 0 || saved.position > max_position) {
    return absl::InvalidArgumentError(
        absl::StrCat("a state after ", saved.position, " tokens, of at most ",
                     max_position));
  }
  for (const uint32_t count : saved.folded) {
    if (count > saved.position % chunk_size_) {
      return absl::InvalidArgumentError(
          absl::StrCat("a state with ", count, " positions in its sum, of ",
                       saved.position % chunk_size_));
    }
  }
  saved.pieces = Pieces(saved.position, saved.folded);
  size_t size = saved.head_bytes;
  for (const Piece& piece : saved.pieces) size += piece.bytes;
  if (state.size() != size) {
    return absl::InvalidArgumentError(
        absl::StrCat("a state of ", state.size(), " bytes, not of ", size));
  }
  return saved;
}

absl::StatusOr<int64_t> DecodeStates::PositionOf(std::string_view state,
                                                 int64_t max_position) const {
  const absl::StatusOr<Saved> saved = Read(state, max_position);
  if (!saved.ok()) return saved.status();
  return saved->position;
}

absl::Status DecodeStates::Load(int slot, std::string_view state,
                                int64_t max_position) {
  Reset(slot);
  const absl::StatusOr<Saved> saved = Read(state, max_position);
  if (!saved.ok()) return saved.status();
  const char* from = state.data() + saved->head_bytes;
  for (const Piece& piece : saved->pieces) {
    backend_.Upload(SlotData(slot) + piece.at, from, piece.bytes);
    from += piece.bytes;
  }
  positions_[slot] = saved->position;
  settled_[slot] = saved->position;
  const int64_t begin = saved->position / chunk_size_ * chunk_size_;
  for (int layer = 0; layer < num_layers_; ++layer) {
    folded_[slot * num_layers_ + layer] =
        layout_.sum < 0 ? 0 : begin + saved->folded[layer];
  }
  return absl::OkStatus();
}

void DecodeStates::Jump(int slot, int64_t chunks) {
  FLASH_CHECK(positions_[slot] >= chunk_size_);
  const int64_t positions = chunks * chunk_size_;
  positions_[slot] += positions;
  settled_[slot] += positions;
  for (int layer = 0; layer < num_layers_; ++layer) {
    folded_[slot * num_layers_ + layer] += positions;
  }
}

Fold DecodeStates::FoldLeft(int slot, int layer) const {
  const int64_t folded = folded_[slot * num_layers_ + layer];
  const int64_t begin = positions_[slot] / chunk_size_ * chunk_size_;
  Fold fold = {.slot = slot};
  if (layout_.sum < 0 || folded >= begin) return fold;
  fold.first = static_cast<int32_t>(folded - (begin - chunk_size_));
  FLASH_CHECK(fold.first >= 0);
  fold.last = static_cast<int32_t>(chunk_size_);
  fold.closes = true;
  return fold;
}

bool DecodeStates::MayPutOff(int slot, int layer, int64_t tokens) const {
  const int64_t offset = positions_[slot] % chunk_size_;
  const Fold left = FoldLeft(slot, layer);
  return tokens == 1 && chunk_size_ >= kShortChunk &&
         left.last - left.first <= kMaxPutOff &&
         offset <= layer * kOpeningSteps / num_layers_;
}

Fold DecodeStates::FoldBefore(int slot, int layer) {
  const Fold fold = FoldLeft(slot, layer);
  if (fold.closes) {
    folded_[slot * num_layers_ + layer] =
        positions_[slot] / chunk_size_ * chunk_size_;
  }
  return fold;
}

Fold DecodeStates::FoldAfter(int slot, int layer, int64_t end) {
  int64_t& folded = folded_[slot * num_layers_ + layer];
  const int64_t begin = positions_[slot] / chunk_size_ * chunk_size_;
  Fold fold = {.slot = slot};
  // Positions are folded in order: not before what was put off.
  if (layout_.sum < 0 || folded < begin) return fold;
  const bool closes = end == chunk_size_;
  if (closes && ClosesLate(layer)) return fold;
  // Where smaller blocks begin, at this layer's and slot's own position: an
  // edge of the larger ones, so that no long block is left there. Edges of
  // larger blocks lie where the distance to the chunk's end is even, those of
  // smaller ones where it is odd: no step has both. (5 and 7 are odd, so layers
  // differ.)
  const int64_t phase = layer * int64_t{5} + slot * int64_t{7};
  const int64_t turn =
      chunk_size_ - kLastPositions - phase * 2 % kLastPositions;
  const bool is_last_part = end > turn;
  const int64_t block = is_last_part ? kLastFoldPositions : kFoldPositions;
  const int64_t past_edge =
      ((end - turn + is_last_part) % block + block) % block;
  const int64_t edge = closes ? end : end - past_edge;
  // An edge that the step of a run has passed over, or one that lay before the
  // chunk, is left to the next: else several layers would fold in this step.
  if (begin + edge <= std::max(folded, settled_[slot])) return fold;
  fold.first = static_cast<int32_t>(folded - begin);
  fold.last = static_cast<int32_t>(edge);
  fold.closes = closes;
  folded = begin + edge;
  return fold;
}

void DecodeStates::Advance(int slot, int64_t tokens) {
  FLASH_CHECK(undecided_[slot] == 0);
  positions_[slot] += tokens;
  settled_[slot] = positions_[slot];
}

void DecodeStates::AdvanceForNow(int slot, int64_t tokens) {
  FLASH_CHECK(undecided_[slot] == 0 && tokens < kShiftRows);
  settled_[slot] = positions_[slot];
  positions_[slot] += tokens;
  undecided_[slot] = tokens;
}

void DecodeStates::Keep(int slot, int64_t tokens) {
  FLASH_CHECK(undecided_[slot] > 0 && tokens >= 0 &&
              tokens <= undecided_[slot]);
  positions_[slot] += tokens - std::exchange(undecided_[slot], 0);
}

}  // namespace flash

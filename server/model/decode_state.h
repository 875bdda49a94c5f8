// All that the live requests must remember: one slot each, of equal and
// constant size.

#ifndef SERVER_MODEL_DECODE_STATE_H_
#define SERVER_MODEL_DECODE_STATE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "server/model/config.h"

namespace flash {

// Where each tensor of a slot begins. A slot has, for each layer, the tensors
// of LayerState that the model's branches need.
struct StateLayout {
  // In bytes from the layer's beginning; -1 where the model has no such tensor.
  int64_t u = -1;
  int64_t sum = -1;
  int64_t quad_k = -1;
  int64_t lin_k = -1;
  int64_t value = -1;
  int64_t shift = -1;
  int64_t layer_bytes = 0;
  int64_t slot_bytes = 0;
  int64_t boundary_bytes = 0;  // of DecodeStates::Save() at a chunk boundary
  DataType cache = DataType::kFloat32;

  static StateLayout Of(const ModelConfig& config, DataType cache);
};

// The slots' memory and where each slot stands.
//
// The sum of a chunk's lin_k^T v is spread over the steps of the chunk: the
// folds say what a layer adds to it when, in blocks whose edges differ between
// layers and slots, so that no step carries the folds of all. The rest of a
// closed chunk, and with it the new U, is spread too: some layers take it in
// the step that closes the chunk, the others one after the other in the first
// steps of the next. Until then a single row makes U for itself, of the sum and
// the few positions that are left (Backend::Attend()).
//
// Drafted tokens are rows of the open chunk (and of the shift's ring) like any
// others, and are not folded before it is known that they stay. So they are
// taken back by moving the position: later rows overwrite theirs.
//
// Thread safety: one thread at a time.
class DecodeStates {
 public:
  // RESOURCE_EXHAUSTED if the backend has not that much memory.
  // REQUIRES: num_slots > 0; `backend` outlives the states.
  static absl::StatusOr<std::unique_ptr<DecodeStates>> Create(
      Backend& backend, const ModelConfig& config, DataType cache,
      int num_slots);

  int num_slots() const { return static_cast<int>(positions_.size()); }
  const StateLayout& layout() const { return layout_; }
  int64_t position(int slot) const { return positions_[slot]; }
  const LayerState& layer(int layer) const { return layers_[layer]; }

  // Zeroes every byte of the slot.
  void Reset(int slot);

  // Makes `to` an exact copy of `from`.
  void Copy(int from, int to);

  // What a closed chunk has left to fold in `layer`. Empty (first == last) if
  // nothing.
  Fold FoldLeft(int slot, int layer) const;

  // Whether a step of `tokens` tokens of the slot may leave that to a later
  // one.
  bool MayPutOff(int slot, int layer, int64_t tokens) const;

  // If not: the same, counted as folded. It comes before the layer reads U or
  // writes a row.
  Fold FoldBefore(int slot, int layer);

  // What it folds at the end of the step after which `end` positions of the
  // slot's open chunk are certain (the chunk's length: it closes). Counts them
  // as folded.
  Fold FoldAfter(int slot, int layer, int64_t end);

  // The slot's state as bytes: its position, what of its chunk is in the sums,
  // and each tensor's part that has a meaning, row by row of what is stored. At
  // a chunk boundary that is the sum (and the row of the shift) alone.
  // REQUIRES: nothing is left to fold of a closed chunk.
  absl::StatusOr<std::string> Save(int slot) const;

  // LanguageModel::Load(). INVALID_ARGUMENT above `max_position`.
  absl::Status Load(int slot, std::string_view state, int64_t max_position);

  // The position of a state that Load() would take, or its error. Any thread.
  absl::StatusOr<int64_t> PositionOf(std::string_view state,
                                     int64_t max_position) const;

  // Moves the slot's position on by whole chunks that it has not read: what is
  // measured far into a text need not run all of it. REQUIRES: a chunk is
  // behind it.
  void Jump(int slot, int64_t chunks);

  // The slot has been given `tokens` more.
  void Advance(int slot, int64_t tokens);

  // Likewise, but which of them stay is yet to be said, by Keep(): the first
  // `tokens`. REQUIRES: a row for each in the shift's ring, and one more.
  void AdvanceForNow(int slot, int64_t tokens);
  void Keep(int slot, int64_t tokens);

 private:
  DecodeStates(Backend& backend, const ModelConfig& config,
               const StateLayout& layout, int num_slots,
               std::unique_ptr<Buffer> memory);

  // A part of a slot, in bytes from the slot's beginning.
  struct Piece {
    int64_t at = 0;
    int64_t bytes = 0;
  };
  // What a state's bytes say of themselves, and where they belong.
  struct Saved {
    int64_t position = 0;
    std::vector<uint32_t> folded;
    size_t head_bytes = 0;
    std::vector<Piece> pieces;
  };
  absl::StatusOr<Saved> Read(std::string_view state,
                             int64_t max_position) const;
  // What Save() writes of a slot at `position`, in that order. `folded`: of
  // each layer, the positions of the open chunk that are in the sum.
  std::vector<Piece> Pieces(int64_t position,
                            const std::vector<uint32_t>& folded) const;
  // Of the open chunk's first `num_rows` rows.
  void AddChunkPieces(int64_t layer_at, int64_t num_rows, int64_t folded,
                      std::vector<Piece>& pieces) const;

  std::byte* SlotData(int slot) const;

  Backend& backend_;
  const StateLayout layout_;
  const int64_t chunk_size_;
  const int64_t query_key_size_;
  const int64_t expanded_size_;  // padded
  const int64_t shift_bytes_;    // of one row of the shift; 0: there is none
  const int num_layers_;
  const std::unique_ptr<Buffer> memory_;  // [num_slots, slot_bytes]
  std::vector<LayerState> layers_;
  std::vector<int64_t> positions_;  // [num_slots]
  // [num_slots]: positions up to which blocks have been looked for to fold.
  std::vector<int64_t> settled_;
  std::vector<int64_t> undecided_;  // [num_slots]: tokens that wait for Keep()
  std::vector<bool> is_clean_;      // never written since it was zeroed
  // [num_slots, num_layers]: positions that are in the sum, of all.
  std::vector<int64_t> folded_;
};

}  // namespace flash

#endif  // SERVER_MODEL_DECODE_STATE_H_

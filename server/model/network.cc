#include "server/model/network.h"

#include "kernels/check.h"

namespace flash {

void Network::RunLayer(size_t index, const NetworkStep& step,
                       const LayerState& state, const Activations& a) {
  const Layer& layer = layers_[index];
  const HeadRows heads = {.uvz = a.uvz, .quad_q = a.quad_q, .lin_q = a.lin_q};
  backend_.Normalize(layer.norm, a.x, a.y);
  if (config_.token_shift) backend_.ShiftTokens(state, a.y);
  backend_.Project(*layer.uvz, a.y, Activation::kSilu, a.uvz);
  // Before AppendHeads(), which overwrites the rows of a chunk that is closed.
  backend_.FoldChunks(layer.attention, state, step.folds_before.Of(index));
  backend_.AppendHeads(layer.attention, state, a.cos, a.sin, heads);
  backend_.Attend(layer.attention, state, heads, step.folds_put_off.Of(index),
                  a.gated);
  // After Attend(): the token that closes a chunk is answered with the old U.
  backend_.FoldChunks(layer.attention, state, step.folds_after.Of(index));
  backend_.ProjectAndAdd(*layer.output, a.gated, a.x);
}

absl::StatusOr<MatrixView<const float>> Network::Run(
    const NetworkStep& step, const DecodeStates& states,
    std::span<uint8_t> faults) {
  const Activations a =
      activations_.Rows(static_cast<int64_t>(step.rows.rows.size()),
                        static_cast<int64_t>(step.logits_rows.size()));
  backend_.BeginStep(step.rows);
  backend_.Embed(embedding_, a.x);
  backend_.RotaryAngles(rotary_, a.cos, a.sin);
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    RunLayer(layer, step, states.layer(static_cast<int>(layer)), a);
  }
  backend_.FindFaults(a.x);
  if (!step.logits_rows.empty()) {
    backend_.GatherRows(step.logits_rows, a.x, a.chosen);
    backend_.Normalize(final_norm_, a.chosen, a.chosen);
    backend_.Project(*lm_head_, a.chosen, Activation::kNone, a.logits);
  }
  const absl::Status status = backend_.EndStep(faults);
  if (!status.ok()) return status;
  MatrixView<const float> logits = a.logits;
  logits.cols = config_.vocab_size;
  return backend_.OnHost(logits);
}

absl::Status Network::Fold(const FoldPlan& plan, const DecodeStates& states) {
  backend_.BeginStep({});
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    backend_.FoldChunks(layers_[layer].attention,
                        states.layer(static_cast<int>(layer)), plan.Of(layer));
  }
  return backend_.EndStep({});
}

size_t Network::weight_bytes() const {
  size_t bytes = lm_head_->bytes();
  for (const Layer& layer : layers_) {
    bytes += layer.uvz->bytes() + layer.output->bytes();
  }
  return bytes;
}

}  // namespace flash

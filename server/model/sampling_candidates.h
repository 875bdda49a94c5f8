// The ids that may still become the next token, as sampling's stages narrow
// them down.

#ifndef SERVER_MODEL_SAMPLING_CANDIDATES_H_
#define SERVER_MODEL_SAMPLING_CANDIDATES_H_

#include <cstdint>
#include <span>

#include "server/model/logit_loops.h"
#include "server/model/sampling.h"

namespace flash {

// A list of ids in ascending order, with a logit each and, after Weigh(), a
// weight each; the stages after that drop an id by making its weight 0. As long
// as all ids below num_pieces are in it, the ids are not written down; as long
// as no logit was changed, the raw ones are not copied.
//
// Thread safety: one thread at a time. Borrows everything.
class SamplingCandidates {
 public:
  // All ids that have a piece, or those of allowed_token_ids, with their raw
  // logits.
  SamplingCandidates(const SampleInput& input, SamplingScratch& scratch);

  // Stages 1 and 2 of sampling.h.
  void AddBias();
  void Mask(std::span<const int32_t> forbidden);
  void Penalize();

  // Whether this is still every raw logit as it came.
  bool HasAllLogitsRaw() const {
    return logits_.data() == input_.logits.data() &&
           logits_.size() == input_.logits.size();
  }
  // The highest logit and its place. Index -1: no candidate is left.
  LogitScan Scan() const { return ScanLogits(logits_); }
  int32_t IdAt(int32_t index) const {
    return ids_.empty() ? index : ids_[index];
  }

  // Stage 4. REQUIRES: k > 0.
  void KeepTopK(int32_t k);
  // Stage 3, for the temperature 1 / scale. REQUIRES: `highest` is Scan()'s.
  void Weigh(float highest, float scale);
  // Stages 5 and 6. REQUIRES: Weigh(), then this order; 0 <= top_p < 1;
  // 0 < min_p <= 1.
  void KeepTopP(double top_p);
  void KeepMinP(float min_p);
  // Stage 7: the id that the number u in [0, 1) draws. REQUIRES: Weigh().
  int32_t Draw(double u) const;

 private:
  // Where an id stands in the list; -1: nowhere.
  int32_t IndexOfId(int32_t id) const;
  // The logits, for writing. Copies the raw ones if they were not yet.
  std::span<float> MutableLogits();
  // The keys, in scratch_, of those with a logit in [least, above).
  std::span<LogitKey> GatherKeys(float least, float above);
  const SampleInput& input_;
  SamplingScratch& scratch_;
  std::span<const float> logits_;  // raw, or in scratch_
  std::span<const int32_t> ids_;   // empty: the index is the id
  std::span<float> weights_;       // in scratch_; empty before Weigh()
  float highest_ = 0;              // as given to Weigh()
  float scale_ = 1;
};

}  // namespace flash

#endif  // SERVER_MODEL_SAMPLING_CANDIDATES_H_

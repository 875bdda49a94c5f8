// The whole network in double precision, written from the format's description
// and not from our own code: what everything else is compared with.

#ifndef TESTS_REFERENCE_REFERENCE_H_
#define TESTS_REFERENCE_REFERENCE_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/model/checkpoint.h"
#include "server/model/config.h"

namespace flash {

// Plain loops, one token at a time, no rounding but double's own. Of the code
// under test it takes only the readers of files (ModelConfig, Checkpoint).
//
// Thread safety: immutable; each Sequence belongs to one thread.
class Reference {
 public:
  // A model reading one text. Must not outlive its Reference.
  class Sequence {
   public:
    // Reads a token and returns the logits of the next. REQUIRES: the token is
    // in [0, vocab_size) and max_length, if there is one, is not reached.
    std::vector<double> Step(int32_t token);

    // The residual stream of the last token: [0] is the embedding, [l + 1] what
    // layer l has made of it. Shows in which layer two networks part.
    const std::vector<std::vector<double>>& residual_stream() const {
      return residual_stream_;
    }

   private:
    friend class Reference;

    // What a layer remembers: everything that it will need again, as it is.
    struct Memory {
      std::vector<double> previous;                // [d], the last token's norm
      std::vector<std::vector<double>> quad_keys;  // of the open chunk
      std::vector<std::vector<double>> lin_keys;
      std::vector<std::vector<double>> values;
      std::vector<std::vector<double>> past;  // [s][e], U of closed chunks
    };
    // The heads of one token, each [s]; empty where its branch is off.
    struct Heads {
      std::vector<double> quad_q, quad_k, lin_q, lin_k;
    };

    explicit Sequence(const Reference* model);

    std::vector<double> Embed(int32_t token) const;
    // What layer l adds to the residual stream x.
    std::vector<double> Layer(int64_t l, const std::vector<double>& x);
    std::vector<double> ShiftedNorm(int64_t l, const std::vector<double>& x);
    Heads MakeHeads(int64_t l, const std::vector<double>& z) const;
    std::vector<double> Local(int64_t l, const std::vector<double>& query);
    std::vector<double> Global(int64_t l, const std::vector<double>& query);
    void CloseChunk(int64_t l);

    const Reference* model_;
    int64_t t_ = 0;
    std::vector<Memory> memories_;  // one for each layer
    std::vector<std::vector<double>> residual_stream_;
  };

  // Copies the tensors. Returns what CheckWeights() finds wrong with them.
  static absl::StatusOr<Reference> Create(const ModelConfig& config,
                                          const Checkpoint& checkpoint);

  Sequence Start() const { return Sequence(this); }

  // The logits after each of `ids`: [ids.size()][V].
  std::vector<std::vector<double>> Logits(std::span<const int32_t> ids) const;

  // The natural logarithm of each id's probability given those before it:
  // [ids.size() - 1].
  std::vector<double> Logprobs(std::span<const int32_t> ids) const;

  // The `count` most likely ids after `prompt`, one after the other; of equal
  // ones the lowest. REQUIRES: the prompt is not empty.
  std::vector<int32_t> Greedy(std::span<const int32_t> prompt, int count) const;

  const ModelConfig& config() const { return config_; }

 private:
  explicit Reference(const ModelConfig& config) : config_(config) {}

  // The tensor's numbers in a row; empty if there is no such tensor.
  const std::vector<double>& Tensor(const std::string& name) const;
  std::vector<double> Bias(int64_t layer) const;  // [C]

  ModelConfig config_;
  std::map<std::string, std::vector<double>> tensors_;
  std::vector<std::vector<double>> biases_;  // [L][C]
};

// The natural logarithms of the softmax of `logits`.
std::vector<double> LogSoftmax(const std::vector<double>& logits);

}  // namespace flash

#endif  // TESTS_REFERENCE_REFERENCE_H_

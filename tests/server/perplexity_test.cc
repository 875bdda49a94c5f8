// What narrow weights and states cost: perplexity of the demo model on text
// that it was not trained on.
//
// held_out.txt is the beginning of what deploy/models/train_demo.py holds out
// of the King James Bible (Galatians 3 to Ephesians 6) and of the Jargon File
// 4.4.7 (waldo to wheel wars); both are in the public domain.

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <utility>

#include "server/tokenizer/tokenizer.h"
#include "tests/server/model/model_runner.h"

namespace flash {
namespace {

constexpr char kModel[] = FLASH_SOURCE_DIR "/deploy/models/demo";
constexpr char kText[] = FLASH_SOURCE_DIR "/tests/server/held_out.txt";
constexpr size_t kWindow = 2048;  // tokens, each window after a BOS
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kMostTokens = kWindow;  // these are slow
#else
constexpr size_t kMostTokens = 1 << 20;
#endif

std::vector<int32_t> HeldOutIds(const ModelFiles& files) {
  std::ifstream file(kText, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_GE(text.size(), 50'000u);
  const auto tokenizer = MakeTokenizer(files.config.tokenizer, files.directory,
                                       files.config.vocab_size);
  FLASH_CHECK(tokenizer.ok());
  std::vector<int32_t> ids =
      *(*tokenizer)->Encode(text, Tokenizer::Place::kFirst);
  ids.resize(std::min(ids.size(), kMostTokens));
  return ids;
}

// -log2 of the probability of `id`.
double Bits(const LogitsRow& logits, int32_t id) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return (std::log(sum) + largest - logits[id]) / std::log(2.0);
}

double BitsPerToken(const ModelFiles& files, const std::vector<int32_t>& ids,
                    DataType weights, DataType cache) {
  ModelRunner runner(
      files, {.threads = 2, .weights = weights, .cache = cache, .slots = 1});
  double bits = 0;
  for (size_t begin = 0; begin < ids.size(); begin += kWindow) {
    const auto window =
        std::span(ids).subspan(begin, std::min(kWindow, ids.size() - begin));
    std::vector<int32_t> inputs = {
        static_cast<int32_t>(*files.config.bos_token_id)};
    inputs.insert(inputs.end(), window.begin(), window.end() - 1);
    const std::vector<LogitsRow> logits = runner.Read(0, inputs, kWindow);
    for (size_t t = 0; t < window.size(); ++t) {
      bits += Bits(logits[t], window[t]);
    }
  }
  return bits / static_cast<double>(ids.size());
}

TEST(PerplexityTest, NarrowWeightsAndStatesCostLessThanOnePercent) {
  const auto files = ModelFiles::Open(kModel);
  ASSERT_TRUE(files.ok()) << files.status();
  const std::vector<int32_t> ids = HeldOutIds(*files);
  const std::pair<const char*, DataType> weights[] = {
      {"float32", DataType::kFloat32},
      {"bfloat16", DataType::kBFloat16},
      {"int8", DataType::kInt8}};
  const std::pair<const char*, DataType> caches[] = {
      {"float32", DataType::kFloat32}, {"bfloat16", DataType::kBFloat16}};
  double exact = 0;
  std::printf("perplexity of %zu tokens\n", ids.size());
  for (const auto& [weights_name, weights_type] : weights) {
    for (const auto& [cache_name, cache_type] : caches) {
      const double bits = BitsPerToken(*files, ids, weights_type, cache_type);
      const double perplexity = std::exp2(bits);
      if (exact == 0) exact = perplexity;  // float32 weights, float32 states
      std::printf("%8s weights, %8s states: %.3f, %+.3f %%\n", weights_name,
                  cache_name, perplexity, 100 * (perplexity / exact - 1));
      EXPECT_LT(perplexity, 1.01 * exact) << weights_name << " " << cache_name;
    }
  }
}

}  // namespace
}  // namespace flash

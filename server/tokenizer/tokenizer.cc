#include "server/tokenizer/tokenizer.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/model/digest.h"
#include "server/tokenizer/byte_tokenizer.h"
#include "server/tokenizer/no_tokenizer.h"
#include "server/tokenizer/sentencepiece_tokenizer.h"

namespace flash {
namespace {

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  errno = 0;
  const std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  // A directory can be opened, but not read; only errno tells it from a file
  // that is empty.
  if (!file.is_open() || (bytes.view().empty() && errno != 0)) {
    return absl::NotFoundError(absl::StrCat("cannot read the tokenizer ", path,
                                            ": ", std::strerror(errno)));
  }
  return std::move(bytes).str();
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadSentencePiece(
    const std::string& path) {
  absl::StatusOr<std::string> bytes = ReadFile(path);
  if (!bytes.ok()) return bytes.status();
  auto tokenizer = SentencePieceTokenizer::Create(*bytes);
  if (!tokenizer.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is ", tokenizer.status().message()));
  }
  return std::unique_ptr<Tokenizer>(std::move(*tokenizer));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeUnchecked(
    const TokenizerConfig& config, const std::string& path,
    int64_t vocab_size) {
  switch (config.type) {
    case TokenizerConfig::Type::kSentencePiece:
      return LoadSentencePiece(path);
    case TokenizerConfig::Type::kBytes:
      return std::make_unique<ByteTokenizer>();
    case TokenizerConfig::Type::kNone:
      return std::make_unique<NoTokenizer>(static_cast<int>(vocab_size));
  }
  return absl::InvalidArgumentError("tokenizer.type is none of the known ones");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizer(
    const TokenizerConfig& config, const std::string& model_dir,
    int64_t vocab_size) {
  const std::string path = absl::StrCat(model_dir, "/", config.file);
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
      MakeUnchecked(config, path, vocab_size);
  if (!tokenizer.ok()) return tokenizer.status();
  const int num_pieces = (*tokenizer)->num_pieces();
  if (num_pieces > vocab_size) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.file.empty() ? "the tokenizer" : path, " has ",
                     num_pieces, " pieces, but vocab_size is ", vocab_size));
  }
  return tokenizer;
}

absl::StatusOr<std::string> TokenizerDigest(const TokenizerConfig& config,
                                            const std::string& model_dir) {
  switch (config.type) {
    case TokenizerConfig::Type::kSentencePiece: {
      const auto bytes = ReadFile(absl::StrCat(model_dir, "/", config.file));
      if (!bytes.ok()) return bytes.status();
      return HexDigestOf("sentencepiece:" + *bytes);
    }
    case TokenizerConfig::Type::kBytes:
      return HexDigestOf("bytes");
    case TokenizerConfig::Type::kNone:
      break;
  }
  return HexDigestOf("none");
}

}  // namespace flash

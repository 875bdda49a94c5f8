#include "server/model/model_digest.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/model/digest.h"

namespace flash {
namespace {

// What one thread reads at a time. Digests would change with it.
constexpr size_t kPieceBytes = size_t{4} << 20;

// The bytes of the tensors in the order of their names, in pieces.
std::vector<std::string_view> PiecesOf(const TensorMap& tensors) {
  std::vector<std::string_view> pieces;
  for (const auto& [name, tensor] : tensors) {
    std::string_view left(reinterpret_cast<const char*>(tensor.data),
                          tensor.num_bytes());
    while (!left.empty()) {
      pieces.push_back(left.substr(0, kPieceBytes));
      left.remove_prefix(pieces.back().size());
    }
  }
  return pieces;
}

}  // namespace

std::string ModelDigest(const ModelFiles& files, ThreadPool& threads) {
  const TensorMap& tensors = files.checkpoint.tensors();
  const std::vector<std::string_view> pieces = PiecesOf(tensors);
  std::vector<std::string> digests(pieces.size());
  threads.ParallelFor(
      static_cast<int>(pieces.size()),
      [&](int i, int /*worker*/) { digests[i] = DigestOf(pieces[i]); });
  std::string all = DigestOf(files.config_json);
  for (const auto& [name, tensor] : tensors) {
    absl::StrAppend(&all, name.size(), ":", name, ":",
                    static_cast<int>(tensor.type), ":",
                    absl::StrJoin(tensor.shape, "x"), "\n");
  }
  for (const std::string& digest : digests) all += digest;
  return HexDigestOf(all);
}

}  // namespace flash

#include "server/tokenizer/no_tokenizer.h"

namespace flash {

absl::StatusOr<std::vector<int32_t>> NoTokenizer::Encode(std::string_view,
                                                         Place) const {
  return absl::FailedPreconditionError(
      "this model has no tokenizer: it takes and gives token ids only");
}

}  // namespace flash

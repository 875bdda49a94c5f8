// What is wrong with a message, collected: a client learns of all its mistakes
// at once.

#ifndef SERVER_SERVICE_FIELD_CHECKS_H_
#define SERVER_SERVICE_FIELD_CHECKS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "google/protobuf/repeated_field.h"
#include "server/service/errors.h"

namespace flash {

// A closed range of integers, or one of numbers; either end may be open.
struct NumberRange {
  double least = 0;
  double most = 0;
  enum class End { kClosed, kOpen };
  End least_end = End::kClosed;
};

class FieldChecks {
 public:
  // Each of these adds a violation where there is one, and returns whether all
  // is well.
  bool Integer(std::string_view field, uint64_t value, uint64_t least,
               uint64_t most);
  // NaN and infinities are never in a range.
  bool Number(std::string_view field, double value, const NumberRange& range);
  // How many entries `field` has.
  bool Count(std::string_view field, uint64_t count, uint64_t most);
  // Every id below `bound`; only the first that is not is told.
  bool Ids(std::string_view field,
           const google::protobuf::RepeatedField<uint32_t>& ids, int32_t bound);
  // No field, here or in a message within, that this build does not know.
  bool NoUnknownFields(const google::protobuf::Message& message);

  // What is more than an answer tells is only counted.
  void Add(std::string_view field, std::string description) {
    if (IsFull()) {
      ++num_untold_;
    } else {
      violations_.push_back({std::string(field), std::move(description)});
    }
  }

  bool ok() const { return violations_.empty(); }
  absl::Status status() const {
    return ok() ? absl::OkStatus() : InvalidRequest(violations_, num_untold_);
  }

 private:
  bool IsFull() const { return violations_.size() >= kMaxViolations; }
  // Ends early when no more can be told.
  void UnknownFieldsOf(const google::protobuf::Message& message,
                       const std::string& path);

  std::vector<FieldViolation> violations_;  // at most kMaxViolations
  size_t num_untold_ = 0;
};

}  // namespace flash

#endif  // SERVER_SERVICE_FIELD_CHECKS_H_

#include "server/service/field_checks.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/unknown_field_set.h"

namespace flash {

bool FieldChecks::Integer(std::string_view field, uint64_t value,
                          uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return true;
  Add(field, value < least
                 ? absl::StrCat("is ", value, "; the least is ", least)
                 : absl::StrCat("is ", value, "; the most is ", most));
  return false;
}

bool FieldChecks::Number(std::string_view field, double value,
                         const NumberRange& range) {
  const bool open = range.least_end == NumberRange::End::kOpen;
  if (std::isfinite(value) && value <= range.most &&
      (open ? value > range.least : value >= range.least)) {
    return true;
  }
  const std::string least =
      absl::StrCat(open ? "more than " : "at least ", range.least);
  const std::string most = std::isfinite(range.most)
                               ? absl::StrCat("at most ", range.most)
                               : "finite";
  Add(field, absl::StrCat("is ", value, "; it must be ", least, " and ", most));
  return false;
}

bool FieldChecks::Count(std::string_view field, uint64_t count, uint64_t most) {
  if (count <= most) return true;
  Add(field, absl::StrCat("has ", count, " entries; the most is ", most));
  return false;
}

bool FieldChecks::Ids(std::string_view field,
                      const google::protobuf::RepeatedField<uint32_t>& ids,
                      int32_t bound) {
  const auto bad = std::find_if(ids.begin(), ids.end(), [bound](uint32_t id) {
    return id >= static_cast<uint32_t>(bound);
  });
  if (bad == ids.end()) return true;
  Add(absl::StrCat(std::string(field), "[", bad - ids.begin(), "]"),
      absl::StrCat("is ", *bad, "; ids are from 0 to ", bound - 1));
  return false;
}

bool FieldChecks::NoUnknownFields(const google::protobuf::Message& message) {
  const size_t before = violations_.size();
  UnknownFieldsOf(message, "");
  return violations_.size() == before;
}

void FieldChecks::UnknownFieldsOf(const google::protobuf::Message& message,
                                  const std::string& path) {
  if (IsFull()) return;
  const auto& reflection = *message.GetReflection();
  const auto& unknown = reflection.GetUnknownFields(message);
  if (!unknown.empty()) {
    Add(absl::StrCat(path, "#", unknown.field(0).number()),
        absl::StrCat("is not a field of ", message.GetTypeName(),
                     " in this server"));
  }
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const auto* field : fields) {
    using google::protobuf::FieldDescriptor;
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (field->is_map()) continue;  // entries keep no unknown fields
    const std::string name = absl::StrCat(path, field->name());
    if (!field->is_repeated()) {
      UnknownFieldsOf(reflection.GetMessage(message, field), name + ".");
      continue;
    }
    const int size = reflection.FieldSize(message, field);
    for (int i = 0; i < size && !IsFull(); ++i) {
      UnknownFieldsOf(reflection.GetRepeatedMessage(message, field, i),
                      absl::StrCat(name, "[", i, "]."));
    }
  }
}

}  // namespace flash

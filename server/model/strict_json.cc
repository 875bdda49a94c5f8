#include "server/model/strict_json.h"

#include <cfloat>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace flash {
namespace {

using nlohmann::json;

// Deep enough for every file we read, and shallow enough for code that
// recurses over the value.
constexpr size_t kMaxDepth = 32;

// Listens to the parser and stops it at what JSON allows and we do not: the
// document object model would keep the last of two equal keys, and say nothing.
class Inspector : public nlohmann::json_sax<json> {
 public:
  const std::string& problem() const { return problem_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }

  bool start_object(size_t) override { return Open(); }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(); }
  bool end_array() override { return Close(); }

  bool key(string_t& key) override {
    if (keys_.back().insert(key).second) return true;
    problem_ = absl::StrCat("the key \"", key, "\" is there twice");
    return false;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    problem_ = absl::StrCat("is not valid JSON at byte ", position);
    return false;
  }

 private:
  bool Open() {
    keys_.emplace_back();
    if (keys_.size() <= kMaxDepth) return true;
    problem_ = absl::StrCat("is nested more than ", kMaxDepth, " deep");
    return false;
  }

  bool Close() {
    keys_.pop_back();
    return true;
  }

  std::vector<std::set<std::string>> keys_;  // one for each open level
  std::string problem_;
};

// Not for objects and arrays: those may be as large as the file.
std::string Describe(const json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  constexpr size_t kMaxLength = 60;
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kMaxLength) text = text.substr(0, kMaxLength) + "...";
  return text;
}

std::string Between(int64_t min, int64_t max) {
  return absl::StrCat("an integer from ", min, " to ", max);
}

bool IsInteger(const json& value, int64_t min, int64_t max) {
  // What does not fit into int64_t is unsigned and above every `max`.
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() >
          static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return false;
  }
  if (!value.is_number_integer()) return false;
  const int64_t number = value.get<int64_t>();
  return min <= number && number <= max;
}

}  // namespace

absl::StatusOr<json> ParseStrictJson(std::string_view text,
                                     const std::string& file_name) {
  Inspector inspector;
  if (!json::sax_parse(text.begin(), text.end(), &inspector)) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_name, ": ", inspector.problem()));
  }
  json value = json::parse(text.begin(), text.end(), /*cb=*/nullptr,
                           /*allow_exceptions=*/false);
  if (value.is_discarded()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_name, ": is not valid JSON"));
  }
  return value;
}

void FirstError::Add(const std::string& problem) {
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError(absl::StrCat(file_name_, ": ", problem));
}

ObjectReader::ObjectReader(const json& value, std::string path,
                           FirstError* errors)
    : path_(std::move(path)), object_(&value), errors_(errors) {
  if (value.is_object()) return;
  static const json& kEmpty = *new json(json::object());
  object_ = &kEmpty;
  const std::string name =
      path_.empty() ? "the whole" : absl::StrCat("\"", path_, "\"");
  errors_->Add(
      absl::StrCat(name, " is ", Describe(value), "; accepted is an object"));
}

bool ObjectReader::Bool(const std::string& key) {
  const std::string accepted = "true or false";
  const json* value = Find(key, accepted);
  if (value == nullptr) return false;
  if (value->is_boolean()) return value->get<bool>();
  Refuse(key, accepted);
  return false;
}

std::string ObjectReader::String(const std::string& key) {
  const std::string accepted = "a string";
  const json* value = Find(key, accepted);
  if (value == nullptr) return "";
  if (value->is_string()) return value->get<std::string>();
  Refuse(key, accepted);
  return "";
}

std::string ObjectReader::FileName(const std::string& key) {
  std::string name = String(key);
  // A model directory may come from anywhere: no name may lead out of it.
  if (name.empty() || name == "." || name == ".." ||
      name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
    Refuse(key, "the name of a file in the same directory");
    return "";
  }
  return name;
}

double ObjectReader::Number(const std::string& key) {
  const std::string accepted = "a number that float32 can hold";
  const json* value = Find(key, accepted);
  if (value == nullptr) return 0;
  if (value->is_number() && std::abs(value->get<double>()) <= FLT_MAX) {
    return value->get<double>();
  }
  Refuse(key, accepted);
  return 0;
}

double ObjectReader::PositiveNumber(const std::string& key) {
  const std::string accepted = "a number above 0 that float32 can hold";
  const json* value = Find(key, accepted);
  if (value == nullptr) return 0;
  if (value->is_number() && value->get<double>() >= FLT_MIN &&
      value->get<double>() <= FLT_MAX) {
    return value->get<double>();
  }
  Refuse(key, accepted);
  return 0;
}

int64_t ObjectReader::Integer(const std::string& key, int64_t min,
                              int64_t max) {
  const json* value = Find(key, Between(min, max));
  if (value == nullptr) return 0;
  if (IsInteger(*value, min, max)) return value->get<int64_t>();
  Refuse(key, Between(min, max));
  return 0;
}

std::optional<int64_t> ObjectReader::IntegerOrNull(const std::string& key,
                                                   int64_t min, int64_t max) {
  const std::string accepted = absl::StrCat(Between(min, max), " or null");
  const json* value = Find(key, accepted);
  if (value == nullptr || value->is_null()) return std::nullopt;
  if (IsInteger(*value, min, max)) return value->get<int64_t>();
  Refuse(key, accepted);
  return std::nullopt;
}

std::vector<int64_t> ObjectReader::Integers(const std::string& key, int64_t min,
                                            int64_t max) {
  const std::string accepted =
      absl::StrCat("an array whose elements are ", Between(min, max));
  const json* value = Find(key, accepted);
  if (value == nullptr) return {};
  if (!value->is_array()) {
    Refuse(key, accepted);
    return {};
  }
  std::vector<int64_t> numbers;
  for (const json& element : *value) {
    if (!IsInteger(element, min, max)) {
      errors_->Add(absl::StrCat("\"", Path(key), "\" has an element ",
                                Describe(element), "; accepted is ", accepted));
      return {};
    }
    numbers.push_back(element.get<int64_t>());
  }
  return numbers;
}

ObjectReader ObjectReader::Object(const std::string& key) {
  const json* value = Find(key, "an object");
  static const json& kEmpty = *new json(json::object());
  return ObjectReader(value == nullptr ? kEmpty : *value, Path(key), errors_);
}

std::optional<ObjectReader> ObjectReader::ObjectOrNull(const std::string& key) {
  const std::string accepted = "an object or null";
  const json* value = Find(key, accepted);
  if (value == nullptr || value->is_null()) return std::nullopt;
  if (value->is_object()) return ObjectReader(*value, Path(key), errors_);
  Refuse(key, accepted);
  return std::nullopt;
}

std::vector<std::string> ObjectReader::Keys() const {
  std::vector<std::string> keys;
  for (const auto& item : object_->items()) keys.push_back(item.key());
  return keys;
}

void ObjectReader::RefuseOtherKeys() {
  for (const auto& item : object_->items()) {
    if (keys_read_.contains(item.key())) continue;
    errors_->Add(absl::StrCat("\"", Path(item.key()),
                              "\" is not a key of the format here; accepted "
                              "are ",
                              absl::StrJoin(keys_read_, ", ")));
    return;
  }
}

void ObjectReader::Refuse(const std::string& key, const std::string& accepted) {
  const auto found = object_->find(key);
  const std::string value =
      found == object_->end() ? "missing" : Describe(*found);
  errors_->Add(absl::StrCat("\"", Path(key), "\" is ", value, "; accepted is ",
                            accepted));
}

const json* ObjectReader::Find(const std::string& key,
                               const std::string& accepted) {
  keys_read_.insert(key);
  const auto found = object_->find(key);
  if (found != object_->end()) return &*found;
  Refuse(key, accepted);
  return nullptr;
}

size_t ObjectReader::IndexOf(const std::string& key,
                             const std::vector<const char*>& names) {
  const std::string accepted =
      absl::StrCat("one of \"", absl::StrJoin(names, "\", \""), "\"");
  const json* value = Find(key, accepted);
  if (value == nullptr) return 0;
  for (size_t i = 0; i < names.size(); ++i) {
    if (value->is_string() &&
        value->get_ref<const std::string&>() == names[i]) {
      return i;
    }
  }
  Refuse(key, accepted);
  return 0;
}

std::string ObjectReader::Path(const std::string& key) const {
  return path_.empty() ? key : absl::StrCat(path_, ".", key);
}

}  // namespace flash

// JSON that is read to the letter: a key that is there twice, one that nobody
// asked for, or a value outside what is accepted is an error that says so.

#ifndef SERVER_MODEL_STRICT_JSON_H_
#define SERVER_MODEL_STRICT_JSON_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace flash {

// Returns the one JSON value that `text` is. Returns INVALID_ARGUMENT, naming
// `file_name` and the place, if it is not JSON, is nested more than 32 deep, or
// has a key twice in one object. Pure; any thread.
absl::StatusOr<nlohmann::json> ParseStrictJson(std::string_view text,
                                               const std::string& file_name);

// Remembers the first thing that is wrong with a file, so that reading can go
// on as if nothing were and be checked once, at the end.
class FirstError {
 public:
  explicit FirstError(std::string file_name)
      : file_name_(std::move(file_name)) {}

  // The sentence becomes: <file name>: <problem>.
  void Add(const std::string& problem);

  const absl::Status& status() const { return status_; }

 private:
  std::string file_name_;
  absl::Status status_;
};

// Reads the keys of one JSON object. A key that is missing or whose value is
// not accepted is given to FirstError, with what is accepted, and reads as
// zero (or empty); so is a value that is no object at all.
//
// Lifetime: both the value and the FirstError outlive the reader.
class ObjectReader {
 public:
  // `path` is the object's own name in messages; empty for the whole file.
  ObjectReader(const nlohmann::json& value, std::string path,
               FirstError* errors);

  bool Bool(const std::string& key);
  std::string String(const std::string& key);
  // The name of a file in the directory of the file that is being read.
  std::string FileName(const std::string& key);
  double Number(const std::string& key);          // finite as a float32
  double PositiveNumber(const std::string& key);  // and normal as a float32
  int64_t Integer(const std::string& key, int64_t min, int64_t max);
  std::optional<int64_t> IntegerOrNull(const std::string& key, int64_t min,
                                       int64_t max);
  std::vector<int64_t> Integers(const std::string& key, int64_t min,
                                int64_t max);
  ObjectReader Object(const std::string& key);
  std::optional<ObjectReader> ObjectOrNull(const std::string& key);

  // The value that belongs to the string found, or the first one.
  template <typename Enum>
  Enum OneOf(const std::string& key,
             std::initializer_list<std::pair<const char*, Enum>> accepted) {
    std::vector<const char*> names;
    for (const auto& entry : accepted) names.push_back(entry.first);
    return accepted.begin()[IndexOf(key, names)].second;
  }

  bool Has(const std::string& key) const { return object_->contains(key); }
  std::vector<std::string> Keys() const;

  // Adds an error unless every key has been read.
  void RefuseOtherKeys();

  // Adds an error about a key's value: "<key> is <value>; accepted is <…>".
  void Refuse(const std::string& key, const std::string& accepted);

 private:
  // The value, or nullptr (and an error) if it is missing.
  const nlohmann::json* Find(const std::string& key,
                             const std::string& accepted);
  size_t IndexOf(const std::string& key, const std::vector<const char*>& names);
  std::string Path(const std::string& key) const;

  std::string path_;
  const nlohmann::json* object_;
  FirstError* errors_;
  std::set<std::string> keys_read_;
};

}  // namespace flash

#endif  // SERVER_MODEL_STRICT_JSON_H_

// The tensors of a model directory: model.safetensors, or the shards that
// model.safetensors.index.json lists, mapped into memory.

#ifndef SERVER_MODEL_CHECKPOINT_H_
#define SERVER_MODEL_CHECKPOINT_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/model/safetensors.h"

namespace flash {

// A file's bytes, mapped read-only. Pages are read from disk when they are
// touched, so a file that is cut short meanwhile ends the process (SIGBUS):
// replace a model by another directory, never in place.
class MappedFile {
 public:
  // Returns NOT_FOUND if there is no such file, otherwise the operating
  // system's reason; both name the path.
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(
      const std::string& path);

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  const std::span<const std::byte> bytes_;
};

// Every tensor of a model directory, by name.
//
// Thread safety: immutable; any number of threads.
// Lifetime: views are valid as long as the checkpoint (moving it keeps them).
class Checkpoint {
 public:
  // Maps the files of `directory` and reads their headers, no tensor.
  //
  // Returns NOT_FOUND if a file is missing, INVALID_ARGUMENT if one is damaged
  // (see ParseSafetensors), if there are both a single file and an index, or if
  // index and shards do not list the same tensors. One sentence that names file
  // and tensor.
  static absl::StatusOr<Checkpoint> Open(const std::string& directory);

  // The tensor, or nullptr if there is none of that name.
  const TensorView* Find(std::string_view name) const;

  const TensorMap& tensors() const { return tensors_; }
  const std::string& directory() const { return directory_; }

 private:
  explicit Checkpoint(std::string directory)
      : directory_(std::move(directory)) {}

  std::string Path(const std::string& file_name) const;
  // Maps one file and keeps it; its tensors are the caller's to add.
  absl::StatusOr<TensorMap> MapFile(const std::string& file_name);
  absl::Status AddShards(std::string_view index_json);

  std::string directory_;
  std::vector<std::unique_ptr<MappedFile>> files_;
  TensorMap tensors_;
};

}  // namespace flash

#endif  // SERVER_MODEL_CHECKPOINT_H_

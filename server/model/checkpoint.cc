#include "server/model/checkpoint.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/model/strict_json.h"

namespace flash {
namespace {

constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";

absl::Status Damaged(const std::string& file_name, const std::string& problem) {
  return absl::InvalidArgumentError(absl::StrCat(file_name, ": ", problem));
}

// Tensor name -> name of the shard that has it.
using ShardNames = std::map<std::string, std::string>;

absl::StatusOr<ShardNames> ParseIndex(std::string_view text,
                                      const std::string& file_name) {
  const absl::StatusOr<nlohmann::json> index = ParseStrictJson(text, file_name);
  if (!index.ok()) return index.status();
  FirstError errors(file_name);
  // Other keys ("metadata") say nothing that the shards do not.
  ObjectReader weight_map =
      ObjectReader(*index, "", &errors).Object("weight_map");
  ShardNames shards;
  for (const std::string& tensor : weight_map.Keys()) {
    shards.emplace(tensor, weight_map.FileName(tensor));
  }
  if (!errors.status().ok()) return errors.status();
  return shards;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(
    const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return absl::ErrnoToStatus(errno, absl::StrCat("open ", path));
  struct stat info;
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(file);
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a file"));
  }
  const auto size = static_cast<size_t>(info.st_size);
  void* data = nullptr;
  if (size > 0) {  // there is no mapping of nothing
    data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  }
  const int error = errno;
  close(file);  // the mapping stays
  if (data == MAP_FAILED) {
    return absl::ErrnoToStatus(error, absl::StrCat("map ", path));
  }
  return std::unique_ptr<MappedFile>(
      new MappedFile({static_cast<const std::byte*>(data), size}));
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& directory) {
  Checkpoint checkpoint(directory);
  const auto index = MappedFile::Open(checkpoint.Path(kIndexFile));
  if (!index.ok() && !absl::IsNotFound(index.status())) return index.status();
  if (index.ok()) {
    const std::span<const std::byte> bytes = (*index)->bytes();
    const absl::Status added = checkpoint.AddShards(
        {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    if (!added.ok()) return added;
    return checkpoint;
  }
  absl::StatusOr<TensorMap> tensors = checkpoint.MapFile(kSingleFile);
  if (absl::IsNotFound(tensors.status())) {
    return absl::NotFoundError(absl::StrCat(directory, ": has neither ",
                                            kSingleFile, " nor ", kIndexFile));
  }
  if (!tensors.ok()) return tensors.status();
  checkpoint.tensors_ = *std::move(tensors);
  return checkpoint;
}

const TensorView* Checkpoint::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

std::string Checkpoint::Path(const std::string& file_name) const {
  return absl::StrCat(directory_, "/", file_name);
}

absl::StatusOr<TensorMap> Checkpoint::MapFile(const std::string& file_name) {
  auto file = MappedFile::Open(Path(file_name));
  if (!file.ok()) return file.status();
  files_.push_back(*std::move(file));
  return ParseSafetensors(files_.back()->bytes(), Path(file_name));
}

absl::Status Checkpoint::AddShards(std::string_view index_json) {
  // Which of the two is meant cannot be told from the files.
  if (access(Path(kSingleFile).c_str(), F_OK) == 0) {
    return Damaged(directory_,
                   absl::StrCat("has both ", kSingleFile, " and ", kIndexFile,
                                "; accepted is one of them"));
  }
  const absl::StatusOr<ShardNames> shards =
      ParseIndex(index_json, Path(kIndexFile));
  if (!shards.ok()) return shards.status();
  std::map<std::string, TensorMap> files;
  for (const auto& [tensor, shard] : *shards) {
    if (!files.contains(shard)) {
      absl::StatusOr<TensorMap> tensors = MapFile(shard);
      if (absl::IsNotFound(tensors.status())) {
        return absl::NotFoundError(
            absl::StrCat(Path(shard), ": is missing, though ", kIndexFile,
                         " says it has tensor \"", tensor, "\""));
      }
      if (!tensors.ok()) return tensors.status();
      files.emplace(shard, *std::move(tensors));
    }
    auto moved = files[shard].extract(tensor);
    if (moved.empty()) {
      return Damaged(Path(shard),
                     absl::StrCat("lacks tensor \"", tensor, "\", which ",
                                  kIndexFile, " says it has"));
    }
    tensors_.insert(std::move(moved));
  }
  for (const auto& [shard, left] : files) {
    if (left.empty()) continue;
    return Damaged(Path(shard),
                   absl::StrCat("has tensor \"", left.begin()->first,
                                "\", which ", kIndexFile, " does not say"));
  }
  return absl::OkStatus();
}

}  // namespace flash

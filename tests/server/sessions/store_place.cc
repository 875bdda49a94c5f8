#include "tests/server/sessions/store_place.h"

#include "kernels/check.h"
#include "tests/reference/temporary_directory.h"
#include "tests/server/sessions/redis_process.h"

namespace flash {
namespace {

std::unique_ptr<BlobStore> MustOpen(const std::string& spec,
                                    int64_t max_bytes) {
  absl::StatusOr<std::unique_ptr<BlobStore>> store =
      OpenBlobStore(spec, max_bytes);
  FLASH_CHECK(store.ok());
  return *std::move(store);
}

class MemoryPlace final : public StorePlace {
 public:
  std::unique_ptr<BlobStore> Open(int64_t max_bytes) override {
    return MustOpen("memory", max_bytes);
  }
  bool lasts() const override { return false; }
};

class DirectoryPlace final : public StorePlace {
 public:
  std::unique_ptr<BlobStore> Open(int64_t max_bytes) override {
    return MustOpen("dir:" + directory_.path() + "/store", max_bytes);
  }
  bool lasts() const override { return true; }

 private:
  TemporaryDirectory directory_;
};

class RedisPlace final : public StorePlace {
 public:
  std::unique_ptr<BlobStore> Open(int64_t max_bytes) override {
    return MustOpen(redis_.url(), max_bytes);
  }
  bool lasts() const override { return true; }

 private:
  RedisProcess redis_;
};

}  // namespace

std::unique_ptr<StorePlace> MakeStorePlace(const std::string& kind) {
  if (kind == "memory") return std::make_unique<MemoryPlace>();
  if (kind == "directory") return std::make_unique<DirectoryPlace>();
  if (RedisProcess::IsInstalled()) return std::make_unique<RedisPlace>();
  return nullptr;
}

}  // namespace flash

// A store in memory that two servers may share, and that fails when it is told.

#ifndef TESTS_SERVER_SESSIONS_TROUBLED_STORE_H_
#define TESTS_SERVER_SESSIONS_TROUBLED_STORE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/sessions/blob_store.h"

namespace flash {

// Thread safety: as BlobStore; the hooks are set while no call runs.
class TroubledStore final : public BlobStore {
 public:
  explicit TroubledStore(int64_t max_bytes = int64_t{1} << 30)
      : store_(*OpenBlobStore("memory", max_bytes)) {}

  // Every call returns this, and does nothing, while it is no OK.
  void Break(absl::Status status) { broken_ = std::move(status); }
  // Called before each call that writes, which returns what it does if that is
  // no OK.
  void BeforeWrites(std::function<absl::Status()> hook) {
    before_ = std::move(hook);
  }

  std::string Describe() const override { return "troubled"; }
  absl::StatusOr<Found> Get(std::string_view name) override {
    if (!broken_.ok()) return broken_;
    return store_->Get(name);
  }
  absl::StatusOr<Head> GetHead(std::string_view name) override {
    if (!broken_.ok()) return broken_;
    return store_->GetHead(name);
  }
  absl::StatusOr<int64_t> Put(std::string_view name, const Blob& blob,
                              std::optional<int64_t> expected,
                              absl::Time expires) override {
    if (absl::Status status = Write(); !status.ok()) return status;
    return store_->Put(name, blob, expected, expires);
  }
  absl::StatusOr<int64_t> PutHead(std::string_view name, std::string_view head,
                                  int64_t expected,
                                  absl::Time expires) override {
    if (absl::Status status = Write(); !status.ok()) return status;
    return store_->PutHead(name, head, expected, expires);
  }
  absl::Status Delete(std::string_view name,
                      std::optional<int64_t> expected) override {
    if (absl::Status status = Write(); !status.ok()) return status;
    return store_->Delete(name, expected);
  }
  absl::StatusOr<Page> List(std::string_view folder, std::string_view from,
                            int limit) override {
    if (!broken_.ok()) return broken_;
    return store_->List(folder, from, limit);
  }
  absl::Status Sweep() override {
    return broken_.ok() ? store_->Sweep() : broken_;
  }

 private:
  absl::Status Write() const {
    const absl::Status status = before_ ? before_() : absl::OkStatus();
    return broken_.ok() ? status : broken_;
  }

  const std::unique_ptr<BlobStore> store_;
  absl::Status broken_;
  std::function<absl::Status()> before_;
};

}  // namespace flash

#endif  // TESTS_SERVER_SESSIONS_TROUBLED_STORE_H_

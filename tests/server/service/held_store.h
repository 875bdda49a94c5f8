// A store that fails or waits when a test says so.

#ifndef TESTS_SERVER_SERVICE_HELD_STORE_H_
#define TESTS_SERVER_SERVICE_HELD_STORE_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "kernels/mutex.h"
#include "server/sessions/blob_store.h"

namespace flash {

// A store in memory behind it. Thread safety: as BlobStore.
class HeldStore final : public BlobStore {
 public:
  explicit HeldStore(int64_t max_bytes = int64_t{1} << 30)
      : store_(*OpenBlobStore("memory", max_bytes)) {}

  // Every call fails so from now on; OK: none does.
  void Fail(const absl::Status& status) {
    MutexLock lock(&mutex_);
    failure_ = status;
  }
  // Calls wait from now on, until Release().
  void Hold() {
    MutexLock lock(&mutex_);
    held_ = true;
  }
  void Release() {
    MutexLock lock(&mutex_);
    held_ = false;
    changed_.NotifyAll();
  }
  // How many wait.
  int num_waiting() {
    MutexLock lock(&mutex_);
    return num_waiting_;
  }

  std::string Describe() const override { return store_->Describe(); }
  absl::StatusOr<Found> Get(std::string_view name) override {
    const absl::Status status = Pass();
    return status.ok() ? store_->Get(name) : status;
  }
  absl::StatusOr<Head> GetHead(std::string_view name) override {
    const absl::Status status = Pass();
    return status.ok() ? store_->GetHead(name) : status;
  }
  absl::StatusOr<int64_t> Put(std::string_view name, const Blob& blob,
                              std::optional<int64_t> expected,
                              absl::Time expires) override {
    const absl::Status status = Pass();
    if (!status.ok()) return status;
    return store_->Put(name, blob, expected, expires);
  }
  absl::StatusOr<int64_t> PutHead(std::string_view name, std::string_view head,
                                  int64_t expected,
                                  absl::Time expires) override {
    const absl::Status status = Pass();
    if (!status.ok()) return status;
    return store_->PutHead(name, head, expected, expires);
  }
  absl::Status Delete(std::string_view name,
                      std::optional<int64_t> expected) override {
    const absl::Status status = Pass();
    return status.ok() ? store_->Delete(name, expected) : status;
  }
  absl::StatusOr<Page> List(std::string_view folder, std::string_view from,
                            int limit) override {
    const absl::Status status = Pass();
    if (!status.ok()) return status;
    return store_->List(folder, from, limit);
  }
  absl::Status Sweep() override {
    const absl::Status status = Pass();
    return status.ok() ? store_->Sweep() : status;
  }

 private:
  absl::Status Pass() {
    MutexLock lock(&mutex_);
    ++num_waiting_;
    while (held_) changed_.Wait(&mutex_);
    --num_waiting_;
    return failure_;
  }

  const std::unique_ptr<BlobStore> store_;
  Mutex mutex_;
  CondVar changed_;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  int num_waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace flash

#endif  // TESTS_SERVER_SERVICE_HELD_STORE_H_
